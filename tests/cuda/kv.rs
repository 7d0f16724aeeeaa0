use crate::harness::{Numbers, close, get, in_every_order, put};
use crate::paged::{Bytes, ELEMENTS, Slot, step, to_e4m3};
use glassbox::compute::cuda::kv::{self, Cache, Place, Store};
use glassbox::compute::cuda::rows::Norm;
use glassbox::compute::cuda::step::Work;
use glassbox::compute::cuda::{Gpu, Memory};
use glassbox::compute::{CacheDtype, CacheShape};
use glassbox::compute::{RopeStyle, RopeTable, Span};

/// A sum of squares in another order, a root, and two products and a sum of a rotation.
const SUMS: f32 = 4e-6;
const EPS: f32 = 1e-5;
/// Rows that a step of the bucket might have and this one has not.
const SURPLUS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: CacheDtype,
    dim: usize,
    heads: usize,
    kv_heads: usize,
    block_size: usize,
    style: RopeStyle,
    half: usize,
    norms: (bool, bool),
}

/// A sequence that decodes, two prompts, one of which goes on after a prefix, and their blocks.
fn spans(tables: &[Vec<u32>; 3]) -> [Span<'_>; 3] {
    let span = |i: usize, first, len, start| Span { first, len, start, table: &tables[i] };
    [span(0, 0, 1, 18), span(1, 1, 4, 15), span(2, 5, 2, 0)]
}
const ROWS: usize = 7;

fn tables(block_size: usize, blocks: usize) -> [Vec<u32>; 3] {
    let mut free: Vec<u32> =
        (1..blocks as u32).rev().step_by(2).chain((1..blocks as u32 - 1).rev().step_by(2)).collect();
    [19usize, 19, 2].map(|len| free.drain(..len.div_ceil(block_size)).collect())
}

/// The twin: what a head becomes.
fn made_ready(x: &[f32], norm: Option<&[f32]>, turn: Option<(&[f32], &[f32], RopeStyle)>) -> Vec<f32> {
    let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    if let Some(weight) = norm {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
        x.iter_mut().zip(weight).for_each(|(x, w)| *x *= scale * f64::from(*w));
    }
    if let Some((cos, sin, style)) = turn {
        for (i, (c, s)) in cos.iter().zip(sin).enumerate() {
            let (a, b) = match style {
                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                RopeStyle::Halves => (i, i + cos.len()),
            };
            let (c, s) = (f64::from(*c), f64::from(*s));
            (x[a], x[b]) = (x[a] * c - x[b] * s, x[a] * s + x[b] * c);
        }
    }
    x.into_iter().map(|x| x as f32).collect()
}

fn check(gpu: &Gpu, case: Case) {
    let Case { dtype, dim, heads, kv_heads, block_size, style, half, norms } = case;
    let mut numbers = Numbers::new((dim * heads + half) as u64);
    let shape =
        CacheShape { blocks: 64, block_size, kv_heads, head_dim: dim, dtype, latent: None, least_bytes: 0 };
    let tables = tables(block_size, shape.blocks);
    let spans = spans(&tables);
    let far = [vec![1, 2], vec![3, 4], vec![5, 6]];
    let others = [0, 1, 2].map(|i| Span { table: &far[i], ..spans[i] });
    let width = (heads + 2 * kv_heads) * dim;
    let qkv = numbers.units((ROWS + SURPLUS) * width);
    let (wq, wk) = (numbers.units(dim), numbers.units(dim));

    // Another rope and another group of caches stand in front of those that are asked for.
    let (mut first, mut rope) = (RopeTable::new(style), RopeTable::new(style));
    let positions = || spans.iter().flat_map(|span| span.start..span.start + span.len);
    first.fill(positions(), &[0.3; 5], 1.0);
    rope.fill(positions(), &(0..half).map(|i| 0.7f32.powi(i as i32)).collect::<Vec<_>>(), 1.0);
    let work = Work {
        tokens: &[0; ROWS],
        groups: &[&others, &spans],
        ropes: &[&first, &rope],
        wanted: &[],
        tile_rows: 16,
    };
    let before = Bytes::poisoned(shape);
    let (cache, d, step) = (before.put(gpu), put(gpu, &qkv), step(gpu, &work));
    let (dq, dk) = (put(gpu, &wq), put(gpu, &wk));
    let norm = |given: bool, weight| given.then_some(Norm { weight, eps: EPS });
    let (query_norm, key_norm) = (norm(norms.0, &dq), norm(norms.1, &dk));
    let store = Store { heads, rope: 1, style, query_norm, key_norm };
    let place = Place { step: &step, group: 1, rows: ROWS + SURPLUS, spans: 3 };
    kv::store(gpu, &d, &cache, place, &store).unwrap();

    let got: Vec<f32> = get(gpu, &d, qkv.len());
    assert_eq!(got[ROWS * width..], qkv[ROWS * width..], "{case:?}: rows that the step has not");
    let after = Bytes::of(gpu, &cache);
    let mut written = vec![false; after.bytes.len()];
    for (row, (span, i)) in spans.iter().flat_map(|s| (0..s.len).map(move |i| (s, i))).enumerate() {
        let turn = Some((&rope.cos[row * half..][..half], &rope.sin[row * half..][..half], style));
        let head = |head: usize| &qkv[row * width + head * dim..][..dim];
        for h in 0..heads {
            let wanted = made_ready(head(h), norms.0.then_some(&wq), turn);
            close(&format!("{case:?}: query"), &got[row * width + h * dim..][..dim], &wanted, SUMS);
        }
        let position = span.start + i;
        for h in 0..kv_heads {
            for value in [false, true] {
                let wanted = match value {
                    false => made_ready(head(heads + h), norms.1.then_some(&wk), turn),
                    true => head(heads + kv_heads + h).to_vec(),
                };
                let block = span.table[position / block_size] as usize;
                let slot = Slot { block, head: h, offset: position % block_size, value };
                compare(&after, slot, &wanted, &format!("{case:?} {slot:?}"));
                written[after.elements(slot)].fill(true);
                after.scale(slot).into_iter().for_each(|at| written[at].fill(true));
            }
        }
    }
    for (i, byte) in after.bytes.iter().enumerate() {
        assert!(written[i] || *byte == 0xff, "{case:?}: byte {i} is nobody's");
    }
}

