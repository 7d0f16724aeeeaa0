use serde::{Deserialize, Serialize};

/// Beam search instead of sampling: the `width` likeliest continuations go on together, and the `n`
/// best of those that end are the answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeamSearch {
    pub width: u32,
    /// A finished answer's score is its summed log-probability / (its tokens ^ this).
    pub length_penalty: f32,
    pub early_stopping: EarlyStopping,
}

impl Default for BeamSearch {
    fn default() -> Self {
        Self { width: 4, length_penalty: 1.0, early_stopping: EarlyStopping::False }
    }
}

/// When a search is over, as in transformers: `true`, `false` and `never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyStopping {
    /// As soon as `width` answers have ended.
    True,
    /// When the best open beam, at its present length, scores below the worst of `width` answers.
    #[default]
    False,
    /// When no open beam can ever score above the worst of `width` answers.
    Never,
}
