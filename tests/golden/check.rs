//! What must hold of every case.

use super::case::{Case, formats};
use super::drive::{Model, Part, Rows};
use glassbox::weights::{BlockFormat, Checkpoint};

/// How far logits may be from the reference's, of their range.
pub struct Bound {
    relative: f32,
    noise: f32,
}

impl Bound {
    /// All is computed in f32, keys and values too: rounding in another order, through three to six layers.
    fn of_floats(case: &Case) -> Self {
        Self { relative: 1e-4, noise: case.noise }
    }

    /// Packed weights, decoded: products and minimums of blocks are rounded to f16, 2^-11 of each, where the
    /// packing has no format of ours.
    fn of_decoded(case: &Case) -> Self {
        Self { relative: 1e-3, noise: case.noise }
    }

    /// Activations are rounded to bytes, 1 / 254 of the largest of 32, before every matrix, and F8 to bytes as
    /// well; 64 columns average little of it. Measured worst: 1.3e-2; of experts, whose gates clamp what came of
    /// rounded activations and are rounded again, 3.8e-2.
    fn of_bytes(case: &Case, file: &Checkpoint) -> Self {
        let experts = file.info("blk.0.ffn_gate_exps.weight").is_some();
        Self { relative: if experts { 5e-2 } else { 3e-2 }, noise: case.noise }
    }

    fn of(&self, range: f32) -> f32 {
        self.relative * range + self.noise
    }
}

/// What was found, for the table.
#[derive(Default)]
pub struct Outcome {
    /// Of the logits' range.
    pub worst: f32,
    pub tokens: usize,
    pub of: usize,
    pub problems: Vec<String>,
}

const PROMPTS: [&str; 3] = ["a", "b", "c"];

pub fn check(case: &Case) -> Outcome {
    let file = case.open();
    let (formats, exact) = formats(&file);
    let load = |file| Model::load(file).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let bound = if exact { Bound::of_floats(case) } else { Bound::of_bytes(case, &file) };
    let mut model = load(&file);
    let mut outcome = logits_and_tokens(case, &bound, &mut model);
    itself(case, &mut model, &mut outcome);
    outcome.tell(case, &formats, &bound);
    if !exact {
        // Whatever the device makes of the blocks: the weights themselves.
        let (decoded, bound) = (file.converted(|_| Some(BlockFormat::F32)), Bound::of_decoded(case));
        let of_decoded = logits_and_tokens(case, &bound, &mut load(&decoded));
        of_decoded.tell(case, &format!("{formats} as F32"), &bound);
        outcome.problems.extend(of_decoded.problems.iter().map(|problem| format!("decoded, {problem}")));
    }
    outcome
}

/// The comparison with transformers alone, of a file of floats that may have been changed.
pub fn compare(case: &Case, file: &Checkpoint) -> Outcome {
    logits_and_tokens(case, &Bound::of_floats(case), &mut Model::load(file).unwrap())
}

fn logits_and_tokens(case: &Case, bound: &Bound, model: &mut Model) -> Outcome {
    let mut outcome = Outcome::default();
    for prompt in PROMPTS {
        let ids = case.golden.ids(&format!("{prompt}.input_ids"));
        let golden = case.golden.rows(&format!("{prompt}.prefill_logits"));
        let range = range(&golden);
        let ours = model.whole(&ids);
        outcome.near(&format!("{prompt} prefill"), &ours[ours.len() - golden.len()..], &golden, range, bound);
        if !case.golden.has(&format!("{prompt}.greedy_ids")) {
            continue;
        }
        let greedy = case.golden.ids(&format!("{prompt}.greedy_ids"));
        let golden = case.golden.rows(&format!("{prompt}.decode_logits"));
        // As transformers chose, whatever we would have.
        let all = [&ids[..], &greedy[..greedy.len() - 1]].concat();
        let decoded = model.chunked(&all, 1);
        outcome.near(&format!("{prompt} decode"), &decoded[ids.len() - 1..], &golden, range, bound);
        let tokens = model.greedy(&ids, greedy.len());
        outcome.equal_tokens(prompt, &tokens, &greedy, &golden, 2.0 * bound.of(range));
    }
    outcome
}

