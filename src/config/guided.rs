use clap::{Args, ValueHint};
use std::path::PathBuf;

/// What the answer must be; at most one of them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Guided decoding")]
#[group(id = "guided", multiple = false)]
pub struct GrammarFlags {
    /// The answer is a JSON object
    #[arg(long)]
    pub json_object: bool,
    /// The answer follows this JSON Schema
    #[arg(long, value_name = "JSON|FILE", value_hint = ValueHint::FilePath)]
    pub schema: Option<String>,
    /// The whole answer matches this regular expression
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub regex: Option<String>,
    /// The answer follows this grammar: Lark (`start: ...`), or GBNF and EBNF (`root ::= ...`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub grammar: Option<PathBuf>,
    /// The answer is one of these texts; give it once for each
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub choice: Vec<String>,
}

/// Guided decoding of one answer.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Guided decoding")]
pub struct GuidedFlags {
    #[command(flatten)]
    pub grammar: GrammarFlags,
    /// The model's thoughts follow the grammar too, not only the answer behind them
    #[arg(long, requires = "guided")]
    pub grammar_in_reasoning: bool,
}
