//! Models against transformers' logits on tiny random checkpoints, on every instruction set the
//! machine has; and against themselves: batched equals solo, chunked equals whole, to the bit.
#![allow(clippy::unwrap_used)]

mod support;

use glassbox::compute::cpu::Isa;
use glassbox::model::{Outputs, Runner};
use support::{Driven, Golden, fixture, isa, load, logits, own_blocks, run};

const CASES: [&str; 4] = ["llama", "llama_f16_linear_rope", "qwen2", "gemma3_text_std"];

/// Keys and values are kept as f16: 2^-11 relative to each, which reaches the logits through three to
/// six layers. Measured worst: below 0.3 % of the logits' spread.
const TOLERANCE: f32 = 0.01;

fn worst(ours: &[Vec<f32>], golden: &[Vec<f32>]) -> f32 {
    let all = golden.iter().flatten();
    let mean = all.clone().sum::<f32>() / (golden.len() * golden[0].len()) as f32;
    let spread =
        (all.map(|x| (x - mean).powi(2)).sum::<f32>() / (golden.len() * golden[0].len()) as f32).sqrt();
    let differences = ours.iter().flatten().zip(golden.iter().flatten()).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max) / spread
}

/// Prompt in one pass, then the greedy continuation token by token, against the golden logits.
#[test]
fn logits_equal_transformers() {
    for case in CASES {
        let golden = Golden::read(case);
        for isa in Isa::available() {
            let mut runner = load(&fixture(&format!("gguf/{case}.gguf")), 2, isa);
            for prompt in ["a", "b", "c"] {
                let (prefill, decode) = (
                    golden.rows(&format!("{prompt}.prefill_logits")),
                    golden.rows(&format!("{prompt}.decode_logits")),
                );
                let ids = golden.ids(&format!("{prompt}.input_ids"));
                let blocks = own_blocks(&*runner, 1, 128);
                let driven =
                    Driven { seq: 0, tokens: &ids, start: 0, blocks: blocks.clone(), outputs: Outputs::All };
                let vocab = runner.limits().vocab_size;
                let ours = logits(&run(&mut *runner, &[driven], vocab), vocab);
                let found = worst(&ours[ours.len() - prefill.len()..], &prefill);
                println!("{case} {prompt} {}: {found}", isa.name());
                assert!(
                    found < TOLERANCE,
                    "{case} {prompt} prefill on {}: {found} of the spread",
                    isa.name()
                );
                // Row 0 of the decode logits is what follows the prompt, row i what follows token i - 1.
                let greedy = golden.ids(&format!("{prompt}.greedy_ids"));
                for (i, (token, expected)) in greedy.iter().zip(&decode[1..]).enumerate() {
                    let start = ids.len() + i;
                    let blocks = blocks.clone();
                    let driven = Driven { seq: 0, tokens: &[*token], start, blocks, outputs: Outputs::Last };
                    let ours = logits(&run(&mut *runner, &[driven], vocab), vocab);
                    let found = worst(&ours, std::slice::from_ref(expected));
                    assert!(found < TOLERANCE, "{case} {prompt} decode {i} on {}: {found}", isa.name());
                }
            }
        }
    }
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + 11) % 380).collect()
}

fn whole(runner: &mut dyn Runner, tokens: &[u32]) -> Vec<Vec<f32>> {
    let vocab = runner.limits().vocab_size;
    let blocks = own_blocks(runner, 1, tokens.len());
    let driven = Driven { seq: 0, tokens, start: 0, blocks, outputs: Outputs::All };
    logits(&run(runner, &[driven], vocab), vocab)
}

#[test]
fn chunks_of_any_size_equal_the_whole_to_the_bit() {
    for case in CASES {
        let mut runner = load(&fixture(&format!("gguf/{case}.gguf")), 2, isa());
        let (tokens, vocab) = (prompt(120), runner.limits().vocab_size);
        let expected = whole(&mut *runner, &tokens);
        for chunk in [1, 3, 16, 17, 64] {
            let taken = own_blocks(&*runner, 1, tokens.len()).len() as u32;
            let blocks: Vec<u32> = own_blocks(&*runner, 1 + taken, 120).into_iter().rev().collect();
            let mut start = 0;
            for part in tokens.chunks(chunk) {
                let driven =
                    Driven { seq: 0, tokens: part, start, blocks: blocks.clone(), outputs: Outputs::All };
                let ours = logits(&run(&mut *runner, &[driven], vocab), vocab);
                assert!(
                    ours == expected[start..start + part.len()],
                    "{case} in chunks of {chunk} at {start}"
                );
                start += part.len();
            }
        }
    }
}

/// BUGLOG K17, K18 at the level of the model: neighbours change nothing.
#[test]
fn batched_equals_solo_to_the_bit() {
    for case in CASES {
        let mut runner = load(&fixture(&format!("gguf/{case}.gguf")), 2, isa());
        let vocab = runner.limits().vocab_size;
        let prompts: Vec<Vec<u32>> =
            (1..=6).map(|i| prompt(7 * i).into_iter().map(|t| (t + i as u32) % 380).collect()).collect();
        let solo: Vec<_> = prompts.iter().map(|p| whole(&mut *runner, p)).collect();
        let mut taken = 0;
        let mut own = |p: &Vec<u32>| {
            let blocks = own_blocks(&*runner, 1 + taken, p.len());
            taken += blocks.len() as u32;
            blocks
        };
        let rows: Vec<Driven> = prompts
            .iter()
            .enumerate()
            .map(|(i, p)| Driven {
                seq: i as u64,
                tokens: p,
                start: 0,
                blocks: own(p),
                outputs: Outputs::All,
            })
            .collect();
        let together = logits(&run(&mut *runner, &rows, vocab), vocab);
        assert!(together == solo.concat(), "{case}");
    }
}

/// Threads share the work out differently each time; the result is the same.
#[test]
fn the_number_of_threads_changes_nothing() {
    for case in CASES {
        let path = fixture(&format!("gguf/{case}.gguf"));
        let tokens = prompt(90);
        let expected = whole(&mut *load(&path, 1, isa()), &tokens);
        for threads in [2, 3, 5] {
            assert!(whole(&mut *load(&path, threads, isa()), &tokens) == expected);
        }
    }
}