/// Half a step of the format around every value, and what sums may be off.
fn compare(after: &Bytes, slot: Slot, wanted: &[f32], what: &str) {
    let (got, scale) = (after.read(slot), after.scale_of(slot));
    let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (got, wanted) in got.iter().zip(wanted) {
        let half_a_step = match after.shape.dtype {
            CacheDtype::F16 => wanted.abs() / 2048.0 + 3e-8,
            CacheDtype::Bf16 => wanted.abs() / 256.0,
            CacheDtype::Int8 => scale / 2.0,
            CacheDtype::Fp8 => (wanted.abs() / 16.0).max(scale / 1024.0),
        };
        let off = (got - wanted).abs();
        assert!(off <= half_a_step * 1.001 + SUMS * (1.0 + most), "{what}: {got} for {wanted}");
    }
    if after.shape.dtype.is_scaled() {
        let largest = if after.shape.dtype == CacheDtype::Int8 { 127.0 } else { 448.0 };
        close(&format!("{what}: scale"), &[scale * largest], &[most], SUMS);
    }
}

#[test]
fn heads_are_normalised_rotated_and_stored() {
    in_every_order(|gpu| {
        let mut n = 0;
        for dim in [16, 64, 80, 128, 192, 512] {
            for dtype in ELEMENTS {
                let style = [RopeStyle::Halves, RopeStyle::Interleaved][n % 2];
                let half = [dim / 2, dim / 4, 5][n % 3];
                let block_size = [16, 1, 17, 32][n / 2 % 4];
                let norms = (n / 3 % 2 == 0, n / 4 % 2 == 0);
                let (heads, kv_heads) = [(4, 2), (3, 1), (3, 3)][n % 3];
                check(gpu, Case { dtype, dim, heads, kv_heads, block_size, style, half, norms });
                n += 1;
            }
        }
    });
}

/// Values of one head as they are, in one token of one block.
fn store_values(gpu: &Gpu, dtype: CacheDtype, values: &[f32]) -> (Bytes, Slot) {
    let shape = CacheShape {
        blocks: 2,
        block_size: 1,
        kv_heads: 1,
        head_dim: values.len(),
        dtype,
        latent: None,
        least_bytes: 0,
    };
    let spans = [Span { first: 0, len: 1, start: 0, table: &[1] }];
    let mut rope = RopeTable::new(RopeStyle::Halves);
    rope.fill(0..1, &[1.0], 1.0);
    let work = Work { tokens: &[0], groups: &[&spans], ropes: &[&rope], wanted: &[], tile_rows: 16 };
    let qkv: Vec<f32> = [&vec![1.0; 2 * values.len()], values].concat();
    let (d, step) = (put(gpu, &qkv), step(gpu, &work));
    let cache = Cache::new(gpu, shape).unwrap();
    let store = Store { heads: 1, rope: 0, style: RopeStyle::Halves, query_norm: None, key_norm: None };
    kv::store(gpu, &d, &cache, Place { step: &step, group: 0, rows: 1, spans: 1 }, &store).unwrap();
    (Bytes::of(gpu, &cache), Slot { block: 1, head: 0, offset: 0, value: true })
}

