//! Whole models on the device: against transformers' logits, against the CPU, and against themselves.

use crate::blocks::random_blocks;
use crate::case::{Case, Kind};
use crate::harness::{Device, Numbers, device};
use crate::support::{Driven, fixture, isa, load_with, logits, own_blocks, run};
use glassbox::compute::Backend;
use glassbox::compute::cuda::Cuda;
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::model::{self, LoadError, LoadOptions, Outputs, Runner};
use glassbox::protocol::KvCacheDtype;
use glassbox::weights::{BlockFormat, Checkpoint, GgufWriter, TensorInfo, decode};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const CASES: [&str; 4] = ["llama", "llama_f16_linear_rope", "qwen2", "gemma3_text_std"];

/// Keys and values are f16, as on the CPU. More than eight rows are multiplied as f16, or as bf16 where the
/// weights are (qwen2, gemma3): 2^-12 and 2^-9 relative to each activation, through three to six layers.
const TOLERANCE: f32 = 0.06;

pub fn on_device(
    device: &Device,
    file: &Checkpoint,
    options: &LoadOptions,
) -> (Box<dyn Runner>, Arc<AtomicU64>) {
    let cuda = Cuda::new(device.gpu()).unwrap();
    let launches = cuda.launches();
    (model::load(file, cuda, options, &|_, _| ()).unwrap().runner, launches)
}

/// What other families have of their own: kinds of rope and layers without, norms of all heads together and
/// after a part, layer norms, biases, soft caps, parts side by side, learned positions, experts, sinks.
const FAMILIES: [(&str, Kind); 21] = [
    ("llama_yarn", Kind::Gguf),
    ("smollm3", Kind::Gguf),
    ("granite", Kind::Gguf),
    ("olmo2", Kind::Gguf),
    ("gemma", Kind::Gguf),
    ("gemma2_std", Kind::Gguf),
    ("phi", Kind::Gguf),
    ("starcoder2", Kind::Gguf),
    ("gpt2", Kind::Gguf),
    ("glm4", Kind::Gguf),
    ("mixtral", Kind::Gguf),
    ("glm4_moe", Kind::Gguf),
    ("gpt_oss_std", Kind::Gguf),
    ("mistral", Kind::Hub),
    ("phi3", Kind::Hub),
    ("cohere", Kind::Hub),
    ("gpt_neox", Kind::Hub),
    ("mamba2", Kind::Gguf),
    ("lfm2", Kind::Gguf),
    ("qwen3_next", Kind::Hub),
    ("qwen3_5_text", Kind::Hub),
];

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

/// Prompt in one pass, then the greedy continuation token by token.
#[test]
fn logits_equal_transformers() {
    let Some(device) = device() else { return };
    CASES.into_iter().for_each(|case| equals_transformers(&device, case, Kind::Gguf, false));
}

/// Where a rounded number can send a token to another expert, or stays in a state: these in f32.
const EXACTLY: [&str; 6] = ["glm4_moe", "gpt_oss_std", "mamba2", "lfm2", "qwen3_next", "qwen3_5_text"];
/// Keys and values are f16, on the CPU as well (gpt-oss is off by 0.0094 of the spread there), and sums in
/// another order.
const EXACT: f32 = 0.02;

#[test]
fn every_family_has_the_logits_of_transformers() {
    let Some(device) = device() else { return };
    let only = std::env::var("FAMILY").unwrap_or_default();
    for (case, kind) in FAMILIES.into_iter().filter(|(case, _)| case.starts_with(&only)) {
        let exact = EXACTLY.contains(&case);
        equals_transformers(&device, case, kind, exact);
    }
}

