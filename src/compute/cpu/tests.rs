//! Every kernel against its slow twin, on every instruction set this machine has.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::compute::{Activation, CacheDtype, RopeStyle, RopeTable};
use crate::weights::{BlockFormat, GgufWriter};
use half::{bf16, f16};
use std::path::Path;

/// A small generator, so that tests need no seed from outside.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn real(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 30) as f32 - 1.0
    }
    fn reals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.real()).collect()
    }
}

/// Random blocks with scales as real files have them: every bit of the weights used.
fn random_blocks(format: BlockFormat, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count * format.block_bytes()).map(|_| random.bits() as u8).collect();
    let mut half = |at: &mut [u8]| {
        let value = f16::from_f32(0.01 + 0.02 * (random.real() + 1.0));
        at[..2].copy_from_slice(&value.to_le_bytes());
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        match format {
            BlockFormat::F32 => block.copy_from_slice(&random_f32(block)),
            BlockFormat::F16 => half(block),
            BlockFormat::BF16 => block[1] = 0x3d | block[1] & 0x80,
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => half(block),
            BlockFormat::Q6_K => half(&mut block[208..]),
            _ => {
                half(&mut block[..2]);
                half(&mut block[2..]);
            }
        }
    }
    bytes
}

fn random_f32(bits: &[u8]) -> [u8; 4] {
    (f32::from(bits[0]) / 1000.0 - f32::from(bits[1]) / 900.0).to_le_bytes()
}

/// A file with one tensor `w` of the given rows.
fn file(format: BlockFormat, rows: usize, cols: usize, blocks: Vec<u8>) -> Gguf {
    let writer = GgufWriter::new("test").tensor("w", &[cols, rows], format, blocks);
    Gguf::from_bytes(Path::new("test.gguf"), writer.to_bytes()).unwrap()
}

fn rows_of(format: BlockFormat, blocks: &[u8], rows: usize, cols: usize) -> Vec<Vec<f32>> {
    blocks
        .chunks_exact(cols / format.block_len() * format.block_bytes())
        .map(|row| {
            let mut out = vec![0.0; cols];
            decode(format, row, &mut out);
            out
        })
        .take(rows)
        .collect()
}

/// What the activations are once they are bytes: the twin multiplies these, so that what remains is
/// the kernel's own rounding.
fn as_bytes(x: &[f32]) -> Vec<f64> {
    x.chunks(16)
        .flat_map(|block| {
            let largest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            block.iter().map(move |x| f64::from((x * inverse).round_ties_even()) * f64::from(largest / 127.0))
        })
        .collect()
}

fn dot(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum()
}