/// With a largest value that makes the scale 1, so that rounding is all that happens: every number there
/// is, the middle between it and the next, and a little to both sides of that.
#[test]
fn bytes_are_rounded_to_the_nearest() {
    let step_to_next = |number: f32, next: f32| {
        let middle = f32::midpoint(number, next);
        [number, middle, middle.next_up(), middle.next_down(), -middle, -number]
    };
    in_every_order(|gpu| {
        let mut fp8: Vec<f32> = (0..0x7e)
            .flat_map(|code| step_to_next(crate::paged::e4m3(code), crate::paged::e4m3(code + 1)))
            .collect();
        fp8.truncate(4 * 256);
        for values in fp8.chunks(255) {
            let mut values = values.to_vec();
            values.resize(256, 448.0);
            let (after, slot) = store_values(gpu, CacheDtype::Fp8, &values);
            assert_eq!(after.scale_of(slot), 1.0);
            let wanted: Vec<u8> = values.iter().map(|x| to_e4m3(*x)).collect();
            assert_eq!(after.bytes[after.elements(slot)], wanted);
        }
        let mut int8: Vec<f32> =
            (0..84).flat_map(|i| step_to_next(i as f32 * 1.5, i as f32 * 1.5 + 1.0)).collect();
        int8.resize(512, 127.0);
        let (after, slot) = store_values(gpu, CacheDtype::Int8, &int8);
        assert_eq!(after.scale_of(slot), 1.0);
        let wanted: Vec<u8> = int8.iter().map(|x| x.round_ties_even() as i8 as u8).collect();
        assert_eq!(after.bytes[after.elements(slot)], wanted);
    });
}

/// Bytes cannot be NaN or infinite: their scale is not a number. Zeros stay zeros.
#[test]
fn what_is_no_number_stays_none() {
    in_every_order(|gpu| {
        for dtype in ELEMENTS {
            let mut values = Numbers::new(5).units(48);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                values[31] = bad;
                let (after, slot) = store_values(gpu, dtype, &values);
                assert!(!after.read(slot)[31].is_finite(), "{dtype:?} {bad}");
                assert!(!dtype.is_scaled() || after.scale_of(slot).is_nan());
            }
            let (after, slot) = store_values(gpu, dtype, &[0.0; 48]);
            assert_eq!(after.read(slot), [0.0; 48], "{dtype:?}");
        }
    });
}

fn pairs(gpu: &Gpu, copies: &[(u32, u32)]) -> Memory {
    let flat: Vec<u32> = copies.iter().flat_map(|(from, to)| [*from, *to]).collect();
    put(gpu, &flat)
}

#[test]
fn blocks_are_copied_read_and_written_whole() {
    in_every_order(|gpu| {
        for (dtype, block_size, kv_heads) in [
            (CacheDtype::F16, 16, 2),
            (CacheDtype::Bf16, 5, 1),
            (CacheDtype::Int8, 17, 1),
            (CacheDtype::Fp8, 32, 3),
        ] {
            let shape = CacheShape {
                blocks: 7,
                block_size,
                kv_heads,
                head_dim: 48,
                dtype,
                latent: None,
                least_bytes: 0,
            };
            let len = shape.block_bytes();
            let cache = Cache::new(gpu, shape).unwrap();
            assert_eq!(Bytes::of(gpu, &cache).bytes, vec![0; 7 * len], "a cache begins as zeros");
            let mut wanted = Numbers::new(len as u64).bytes(7 * len);
            gpu.write(cache.memory().at(0), &wanted).unwrap();

            let copies = [(1, 2), (1, 3), (2, 6), (4, 1)];
            let list = pairs(gpu, &copies);
            let runs: Vec<_> = kv::at_once(&copies).collect();
            assert_eq!(runs, [0..2, 2..4]);
            runs.into_iter().for_each(|run| kv::copy_blocks(gpu, &cache, &list, run).unwrap());
            for (from, to) in copies {
                wanted.copy_within(from as usize * len..(from as usize + 1) * len, to as usize * len);
            }
            assert_eq!(Bytes::of(gpu, &cache).bytes, wanted, "{shape:?}");

            let mut by = gpu.pinned(len).unwrap();
            let mut block = vec![0; len];
            kv::read_block(gpu, std::slice::from_ref(&cache), 6, &mut by, &mut block).unwrap();
            assert_eq!(block, wanted[6 * len..]);
            kv::write_block(gpu, std::slice::from_ref(&cache), 5, &mut by, &block).unwrap();
            wanted.copy_within(6 * len..7 * len, 5 * len);
            assert_eq!(Bytes::of(gpu, &cache).bytes, wanted, "{shape:?}");
        }
    });
}

#[test]
fn shapes_that_no_kernel_has_are_refused() {
    in_every_order(|gpu| {
        let shape = CacheShape {
            blocks: 1,
            block_size: 16,
            kv_heads: 1,
            head_dim: 64,
            dtype: CacheDtype::F16,
            latent: None,
            least_bytes: 0,
        };
        for (bad, what) in [
            (CacheShape { block_size: 257, ..shape }, "block_size of 1 to 256"),
            (CacheShape { head_dim: 72, ..shape }, "multiple of 16"),
            (CacheShape { head_dim: 528, ..shape }, "up to 512"),
        ] {
            let said = Cache::new(gpu, bad).err().unwrap();
            assert!(said.0.contains(what), "{said}");
        }
    });
}
