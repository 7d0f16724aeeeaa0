//! Attention and the cache it reads against their slow twins, in every dtype.
#![allow(clippy::unwrap_used)]

use super::tests::{Random, dot};
use super::*;
use crate::compute::{CacheDtype, HeadNorm, NormKind, Over, RopeStyle, RopeTable};
use half::{bf16, f16};
use proptest::prelude::*;

/// A layer's attention over a paged cache whose unused cells are poisoned.
struct Attending {
    spec: (usize, usize, usize), // heads, kv heads, head_dim
    window: Option<usize>,
    lens: Vec<usize>,
    /// Dimensions that the rotation turns, which the textbook does not know.
    turned: usize,
    cap: Option<f32>,
    /// One for each head, or none.
    sinks: Vec<f32>,
    /// Values are the keys' elements from here on.
    latent: Option<usize>,
    /// A block's.
    least_bytes: usize,
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
    /// Chunks of all sequences in one launch; else each in one of its own.
    together: bool,
}

impl Cut {
    fn on(isa: Isa) -> Self {
        Self { isa, threads: 2, chunk: 1000, block_size: 16, dtype: CacheDtype::F16, together: false }
    }
}

impl Attending {
    fn new(spec: (usize, usize, usize), window: Option<usize>, lens: &[usize], random: &mut Random) -> Self {
        let width = (spec.0 + 2 * spec.1) * spec.2;
        let qkv = random.reals(lens.iter().sum::<usize>() * width);
        let lens = lens.to_vec();
        Self { spec, window, lens, turned: 0, cap: None, sinks: vec![], latent: None, least_bytes: 0, qkv }
    }

    /// The same with values inside the keys.
    fn latent(self, latent: usize) -> Self {
        let rows: usize = self.lens.iter().sum();
        let new = Self { latent: Some(latent), ..self };
        Self { qkv: new.qkv[..rows * new.width()].to_vec(), ..new }
    }

    fn width(&self) -> usize {
        (self.spec.0 + if self.latent.is_some() { 1 } else { 2 } * self.spec.1) * self.spec.2
    }

    fn value_dim(&self) -> usize {
        self.spec.2 - self.latent.unwrap_or(0)
    }

    /// One of the sequences.
    fn alone(&self, sequence: usize) -> Self {
        let first = self.lens[..sequence].iter().sum::<usize>() * self.width();
        let len = self.lens[sequence];
        let qkv = self.qkv[first..][..len * self.width()].to_vec();
        Self { lens: vec![len], sinks: self.sinks.clone(), qkv, ..*self }
    }

