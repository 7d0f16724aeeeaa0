use super::edits::{Edits, Occurrences};
use super::field::{Field, Lists};
use super::random::uniform;
use super::select::{Entry, Peaks};
use super::softmax::Softmax;
use super::trace::Trail;
use super::{RowError, SampleRow, Sampled};
use crate::protocol::{SamplingTrace, Stage, TokenId, TopToken};

/// Memory of the sampler, used again for every row: no row allocates once it has grown.
#[derive(Debug, Default)]
pub struct Scratch {
    peaks: Peaks,
    lists: Lists,
    likeliest: Vec<Entry>,
    edits: Edits,
    seen: Occurrences,
}

/// Draws a token from one row of logits, or scores the row. What is said of the token (logprob,
/// rank, entropy, `top`) is of the raw row, before any stage. The row comes back as it was.
///
/// # Errors
/// [`RowError`] where the logits are no numbers or no token is left.
pub fn sample(logits: &mut [f32], row: &SampleRow, scratch: &mut Scratch) -> Result<Sampled, RowError> {
    let position = row.tokens.len();
    let max = scratch.peaks.measure(logits).ok_or(RowError::NotANumber { position })?;
    if max == f32::NEG_INFINITY {
        return Err(RowError::AllMasked { position });
    }
    let raw = Softmax::of(logits, max);
    scratch.list_likeliest(logits, row.top.max(row.trace));
    if row.beams > 0 {
        return continuations(logits, row, &raw, scratch);
    }
    let (token, trace) = match row.draw {
        true => draw(logits, row, &raw, scratch)?,
        false => (scratch.peaks.first(logits).id, None),
    };
    let logit = logits[token as usize];
    Ok(Sampled {
        token,
        logprob: raw.logprob(logit),
        rank: scratch.peaks.count_at_least(logits, logit) as u32,
        entropy: raw.entropy,
        top: scratch.likeliest.iter().take(row.top).map(|entry| top_token(entry, &raw)).collect(),
        trace,
    })
}

fn draw(
    logits: &mut [f32],
    row: &SampleRow,
    raw: &Softmax,
    scratch: &mut Scratch,
) -> Result<(TokenId, Option<Box<SamplingTrace>>), RowError> {
    let Scratch { peaks, lists, likeliest, edits, seen } = scratch;
    let mut trail = Trail::new(row.trace > 0);
    trail.note(Stage::Raw, true, || peaks.count_at_least(logits, f32::MIN));
    edits.clear();
    let masked = edits.mask(logits, row);
    trail.note(Stage::Mask, masked, || peaks.count_at_least(logits, f32::MIN));
    let penalized = edits.penalize(logits, row, seen);
    trail.note(Stage::Penalties, penalized, || peaks.count_at_least(logits, f32::MIN));
    follow(peaks, logits, edits);

    let max = peaks.max();
    if max == f32::NEG_INFINITY {
        return Err(RowError::AllMasked { position: row.tokens.len() });
    }
    let mut field = Field { logits, max, scale: 1.0, peaks, lists, listed: false };
    let token = cut_and_draw(&mut field, row, &mut trail);
    let before = edits.before(token).unwrap_or(field.logits[token as usize]);
    let trace = trail.finish(row, raw, likeliest, Entry { logit: before, id: token }, &field);
    edits.undo(logits);
    follow(peaks, logits, edits);
    Ok((token, trace))
}

/// For beam search: the likeliest tokens that may follow.
fn continuations(
    logits: &mut [f32],
    row: &SampleRow,
    raw: &Softmax,
    scratch: &mut Scratch,
) -> Result<Sampled, RowError> {
    let Scratch { peaks, edits, seen, .. } = scratch;
    edits.clear();
    edits.mask(logits, row);
    edits.penalize(logits, row, seen);
    follow(peaks, logits, edits);
    scratch.list_likeliest(logits, row.beams);
    let Scratch { peaks, edits, likeliest, .. } = scratch;
    edits.undo(logits);
    follow(peaks, logits, edits);
    let top: Vec<TopToken> = likeliest.iter().map(|entry| top_token(entry, raw)).collect();
    let first = top.first().ok_or(RowError::AllMasked { position: row.tokens.len() })?;
    let (token, logprob, entropy) = (first.id, first.logprob, raw.entropy);
    Ok(Sampled { token, logprob, rank: 1, entropy, top, trace: None })
}

/// Temperature, top-k, top-p, min-p, draw.
fn cut_and_draw(field: &mut Field, row: &SampleRow, trail: &mut Trail) -> TokenId {
    let params = row.params;
    if params.is_greedy() {
        let only = field.top_k(1);
        trail.cut(Stage::Temperature, only);
        trail.note(Stage::Temperature, true, || 1);
        for stage in [Stage::TopK, Stage::TopP, Stage::MinP] {
            trail.note(stage, false, || 1);
        }
        return field.draw(0.0);
    }
    field.scale = 1.0 / params.temperature;
    trail.note(Stage::Temperature, params.temperature != 1.0, || field.survivors());

    let k = params.top_k as usize;
    let on = k > 0 && k < field.logits.len();
    trail.cut(Stage::TopK, on.then(|| field.top_k(k)).flatten());
    trail.note(Stage::TopK, on, || field.survivors());

    let on = params.top_p < 1.0;
    trail.cut(Stage::TopP, on.then(|| field.top_p(params.top_p)).flatten());
    trail.note(Stage::TopP, on, || field.survivors());

    let on = params.min_p > 0.0;
    trail.cut(Stage::MinP, on.then(|| field.min_p(params.min_p)).flatten());
    trail.note(Stage::MinP, on, || field.survivors());

    field.draw(uniform(row.seed, row.tokens.len() as u64))
}

/// Brings the peaks up to date with the edits, made or undone.
fn follow(peaks: &mut Peaks, logits: &[f32], edits: &Edits) {
    /// Beyond so many, one look at the whole row is cheaper.
    const FEW: usize = 1000;
    match edits.len() {
        0..FEW => edits.ids().for_each(|id| peaks.refresh(logits, id)),
        _ => drop(peaks.measure(logits)),
    }
}

fn top_token(entry: &Entry, raw: &Softmax) -> TopToken {
    let (id, logit) = (entry.id, entry.logit);
    TopToken { id, text: String::new(), logit, logprob: raw.logprob(logit) }
}

impl Scratch {
    fn list_likeliest(&mut self, logits: &[f32], k: usize) {
        self.peaks.top(logits, k, &mut self.likeliest, &mut self.lists.work);
        self.likeliest.sort_unstable_by(Entry::order);
    }
}
