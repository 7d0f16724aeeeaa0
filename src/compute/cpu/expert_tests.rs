//! Experts and heads with matrices of their own are, to the bit, what other operations make of one expert
//! or head and one row; those have their own twins.
#![allow(clippy::unwrap_used)]

use super::activation::tests::ACTIVATIONS;
use super::routing::{self, Choice, Scores};
use super::tests::{Random, file, random_blocks};
use super::*;
use crate::compute::Score;
use proptest::prelude::*;

/// One tensor for each expert or head.
fn files(
    format: BlockFormat,
    parts: usize,
    rows: usize,
    cols: usize,
    random: &mut Random,
) -> Vec<Checkpoint> {
    let one = |_| file(format, rows, cols, random_blocks(format, rows * cols / format.block_len(), random));
    (0..parts).map(one).collect()
}

fn matrix(cpu: &mut Cpu, files: &[Checkpoint]) -> Matrix {
    let tensors: Vec<_> = files.iter().map(|file| file.tensor("w").unwrap()).collect();
    cpu.matrix(&tensors).unwrap()
}

#[derive(Clone, Debug)]
struct Case {
    formats: [BlockFormat; 3],
    experts: usize,
    top: usize,
    width: usize,
    rows: usize,
    bias: bool,
    activation: Activation,
    seed: u64,
}

/// Everything but the device.
struct Mixture {
    case: Case,
    files: [Vec<Checkpoint>; 3],
    biases: [Vec<f32>; 3],
    x: Vec<f32>,
    logits: Vec<f32>,
    before: Vec<f32>,
}

const DIM: usize = 256;

impl Mixture {
    fn new(case: Case) -> Self {
        let Case { formats, experts, width, rows, seed, .. } = case;
        let random = &mut Random(seed);
        let shapes = [(width, DIM), (width, DIM), (DIM, width)];
        let files = [0, 1, 2].map(|i| files(formats[i], experts, shapes[i].0, shapes[i].1, random));
        let biases = shapes.map(|(rows, _)| random.reals(experts * rows));
        let [x, logits] = [DIM, experts].map(|n| random.reals(rows * n));
        let before = random.reals(rows * DIM);
        Self { case, files, biases, x, logits, before }
    }

    fn routing(&self) -> Routing<'static, Cpu> {
        let Case { experts, top, .. } = self.case;
        Routing {
            experts,
            top,
            score: Score::Softmax,
            bias: None,
            groups: None,
            renormalise: true,
            scale: 1.5,
        }
    }

    fn bias(&self, which: usize) -> Option<&Vec<f32>> {
        self.case.bias.then_some(&self.biases[which])
    }

    /// Some rows, in one batch.
    fn run(&self, cpu: &mut Cpu, which: Range<usize>) -> Vec<f32> {
        let [gate, up, down] = [0, 1, 2].map(|i| matrix(cpu, &self.files[i]));
        let experts = Experts {
            count: self.case.experts,
            gate: &gate,
            up: &up,
            down: &down,
            gate_bias: self.bias(0),
            up_bias: self.bias(1),
            down_bias: self.bias(2),
            activation: self.case.activation,
        };
        let part = |x: &[f32], n: usize| x[which.start * n..which.end * n].to_vec();
        let (x, logits) = (part(&self.x, DIM), part(&self.logits, self.case.experts));
        let mut out = part(&self.before, DIM);
        cpu.experts(&mut out, &x, which.len(), &logits, &self.routing(), &experts).unwrap();
        out
    }

    /// Row by row and expert by expert.
    fn twin(&self, cpu: &mut Cpu) -> Vec<f32> {
        let (Case { experts, width, rows, activation, .. }, mut out) =
            (self.case.clone(), self.before.clone());
        let one = |cpu: &mut Cpu, which: usize, e: usize| matrix(cpu, &self.files[which][e..=e]);
        let bias_of = |which: usize, e: usize, n: usize| self.bias(which).map(|b| b[e * n..][..n].to_vec());
        for row in 0..rows {
            let x = self.x[row * DIM..][..DIM].to_vec();
            let mut choices = vec![Choice::default(); self.case.top];
            let logits = &self.logits[row * experts..][..experts];
            routing::route(logits, &self.routing(), &mut Scores::default(), &mut choices);
            for Choice { expert: e, weight } in choices {
                let [gate, up, down] = [0, 1, 2].map(|which| one(cpu, which, e));
                let [gate_bias, up_bias] = [0, 1].map(|which| bias_of(which, e, width));
                let down_bias = bias_of(2, e, DIM);
                let (mut hidden, mut result) = (vec![0.0; width], vec![0.0; DIM]);
                let (gate_bias, up_bias) = (gate_bias.as_ref(), up_bias.as_ref());
                let gate = Gate { gate: &gate, up: &up, gate_bias, up_bias, activation };
                cpu.gated(&mut hidden, &x, 1, None, gate).unwrap();
                cpu.project(&mut result, &hidden, 1, None, &down, Write::Store { bias: down_bias.as_ref() })
                    .unwrap();
                for (out, result) in out[row * DIM..].iter_mut().zip(&result) {
                    *out += result * weight;
                }
            }
        }
        out
    }
}