fn equals_transformers(device: &Device, name: &str, kind: Kind, exact: bool) {
    let Some(case) = Case::find(name, kind) else { return };
    let golden = &case.golden;
    // Of floats the device has f32 products: what is left is what operations do, not how numbers are rounded.
    let floats = |tensor: &TensorInfo| (tensor.format == BlockFormat::BF16).then_some(BlockFormat::F32);
    let (file, bound) = match exact {
        true => (case.open().converted(floats), EXACT),
        false => (case.open(), TOLERANCE),
    };
    let mut runner = on_device(device, &file, &LoadOptions::default()).0;
    let mut most = [0.0f32; 2];
    for prompt in ["a", "b"] {
        let ids = golden.ids(&format!("{prompt}.input_ids"));
        let blocks = own_blocks(&*runner, 1, 128);
        let ours = whole(&mut *runner, &ids, &blocks, 0);
        let right = golden.rows(&format!("{prompt}.prefill_logits"));
        let found = worst(&ours[ours.len() - right.len()..], &right);
        let cpus = || worst_on_the_cpu(&case, &ids, &right);
        assert!(found < bound, "{name} {prompt} prefill: {found} of the spread; the CPU's {}", cpus());
        most[0] = most[0].max(found);
        let greedy = golden.ids(&format!("{prompt}.greedy_ids"));
        let decode = golden.rows(&format!("{prompt}.decode_logits"));
        for (i, (token, right)) in greedy.iter().zip(&decode[1..]).enumerate() {
            let ours = whole(&mut *runner, &[*token], &blocks, ids.len() + i);
            let found = worst(&ours, std::slice::from_ref(right));
            assert!(found < bound, "{name} {prompt} decode {i}: {found} of the spread");
            most[1] = most[1].max(found);
        }
    }
    println!("{name}: {:.4} of the spread in prompts, {:.4} in decoding", most[0], most[1]);
}

/// Where the mistake may be the model's.
fn worst_on_the_cpu(case: &Case, ids: &[u32], right: &[Vec<f32>]) -> f32 {
    let mut runner = load_with(&case.open(), 1, isa(), &LoadOptions::default());
    let blocks = own_blocks(&*runner, 1, 128);
    let logits = whole(&mut *runner, ids, &blocks, 0);
    worst(&logits[logits.len() - right.len()..], right)
}

/// Before anything is loaded, and with the reason: so that another device can be tried.
#[test]
fn what_has_no_kernels_is_refused_by_name() {
    let Some(device) = device() else { return };
    for (name, kind, why) in [
        ("qwen3", Kind::Gguf, "CUDA needs heads whose size is a multiple of 16 up to 512, not 24"),
        ("deepseek_v3", Kind::Gguf, "no kernels for latent ones"),
    ] {
        let Some(case) = Case::find(name, kind) else { continue };
        let file = case.open();
        let planned = model::plan(&file, &Cuda::new(device.gpu()).unwrap(), &LoadOptions::default());
        let Err(LoadError::Device(said)) = planned else { panic!("{name} was not refused by the device") };
        assert!(said.0.contains(why) && said.0.contains("use --device cpu"), "{name}: {said}");
        let loaded =
            model::load(&file, Cuda::new(device.gpu()).unwrap(), &LoadOptions::default(), &|_, _| {
                panic!("{name} was being loaded")
            });
        assert!(matches!(loaded, Err(LoadError::Device(_))), "{name}");
    }
}

