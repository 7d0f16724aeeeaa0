use super::{OutOfRange, RequestId, SeqId, TokenId};
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

/// Most beams of one search.
const MOST_BEAMS: u32 = 64;
const MOST_PENALTY: f32 = 10.0;

impl BeamSearch {
    /// `WIDTH`, `WIDTH PENALTY`, `WIDTH PENALTY EARLY_STOPPING`, or `off`. Nothing typed: as it is.
    pub fn parse(typed: &str, now: Option<Self>) -> Result<Option<Self>, OutOfRange> {
        let mut words = typed.split_whitespace();
        let beam = match words.next() {
            None => return Ok(now),
            Some("off" | "none") => return Ok(None),
            Some(width) => {
                Self { width: width.parse().map_err(|_| Self::bad_width(width))?, ..Self::default() }
            }
        };
        let length_penalty = match words.next() {
            Some(penalty) => penalty.parse().map_err(|_| Self::bad_penalty(penalty))?,
            None => beam.length_penalty,
        };
        let early_stopping = words.next().map_or(Ok(beam.early_stopping), EarlyStopping::parse)?;
        let beam = Self { length_penalty, early_stopping, ..beam };
        beam.check().map(|()| Some(beam))
    }

    /// What an engine demands before it searches.
    pub fn check(&self) -> Result<(), OutOfRange> {
        if !(1..=MOST_BEAMS).contains(&self.width) {
            return Err(Self::bad_width(&self.width.to_string()));
        }
        match self.length_penalty.abs() <= MOST_PENALTY {
            true => Ok(()),
            false => Err(Self::bad_penalty(&self.length_penalty.to_string())),
        }
    }

    fn bad_width(given: &str) -> OutOfRange {
        out_of_range("beam_width", given, format!("a whole number from 1 to {MOST_BEAMS}"))
    }

    fn bad_penalty(given: &str) -> OutOfRange {
        out_of_range("length_penalty", given, format!("a number from -{MOST_PENALTY} to {MOST_PENALTY}"))
    }
}

impl EarlyStopping {
    pub fn parse(typed: &str) -> Result<Self, OutOfRange> {
        match typed {
            "true" => Ok(EarlyStopping::True),
            "false" => Ok(EarlyStopping::False),
            "never" => Ok(EarlyStopping::Never),
            other => Err(out_of_range("early_stopping", other, "true, false or never".into())),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            EarlyStopping::True => "true",
            EarlyStopping::False => "false",
            EarlyStopping::Never => "never",
        }
    }
}

fn out_of_range(name: &str, given: &str, expected: String) -> OutOfRange {
    OutOfRange { name: name.into(), given: given.into(), expected }
}

impl std::fmt::Display for BeamSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { width, length_penalty, early_stopping } = self;
        write!(f, "width {width}, length penalty {length_penalty}, early stopping {}", early_stopping.name())
    }
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
