//! Products of any format and shape: against a twin in f64, and to the bit where the batch, the
//! threads or the parts of a matrix change.
#![allow(clippy::unwrap_used)]

use super::activation::tests::{ACTIVATIONS, gated_twin};
use super::format::takes_bytes;
use super::norm;
use super::tests::{Random, as_bytes, dot, file, random_blocks, rows_of};
use super::*;
use crate::compute::NormKind;
use crate::weights::BlockFormat;
use proptest::prelude::*;

/// One matrix and the tokens it is multiplied with.
#[derive(Clone, Debug)]
struct Case {
    format: BlockFormat,
    rows: usize,
    cols: usize,
    tokens: usize,
    norm: bool,
    bias: bool,
    add: bool,
    seed: u64,
}

/// One of the four kinds.
fn norm_of(seed: u64, [weight, bias]: &[Vec<f32>; 2]) -> Norm<'_, Cpu> {
    let kind = if seed.is_multiple_of(2) { NormKind::Rms } else { NormKind::Layer };
    Norm { weight, bias: (seed / 2).is_multiple_of(2).then_some(bias), eps: 1e-5, kind }
}

/// The same numbers for every instruction set and number of threads.
struct Numbers {
    file: Checkpoint,
    weights: Vec<Vec<f32>>,
    x: Vec<f32>,
    norm: [Vec<f32>; 2],
    bias: Vec<f32>,
    /// What a product is added to.
    before: Vec<f32>,
}

fn cols_of(format: BlockFormat) -> BoxedStrategy<usize> {
    match format.block_len() {
        // Not even a multiple of 4 is asked for.
        1 => (1..200usize).boxed(),
        // Most within one panel of 1,024 columns, some across two and three.
        32 => prop_oneof![5 => 1..33usize, 1 => 33..80usize].prop_map(|n| 32 * n).boxed(),
        n => prop_oneof![5 => 1..5usize, 1 => 5..10usize].prop_map(move |blocks| n * blocks).boxed(),
    }
}

fn case() -> impl Strategy<Value = Case> {
    let format = prop::sample::select(super::FORMATS.to_vec());
    (format, 1..70usize, 1..=40usize, any::<[bool; 3]>(), any::<u32>()).prop_flat_map(
        |(format, rows, tokens, [norm, bias, add], seed)| {
            cols_of(format).prop_map(move |cols| Case {
                format,
                rows,
                cols,
                tokens,
                norm,
                bias,
                add,
                seed: u64::from(seed),
            })
        },
    )
}

impl Numbers {
    fn of(case: &Case) -> Self {
        let Case { format, rows, cols, tokens, .. } = *case;
        let mut random = Random(case.seed);
        let blocks = random_blocks(format, rows * cols / format.block_len(), &mut random);
        let mut x = random.reals(tokens * cols);
        // 32 activations that are all zero have no scale; one far from its neighbours has it all.
        if let Some(zeros) = x.chunks_exact_mut(32).nth(case.seed as usize % 7) {
            zeros.fill(0.0);
        }
        let outlier = case.seed as usize % x.len();
        x[outlier] = 300.0;
        Self {
            weights: rows_of(format, &blocks, rows, cols),
            file: file(format, rows, cols, blocks),
            x,
            norm: [0; 2].map(|_| random.reals(cols)),
            bias: random.reals(rows),
            before: random.reals(tokens * rows),
        }
    }

    /// Tokens `which`, in one batch.
    fn project(&self, case: &Case, isa: Isa, threads: usize, which: std::ops::Range<usize>) -> Vec<f32> {
        let mut cpu = Cpu::with_isa(Some(threads), isa);
        let w = cpu.matrix(&[self.file.tensor("w").unwrap()]).unwrap();
        let x = self.x[which.start * case.cols..which.end * case.cols].to_vec();
        let mut out = self.before[which.start * case.rows..which.end * case.rows].to_vec();
        let norm = case.norm.then(|| norm_of(case.seed, &self.norm));
        let bias = case.bias.then_some(&self.bias);
        let write = if case.add { Write::Add { bias } } else { Write::Store { bias } };
        cpu.project(&mut out, &x, which.len(), norm, &w, write).unwrap();
        out
    }

