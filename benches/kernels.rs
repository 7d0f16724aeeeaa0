//! `cargo bench --bench kernels`: the CPU backend's operations, in the shapes of real models.
//!
//! Products report bytes of weights a second (decode) and multiply-adds a second (prefill).

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use glassbox::compute::cpu::Cpu;
use glassbox::compute::{
    Activation, AttentionSpec, Backend, CacheDtype, CacheShape, Experts, HeadNorm, RopeStyle, RopeTable,
    Routing, Score, Span, Write,
};
use glassbox::protocol::{SamplingParams, SeqId};
use glassbox::sample::{Phrases, SampleRow, SamplerState, Scratch, TokenMask, sample};
use glassbox::weights::{BlockFormat, Checkpoint, GgufWriter, Tensor};
use std::path::Path;

fn main() {
    divan::main();
}

const FORMATS: [BlockFormat; 13] = [
    BlockFormat::F16,
    BlockFormat::Q4_1,
    BlockFormat::Q5_0,
    BlockFormat::Q8_0,
    BlockFormat::Q4_K,
    BlockFormat::Q5_K,
    BlockFormat::Q6_K,
    BlockFormat::Q2_K,
    BlockFormat::Q3_K,
    BlockFormat::IQ4_NL,
    BlockFormat::IQ4_XS,
    BlockFormat::MXFP4,
    BlockFormat::F8,
];

/// SmolLM2's down projection, rounded to a multiple of 256 columns.
const ROWS: usize = 576;
const COLS: usize = 1536;

fn matrix(cpu: &mut Cpu, format: BlockFormat) -> <Cpu as Backend>::Matrix {
    matrix_of(cpu, format, ROWS, COLS)
}

fn matrix_of(cpu: &mut Cpu, format: BlockFormat, rows: usize, cols: usize) -> <Cpu as Backend>::Matrix {
    if format.to_ggml_type().is_none() {
        let values: Vec<f32> = (0..rows * cols).map(|i| (i * 37 % 61) as f32 - 30.0).collect();
        return cpu.matrix(&[Tensor::of_values("w", &[cols, rows], format, &values)]).expect("memory");
    }
    let file = file(format, rows, cols);
    cpu.matrix(&[file.tensor("w").expect("just written")]).expect("memory")
}

fn file(format: BlockFormat, rows: usize, cols: usize) -> Checkpoint {
    let bytes = rows * cols / format.block_len() * format.block_bytes();
    let blocks = (0..bytes).map(|i| (i * 37 % 61) as u8).collect();
    let writer = GgufWriter::new("bench").tensor("w", &[cols, rows], format, blocks);
    Checkpoint::from_bytes(Path::new("bench.gguf"), writer.to_bytes()).expect("a valid file")
}

#[divan::bench(args = FORMATS.map(BlockFormat::name))]
fn decode_one_token(bencher: Bencher, name: &str) {
    let format = FORMATS.into_iter().find(|f| f.name() == name).expect("one of them");
    let mut cpu = Cpu::new(Some(1));
    let w = matrix(&mut cpu, format);
    let (x, mut out) = (vec![0.5; COLS], vec![0.0; ROWS]);
    bencher.counter(BytesCount::new(cpu.matrix_size(&w).bytes)).bench_local(|| {
        cpu.project(&mut out, &x, 1, None, &w, Write::Store { bias: None }).expect("the CPU does not fail");
    });
}

/// A matrix far larger than the caches, on two threads: what memory gives. In a model the layers
/// are many small ones after the other.
#[divan::bench(args = [1, 64])]
fn decode_from_memory(bencher: Bencher, parts: usize) {
    let (rows, cols) = (98_304 / parts, 576);
    let mut cpu = Cpu::new(Some(2));
    let parts: Vec<_> = (0..parts).map(|_| matrix_of(&mut cpu, BlockFormat::Q4_1, rows, cols)).collect();
    let (x, mut out) = (vec![0.5; cols], vec![0.0; rows]);
    let bytes: usize = parts.iter().map(|w| cpu.matrix_size(w).bytes).sum();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        for w in &parts {
            cpu.project(&mut out, &x, 1, None, w, Write::Store { bias: None })
                .expect("the CPU does not fail");
        }
    });
}

#[divan::bench(args = FORMATS.map(BlockFormat::name))]
fn prefill_128_tokens(bencher: Bencher, name: &str) {
    let format = FORMATS.into_iter().find(|f| f.name() == name).expect("one of them");
    let mut cpu = Cpu::new(Some(1));
    let w = matrix(&mut cpu, format);
    let (x, mut out) = (vec![0.5; 128 * COLS], vec![0.0; 128 * ROWS]);
    bencher.counter(ItemsCount::new(128 * ROWS * COLS)).bench_local(|| {
        cpu.project(&mut out, &x, 128, None, &w, Write::Store { bias: None }).expect("the CPU does not fail");
    });
}

/// An operation with next to nothing in it: 32 rows of 4 numbers, two tiles. What it takes on two threads
/// more than on one is what it costs to hand work over and to wait for it.
#[divan::bench(args = [1, 2])]
fn smallest_operation(bencher: Bencher, threads: usize) {
    let mut cpu = Cpu::new(Some(threads));
    let w = matrix_of(&mut cpu, BlockFormat::F32, 32, 4);
    let (x, mut out) = (vec![0.5; 4], vec![0.0; 32]);
    bencher.bench_local(|| {
        cpu.project(&mut out, &x, 1, None, &w, Write::Store { bias: None }).expect("the CPU does not fail");
    });
}

