//! Attention and the cache it reads against their slow twins, in every dtype.
#![allow(clippy::unwrap_used)]

use super::tests::{Random, dot};
use super::*;
use crate::compute::{CacheDtype, RopeStyle, RopeTable};
use half::{bf16, f16};

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
