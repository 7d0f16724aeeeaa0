//! Tokens drawn on the device: `kernels/draw.cu`. Logits stay there; parameters go up in one copy, and
//! what was drawn comes back in one.

use super::gpu::{Arg, Gpu, Shape};
use super::memory::{Memory, Pinned};
use crate::compute::draw::{DrawRow, Drawn, Likely, MOST_EDITS, MOST_TOP, Unusable};
use crate::compute::{Amount, DeviceError, Result};
use std::f32::consts::LOG2_E;
use std::f64::consts::LN_2;

const MODULE: &str = "draw";
const THREADS: usize = 256;
/// Logits of a block.
const PART: usize = 4096;
const MOST_PARTS: usize = 128;
/// The largest top-k that is found in the first pass.
const MOST_FEW: usize = 64;
/// `struct Space`
const SPACE_BYTES: usize = 128_616;
/// In words: the number of rows; `struct Row`; `struct Result`; an entry of its top.
const HEADER: usize = 16;
const ROW: usize = 20;
const RESULT: usize = 8;
const ENTRY: usize = 2;
const NONE: u32 = u32::MAX;

/// Draws tokens from rows of logits, with memory of its own.
pub struct Draws {
    vocab: usize,
    parts: usize,
    most_rows: usize,
    /// As it will be on the device: header, rows, and then each row's edits and mask.
    staging: Pinned,
    staged: Memory,
    space: Memory, // struct Space [most_rows]
    /// struct Result [most_rows], then entries u64 [most_rows, MOST_TOP]
    results: Memory,
    back: Pinned,
    rows: usize,
    /// How many entries come back with the results.
    tops: usize,
    /// An upload may still be read from `staging`.
    queued: bool,
}

/// The launches that rows need. A graph is of one kind; those of `Whole` do any row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passes {
    /// Every row is only scored, drawn greedily, or from a top-k of a few.
    Short,
    Whole,
}

/// `enum Kind`
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Score,
    Best,
    Few,
    Whole,
}

impl Draws {
    /// # Errors
    /// Where there is no memory, or a vocabulary of more than half a million.
    pub fn new(gpu: &Gpu, vocab: usize, most_rows: usize) -> Result<Self> {
        let parts = vocab.div_ceil(PART);
        if parts > MOST_PARTS {
            let most = MOST_PARTS * PART;
            return Err(DeviceError(format!(
                "CUDA: tokens are drawn from at most {most} logits, not {vocab}"
            )));
        }
        let of_row = ROW + 2 * (parts + 1) + vocab.div_ceil(32) + 2 * MOST_EDITS;
        let staged = (HEADER + most_rows * of_row) * 4;
        let results = most_rows * (RESULT + MOST_TOP * ENTRY) * 4;
        let draws = Self {
            vocab,
            parts,
            most_rows,
            staging: gpu.pinned(staged)?,
            staged: gpu.alloc(staged, "drawing tokens")?,
            space: gpu.alloc(most_rows * SPACE_BYTES, "drawing tokens")?,
            results: gpu.alloc(results, "drawing tokens")?,
            back: gpu.pinned(results)?,
            rows: 0,
            tops: 0,
            queued: false,
        };
        gpu.zero(&draws.space)?;
        Ok(draws)
    }