/// One token goes to 8 of 64 experts of Qwen3-MoE's shape.
#[divan::bench(args = ["Q4_K", "MXFP4"])]
fn experts_of_one_token(bencher: Bencher, name: &str) {
    let format = FORMATS.into_iter().find(|f| f.name() == name).expect("one of them");
    let (count, dim, width) = (64, 2048, 768);
    let mut cpu = Cpu::new(Some(2));
    let mut stack = |rows, cols| {
        let file = file(format, rows, cols);
        let tensors: Vec<_> = (0..count).map(|_| file.tensor("w").expect("just written")).collect();
        cpu.matrix(&tensors).expect("memory")
    };
    let (gate, up, down) = (stack(width, dim), stack(width, dim), stack(dim, width));
    let bytes = cpu.matrix_size(&gate).bytes * 3 / count * 8;
    let routing = Routing {
        experts: count,
        top: 8,
        score: Score::Softmax,
        bias: None,
        groups: None,
        renormalise: true,
        scale: 1.0,
    };
    let experts = Experts {
        count,
        gate: &gate,
        up: &up,
        down: &down,
        gate_bias: None,
        up_bias: None,
        down_bias: None,
        activation: Activation::Silu,
    };
    let (x, mut out, mut logits) = (vec![0.5; dim], vec![0.0; dim], vec![0.0; count]);
    let mut turn = 0;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        // Other experts each time, as in a model.
        turn += 1;
        logits.iter_mut().enumerate().for_each(|(e, x)| *x = ((e * 37 + turn * 11) % count) as f32);
        cpu.experts(&mut out, &x, 1, &logits, &routing, &experts).expect("the CPU does not fail");
    });
}

/// One token of SmolLM2 attends to its past: a layer.
#[divan::bench(args = [16, 256, 2048, 8192])]
fn attention_at_depth(bencher: Bencher, depth: usize) {
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    let mut cpu = Cpu::new(Some(1));
    let shape = CacheShape {
        blocks: depth / 16 + 1,
        block_size: 16,
        kv_heads,
        head_dim,
        latent: None,
        dtype: CacheDtype::F16,
        least_bytes: 0,
    };
    let cache = cpu.cache(shape).expect("memory");
    let mut rope = RopeTable::new(RopeStyle::Halves);
    rope.fill(depth - 1..depth, &[1.0; 32], 1.0);
    let spec = AttentionSpec {
        heads,
        kv_heads,
        head_dim,
        scale: 0.125,
        window: None,
        soft_cap: None,
        sinks: None,
        latent: None,
        query_norm: None::<HeadNorm<Cpu>>,
        key_norm: None,
        rope: Some(&rope),
        group: 0,
        rope_index: 0,
    };
    let table: Vec<u32> = (1..=depth as u32 / 16).collect();
    let spans = [Span { first: 0, len: 1, start: depth - 1, table: &table }];
    let (qkv, mut out) = (vec![0.1; (heads + 2 * kv_heads) * head_dim], vec![0.0; heads * head_dim]);
    bencher.counter(BytesCount::new(depth * 2 * kv_heads * head_dim * 2)).bench_local(|| {
        cpu.attend(&mut out, &qkv, &spans, &spec, &cache).expect("the CPU does not fail");
    });
}

/// A row of Qwen's 151,936 logits to a token. The goal is 60 us with top-k, top-p and min-p on.
#[divan::bench(args = ["top-k top-p min-p", "greedy", "top-p", "nothing", "penalties", "grammar"])]
fn sample_a_row(bencher: Bencher, name: &str) {
    const VOCAB: usize = 151_936;
    // Sums of four hashes, as spread as a model's; a few tokens far above the others.
    let hash = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
    let spread = |i: usize| (0..4).map(|part| (hash(4 * i + part) % 4096) as f32 / 480.0).sum::<f32>() - 17.0;
    let mut logits: Vec<f32> = (0..VOCAB).map(spread).collect();
    (0..30).for_each(|i| logits[i * 4099] = 18.0 - i as f32 * 0.4);
    let off = SamplingParams { temperature: 0.8, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
    let all = SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.05, ..off.clone() };
    let params = match name {
        "greedy" => SamplingParams { temperature: 0.0, ..off },
        "top-p" => SamplingParams { top_p: 0.95, ..off },
        "nothing" => off,
        "penalties" => SamplingParams { repetition_penalty: 1.1, frequency_penalty: 0.2, ..all },
        _ => all,
    };
    let mask = TokenMask((0..VOCAB.div_ceil(32)).map(|word| if word % 7 == 0 { 0 } else { !0 }).collect());
    let tokens: Vec<u32> = (0..500).map(|i| (i * 37) % 1000).collect();
    let phrases = Phrases::default();
    let mut scratch = Scratch::default();
    let mut seed = 0;
    bencher.counter(ItemsCount::new(VOCAB)).bench_local(|| {
        seed += 1;
        let row = SampleRow {
            seq: SeqId::default(),
            params: &params,
            seed,
            tokens: &tokens,
            prompt_len: 100,
            end_tokens: &[],
            mask: (name == "grammar").then_some(&mask),
            phrases: &phrases,
            state: SamplerState::default(),
            draw: true,
            target: None,
            top: 0,
            beams: 0,
            trace: 0,
            keep: None,
        };
        sample(&logits, &row, &mut scratch).expect("a row of numbers")
    });
}