#[test]
fn products_equal_the_twin_in_every_format() {
    let mut random = Random(7);
    for format in BlockFormat::ALL {
        for cols in [256, 768] {
            let rows = 37; // two whole tiles and a part of one
            let blocks = random_blocks(format, rows * cols / format.block_len(), &mut random);
            let weights = rows_of(format, &blocks, rows, cols);
            let gguf = file(format, rows, cols, blocks);
            let x = random.reals(40 * cols);
            let bias = random.reals(rows);
            for isa in Isa::available() {
                let mut cpu = Cpu::with_isa(Some(2), isa);
                let w = cpu.matrix(&[gguf.require_tensor("w").unwrap()]).unwrap();
                for tokens in [1, 2, 40] {
                    let mut out = vec![f32::NAN; tokens * rows];
                    cpu.project(&mut out, &x, tokens, None, &w, Write::Store { bias: Some(&bias) }).unwrap();
                    for t in 0..tokens {
                        let x = &x[t * cols..][..cols];
                        let x: Vec<f64> = if format.block_len() > 1 {
                            as_bytes(x)
                        } else {
                            x.iter().map(|x| f64::from(*x)).collect()
                        };
                        for r in 0..rows {
                            let expected = dot(&weights[r], &x) + f64::from(bias[r]);
                            let size: f64 =
                                weights[r].iter().zip(&x).map(|(w, x)| (f64::from(*w) * x).abs()).sum();
                            let error = (f64::from(out[t * rows + r]) - expected).abs();
                            // Some 30 additions of f32, and terms that cancel: relative to their size.
                            assert!(
                                error <= 2e-6 * size,
                                "{} {cols} columns on {}: token {t} row {r}: {} is not {expected}",
                                format.name(),
                                isa.name(),
                                out[t * rows + r]
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Columns that are no multiple of 256 (576, 640, 896 in real models).
#[test]
fn formats_of_32_take_any_multiple_of_32_columns() {
    let mut random = Random(3);
    for format in
        [BlockFormat::Q4_0, BlockFormat::Q4_1, BlockFormat::Q5_0, BlockFormat::Q5_1, BlockFormat::Q8_0]
    {
        for cols in [32, 576, 896] {
            let blocks = random_blocks(format, 16 * cols / 32, &mut random);
            let weights = rows_of(format, &blocks, 16, cols);
            let gguf = file(format, 16, cols, blocks);
            let x = random.reals(cols);
            for isa in Isa::available() {
                let mut cpu = Cpu::with_isa(Some(1), isa);
                let w = cpu.matrix(&[gguf.require_tensor("w").unwrap()]).unwrap();
                let mut out = vec![0.0; 16];
                cpu.project(&mut out, &x, 1, None, &w, Write::Store { bias: None }).unwrap();
                for (r, out) in out.iter().enumerate() {
                    let expected = dot(&weights[r], &as_bytes(&x));
                    assert!(
                        (f64::from(*out) - expected).abs() < 2e-4,
                        "{} {cols} {}",
                        format.name(),
                        isa.name()
                    );
                }
            }
        }
    }
}

/// The largest weights times the largest activations: nothing saturates.
#[test]
fn extreme_weights_and_activations_do_not_overflow() {
    for format in BlockFormat::ALL.into_iter().filter(|f| f.block_len() > 1) {
        let cols = 256;
        for (fill, sign) in [(0xff, 1.0), (0xff, -1.0), (0x00, 1.0), (0x80, 1.0), (0x7f, -1.0)] {
            let mut blocks = vec![fill; 16 * cols / format.block_len() * format.block_bytes()];
            for block in blocks.chunks_exact_mut(format.block_bytes()) {
                let one = f16::ONE.to_le_bytes();
                let at = if format == BlockFormat::Q6_K { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&one);
                if matches!(
                    format,
                    BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K
                ) {
                    block[2..4].copy_from_slice(&one);
                }
            }
            let weights = rows_of(format, &blocks, 16, cols);
            let gguf = file(format, 16, cols, blocks);
            let x = vec![sign; cols];
            for isa in Isa::available() {
                let mut cpu = Cpu::with_isa(Some(1), isa);
                let w = cpu.matrix(&[gguf.require_tensor("w").unwrap()]).unwrap();
                let mut out = vec![0.0; 16];
                cpu.project(&mut out, &x, 1, None, &w, Write::Store { bias: None }).unwrap();
                let expected = dot(&weights[0], &as_bytes(&x));
                let error = (f64::from(out[0]) - expected).abs();
                assert!(
                    error <= 1e-5 * expected.abs().max(1.0),
                    "{} {fill:x} on {}",
                    format.name(),
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn one_token_and_many_give_the_same_bits() {
    let mut random = Random(11);
    for format in BlockFormat::ALL {
        let (rows, cols) = (48, 512);
        let blocks = random_blocks(format, rows * cols / format.block_len(), &mut random);
        let gguf = file(format, rows, cols, blocks);
        let x = random.reals(70 * cols);
        let mut cpu = Cpu::new(Some(2));
        let w = cpu.matrix(&[gguf.require_tensor("w").unwrap()]).unwrap();
        let mut together = vec![0.0; 70 * rows];
        cpu.project(&mut together, &x, 70, None, &w, Write::Store { bias: None }).unwrap();
        for t in 0..70 {
            let mut alone = vec![0.0; rows];
            let x = x[t * cols..][..cols].to_vec();
            cpu.project(&mut alone, &x, 1, None, &w, Write::Store { bias: None }).unwrap();
            assert_eq!(alone, together[t * rows..][..rows], "{} token {t}", format.name());
        }
    }
}

#[test]
fn gating_normalising_and_adding_equal_their_formulas() {
    let mut random = Random(5);
    let (rows, cols, tokens) = (32, 64, 5);
    let gate = file(BlockFormat::F32, rows, cols, random_blocks(BlockFormat::F32, rows * cols, &mut random));
    let up = file(BlockFormat::F32, rows, cols, random_blocks(BlockFormat::F32, rows * cols, &mut random));
    let (x, norm) = (random.reals(tokens * cols), random.reals(cols));
    let (gate_rows, up_rows) = (
        rows_of(BlockFormat::F32, gate.require_tensor("w").unwrap().data, rows, cols),
        rows_of(BlockFormat::F32, up.require_tensor("w").unwrap().data, rows, cols),
    );
    let normalised: Vec<Vec<f64>> = x
        .chunks_exact(cols)
        .map(|x| {
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / cols as f64;
            x.iter().zip(&norm).map(|(x, w)| f64::from(*x) / (mean + 1e-6).sqrt() * f64::from(*w)).collect()
        })
        .collect();
    for isa in Isa::available() {
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let mut cpu = Cpu::with_isa(Some(2), isa);
            let (g, u) = (
                cpu.matrix(&[gate.require_tensor("w").unwrap()]).unwrap(),
                cpu.matrix(&[up.require_tensor("w").unwrap()]).unwrap(),
            );
            let mut out = vec![0.0; tokens * rows];
            let op = Gate { gate: &g, up: &u, gate_bias: None, up_bias: None, activation };
            cpu.gated(&mut out, &x, tokens, Some(Norm { weight: &norm, eps: 1e-6 }), op).unwrap();
            for t in 0..tokens {
                for r in 0..rows {
                    let (g, u) = (dot(&gate_rows[r], &normalised[t]), dot(&up_rows[r], &normalised[t]));
                    let activated = match activation {
                        Activation::Silu => g / (1.0 + (-g).exp()),
                        Activation::GeluTanh => {
                            0.5 * g * (1.0 + (0.797_884_560_8 * (g + 0.044715 * g.powi(3))).tanh())
                        }
                    };
                    let error = (f64::from(out[t * rows + r]) - activated * u).abs();
                    assert!(error < 1e-5, "{activation:?} on {}: off by {error}", isa.name());
                }
            }
            let (mut sum, y) = (x.clone(), random.reals(tokens * cols));
            cpu.add_norm(&mut sum, &y, tokens, Norm { weight: &norm, eps: 1e-6 }).unwrap();
            let mean = y[..cols].iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / cols as f64;
            let expected = f64::from(x[3]) + f64::from(y[3]) / (mean + 1e-6).sqrt() * f64::from(norm[3]);
            assert!((f64::from(sum[3]) - expected).abs() < 1e-6);
        }
    }
}

/// A layer's attention over a paged cache whose unused cells are poisoned.
struct Attending {
    spec: (usize, usize, usize), // heads, kv heads, head_dim
    window: Option<usize>,
    lens: Vec<usize>,
    /// Of all sequences, one after the other: [len, (heads + 2 kv_heads) * head_dim]
    qkv: Vec<f32>,
}

/// How the work is cut and what keys and values are stored as.
#[derive(Clone, Copy, Debug)]
struct Cut {
    isa: Isa,
    threads: usize,
    chunk: usize,
    block_size: usize,
    dtype: CacheDtype,
}

impl Cut {
    fn on(isa: Isa) -> Self {
        Self { isa, threads: 2, chunk: 1000, block_size: 16, dtype: CacheDtype::F16 }
    }
}

impl Attending {
    fn new(spec: (usize, usize, usize), window: Option<usize>, lens: &[usize], random: &mut Random) -> Self {
        let width = (spec.0 + 2 * spec.1) * spec.2;
        let qkv = random.reals(lens.iter().sum::<usize>() * width);
        Self { spec, window, lens: lens.to_vec(), qkv }
    }

    fn width(&self) -> usize {
        (self.spec.0 + 2 * self.spec.1) * self.spec.2
    }

    /// Everything at once, or each sequence in chunks; without the blocks that its window has left
    /// behind.
    fn run(&self, cut: Cut) -> Vec<f32> {
        let (heads, kv_heads, head_dim) = self.spec;
        let Cut { isa, threads, chunk, block_size, dtype } = cut;
        let mut cpu = Cpu::with_isa(Some(threads), isa);
        let blocks: usize = self.lens.iter().map(|len| len.div_ceil(block_size)).sum();
        let shape = CacheShape { blocks: blocks + 1, block_size, kv_heads, head_dim, dtype };
        let mut cache = cpu.cache(shape).unwrap();
        // BUGLOG A10: cells that hold no token are never part of a result. 0x7fff is not a number as
        // f16 and as bf16, 0x7bff is huge; four bytes of 0x7f.. are not a number either.
        for (i, byte) in cache.bytes_mut().iter_mut().enumerate() {
            *byte = [0xff, 0x7f, 0xff, 0x7b, 0xff, 0xff, 0xff, 0x7f][i % 8];
        }
        let mut out = vec![0.0; self.lens.iter().sum::<usize>() * heads * head_dim];
        let (mut first, mut free) = (0, 1..=blocks as u32);
        for len in &self.lens {
            // Blocks lie in no particular order.
            let mut table: Vec<u32> = free.by_ref().take(len.div_ceil(block_size)).collect();
            table.reverse();
            for start in (0..*len).step_by(chunk) {
                let gone = self.window.map_or(0, |w| (start + 1).saturating_sub(w)) / block_size;
                table[..gone].fill(0);
                let rows = chunk.min(len - start);
                let mut rope = RopeTable::new(RopeStyle::Halves);
                rope.fill(start..start + rows, &[]);
                let spec = AttentionSpec {
                    heads,
                    kv_heads,
                    head_dim,
                    scale: 0.25,
                    window: self.window,
                    query_norm: None,
                    key_norm: None,
                    rope: &rope,
                };
                let at = (first + start) * self.width();
                let mut qkv = self.qkv[at..][..rows * self.width()].to_vec();
                let spans = [Span { first: 0, len: rows, start, table: &table }];
                cpu.store_kv(&mut qkv, &spans, &spec, &mut cache).unwrap();
                let mut part = vec![f32::NAN; rows * heads * head_dim];
                cpu.attend(&mut part, &qkv, &spans, &spec, &cache).unwrap();
                out[(first + start) * heads * head_dim..][..part.len()].copy_from_slice(&part);
            }
            first += len;
        }
        out
    }

    /// The textbook: softmax over everything the row may see, in f64, on keys and values as stored.
    fn twin(&self, dtype: CacheDtype) -> Vec<f64> {
        let (heads, kv_heads, dim) = self.spec;
        let mut out = Vec::new();
        let mut first = 0;
        for len in &self.lens {
            let row = |t: usize| &self.qkv[(first + t) * self.width()..][..self.width()];
            let stored = |t: usize, head: usize| as_stored(dtype, &row(t)[head * dim..][..dim]);
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                let keys: Vec<_> = (0..*len).map(|t| stored(t, heads + kv)).collect();
                let values: Vec<_> = (0..*len).map(|t| stored(t, heads + kv_heads + kv)).collect();
                out.extend((0..*len).map(|i| {
                    let begin = self.window.map_or(0, |w| (i + 1).saturating_sub(w));
                    let scores: Vec<f64> =
                        keys[begin..=i].iter().map(|k| dot(&row(i)[h * dim..][..dim], k) * 0.25).collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    let value =
                        |d: usize| weights.iter().zip(&values[begin..]).map(|(w, v)| w / total * v[d]).sum();
                    ((first + i, h), (0..dim).map(value).collect::<Vec<f64>>())
                }));
            }
            first += len;
        }
        out.sort_by_key(|(place, _)| *place);
        out.into_iter().flat_map(|(_, values)| values).collect()
    }
}

/// One head's numbers after they were stored and read again.
fn as_stored(dtype: CacheDtype, x: &[f32]) -> Vec<f64> {
    match dtype {
        CacheDtype::F16 => x.iter().map(|x| f16::from_f32(*x).to_f64()).collect(),
        CacheDtype::Bf16 => x.iter().map(|x| bf16::from_f32(*x).to_f64()).collect(),
        CacheDtype::Int8 => {
            let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
            x.iter().map(|x| f64::from((x * (1.0 / scale)).round_ties_even()) * f64::from(scale)).collect()
        }
    }
}

const DTYPES: [CacheDtype; 3] = [CacheDtype::F16, CacheDtype::Bf16, CacheDtype::Int8];

fn worst(ours: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(ours.len(), expected.len());
    // f64::max would skip what is not a number.
    let errors = ours.iter().zip(expected).map(|(ours, expected)| (f64::from(*ours) - expected).abs());
    errors.fold(0.0, |worst, error| if error <= worst { worst } else { error })
}

/// What remains is the kernel's own rounding, so the tolerance is one for all.
#[test]
fn attention_equals_the_textbook_over_a_poisoned_cache() {
    let mut random = Random(17);
    for (spec, lens) in
        [((3, 1, 64), vec![70, 1]), ((4, 4, 16), vec![33]), ((7, 1, 32), vec![300]), ((14, 2, 64), vec![20])]
    {
        let attending = Attending::new(spec, None, &lens, &mut random);
        for dtype in DTYPES {
            let expected = attending.twin(dtype);
            for isa in Isa::available() {
                let error = worst(&attending.run(Cut { dtype, ..Cut::on(isa) }), &expected);
                assert!(error < 2e-6, "{spec:?} {dtype:?} on {}: {error}", isa.name());
            }
        }
    }
}

/// A byte is within half a step, 1/254 of its token's largest number, here 1; bf16 within 1/512 of the
/// number itself. Errors of both signs mostly cancel in sums of 64 products, and in values that are
/// means over hundreds of tokens.
#[test]
fn bytes_come_close_to_f16() {
    let mut random = Random(29);
    let attending = Attending::new((4, 2, 64), None, &[300], &mut random);
    let exact = attending.run(Cut::on(Isa::detect())).iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
    for (dtype, most) in [(CacheDtype::Bf16, 0.005), (CacheDtype::Int8, 0.012)] {
        let error = worst(&attending.run(Cut { dtype, ..Cut::on(Isa::detect()) }), &exact);
        println!("{dtype:?}: {error:.5} at worst from f16, where values are {size:.5} in the mean");
        assert!(error > 0.0 && error < most, "{dtype:?}: {error}");
    }
}

/// BUGLOG A05, A07: each row sees exactly the last w keys, whatever the prompt's length.
#[test]
fn a_window_is_exact_at_and_beyond_its_length() {
    let mut random = Random(19);
    for (window, len) in [(2, 4), (20, 20), (20, 21), (20, 40), (20, 80), (300, 620)] {
        let attending = Attending::new((2, 1, 16), Some(window), &[len], &mut random);
        let expected = attending.twin(CacheDtype::F16);
        for isa in Isa::available() {
            let error = worst(&attending.run(Cut::on(isa)), &expected);
            assert!(error < 2e-6, "window {window} of {len} on {}: {error}", isa.name());
        }
    }
}

/// Work is cut differently for one row and for many, for one thread and for several.
#[test]
fn attention_does_not_depend_on_how_the_work_is_cut() {
    let mut random = Random(23);
    for window in [None, Some(270)] {
        let attending = Attending::new((3, 1, 32), window, &[600, 9], &mut random);
        for dtype in DTYPES {
            let cut = Cut { dtype, threads: 1, ..Cut::on(Isa::detect()) };
            let expected = attending.run(cut);
            for (threads, chunk) in [(2, 1000), (2, 1), (3, 7), (4, 64)] {
                let cut = Cut { threads, chunk, ..cut };
                assert!(attending.run(cut) == expected, "{cut:?}");
            }
        }
    }
}

/// Nor on how long blocks are, whether they divide a split or lie across its edge. Behind the window
/// stands the null block, which here holds no numbers at all.
#[test]
fn attention_does_not_depend_on_the_block_size() {
    let mut random = Random(31);
    for window in [None, Some(20), Some(270)] {
        let attending = Attending::new((3, 1, 32), window, &[600, 9], &mut random);
        for dtype in DTYPES {
            for isa in Isa::available() {
                let expected = attending.run(Cut { dtype, ..Cut::on(isa) });
                assert!(expected.iter().all(|x| x.is_finite()));
                for (block_size, chunk) in
                    [(1, 1000), (5, 1000), (5, 7), (16, 33), (48, 1000), (255, 64), (256, 50)]
                {
                    let cut = Cut { dtype, block_size, chunk, ..Cut::on(isa) };
                    assert!(attending.run(cut) == expected, "window {window:?}, {cut:?}");
                }
            }
        }
    }
}

/// Bytes could not say that a number went wrong: their scale does.
#[test]
fn what_is_not_finite_stays_so_in_the_cache() {
    let mut random = Random(37);
    for dtype in DTYPES {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut attending = Attending::new((1, 1, 16), None, &[3], &mut random);
            attending.qkv[2 * 16 + 5] = bad; // a value of the first token
            for isa in Isa::available() {
                let out = attending.run(Cut { dtype, ..Cut::on(isa) });
                assert!(!out[2 * 16 + 5].is_finite(), "{dtype:?} {bad} on {}", isa.name());
            }
        }
    }
}

const SMALL: CacheShape =
    CacheShape { blocks: 4, block_size: 16, kv_heads: 2, head_dim: 16, dtype: CacheDtype::F16 };

#[test]
fn a_block_is_copied_or_moved_whole_and_nothing_else_changes() {
    for (block_size, dtype) in [(16, CacheDtype::F16), (5, CacheDtype::Bf16), (7, CacheDtype::Int8)] {
        let mut cpu = Cpu::new(Some(1));
        let shape = CacheShape { block_size, dtype, ..SMALL };
        let mut cache = cpu.cache(shape).unwrap();
        cache.bytes_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 / 5) as u8);
        let before = cache.bytes().to_vec();
        let len = shape.block_bytes();
        cpu.copy_blocks(&mut cache, &[(1, 3)]).unwrap();
        assert_eq!(cache.bytes()[3 * len..4 * len], before[len..2 * len]);
        assert_eq!(cache.bytes()[..3 * len], before[..3 * len]);
        let mut moved = vec![0; len];
        cpu.read_block(&cache, 2, &mut moved).unwrap();
        assert_eq!(moved, before[2 * len..3 * len]);
        cpu.write_block(&mut cache, 0, &moved).unwrap();
        assert_eq!(cache.bytes()[..len], moved);
        assert_eq!(cache.bytes()[len..3 * len], before[len..3 * len]);
    }
}

#[test]
fn shapes_the_kernels_cannot_do_are_refused_with_their_numbers() {
    let mut cpu = Cpu::new(Some(1));
    for (shape, number) in [
        (CacheShape { block_size: 0, ..SMALL }, "not 0"),
        (CacheShape { block_size: 257, ..SMALL }, "not 257"),
        (CacheShape { head_dim: 24, ..SMALL }, "not 24"),
        (CacheShape { head_dim: 1024, ..SMALL }, "not 1024"),
    ] {
        let refused = cpu.cache(shape).err().unwrap().to_string();
        assert!(refused.contains(number), "{refused}");
    }
}
