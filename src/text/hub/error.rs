use std::fmt;

/// What is wrong with a file of a hub's folder; whoever knows the folder adds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct HubError {
    /// `tokenizer.json` and its like.
    pub file: &'static str,
    /// Names the field.
    pub problem: String,
}

/// What is wrong with one field: `model.vocab: the token "a" has no id`.
#[derive(Debug)]
pub(super) struct Wrong(pub String);

impl Wrong {
    pub fn at(field: &str, problem: impl fmt::Display) -> Self {
        Wrong(format!("{field}: {problem}"))
    }

    pub fn in_file(self, file: &'static str) -> HubError {
        HubError { file, problem: self.0 }
    }
}