/// However the tokens come, and whoever else is there, the logits are the same to the bit.
fn itself(case: &Case, model: &mut Model, outcome: &mut Outcome) {
    let prompts = PROMPTS.map(|prompt| case.golden.ids(&format!("{prompt}.input_ids")));
    let [a, b, c] = prompts.each_ref().map(|ids| model.whole(ids));
    for (ids, whole) in prompts.iter().zip([&a, &b, &c]) {
        for size in [1, 5, 16, 17] {
            let ours = model.chunked(ids, size);
            outcome.same(&format!("{} tokens in chunks of {size}", ids.len()), &ours, whole);
        }
    }
    let [ids_a, ids_b, ids_c] = &prompts;
    let mut first_block = 1;
    let places = [ids_c, ids_a, ids_b].map(|ids| {
        let first = first_block;
        first_block += model.blocks(ids.len());
        first
    });
    let at = |tokens, i: usize, start, end| Part { tokens, start, end, first_block: places[i] };
    let together = model.pass(&[
        at(ids_c, 0, 0, ids_c.len()),
        at(ids_a, 1, 0, ids_a.len()),
        at(ids_b, 2, 0, ids_b.len()),
    ]);
    for (name, ours, whole) in [("c", &together[0], &c), ("a", &together[1], &a), ("b", &together[2], &b)] {
        outcome.same(&format!("{name} beside others"), ours, whole);
    }
    // One sequence that begins, one that goes on and one that decodes.
    let (some, last) = (ids_c.len() / 2 + 1, ids_a.len() - 1);
    let begun = model.pass(&[at(ids_a, 1, 0, last), at(ids_c, 0, 0, some)]);
    let mixed = model.pass(&[
        at(ids_a, 1, last, ids_a.len()),
        at(ids_b, 2, 0, ids_b.len()),
        at(ids_c, 0, some, ids_c.len()),
    ]);
    outcome.same("a but for its last", &begun[0], &a[..last]);
    outcome.same("c, its first half", &begun[1], &c[..some]);
    outcome.same("a, its last", &mixed[0], &a[last..]);
    outcome.same("b between them", &mixed[1], &b);
    outcome.same("c, the rest", &mixed[2], &c[some..]);
}

impl Outcome {
    /// A line of the table.
    fn tell(&self, case: &Case, formats: &str, bound: &Bound) {
        let Outcome { worst, tokens, of, problems } = self;
        println!(
            "| {} | {} | {formats} | {worst:.1e} of {:.0e} | {tokens}/{of} | {} |",
            case.name,
            case.kind.name(),
            bound.relative,
            if problems.is_empty() { "passed" } else { "FAILED" }
        );
    }

    fn near(&mut self, what: &str, ours: &[Vec<f32>], golden: &Rows, range: f32, bound: &Bound) {
        let worst = ours.iter().zip(golden).map(|(ours, golden)| distance(ours, golden));
        let (at, worst) = worst.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        self.worst = self.worst.max(worst / range);
        if ours.len() != golden.len() || worst.is_nan() || worst > bound.of(range) {
            let allowed = bound.of(range);
            self.problems.push(format!(
                "{what}: row {at} of {} is {worst} from transformers', {allowed} allowed (range {range})",
                golden.len()
            ));
        }
    }

    fn same(&mut self, what: &str, ours: &[Vec<f32>], whole: &[Vec<f32>]) {
        assert_eq!(ours.len(), whole.len());
        if let Some(row) = (0..ours.len()).find(|row| ours[*row] != whole[*row]) {
            let by = distance(&ours[row], &whole[row]);
            self.problems.push(format!("{what}: row {row} differs from the prompt's in one pass by {by}"));
        }
    }

    /// `margin`: two tokens that are closer in the reference may change places, and what follows is another
    /// text.
    fn equal_tokens(&mut self, prompt: &str, ours: &[u32], golden: &[u32], logits: &Rows, margin: f32) {
        self.of += golden.len();
        let equal = ours.iter().zip(golden).take_while(|(ours, golden)| ours == golden).count();
        self.tokens += equal;
        if equal < golden.len() && gap(&logits[equal]) > margin {
            self.problems.push(format!(
                "{prompt}: token {equal} is {} and transformers' {}, by {}",
                ours[equal],
                golden[equal],
                gap(&logits[equal])
            ));
        }
    }
}

/// NaN where there is one.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

fn range(rows: &Rows) -> f32 {
    let all = || rows.iter().flatten().copied();
    all().fold(f32::MIN, f32::max) - all().fold(f32::MAX, f32::min)
}

/// Of the likeliest to the next.
fn gap(row: &[f32]) -> f32 {
    let mut sorted = row.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}