/// A llama of two layers with random weights of one format, every kind of matrix in it; and the same
/// weights as f32.
pub fn random_model(format: BlockFormat) -> [Checkpoint; 2] {
    const DIM: usize = 256;
    const WIDTH: usize = 512;
    const VOCAB: usize = 384;
    let place = FORMATS.iter().position(|known| *known == format).unwrap();
    let mut numbers = Numbers::new(place as u64 + 1);
    let start = GgufWriter::new("llama")
        .put("llama.block_count", 2u32)
        .put("llama.embedding_length", DIM as u32)
        .put("llama.feed_forward_length", WIDTH as u32)
        .put("llama.attention.head_count", 4u32)
        .put("llama.attention.head_count_kv", 2u32)
        .put("llama.context_length", 512u32)
        .put("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    let (mut blocked, mut plain) = (start.clone(), start);
    let mut add = |name: String, cols: usize, rows: usize| {
        let blocks = random_blocks(format, rows * cols / format.block_len(), &mut numbers);
        let mut weights = vec![0.0; rows * cols];
        decode(format, &blocks, &mut weights);
        blocked = std::mem::take(&mut blocked).tensor(&name, &[cols, rows], format, blocks);
        plain = std::mem::take(&mut plain).tensor_f32(&name, &[cols, rows], &weights);
    };
    add("token_embd.weight".into(), DIM, VOCAB);
    for layer in 0..2 {
        let parts = [
            ("attn_q", DIM, DIM),
            ("attn_k", DIM, DIM / 2),
            ("attn_v", DIM, DIM / 2),
            ("attn_output", DIM, DIM),
            ("ffn_gate", DIM, WIDTH),
            ("ffn_up", DIM, WIDTH),
            ("ffn_down", WIDTH, DIM),
        ];
        parts.iter().for_each(|(name, cols, rows)| add(format!("blk.{layer}.{name}.weight"), *cols, *rows));
    }
    [blocked, plain].map(|mut writer| {
        for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "blk.1.attn_norm", "blk.1.ffn_norm", "output_norm"]
        {
            writer = writer.tensor_f32(&format!("{name}.weight"), &[DIM], &vec![1.0; DIM]);
        }
        Checkpoint::from_bytes(Path::new("random.gguf"), writer.to_bytes()).unwrap()
    })
}

/// How far one runner's logits are from another's: of a prompt, then single tokens, then three sequences
/// at once, then nine, then five tokens to be verified beside a single one.
fn differences(ours: &mut dyn Runner, right: &mut dyn Runner) -> [f32; 5] {
    let tokens = prompt(24);
    let mut both = |rows: &[(u64, &[u32], usize)], outputs| {
        let run = |runner: &mut dyn Runner| {
            let driven: Vec<Driven> = rows
                .iter()
                .map(|(seq, tokens, start)| {
                    let blocks = own_blocks(runner, 1 + *seq as u32 * 4, 48);
                    Driven { seq: *seq, tokens, start: *start, blocks, outputs }
                })
                .collect();
            let vocab = runner.limits().vocab_size;
            logits(&run(runner, &driven, vocab), vocab)
        };
        worst(&run(ours), &run(right))
    };
    let prefill = both(&[(0, &tokens, 0)], Outputs::All);
    let mut decode = 0.0f32;
    for i in 0..3 {
        decode = decode.max(both(&[(0, &tokens[i..=i], 24 + i)], Outputs::Last));
    }
    let batch = |n: u64| -> Vec<(u64, &[u32], usize)> {
        (0..n).map(|seq| (seq, &tokens[seq as usize..][..1], if seq == 0 { 27 } else { 0 })).collect()
    };
    let (few, many) = (both(&batch(3), Outputs::Last), both(&batch(9), Outputs::Last));
    let verified = both(&[(0, &tokens[..5], 28), (1, &tokens[..1], 1)], Outputs::All);
    [prefill, decode, few, many, verified]
}

/// Against the same weights in f32. Up to eight rows are multiplied as bytes, as the CPU does it with any
/// number: half of a 254th of the largest of 32 activations. More are f16, or bf16 where the weights are.
#[test]
fn every_format_gives_the_logits_of_its_weights() {
    let Some(device) = device() else { return };
    for format in FORMATS {
        let [blocked, plain] = random_model(format);
        let options = LoadOptions::default();
        let mut right = load_with(&plain, 1, isa(), &options);
        let there = differences(&mut *on_device(&device, &blocked, &options).0, &mut *right);
        let here = differences(&mut *load_with(&blocked, 1, isa(), &options), &mut *right);
        println!("{}: {there:?}, on the CPU {here:?}", format.name());
        let [ours, cpus] = [there, here].map(|all| all.into_iter().fold(0.0, f32::max));
        let most = match format {
            BlockFormat::F32 => 0.001,
            BlockFormat::F16 => 0.01,
            BlockFormat::BF16 => 0.06,
            // Weights that mean nothing make some of these models chaotic: the CPU says how much.
            _ => 1.2 * cpus,
        };
        assert!(ours < most, "{}: {there:?} of the spread", format.name());
    }
}

/// Of four significant bits the nearest may be another one, where what is stored differs in the last place.
const CACHES: f32 = 0.03;

