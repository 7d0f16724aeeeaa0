//! What a device is told to draw, and what it says: plain data. Only what the device does is here, in the
//! order in which it does it; everything else is drawn on the CPU.

/// Edits of a row, `counts` and `bias` together, that a device has room for.
pub const MOST_EDITS: usize = 4096;
/// The likeliest tokens that it tells of.
pub const MOST_TOP: usize = 32;

/// One row of logits. Acts from the top to the bottom.
#[derive(Clone, Copy, Debug)]
pub struct DrawRow<'a> {
    /// Added to tokens' logits, each token once; finite, or -infinity for what must not be drawn.
    pub bias: &'a [(u32, f32)],
    /// A bit a token, 1 may be drawn; of what lies beyond its end nothing may.
    pub mask: Option<&'a [u32]>,
    /// The distinct tokens that the penalties look at, and how often each counts; 0: for `repetition` alone.
    pub counts: &'a [(u32, u32)],
    /// Divides positive and multiplies negative logits; 1 is off.
    pub repetition: f32,
    /// Subtracted for each time.
    pub frequency: f32,
    /// Subtracted once.
    pub presence: f32,
    /// The likeliest token, ties to the lowest id; nothing below matters.
    pub greedy: bool,
    /// Above 0.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: u32,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    pub seed: u64,
    pub position: u64,
    /// Draw a token, else only score the row: nothing above matters then.
    pub draw: bool,
    /// Of a row that is only scored: the token asked for; `None` is the likeliest.
    pub target: Option<u32>,
    /// How many of the likeliest of the raw row to tell of; at most [`MOST_TOP`].
    pub top: usize,
}

impl DrawRow<'_> {
    /// Stands for a row that somebody else draws from.
    pub const SCORED: DrawRow<'static> = DrawRow {
        bias: &[],
        mask: None,
        counts: &[],
        repetition: 1.0,
        frequency: 0.0,
        presence: 0.0,
        greedy: false,
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
        position: 0,
        draw: false,
        target: None,
        top: 0,
    };
}

/// The token, and of the raw row what is said about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    pub token: u32,
    pub logprob: f32,
    /// 1 is the likeliest.
    pub rank: u32,
    /// In nats.
    pub entropy: f32,
    /// Likeliest first, ties to the lower id.
    pub top: Vec<Likely>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likely {
    pub token: u32,
    pub logit: f32,
    pub logprob: f32,
}

/// Why no token can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// A logit is NaN or +infinity.
    NotANumber,
    AllMasked,
}