    /// What the kernels multiply for each token: made by this instruction set's own normalisation,
    /// which has its own test, so that no activation is rounded to another byte.
    fn activations(&self, case: &Case, isa: Isa) -> Vec<Vec<f64>> {
        let ready = |x: &[f32]| {
            let mut ready = x.to_vec();
            if case.norm {
                norm::normalise(isa, &mut ready, x, norm_of(case.seed, &self.norm).into());
            }
            match takes_bytes(case.format) {
                false => ready.iter().map(|x| f64::from(*x)).collect(),
                true => as_bytes(&ready),
            }
        };
        self.x.chunks_exact(case.cols).map(ready).collect()
    }

    /// The worst difference from the twin, relative to the sizes of what was added.
    fn error(&self, case: &Case, isa: Isa, ours: &[f32]) -> f64 {
        let mut worst = 0f64;
        for (t, x) in self.activations(case, isa).iter().enumerate() {
            for (r, w) in self.weights.iter().enumerate() {
                let at = t * case.rows + r;
                let bias = if case.bias { f64::from(self.bias[r]) } else { 0.0 };
                let before = if case.add { f64::from(self.before[at]) } else { 0.0 };
                let size: f64 = w.iter().zip(x).map(|(w, x)| (f64::from(*w) * x).abs()).sum();
                let error = f64::from(ours[at]) - dot(w, x) - bias - before;
                let error = error.abs() / (size + bias.abs() + before.abs()).max(1e-6);
                worst = if error <= worst { worst } else { error };
            }
        }
        worst
    }
}

/// Some 80 additions of f32 where the matrix is widest, in terms that cancel: relative to their size.
const TOLERANCE: f64 = 3e-6;

