//! A real model's perplexity against what `llama-perplexity --save-all-logits FILE` computed over any text
//! (from the same weights, or from those weights made f32):
//!
//! ```text
//! llama-perplexity -m MODEL.gguf -f TEXT -c 512 --chunks 16 --save-all-logits FILE
//! GLASSBOX_MODEL=MODEL.gguf GLASSBOX_LOGITS=FILE cargo test --release --test perplexity -- --ignored --nocapture
//! ```
#![allow(clippy::unwrap_used)]

mod support;

use glassbox::compute::cpu::Isa;
use glassbox::model::{Outputs, Runner};
use glassbox::weights::Checkpoint;
use std::path::{Path, PathBuf};
use support::{Driven, load, logits, own_blocks, run};

/// Perplexity over the reference's. Activations are rounded to int8 on both sides, each in its way.
const MOST_RATIO: f64 = 1.002;

/// Whole rows of logits held at a time.
const ROWS: usize = 32;

#[test]
#[ignore = "takes what llama-perplexity wrote; see the head of this file"]
fn perplexity_is_not_above_the_reference() {
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let reference = Reference::read(&path("GLASSBOX_LOGITS"));
    let model = path("GLASSBOX_MODEL");
    let file = Checkpoint::open(&model).unwrap();
    // As there: the first token of a window gives way to the begin token of models that have one.
    let begin = file.bool("tokenizer.ggml.add_bos_token").unwrap().unwrap_or(false);
    let begin = begin.then(|| file.u64("tokenizer.ggml.bos_token_id").unwrap().unwrap() as u32);
    let mut runner = load(&model, 2, Isa::detect());
    let mut sums = Sums::default();
    for (window, tokens) in reference.tokens.chunks_exact(reference.window).enumerate() {
        let mut ids = tokens.to_vec();
        ids[0] = begin.unwrap_or(ids[0]);
        let first = reference.window / 2;
        each_row(&mut *runner, &ids, first, |i, row| {
            sums.add(row, &reference.row(window, i - first), ids[i + 1]);
        });
        println!("{}", sums.words());
    }
    assert!(sums.ratio() <= MOST_RATIO, "perplexity is {:.5} of the reference's", sums.ratio());
}

/// The logits after each token from `first` on but the last, which nothing in `ids` follows.
fn each_row(runner: &mut dyn Runner, ids: &[u32], first: usize, mut each: impl FnMut(usize, &[f32])) {
    let (blocks, vocab) = (own_blocks(runner, 1, ids.len()), runner.limits().vocab_size);
    if first > 0 {
        let tokens = &ids[..first];
        let driven = Driven { seq: 0, tokens, start: 0, blocks: blocks.clone(), outputs: Outputs::Last };
        run(runner, &[driven], 1);
    }
    for start in (first..ids.len() - 1).step_by(ROWS) {
        let tokens = &ids[start..(start + ROWS).min(ids.len() - 1)];
        let driven = Driven { seq: 0, tokens, start, blocks: blocks.clone(), outputs: Outputs::All };
        let rows = logits(&run(runner, &[driven], vocab), vocab);
        rows.iter().enumerate().for_each(|(i, row)| each(start + i, row));
    }
}

fn log_sum(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    f64::from(max) + row.iter().map(|x| f64::from((x - max).exp())).sum::<f64>().ln()
}

/// The reference's file: "_logits_", window, vocabulary, windows; the tokens [windows, window]; then for
/// each window's second half but its last token a scale, a minimum and 16-bit log-probabilities
/// [vocabulary], at most 16 nats below the likeliest.
struct Reference {
    window: usize,
    vocab: usize,
    tokens: Vec<u32>,
    file: std::fs::File,
}

impl Reference {
    fn read(path: &Path) -> Self {
        use std::io::Read;
        let mut file = std::fs::File::open(path).unwrap();
        let mut head = [0; 20];
        file.read_exact(&mut head).unwrap();
        assert_eq!(&head[..8], b"_logits_");
        let [window, vocab, windows] =
            [8, 12, 16].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize);
        let mut tokens = vec![0; 4 * window * windows];
        file.read_exact(&mut tokens).unwrap();
        let tokens = tokens.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        Self { window, vocab, tokens, file }
    }

    /// Log-probabilities after the `i`-th token of a window's second half.
    fn row(&self, window: usize, i: usize) -> Vec<f32> {
        use std::os::unix::fs::FileExt;
        let scored = self.window - 1 - self.window / 2;
        let mut bytes = vec![0; 2 * self.vocab.next_multiple_of(2) + 8];
        let at = 20 + 4 * self.tokens.len() + (window * scored + i) * bytes.len();
        self.file.read_exact_at(&mut bytes, at as u64).unwrap();
        let [scale, least] = [0, 4].map(|at| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        let codes = bytes[8..].chunks_exact(2).take(self.vocab);
        codes.map(|b| scale * f32::from(u16::from_le_bytes(b.try_into().unwrap())) + least).collect()
    }
}

/// Over all scored positions.
#[derive(Default)]
struct Sums {
    positions: f64,
    ours: f64,
    reference: f64,
    squared_difference: f64,
    kl: f64,
    agreeing: f64,
}

impl Sums {
    fn add(&mut self, ours: &[f32], reference: &[f32], token: u32) {
        let log_sum = log_sum(ours);
        // The file says no more of the unlikeliest tokens than how unlikely they are at least.
        let most = -f64::from(reference.iter().copied().fold(0.0, f32::min));
        let of_ours = (log_sum - f64::from(ours[token as usize])).min(most);
        let losses = [of_ours, -f64::from(reference[token as usize])];
        self.positions += 1.0;
        self.ours += losses[0];
        self.reference += losses[1];
        self.squared_difference += (losses[0] - losses[1]).powi(2);
        let terms = ours.iter().zip(reference).filter(|(_, reference)| **reference > -16.0);
        self.kl += terms
            .map(|(ours, reference)| {
                let reference = f64::from(*reference);
                reference.exp() * (reference - f64::from(*ours) + log_sum)
            })
            .sum::<f64>();
        let likeliest = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        self.agreeing += f64::from(u8::from(likeliest(ours) == likeliest(reference)));
    }

    fn ratio(&self) -> f64 {
        ((self.ours - self.reference) / self.positions).exp()
    }

    fn words(&self) -> String {
        let mean = (self.ours - self.reference) / self.positions;
        let error = ((self.squared_difference / self.positions - mean * mean) / self.positions).sqrt();
        format!(
            "{} positions: perplexity {:.4}, reference {:.4}, ratio {:.5} +- {error:.5}; mean KL {:.5}, {:.2} % of likeliest tokens agree",
            self.positions,
            (self.ours / self.positions).exp(),
            (self.reference / self.positions).exp(),
            self.ratio(),
            self.kl / self.positions,
            100.0 * self.agreeing / self.positions,
        )
    }
}