    /// Says what to draw from the next rows of logits; queues the copy to the device.
    ///
    /// # Errors
    /// What does not fit: rows, edits, entries of a top. Nothing is queued then.
    pub fn stage(&mut self, gpu: &Gpu, rows: &[DrawRow]) -> Result<Passes> {
        let fits = |row: &DrawRow| row.bias.len() + row.counts.len() <= MOST_EDITS && row.top <= MOST_TOP;
        if rows.len() > self.most_rows || !rows.iter().all(fits) {
            return Err(DeviceError(format!(
                "CUDA: tokens are drawn from at most {} rows with {MOST_EDITS} edits and {MOST_TOP} \
                 alternatives",
                self.most_rows
            )));
        }
        if std::mem::replace(&mut self.queued, true) {
            gpu.wait()?;
        }
        let (vocab, parts) = (self.vocab, self.parts);
        let mut passes = Passes::Short;
        let words = self.staging.words_mut();
        words[0] = rows.len() as u32;
        let mut end = HEADER + rows.len() * ROW;
        for (at, row) in rows.iter().enumerate() {
            let kind = kind(row, parts);
            if kind == Kind::Whole {
                passes = Passes::Whole;
            }
            let mut stack = Stack { words, end, vocab, parts };
            let edits = kind != Kind::Score;
            let bias = stack.edits(edits, row.bias, f32::to_bits);
            let counts = stack.edits(edits, row.counts, |times| times);
            let mask = row.mask.filter(|_| edits).map_or(0, |mask| stack.mask(mask));
            end = stack.end;
            let words = &mut words[HEADER + at * ROW..][..ROW];
            words.copy_from_slice(&encoded(row, kind, vocab, [bias, counts, mask]));
        }
        gpu.upload(self.staged.at(0), &self.staging, end * 4)?;
        self.rows = rows.len();
        self.tops = rows.iter().rposition(|row| row.top > 0).map_or(0, |last| (last + 1) * MOST_TOP);
        Ok(passes)
    }

    /// Queues the drawing from `logits` (f32 [rows, vocab]). A graph of it may be launched again after
    /// every [`stage`](Self::stage) of no more rows that needs no more passes.
    pub fn launch(&self, gpu: &Gpu, logits: &Memory, rows: usize, passes: Passes) -> Result<()> {
        let shape = Shape::new([self.parts, rows, 1], THREADS);
        let (space, staged, vocab) = (Arg::from(&self.space), Arg::from(&self.staged), self.vocab.into());
        let results = Arg::from(&self.results);
        let tops = Arg::Ptr(self.results.at(self.most_rows * RESULT * 4));
        let logits = logits.into();
        gpu.work(|| Amount { bytes: (self.rows * self.vocab * 4) as u64, flops: 0 });
        gpu.launch(MODULE, "draw_survey", shape, &[space, staged, logits, results, tops, vocab])?;
        if passes == Passes::Whole {
            gpu.launch(MODULE, "draw_bins", shape, &[space, staged, logits, vocab])?;
            for by_weight in [0, 1] {
                let args = [space, staged, logits, vocab, Arg::I32(by_weight)];
                gpu.launch(MODULE, "draw_cut", shape, &args)?;
            }
            gpu.launch(MODULE, "draw_walk", shape, &[space, staged, logits, vocab])?;
        }
        gpu.launch(MODULE, "draw_rank", shape, &[space, staged, logits, results, vocab])
    }

    /// What came of the rows, once it is there.
    pub fn results(&mut self, gpu: &Gpu) -> Result<Vec<std::result::Result<Drawn, Unusable>>> {
        let tops = self.most_rows * RESULT;
        let words = if self.tops == 0 { self.rows * RESULT } else { tops + self.tops * ENTRY };
        gpu.download(&mut self.back, self.results.at(0), words * 4)?;
        gpu.wait()?;
        self.queued = false;
        let words = self.back.words_mut();
        let result = |row: usize| {
            let top = words.get(tops + row * MOST_TOP * ENTRY..).unwrap_or_default();
            decoded(&words[row * RESULT..][..RESULT], top)
        };
        Ok((0..self.rows).map(result).collect())
    }
}

fn kind(row: &DrawRow, parts: usize) -> Kind {
    let few = MOST_FEW.min(PART / parts);
    match row.top_k as usize {
        _ if !row.draw => Kind::Score,
        1 => Kind::Best,
        _ if row.greedy => Kind::Best,
        k if (2..=few).contains(&k) => Kind::Few,
        _ => Kind::Whole,
    }
}

/// The part of the block behind its rows.
struct Stack<'a> {
    words: &'a mut [u32],
    end: usize,
    vocab: usize,
    parts: usize,
}

