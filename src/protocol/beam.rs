use super::{RequestId, SeqId, TokenId};
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

/// How an answer of a beam search fared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeamScore {
    /// Summed log-probability of its tokens, in nats.
    pub logprob: f64,
    /// `logprob` / (tokens ^ `length_penalty`): what answers are ranked by.
    pub score: f64,
}

/// A beam search after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeamView {
    pub request: RequestId,
    pub params: BeamSearch,
    /// Tokens of each open beam.
    pub depth: u32,
    /// What all open beams have in common, and how many tokens that is.
    pub stem: String,
    pub stem_tokens: u32,
    /// Best first.
    pub open: Vec<BeamRow>,
    /// The likeliest continuations that this step let go.
    pub pruned: Vec<PrunedView>,
    /// Best first; at most `width`.
    pub ended: Vec<EndedView>,
    pub over: bool,
    /// Distinct blocks of all open beams, those that more than one of them own, and what as many
    /// separate sequences would own besides.
    pub blocks: u32,
    pub shared: u32,
    pub saved: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeamRow {
    pub seq: SeqId,
    /// Tokens behind the stem, at most the last 24, with their texts.
    pub tokens: Vec<(TokenId, String)>,
    /// Of the newest token, and of all.
    pub logprob: f32,
    pub sum: f64,
    /// What its score would be, did it end here.
    pub score: f64,
    pub blocks: u32,
    /// Of these, owned by another beam too.
    pub shared: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrunedView {
    /// The end of the text before it, and its own.
    pub before: String,
    pub text: String,
    pub sum: f64,
    /// What the worst beam kept has more, in nats.
    pub behind: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedView {
    /// At most its last 120 characters.
    pub text: String,
    pub tokens: u32,
    pub sum: f64,
    pub score: f64,
}