/// All that one case must be.
fn prove(case: &Case) -> std::result::Result<(), TestCaseError> {
    let numbers = Numbers::of(case);
    let mut vectors: Option<Vec<f32>> = None;
    for isa in Isa::available() {
        let out = numbers.project(case, isa, 1, 0..case.tokens);
        let error = numbers.error(case, isa, &out);
        prop_assert!(error <= TOLERANCE, "{isa}: {error}");
        for threads in [2, 3] {
            prop_assert!(
                numbers.project(case, isa, threads, 0..case.tokens) == out,
                "{isa}, {threads} threads"
            );
        }
        // Alone, and at another place of another batch.
        let one = case.seed as usize % case.tokens;
        let end = (one + 1 + case.seed as usize / 7 % 9).min(case.tokens);
        for part in [one..one + 1, one..end] {
            let expected = &out[part.start * case.rows..part.end * case.rows];
            prop_assert!(numbers.project(case, isa, 2, part.clone()) == expected, "{isa}, tokens {part:?}");
        }
        // Fused multiply-adds are the same in every set that has them.
        if isa != Isa::Portable {
            prop_assert!(*vectors.get_or_insert_with(|| out.clone()) == out, "{isa} differs");
        }
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { cases: asked.cases.min(cases), failure_persistence: None, ..asked }
}

proptest! {
    #![proptest_config(config(if cfg!(debug_assertions) { 24 } else { 200 }))]

    #[test]
    fn products_are_right_whatever_the_shape_the_batch_and_the_threads(case in case()) {
        prove(&case)?;
    }

    /// Queries, keys and values are one matrix, each in its own format.
    #[test]
    fn parts_of_several_formats_are_what_each_is_alone(
        formats in prop::collection::vec(prop::sample::select(super::FORMATS.to_vec()), 2..=4),
        rows in prop::array::uniform4(1..40usize),
        blocks in 1..=3usize,
        tokens in 1..=20usize,
        seed: u32,
    ) {
        let (cols, mut random) = (256 * blocks, Random(u64::from(seed)));
        let x = random.reals(tokens * cols);
        let files: Vec<Checkpoint> = formats
            .iter()
            .zip(rows)
            .map(|(f, rows)| file(*f, rows, cols, random_blocks(*f, rows * cols / f.block_len(), &mut random)))
            .collect();
        let parts: Vec<Tensor> = files.iter().map(|file| file.tensor("w").unwrap()).collect();
        let bias = random.reals(rows[..parts.len()].iter().sum());
        for isa in Isa::available() {
            let mut cpu = Cpu::with_isa(Some(2), isa);
            let mut product = |parts: &[Tensor], bias: &[f32]| {
                let w = cpu.matrix(parts).unwrap();
                let mut out = vec![f32::NAN; tokens * bias.len()];
                let write = Write::Store { bias: Some(&bias.to_vec()) };
                cpu.project(&mut out, &x, tokens, None, &w, write).unwrap();
                out
            };
            let stacked = product(&parts, &bias);
            let mut first = 0;
            for (part, rows) in parts.iter().zip(rows) {
                let alone = product(std::slice::from_ref(part), &bias[first..first + rows]);
                for (alone, stacked) in alone.chunks_exact(rows).zip(stacked.chunks_exact(bias.len())) {
                    prop_assert!(*alone == stacked[first..first + rows], "{isa}: {}", part.info.format.name());
                }
                first += rows;
            }
        }
    }

    /// Both matrices of one product each, to the bit, in any two formats; then the formula.
    #[test]
    fn gating_is_its_formula_over_two_products(
        formats in prop::array::uniform2(prop::sample::select(super::FORMATS.to_vec())),
        rows in 1..70usize,
        tokens in 1..=20usize,
        [normed, biased]: [bool; 2],
        activation in prop::sample::select(ACTIVATIONS.to_vec()),
        seed: u32,
    ) {
        let (cols, mut random) = (256, Random(u64::from(seed)));
        let (x, norm) = (random.reals(tokens * cols), [0; 2].map(|_| random.reals(cols)));
        let biases = [random.reals(rows), random.reals(rows)];
        let files = formats
            .map(|f| file(f, rows, cols, random_blocks(f, rows * cols / f.block_len(), &mut random)));
        for isa in Isa::available() {
            let run = |threads: usize, which: std::ops::Range<usize>| {
                let mut cpu = Cpu::with_isa(Some(threads), isa);
                let [gate, up] = [0, 1].map(|i| cpu.matrix(&[files[i].tensor("w").unwrap()]).unwrap());
                let x = x[which.start * cols..which.end * cols].to_vec();
                let norm = || normed.then(|| norm_of(u64::from(seed), &norm));
                let [gate_bias, up_bias] = [0, 1].map(|i| biased.then_some(&biases[i]));
                let mut out = vec![f32::NAN; which.len() * rows];
                let op = Gate { gate: &gate, up: &up, gate_bias, up_bias, activation };
                cpu.gated(&mut out, &x, which.len(), norm(), op).unwrap();
                let products = [(&gate, gate_bias), (&up, up_bias)].map(|(w, bias)| {
                    let mut out = vec![f32::NAN; which.len() * rows];
                    cpu.project(&mut out, &x, which.len(), norm(), w, Write::Store { bias }).unwrap();
                    out
                });
                (out, products)
            };
            let (out, [gates, ups]) = run(1, 0..tokens);
            for ((ours, g), u) in out.iter().zip(&gates).zip(&ups) {
                let (expected, most) = gated_twin(activation, f64::from(*g), f64::from(*u));
                let error = (f64::from(*ours) - expected).abs();
                prop_assert!(error <= 2.0 * most + 1e-7, "{isa}: {ours} for {g}, {u}");
            }
            prop_assert!(run(3, 0..tokens).0 == out, "{isa}, 3 threads");
            let one = seed as usize % tokens;
            prop_assert!(run(2, one..one + 1).0 == out[one * rows..(one + 1) * rows], "{isa}, token {one}");
        }
    }
}

/// Nine panels of weights, the last a part of one, and three stretches of tokens, the last of one group
/// and a part of one.
#[test]
fn long_rows_and_many_tokens_are_cut_and_put_together_again() {
    for format in super::FORMATS.into_iter().filter(|format| format.block_len() > 1) {
        for tokens in [35, 74] {
            let base =
                Case { format, rows: 17, cols: 8960, tokens, norm: true, bias: true, add: true, seed: 5 };
            prove(&base).unwrap();
        }
    }
}