    /// What each launch computes: chunks of sequences, from a position on.
    fn launches(&self, cut: Cut) -> Vec<Vec<(usize, usize)>> {
        let chunks = |(sequence, len): (usize, &usize)| {
            (0..*len).step_by(cut.chunk).map(move |start| (sequence, start)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.lens.iter().enumerate().flat_map(chunks).collect();
        if !cut.together {
            return all.into_iter().map(|chunk| vec![chunk]).collect();
        }
        all.sort_by_key(|(_, start)| *start);
        all.chunk_by(|a, b| a.1 == b.1).map(<[_]>::to_vec).collect()
    }

    /// Everything at once, or each sequence in chunks; without the blocks that its window has left
    /// behind.
    fn run(&self, cut: Cut) -> Vec<f32> {
        let (heads, kv_heads, head_dim) = self.spec;
        let Cut { isa, threads, chunk, block_size, dtype, .. } = cut;
        let mut cpu = Cpu::with_isa(Some(threads), isa);
        let blocks: usize = self.lens.iter().map(|len| len.div_ceil(block_size)).sum();
        let shape = CacheShape {
            blocks: blocks + 1,
            block_size,
            kv_heads,
            head_dim,
            dtype,
            latent: self.latent,
            least_bytes: self.least_bytes,
        };
        let mut cache = cpu.cache(shape).unwrap();
        // BUGLOG A10: cells that hold no token are never part of a result. 0x7fff is not a number as
        // f16 and as bf16, 0x7bff is huge; four bytes of 0x7f.. are not a number either.
        for (i, byte) in cache.bytes_mut().iter_mut().enumerate() {
            *byte = [0xff, 0x7f, 0xff, 0x7b, 0xff, 0xff, 0xff, 0x7f][i % 8];
        }
        let mut free = 1..=blocks as u32;
        // Blocks lie in no particular order.
        let table_of = |len: &usize| {
            let mut table: Vec<u32> = free.by_ref().take(len.div_ceil(block_size)).collect();
            table.reverse();
            table
        };
        let mut tables: Vec<_> = self.lens.iter().map(table_of).collect();
        let mut out = vec![f32::NAN; self.lens.iter().sum::<usize>() * heads * self.value_dim()];
        let frequencies: Vec<f32> = (0..self.turned / 2).map(|i| 0.7f32.powi(i as i32)).collect();
        for launch in self.launches(cut) {
            let (mut qkv, mut positions, mut places) = (Vec::new(), Vec::new(), Vec::new());
            for (sequence, start) in &launch {
                let gone = self.window.map_or(0, |w| (start + 1).saturating_sub(w)) / block_size;
                tables[*sequence][..gone].fill(0);
                let (len, first) = (self.lens[*sequence], self.lens[..*sequence].iter().sum::<usize>());
                let end = len.min(start + chunk);
                let at = (first + start) * self.width()..(first + end) * self.width();
                places.push((first + start, positions.len(), end - start));
                qkv.extend_from_slice(&self.qkv[at]);
                positions.extend(*start..end);
            }
            let span = |((sequence, start), (_, first, len)): (&(usize, usize), &(usize, usize, usize))| {
                Span { first: *first, len: *len, start: *start, table: &tables[*sequence] }
            };
            let spans: Vec<Span> = launch.iter().zip(&places).map(span).collect();
            let mut rope = RopeTable::new(RopeStyle::Halves);
            rope.fill(positions.iter().copied(), &frequencies, 1.0);
            let spec = AttentionSpec {
                heads,
                kv_heads,
                head_dim,
                scale: 0.25,
                window: self.window,
                query_norm: None,
                key_norm: None,
                rope: (self.turned > 0).then_some(&rope),
                soft_cap: self.cap,
                sinks: (!self.sinks.is_empty()).then_some(&self.sinks),
                latent: self.latent,
                group: 0,
                rope_index: 0,
            };
            cpu.store_kv(&mut qkv, &spans, &spec, &mut cache).unwrap();
            let mut part = vec![f32::NAN; positions.len() * heads * self.value_dim()];
            cpu.attend(&mut part, &qkv, &spans, &spec, &cache).unwrap();
            for (to, from, len) in places {
                let row = heads * self.value_dim();
                out[to * row..][..len * row].copy_from_slice(&part[from * row..][..len * row]);
            }
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
                let values: Vec<_> = match self.latent {
                    Some(latent) => keys.iter().map(|k| k[latent..].to_vec()).collect(),
                    None => (0..*len).map(|t| stored(t, heads + kv_heads + kv)).collect(),
                };
                out.extend((0..*len).map(|i| {
                    let begin = self.window.map_or(0, |w| (i + 1).saturating_sub(w));
                    let capped =
                        |s: f64| self.cap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh());
                    let score = |k: &Vec<f64>| capped(dot(&row(i)[h * dim..][..dim], k) * 0.25);
                    let scores: Vec<f64> = keys[begin..=i].iter().map(score).collect();
                    let sink = self.sinks.get(h).map_or(f64::NEG_INFINITY, |sink| f64::from(*sink));
                    let largest = scores.iter().copied().fold(sink, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
                    let total: f64 = weights.iter().sum::<f64>() + (sink - largest).exp();
                    let value =
                        |d: usize| weights.iter().zip(&values[begin..]).map(|(w, v)| w / total * v[d]).sum();
                    ((first + i, h), (0..self.value_dim()).map(value).collect::<Vec<f64>>())
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
        CacheDtype::F32 => x.iter().map(|x| f64::from(*x)).collect(),
        CacheDtype::F16 => x.iter().map(|x| f16::from_f32(*x).to_f64()).collect(),
        CacheDtype::Bf16 => x.iter().map(|x| bf16::from_f32(*x).to_f64()).collect(),
        CacheDtype::Int8 => {
            let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
            x.iter().map(|x| f64::from((x * (1.0 / scale)).round_ties_even()) * f64::from(scale)).collect()
        }
        CacheDtype::Fp8 => {
            let scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0;
            x.iter().map(|x| e4m3(x * (1.0 / scale)) * f64::from(scale)).collect()
        }
    }
}

/// The nearest number of four significant bits, none finer than 2^-9.
fn e4m3(x: f32) -> f64 {
    let x = f64::from(x).clamp(-448.0, 448.0);
    let step = 2f64.powf(x.abs().log2().floor().max(-6.0) - 3.0);
    (x / step).round_ties_even() * step
}

const DTYPES: [CacheDtype; 5] =
    [CacheDtype::F32, CacheDtype::F16, CacheDtype::Bf16, CacheDtype::Int8, CacheDtype::Fp8];

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

/// A byte is within half a step, 1/254 of its token's largest number, here 1; bf16 within 1/512 and
/// e4m3 within 1/16 of the number itself. Errors of both signs mostly cancel in sums of 64 products, and in values that are
/// means over hundreds of tokens.
#[test]
fn bytes_come_close_to_f16() {
    let mut random = Random(29);
    let attending = Attending::new((4, 2, 64), None, &[300], &mut random);
    let exact = attending.run(Cut::on(Isa::detect())).iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
    for (dtype, most) in [
        (CacheDtype::F32, 0.001),
        (CacheDtype::Bf16, 0.005),
        (CacheDtype::Int8, 0.012),
        (CacheDtype::Fp8, 0.05),
    ] {
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
                    [(1, 1000), (5, 1000), (5, 7), (16, 33), (48, 1000), (255, 64), (256, 50), (1024, 90)]
                {
                    let cut = Cut { dtype, block_size, chunk, ..Cut::on(isa) };
                    assert!(attending.run(cut) == expected, "window {window:?}, {cut:?}");
                }
            }
        }
    }
}

/// A layer, what attends in it, and another way to cut the same work.
#[derive(Clone, Debug)]
struct Layer {
    spec: (usize, usize, usize),
    window: Option<usize>,
    lens: Vec<usize>,
    cuts: [Cut; 2],
    /// A cap, sinks, values inside the keys, blocks longer than need be.
    extras: [bool; 4],
    seed: u32,
}

/// Short sequences under many heads, or one that goes past the edges of splits, which lie at 256 and
/// 512, under a few. Chunks begin at the edges of blocks and splits and beside them.
fn layer() -> impl Strategy<Value = Layer> {
    let short = prop::collection::vec(1..50usize, 1..=3);
    let long = (250..530usize, 1..20usize).prop_map(|(long, short)| vec![short, long]);
    let heads = |most: usize, dims: &'static [usize]| (1..=9usize, 1..=most, prop::sample::select(dims));
    let shape = prop_oneof![
        4 => (short, heads(3, &[1, 16, 20, 48, 64, 72, 80, 128, 256])),
        1 => (long, heads(1, &[16, 24, 48])),
    ];
    let window = prop::option::of(prop_oneof![1..40usize, 250..300usize]);
    let cut = || {
        let sizes = prop::sample::select(vec![1, 2, 5, 16, 17, 32, 256usize]);
        let chunk = prop::sample::select(vec![1, 3, 7, 16, 17, 32, 255, 256, 257, 1000usize]);
        (sizes, chunk, 1..=3usize, any::<bool>())
    };
    let dtype = prop::sample::select(DTYPES.to_vec());
    (shape, window, dtype, [cut(), cut()], any::<[bool; 4]>(), any::<u32>()).prop_map(
        |((lens, heads), window, dtype, cuts, extras, seed)| {
            let cuts = cuts.map(|(block_size, chunk, threads, together)| Cut {
                isa: Isa::Portable,
                threads,
                chunk,
                block_size,
                dtype,
                together,
            });
            let (group, kv_heads, dim) = heads;
            Layer { spec: (group * kv_heads, kv_heads, dim), window, lens, cuts, extras, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.min(if cfg!(debug_assertions) { 16 } else { 100 }),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn attention_is_right_whatever_the_shape_and_the_same_however_it_is_cut(layer in layer()) {
        let Layer { spec, window, lens, cuts: [cut, other], extras: [cap, sinks, latent, long], seed } = layer;
        let random = &mut Random(u64::from(seed));
        let mut attending = Attending::new(spec, window, &lens, random);
        if latent {
            attending = attending.latent(spec.2 / 3);
        }
        attending.cap = cap.then_some(0.7);
        attending.sinks = if sinks { random.reals(spec.0) } else { vec![] };
        attending.least_bytes = if long { 40_000 } else { 0 };
        let expected = attending.twin(cut.dtype);
        let mut vectors: Option<Vec<f32>> = None;
        for isa in Isa::available() {
            attending.turned = 0;
            let out = attending.run(Cut { isa, ..cut });
            let error = worst(&out, &expected);
            prop_assert!(error < 3e-6, "{isa}: {error}");
            // Fused multiply-adds are the same in every set that has them.
            if isa != Isa::Portable {
                prop_assert!(*vectors.get_or_insert_with(|| out.clone()) == out, "{isa} differs");
            }
            attending.turned = spec.2 / 2 * 2;
            let out = attending.run(Cut { isa, ..cut });
            prop_assert!(out.iter().all(|x| x.is_finite()));
            prop_assert!(attending.run(Cut { isa, ..other }) == out, "{isa}: cut otherwise");
            let sequence = seed as usize % lens.len();
            let row = spec.0 * attending.value_dim();
            let first = lens[..sequence].iter().sum::<usize>() * row;
            let alone = attending.alone(sequence).run(Cut { isa, ..other });
            prop_assert!(alone == out[first..][..alone.len()], "{isa}: sequence {sequence} alone");
        }
    }
}

/// A latent cache of DeepSeek-V2's size, whose one key head serves all queries; a head as odd as Phi-2's.
#[test]
fn heads_of_any_size_are_attended_to_over_a_poisoned_cache() {
    let mut random = Random(41);
    let wide = Attending::new((5, 1, 576), None, &[37, 3], &mut random).latent(64);
    let odd = Attending::new((4, 2, 20), Some(20), &[50, 16], &mut random);
    for (attending, dtypes) in [(wide, &DTYPES[..2]), (odd, &DTYPES)] {
        for dtype in dtypes {
            let expected = attending.twin(*dtype);
            for isa in Isa::available() {
                let cut = Cut { dtype: *dtype, ..Cut::on(isa) };
                let out = attending.run(cut);
                let error = worst(&out, &expected);
                assert!(error < 3e-6, "{:?} {dtype:?} on {isa}: {error}", attending.spec);
                assert!(attending.run(Cut { chunk: 13, block_size: 5, threads: 3, ..cut }) == out, "{isa}");
            }
        }
    }
}

/// With a sink far above every score a row is next to nothing, far below it is as without; neither is NaN.
#[test]
fn sinks_take_their_part_of_the_softmax() {
    let mut random = Random(43);
    let mut attending = Attending::new((2, 1, 16), None, &[300], &mut random);
    for isa in Isa::available() {
        attending.sinks = vec![];
        let without = attending.run(Cut::on(isa));
        for low in [-200.0, f32::NEG_INFINITY] {
            attending.sinks = vec![low; 2];
            assert_eq!(attending.run(Cut::on(isa)), without, "{isa}");
        }
        attending.sinks = vec![80.0; 2];
        assert!(attending.run(Cut::on(isa)).iter().all(|x| x.abs() < 1e-25), "{isa}");
    }
}

/// Queries and keys of a row by themselves, by weights of their own or all together.
#[test]
fn heads_are_normalised_by_what_their_norm_is_over() {
    let (heads, kv_heads, dim, rows) = (4, 2, 24, 9);
    let (width, mut random) = ((heads + 2 * kv_heads) * dim, Random(47));
    let (weight, bias, qkv) =
        (random.reals(heads * dim), random.reals(heads * dim), random.reals(rows * width));
    let shape = CacheShape { block_size: 16, kv_heads, head_dim: dim, ..SMALL };
    for (over, kind) in [
        (Over::Head, NormKind::Rms),
        (Over::Head, NormKind::Layer),
        (Over::EachHead, NormKind::Layer),
        (Over::Heads, NormKind::Rms),
    ] {
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
            let whole = Norm::<Cpu> { weight: &weight, bias: Some(&bias), eps: 1e-6, kind };
            let (of_head, bias_of_head) = (weight[..dim].to_vec(), bias[..dim].to_vec());
            let one = Norm { weight: &of_head, bias: Some(&bias_of_head), ..whole };
            let (of_keys, bias_of_keys) =
                (weight[..kv_heads * dim].to_vec(), bias[..kv_heads * dim].to_vec());
            let keys = Norm { weight: &of_keys, bias: Some(&bias_of_keys), ..whole };
            let norm = |norm| Some(HeadNorm { norm: if over == Over::Head { one } else { norm }, over });
            let spec = AttentionSpec {
                heads,
                kv_heads,
                head_dim: dim,
                scale: 1.0,
                window: None,
                query_norm: norm(whole),
                key_norm: norm(keys),
                rope: None,
                soft_cap: None,
                sinks: None,
                latent: None,
                group: 0,
                rope_index: 0,
            };
            let mut cpu = Cpu::with_isa(Some(threads), isa);
            let mut cache = cpu.cache(shape).unwrap();
            let mut out = qkv.clone();
            let span = Span { first: 0, len: rows, start: 0, table: &[1] };
            cpu.store_kv(&mut out, &[span], &spec, &mut cache).unwrap();
            for (out, x) in out.chunks_exact(width).zip(qkv.chunks_exact(width)) {
                let mut expected = x.to_vec();
                for (first, count) in [(0, heads), (heads, kv_heads)] {
                    let part = |h: usize, n: usize| {
                        ((first + h) * dim..(first + h + n) * dim, h * dim..(h + n) * dim)
                    };
                    let parts: Vec<_> = match over {
                        Over::Head => (0..count).map(|h| (part(h, 1).0, 0..dim)).collect(),
                        Over::EachHead => (0..count).map(|h| part(h, 1)).collect(),
                        Over::Heads => vec![part(0, count)],
                    };
                    for (at, weights) in parts {
                        let norm = norm::RowNorm::from(whole).part(weights.start, weights.len());
                        norm::normalise(isa, &mut expected[at.clone()], &x[at], norm);
                    }
                }
                assert_eq!(out, expected, "{over:?} {kind:?} on {isa}");
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

const SMALL: CacheShape = CacheShape {
    blocks: 4,
    block_size: 16,
    kv_heads: 2,
    head_dim: 16,
    dtype: CacheDtype::F16,
    latent: None,
    least_bytes: 0,
};

#[test]
fn a_block_is_copied_or_moved_whole_and_nothing_else_changes() {
    let shapes = [
        (3, CacheDtype::F32),
        (16, CacheDtype::F16),
        (5, CacheDtype::Bf16),
        (7, CacheDtype::Int8),
        (9, CacheDtype::Fp8),
    ];
    for (block_size, dtype) in shapes {
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
        cpu.read_block(std::slice::from_ref(&cache), 2, &mut moved).unwrap();
        assert_eq!(moved, before[2 * len..3 * len]);
        cpu.write_block(std::slice::from_mut(&mut cache), 0, &moved).unwrap();
        assert_eq!(cache.bytes()[..len], moved);
        assert_eq!(cache.bytes()[len..3 * len], before[len..3 * len]);
    }
}

#[test]
fn shapes_the_kernels_cannot_do_are_refused_with_their_numbers() {
    let mut cpu = Cpu::new(Some(1));
    for (shape, number) in [
        (CacheShape { block_size: 0, ..SMALL }, "not 0"),
        (CacheShape { block_size: 65537, ..SMALL }, "not 65537"),
        (CacheShape { head_dim: 0, ..SMALL }, "not 0"),
        (CacheShape { latent: Some(16), ..SMALL }, "not from 16"),
        (CacheShape { head_dim: 1024, ..SMALL }, "not 1024"),
    ] {
        let refused = cpu.cache(shape).err().unwrap().to_string();
        assert!(refused.contains(number), "{refused}");
    }
}
