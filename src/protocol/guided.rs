use serde::{Deserialize, Serialize};

/// What an answer must be. The model can then say nothing else: tokens that no valid answer could go
/// on with are masked before each draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guided {
    pub grammar: Grammar,
    /// Thoughts obey too; otherwise the grammar begins where they end (vLLM: `enable_in_reasoning`).
    #[serde(default)]
    pub in_reasoning: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// Any JSON object.
    Json,
    /// A JSON Schema, as its own text.
    JsonSchema(String),
    /// In the syntax of the `regex` crate; matches the whole answer.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Lark, with `start:` as its first rule.
    Lark(String),
    /// GBNF as llama.cpp writes it, or the EBNF of xgrammar: `root ::= ...`.
    Ebnf(String),
}
