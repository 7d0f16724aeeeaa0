use serde::{Deserialize, Serialize};

/// What an answer must be. The model can then say nothing else: tokens that no valid answer could go
/// on with are masked before each draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guided {
    pub grammar: Grammar,
    /// Thoughts obey too; otherwise the grammar begins where they end (vLLM: `enable_in_reasoning`).
    #[serde(default)]
    pub in_reasoning: bool,
}

/// What holds for an answer, in the fewest words that tell it from others.
impl std::fmt::Display for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Grammar::Json => "JSON object",
            Grammar::JsonSchema(_) => "JSON schema",
            Grammar::Regex(_) => "regex",
            Grammar::Choice(_) => "choice",
            Grammar::Lark(_) | Grammar::Ebnf(_) => "grammar",
        })
    }
}

impl Grammar {
    /// A grammar's text, of a file of this name: Lark or EBNF, by the file's extension, else by the
    /// `::=` that only EBNF has.
    pub fn read(name: &str, text: String) -> Self {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        match extension.as_deref() {
            Some("gbnf" | "ebnf") => Self::Ebnf(text),
            Some("lark") => Self::Lark(text),
            _ if text.contains("::=") => Self::Ebnf(text),
            _ => Self::Lark(text),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