fn case() -> impl Strategy<Value = Case> {
    let format = || prop::sample::select(super::FORMATS.to_vec());
    // A format of 256s cannot have a width of 48 or 96.
    let down =
        prop::sample::select(super::FORMATS.into_iter().filter(|f| f.block_len() <= 32).collect::<Vec<_>>());
    let formats = (format(), format(), down).prop_map(|(gate, up, down)| [gate, up, down]);
    let width = prop::sample::select(vec![32usize, 64, 96]);
    let shape = (1..=9usize, any::<u8>(), width, prop_oneof![1..4usize, 1..30usize]);
    let how = (any::<bool>(), prop::sample::select(ACTIVATIONS.to_vec()), any::<u32>());
    (formats, shape, how).prop_map(|(formats, (experts, top, width, rows), (bias, activation, seed))| {
        let top = 1 + usize::from(top) % experts.min(4);
        Case { formats, experts, top, width, rows, bias, activation, seed: seed.into() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.min(if cfg!(debug_assertions) { 12 } else { 100 }),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn experts_are_what_each_makes_of_each_row_alone(case in case()) {
        let (rows, seed) = (case.rows, case.seed as usize);
        let mixture = Mixture::new(case);
        for isa in Isa::available() {
            let expected = mixture.twin(&mut Cpu::with_isa(Some(1), isa));
            for threads in [1, 3] {
                let mut cpu = Cpu::with_isa(Some(threads), isa);
                prop_assert!(mixture.run(&mut cpu, 0..rows) == expected, "{isa}, {threads} threads");
                // Alone, with the memory of the batch before.
                let one = seed % rows;
                let alone = mixture.run(&mut cpu, one..one + 1);
                prop_assert!(alone == expected[one * DIM..(one + 1) * DIM], "{isa}, row {one} alone");
            }
        }
    }

    #[test]
    fn heads_are_what_each_matrix_makes_of_its_head_alone(
        format in prop::sample::select(super::FORMATS.to_vec()),
        heads in 1..=5usize,
        rows in prop_oneof![1..3usize, 1..20usize],
        len in 1..50usize,
        seed: u32,
    ) {
        let random = &mut Random(seed.into());
        let files = files(format, heads, len, DIM, random);
        let from = HeadColumns { first: 3, len: DIM, step: DIM + 7, stride: heads * (DIM + 7) + 5 };
        let to = HeadColumns { first: 2, len, step: len + 1, stride: heads * (len + 1) + 2 };
        let (x, before) = (random.reals(rows * from.stride), random.reals(rows * to.stride));
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let mut cpu = Cpu::with_isa(Some(threads), isa);
            let w = matrix(&mut cpu, &files);
            let mut out = before.clone();
            cpu.project_heads((&mut out, to), (&x, from), rows, heads, &w).unwrap();
            let mut expected = before.clone();
            for (head, file) in files.iter().enumerate() {
                let w = matrix(&mut cpu, std::slice::from_ref(file));
                for row in 0..rows {
                    let x = x[row * from.stride + from.first + head * from.step..][..DIM].to_vec();
                    let mut one = vec![0.0; len];
                    cpu.project(&mut one, &x, 1, None, &w, Write::Store { bias: None }).unwrap();
                    expected[row * to.stride + to.first + head * to.step..][..len].copy_from_slice(&one);
                }
            }
            prop_assert!(out == expected, "{isa}, {threads} threads");
        }
    }
}

/// So many rows that what they come to does not fit at once.
#[test]
fn rows_that_do_not_fit_at_once_come_one_after_the_other() {
    let case = Case {
        formats: [BlockFormat::F32; 3],
        experts: 4,
        top: 4,
        width: 32,
        rows: 70,
        bias: false,
        activation: Activation::Silu,
        seed: 7,
    };
    let mixture = Mixture::new(case);
    let mut cpu = Cpu::with_isa(Some(2), Isa::detect());
    let expected = mixture.run(&mut cpu, 0..70);
    for rows in [1, 16, 33] {
        cpu.mixing.most_waiting_bytes = rows * 4 * 4 * (DIM + 32);
        assert!(mixture.run(&mut cpu, 0..70) == expected, "{rows}");
    }
}

/// Rows that are no numbers stay so, and spoil no others.
#[test]
fn a_row_without_numbers_spoils_no_other() {
    let case = Case {
        formats: [BlockFormat::Q8_0; 3],
        experts: 5,
        top: 2,
        width: 32,
        rows: 12,
        bias: true,
        activation: Activation::Silu,
        seed: 11,
    };
    let mut mixture = Mixture::new(case);
    let mut cpu = Cpu::with_isa(Some(2), Isa::detect());
    let good = mixture.run(&mut cpu, 0..12);
    mixture.logits[3 * 5..4 * 5].fill(f32::NAN);
    let out = mixture.run(&mut cpu, 0..12);
    for (row, (out, good)) in out.chunks_exact(DIM).zip(good.chunks_exact(DIM)).enumerate() {
        if row == 3 {
            assert!(out.iter().all(|x| x.is_nan()));
        } else {
            assert_eq!(out, good, "{row}");
        }
    }
}

#[test]
fn matrices_that_do_not_fit_together_are_refused() {
    let random = &mut Random(1);
    let mut cpu = Cpu::new(Some(1));
    let [gate, up] = [0; 2].map(|_| matrix(&mut cpu, &files(BlockFormat::F32, 4, 32, 64, random)));
    let down = matrix(&mut cpu, &files(BlockFormat::F32, 4, 48, 32, random));
    let routing = Routing {
        experts: 4,
        top: 2,
        score: Score::Sigmoid,
        bias: None,
        groups: None,
        renormalise: false,
        scale: 1.0,
    };
    let experts = Experts {
        count: 4,
        gate: &gate,
        up: &up,
        down: &down,
        gate_bias: None,
        up_bias: None,
        down_bias: None,
        activation: Activation::Silu,
    };
    let mut out = vec![0.0; 64];
    let refused = cpu.experts(&mut out, &vec![0.0; 64], 1, &vec![0.0; 4], &routing, &experts).unwrap_err();
    assert!(refused.0.contains("do not fit"), "{refused}");
    let columns = HeadColumns { first: 0, len: 64, step: 64, stride: 256 };
    let (to, x) = (HeadColumns { len: 16, ..columns }, vec![0.0; 256]);
    let refused = cpu.project_heads((&mut out, to), (&x, columns), 1, 4, &gate).unwrap_err();
    assert!(refused.0.contains("4 heads of 16 x 64"), "{refused}");
}