#[test]
fn every_type_of_cache_gives_the_logits_of_the_cpu() {
    let Some(device) = device() else { return };
    use KvCacheDtype::{Bf16, F16, Fp8, Int8};
    let file = Checkpoint::open(&fixture("gguf/llama.gguf")).unwrap();
    for kv_cache_dtype in [F16, Bf16, Int8, Fp8] {
        for block_size in [16, 5] {
            let options = LoadOptions { kv_cache_dtype, block_size, ..LoadOptions::default() };
            let mut ours = on_device(&device, &file, &options).0;
            let found = differences(&mut *ours, &mut *load_with(&file, 1, isa(), &options));
            println!("{kv_cache_dtype:?}, blocks of {block_size}: {found:?}");
            assert!(found.iter().all(|off| *off < CACHES), "{kv_cache_dtype:?}: {found:?} of the spread");
        }
    }
}

/// In the steady state a step is one graph and one copy back.
#[test]
fn a_step_of_decoding_becomes_one_launch() {
    let Some(device) = device() else { return };
    let file = Checkpoint::open(&fixture("gguf/llama.gguf")).unwrap();
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

/// Blocks that one device wrote are never read by the other: they lie differently.
#[test]
fn blocks_on_disk_are_of_the_device_that_wrote_them() {
    let Some(device) = device() else { return };
    let file = Checkpoint::open(&fixture("gguf/llama.gguf")).unwrap();
    let options = LoadOptions::default();
    let (there, here) = (on_device(&device, &file, &options).0, load_with(&file, 1, isa(), &options));
    assert_ne!(there.limits().cache_identity, here.limits().cache_identity);
}

/// Chunks of one token want no logits, forks want several rows of the same: among passes that are recorded.
#[test]
fn passes_of_one_size_may_want_more_or_less() {
    let Some(device) = device() else { return };
    let file = Checkpoint::open(&fixture("gguf/llama.gguf")).unwrap();
    let options = LoadOptions::default();
    let (mut ours, mut right) = (on_device(&device, &file, &options).0, load_with(&file, 1, isa(), &options));
    let tokens = prompt(40);
    for (start, token) in tokens.iter().enumerate() {
        let outputs = match start % 7 {
            2 | 3 => Outputs::None,
            5 => Outputs::Draws(3),
            _ => Outputs::Last,
        };
        let run = |runner: &mut dyn Runner| {
            let blocks = own_blocks(runner, 1, 48);
            let driven = Driven { seq: 0, tokens: &[*token], start, blocks, outputs };
            run(runner, &[driven], 3)
        };
        let (ours, right) = (run(&mut *ours), run(&mut *right));
        assert_eq!(ours.len(), right.len());
        for (ours, right) in ours.iter().zip(&right) {
            assert_eq!((ours.token, ours.rank), (right.token, right.rank), "token {start}");
            assert!((ours.logprob - right.logprob).abs() < 0.01);
        }
    }
}

/// A prompt and then graphs, with threads in every order and with work that waits to be waited for: the
/// same bits.
#[test]
fn whole_models_are_the_same_bits_in_every_order() {
    let right = std::cell::OnceCell::new();
    crate::harness::in_every_order(|gpu| {
        let file = Checkpoint::open(&fixture("gguf/gemma3_text_std.gguf")).unwrap();
        let cuda = Cuda::new(glassbox::compute::cuda::open(gpu.facts().ordinal).unwrap()).unwrap();
        let mut runner = model::load(&file, cuda, &LoadOptions::default(), &|_, _| ()).unwrap().runner;
        let (blocks, tokens) = (own_blocks(&*runner, 1, 32), prompt(22));
        let mut all = whole(&mut *runner, &tokens[..12], &blocks, 0);
        for start in 12..22 {
            all.extend(whole(&mut *runner, &tokens[start..=start], &blocks, start));
        }
        assert!(all == *right.get_or_init(|| all.clone()), "bits");
    });
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
    let file = Checkpoint::open(&fixture("gguf/llama.gguf")).unwrap();
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
