//! Whole models on the device: against transformers' logits, against the CPU, and against themselves.

use crate::harness::{Device, device};
use crate::support::{Driven, fixture, isa, load as on_cpu, logits, own_blocks, run};
use glassbox::compute::Backend;
use glassbox::compute::cuda::Cuda;
use glassbox::model::{self, LoadOptions, Outputs, Runner};
use glassbox::weights::Gguf;
use safetensors::SafeTensors;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const CASES: [&str; 4] = ["llama", "llama_f16_linear_rope", "qwen2", "gemma3_text_std"];

/// Keys and values are f16, as on the CPU. More than eight rows are multiplied as f16, or as bf16 where the
/// weights are (qwen2, gemma3): 2^-12 and 2^-9 relative to each activation, through three to six layers.
const TOLERANCE: f32 = 0.06;

pub fn on_device(device: &Device, file: &Gguf, options: &LoadOptions) -> (Box<dyn Runner>, Arc<AtomicU64>) {
    let cuda = Cuda::new(device.gpu()).unwrap();
    let launches = cuda.launches();
    (model::load(file, cuda, options, &|_, _| ()).unwrap().runner, launches)
}

fn of_case(device: &Device, case: &str) -> Box<dyn Runner> {
    let file = Gguf::open(&fixture(&format!("gguf/{case}.gguf"))).unwrap();
    on_device(device, &file, &LoadOptions::default()).0
}

/// The largest difference, as a share of the spread of what is right.
pub fn worst(ours: &[Vec<f32>], right: &[Vec<f32>]) -> f32 {
    let count = (right.len() * right[0].len()) as f32;
    let mean = right.iter().flatten().sum::<f32>() / count;
    let spread = (right.iter().flatten().map(|x| (x - mean).powi(2)).sum::<f32>() / count).sqrt();
    let off = ours.iter().flatten().zip(right.iter().flatten()).map(|(a, b)| (a - b).abs());
    off.fold(0.0, |worst: f32, off| if off.is_nan() { f32::INFINITY } else { worst.max(off) }) / spread
}

pub fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + 11) % 380).collect()
}

/// Logits after every one of the tokens.
fn whole(runner: &mut dyn Runner, tokens: &[u32], blocks: &[u32], start: usize) -> Vec<Vec<f32>> {
    let vocab = runner.limits().vocab_size;
    let driven = Driven { seq: 0, tokens, start, blocks: blocks.to_vec(), outputs: Outputs::All };
    logits(&run(runner, &[driven], vocab), vocab)
}

struct Golden(Vec<u8>);

impl Golden {
    fn read(case: &str) -> Self {
        Self(std::fs::read(fixture(&format!("golden/{case}.safetensors"))).unwrap())
    }
    fn ids(&self, name: &str) -> Vec<u32> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    }
    fn rows(&self, name: &str) -> Vec<Vec<f32>> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let view = tensors.tensor(name).unwrap();
        let values: Vec<f32> =
            view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        values.chunks_exact(view.shape()[1]).map(<[f32]>::to_vec).collect()
    }
}

/// Prompt in one pass, then the greedy continuation token by token.
#[test]
fn logits_equal_transformers() {
    let Some(device) = device() else { return };
    for case in CASES {
        let golden = Golden::read(case);
        let mut runner = of_case(&device, case);
        for prompt in ["a", "b"] {
            let ids = golden.ids(&format!("{prompt}.input_ids"));
            let blocks = own_blocks(&*runner, 1, 128);
            let ours = whole(&mut *runner, &ids, &blocks, 0);
            let right = golden.rows(&format!("{prompt}.prefill_logits"));
            let found = worst(&ours[ours.len() - right.len()..], &right);
            println!("{case} {prompt} prefill: {found}");
            assert!(found < TOLERANCE, "{case} {prompt} prefill: {found} of the spread");
            let greedy = golden.ids(&format!("{prompt}.greedy_ids"));
            let decode = golden.rows(&format!("{prompt}.decode_logits"));
            for (i, (token, right)) in greedy.iter().zip(&decode[1..]).enumerate() {
                let ours = whole(&mut *runner, &[*token], &blocks, ids.len() + i);
                let found = worst(&ours, std::slice::from_ref(right));
                assert!(found < TOLERANCE, "{case} {prompt} decode {i}: {found} of the spread");
            }
        }
    }
}