impl Stack<'_> {
    /// By part: a counting sort. Gives where they are, 0 where there are none.
    fn edits<T: Copy>(&mut self, any: bool, edits: &[(u32, T)], bits: impl Fn(T) -> u32) -> u32 {
        let known = || edits.iter().filter(|(token, _)| any && (*token as usize) < self.vocab);
        if known().next().is_none() {
            return 0;
        }
        let at = self.end;
        let (begins, pairs) = self.words[at..].split_at_mut(self.parts + 1);
        begins.fill(0);
        known().for_each(|(token, _)| begins[*token as usize / PART + 1] += 1);
        for part in 0..self.parts {
            begins[part + 1] += begins[part];
        }
        // Each begin moves to its part's end, which is the begin of the next.
        for (token, value) in known() {
            let place = &mut begins[*token as usize / PART];
            let pair = *place as usize * 2;
            (pairs[pair], pairs[pair + 1]) = (*token, bits(*value));
            *place += 1;
        }
        self.end = at + self.parts + 1 + 2 * begins[self.parts - 1] as usize;
        begins.copy_within(..self.parts, 1);
        begins[0] = 0;
        at as u32
    }

    fn mask(&mut self, mask: &[u32]) -> u32 {
        let at = self.end;
        let words = &mut self.words[at..][..self.vocab.div_ceil(32)];
        let there = mask.len().min(words.len());
        words[..there].copy_from_slice(&mask[..there]);
        words[there..].fill(0);
        self.end = at + words.len();
        at as u32
    }
}

/// `struct Row`
fn encoded(row: &DrawRow, kind: Kind, vocab: usize, [bias, counts, mask]: [u32; 3]) -> [u32; ROW] {
    // As the CPU's sampler has them, to the bit.
    let scale = 1.0 / row.temperature;
    let top_k = if row.top_k as usize >= vocab && kind == Kind::Whole { 0 } else { row.top_k };
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let ([seed, seed_high], [position, position_high]) = (halves(row.seed), halves(row.position));
    let reals = [row.top_p, row.min_p.ln() / scale, scale * LOG2_E];
    let [top_p, min_p, scale] = reals.map(f32::to_bits);
    let [repetition, frequency, presence] = [row.repetition, row.frequency, row.presence].map(f32::to_bits);
    let (target, top) = (row.target.unwrap_or(NONE), row.top.min(vocab) as u32);
    [
        kind as u32,
        target,
        top,
        top_k,
        top_p,
        min_p,
        scale,
        repetition,
        frequency,
        presence,
        seed,
        seed_high,
        position,
        position_high,
        bias,
        counts,
        mask,
        0,
        0,
        0,
    ]
}

/// `struct Result` and the row's entries.
fn decoded(result: &[u32], entries: &[u32]) -> std::result::Result<Drawn, Unusable> {
    match result[0] {
        1 => return Err(Unusable::NotANumber),
        2 => return Err(Unusable::AllMasked),
        _ => {}
    }
    let (token, rank, tops) = (result[1], result[3], result[7] as usize);
    let [logit, max, sum, product] = [result[2], result[4], result[5], result[6]].map(f32::from_bits);
    let (sum, product) = (f64::from(sum), f64::from(product) * LN_2);
    let logprob = |logit: f32| (f64::from(logit - max) - sum.ln()) as f32;
    let likely = |entry: &[u32; ENTRY]| {
        let logit = logit_of(entry[1]);
        Likely { token: !entry[0], logit, logprob: logprob(logit) }
    };
    let top = entries.as_chunks::<ENTRY>().0.iter().take(tops).map(likely).collect();
    // -sum p ln p with ln p = d - ln sum.
    let entropy = (sum.ln() - product / sum).max(0.0) as f32;
    Ok(Drawn { token, logprob: logprob(logit), rank, entropy, top })
}

/// Back from a key, which grows with the logit.
fn logit_of(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & 0x7fff_ffff } else { !key })
}
