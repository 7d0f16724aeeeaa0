use crate::harness::{Numbers, close, get, in_every_order, put};
use crate::paged::{self, Bytes, ELEMENTS, Slot, step, to_e4m3};
use glassbox::compute::cuda::kv::{self, Cache, HeadNorm, Place, Store};
use glassbox::compute::cuda::rows::Norm;
use glassbox::compute::cuda::step::Work;
use glassbox::compute::cuda::{Gpu, Memory};
use glassbox::compute::{CacheDtype, CacheShape, NormKind, RopeStyle, RopeTable, Span};

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
    /// Pairs that turn; none where there is no rope.
    half: usize,
    norms: [Option<By>; 2],
    least_bytes: usize,
}

/// How heads are normalised.
#[derive(Clone, Copy, Debug)]
struct By {
    kind: NormKind,
    bias: bool,
    /// Each head by weights of its own.
    each: bool,
}

const RMS: By = By { kind: NormKind::Rms, bias: false, each: false };
const LAYER: By = By { kind: NormKind::Layer, bias: true, each: true };
const MIXED: By = By { kind: NormKind::Layer, bias: false, each: false };
const OWN: By = By { kind: NormKind::Rms, bias: true, each: true };

/// Weights of a norm and its bias: of one head, or of each.
struct Weights {
    by: By,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Weights {
    fn new(by: By, heads: usize, dim: usize, numbers: &mut Numbers) -> Self {
        let len = if by.each { heads * dim } else { dim };
        Self { by, weight: numbers.units(len), bias: numbers.units(len) }
    }

    /// The twin.
    fn normalise(&self, x: &mut [f64], head: usize) {
        let (n, first) = (x.len() as f64, if self.by.each { head * x.len() } else { 0 });
        let mean = if self.by.kind == NormKind::Layer { x.iter().sum::<f64>() / n } else { 0.0 };
        let scale = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + f64::from(EPS)).sqrt();
        for (i, x) in x.iter_mut().enumerate() {
            let bias = if self.by.bias { f64::from(self.bias[first + i]) } else { 0.0 };
            *x = (*x - mean) * scale * f64::from(self.weight[first + i]) + bias;
        }
    }

    fn put(&self, gpu: &Gpu) -> (Memory, Memory) {
        (put(gpu, &self.weight), put(gpu, &self.bias))
    }

    fn on<'a>(&self, (weight, bias): &'a (Memory, Memory)) -> HeadNorm<'a> {
        let By { kind, bias: with, each } = self.by;
        HeadNorm { norm: Norm { weight, bias: with.then_some(bias), eps: EPS, kind }, each }
    }
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
fn made_ready(
    x: &[f32],
    norm: Option<(&Weights, usize)>,
    turn: Option<(&[f32], &[f32], RopeStyle)>,
) -> Vec<f32> {
    let mut x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    if let Some((weights, head)) = norm {
        weights.normalise(&mut x, head);
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
    let Case { dtype, dim, heads, kv_heads, block_size, style, half, norms, least_bytes } = case;
    let mut numbers = Numbers::new((dim * heads + half) as u64);
    let shape =
        CacheShape { blocks: 64, block_size, kv_heads, head_dim: dim, dtype, latent: None, least_bytes };
    let tables = tables(block_size, shape.blocks);
    let spans = spans(&tables);
    let far = [vec![1, 2], vec![3, 4], vec![5, 6]];
    let others = [0, 1, 2].map(|i| Span { table: &far[i], ..spans[i] });
    let width = (heads + 2 * kv_heads) * dim;
    let qkv = numbers.units((ROWS + SURPLUS) * width);
    let [wq, wk] = [(norms[0], heads), (norms[1], kv_heads)]
        .map(|(by, heads)| by.map(|by| Weights::new(by, heads, dim, &mut numbers)));

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
    let [dq, dk] = [&wq, &wk].map(|w| w.as_ref().map(|w| w.put(gpu)));
    let norm = |w: &Option<Weights>, d| w.as_ref().zip(d).map(|(w, d)| w.on(d));
    let rope_of = (half > 0).then_some((1, style));
    let store =
        Store { heads, rope: rope_of, query_norm: norm(&wq, dq.as_ref()), key_norm: norm(&wk, dk.as_ref()) };
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
            let wanted = made_ready(head(h), wq.as_ref().map(|w| (w, h)), turn);
            close(&format!("{case:?}: query"), &got[row * width + h * dim..][..dim], &wanted, SUMS);
        }
        let position = span.start + i;
        for h in 0..kv_heads {
            for value in [false, true] {
                let wanted = match value {
                    false => made_ready(head(heads + h), wk.as_ref().map(|w| (w, h)), turn),
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
            CacheDtype::F32 => 0.0,
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
                let half = [dim / 2, dim / 4, 5, 0][n % 4];
                let block_size = [16, 1, 17, 32][n / 2 % 4];
                let kinds = [Some(RMS), Some(LAYER), None, Some(MIXED), Some(OWN)];
                let norms = [kinds[n % 5], kinds[(n + n / 5) % 5]];
                let least_bytes = if n % 3 == 0 { 1 << 20 | 4 } else { 0 };
                let (heads, kv_heads) = [(4, 2), (3, 1), (3, 3)][n % 3];
                check(gpu, Case { dtype, dim, heads, kv_heads, block_size, style, half, norms, least_bytes });
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
    let store = Store { heads: 1, rope: None, query_norm: None, key_norm: None };
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
        for (dtype, block_size, kv_heads, least_bytes) in [
            (CacheDtype::F16, 16, 2, 0),
            (CacheDtype::Bf16, 5, 1, 4004),
            (CacheDtype::Int8, 17, 1, 0),
            (CacheDtype::Fp8, 32, 3, 0),
        ] {
            let shape = CacheShape {
                blocks: 7,
                block_size,
                kv_heads,
                head_dim: 48,
                dtype,
                latent: None,
                least_bytes,
            };
            let (len, own) = (paged::stride(&shape), shape.block_bytes());
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

            let mut by = gpu.pinned(own).unwrap();
            let mut block = vec![0; own];
            kv::read_block(gpu, std::slice::from_ref(&cache), 6, &mut by, &mut block).unwrap();
            assert_eq!(block, wanted[6 * len..][..own]);
            kv::write_block(gpu, std::slice::from_ref(&cache), 5, &mut by, &block).unwrap();
            wanted.copy_within(6 * len..6 * len + own, 5 * len);
            assert_eq!(Bytes::of(gpu, &cache).bytes, wanted, "{shape:?}");
        }
    });
}

#[test]
fn shapes_that_no_kernel_has_are_refused() {
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
        (CacheShape { latent: Some(48), ..shape }, "latent"),
        (CacheShape { dtype: CacheDtype::F32, ..shape }, "not of f32"),
    ] {
        let said = kv::check(&bad).unwrap_err();
        assert!(said.0.contains(what), "{said}");
    }
}