#[allow(unused)]
fn both(device: &Device, path: &Path) -> [Box<dyn Runner>; 2] {
    let file = Gguf::open(path).unwrap();
    [on_device(device, &file, &LoadOptions::default()).0, on_cpu(path, 1, isa())]
}

/// In the steady state a step is one graph and one copy back.
#[test]
fn a_step_of_decoding_becomes_one_launch() {
    let Some(device) = device() else { return };
    let file = Gguf::open(&fixture("gguf/llama.gguf")).unwrap();
    let (mut runner, launches) = on_device(&device, &file, &LoadOptions::default());
    let blocks = own_blocks(&*runner, 1, 64);
    let tokens = prompt(40);
    whole(&mut *runner, &tokens[..8], &blocks, 0);
    let mut counts = Vec::new();
    for start in 8..40 {
        let before = launches.load(Ordering::Relaxed);
        let driven = Driven {
            seq: 0,
            tokens: &tokens[start..=start],
            start,
            blocks: blocks.clone(),
            outputs: Outputs::Last,
        };
        run(&mut *runner, &[driven], 5);
        counts.push(launches.load(Ordering::Relaxed) - before);
    }
    println!("{counts:?}");
    assert!(counts[3..].iter().all(|count| *count == 1), "{counts:?}");
}

/// A pass that is timed says what every kernel of it took, read and computed, those of its logits and draws
/// too; passes in between stay graphs.
#[test]
fn one_pass_of_some_is_timed_kernel_by_kernel() {
    let Some(device) = device() else { return };
    if device.gpu().facts().driver < 12_080 {
        return eprintln!("skipped: a driver before CUDA 12.8 gives no times");
    }
    let mut cuda = Cuda::new(device.gpu()).unwrap();
    assert!(cuda.sample_times(8));
    let launches = cuda.launches();
    let file = Gguf::open(&fixture("gguf/llama.gguf")).unwrap();
    let mut runner = model::load(&file, cuda, &LoadOptions::default(), &|_, _| ()).unwrap().runner;
    let blocks = own_blocks(&*runner, 1, 64);
    let tokens = prompt(40);
    let mut timed = Vec::new();
    for start in 0..24 {
        let before = launches.load(Ordering::Relaxed);
        let driven = Driven {
            seq: 0,
            tokens: &tokens[start..=start],
            start,
            blocks: blocks.clone(),
            outputs: Outputs::Last,
        };
        run(&mut *runner, &[driven], 5);
        let spent = runner.take_profile();
        if spent.is_empty() {
            continue;
        }
        timed.push(start);
        let queued = launches.load(Ordering::Relaxed) - before;
        assert_eq!(u64::from(spent.iter().map(|time| time.calls).sum::<u32>()), queued, "{spent:?}");
        let of = |beginning: &str| {
            let all = spent.iter().filter(|time| time.name.starts_with(beginning));
            all.fold((0, 0), |sum, time| (sum.0 + time.bytes, sum.1 + time.flops))
        };
        let (weights, products) = of("gemv_");
        // Two operations for each weight of four bytes.
        assert!(weights > 100_000 && 2 * products == weights, "{spent:?}");
        let (past, seen) = of("decode_");
        assert!(past > 0 && seen > 0 && past.is_multiple_of(start as u64 + 1), "{spent:?}");
        assert!(of("draw_").0 > 0 && spent.iter().all(|time| time.us >= 0.0), "{spent:?}");
    }
    assert_eq!(timed, [4, 12, 20]);
}
