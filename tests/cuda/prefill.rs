use crate::harness::{Numbers, get, in_every_order, put, room};
use crate::paged::{self, Bytes, ELEMENTS, Slot};
use glassbox::compute::cuda::decode::Attention;
use glassbox::compute::cuda::kv::Place;
use glassbox::compute::cuda::prefill::{self, SplitLimits, Splits, Tiles, tile_rows};
use glassbox::compute::cuda::step::Work;
use glassbox::compute::cuda::{Gpu, Memory};
use glassbox::compute::{CacheDtype, CacheShape, Span};

/// One layer's attention over some sequences, whole on the host.
#[derive(Clone)]
struct Case {
    dtype: CacheDtype,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    block_size: usize,
    window: Option<usize>,
    cap: Option<f32>,
    sinks: Option<Vec<f32>>,
    scale: f32,
    /// Start and length of each span.
    spans: Vec<(usize, usize)>,
    tile_rows: usize,
    /// Blocks of threads beyond those of the step's tiles.
    surplus: usize,
    splits: Option<SplitLimits>,
    /// Of numbers.
    seeds: Vec<u64>,
}

impl Case {
    fn new(
        dtype: CacheDtype,
        (heads, kv_heads, dim): (usize, usize, usize),
        spans: &[(usize, usize)],
    ) -> Self {
        Self {
            dtype,
            heads,
            kv_heads,
            dim,
            block_size: 16,
            window: None,
            cap: None,
            sinks: None,
            scale: 1.0 / (dim as f32).sqrt(),
            spans: spans.to_vec(),
            tile_rows: tile_rows(dim, heads / kv_heads),
            surplus: 0,
            splits: None,
            seeds: (0..spans.len() as u64).collect(),
        }
    }

    fn end(&self, span: usize) -> usize {
        self.spans[span].0 + self.spans[span].1
    }

    fn width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.dim
    }

    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// What a case is about, made from its seeds: the same for a sequence whatever its span is.
struct Made {
    /// q | k | v of every row of the spans: f32 [rows, width]
    qkv: Vec<f32>,
    /// Of every position of every span: [position][kv head][dim], as the cache has them.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    cache: Bytes,
    tables: Vec<Vec<u32>>,
}

/// Keys, values and queries of a sequence's position; later ones tell more than early ones, and heads
/// have scales of their own.
fn token(case: &Case, seed: u64, position: usize) -> Vec<f32> {
    let mut numbers = Numbers::new(seed * 1_000_003 + position as u64);
    numbers.bits();
    let mut row = numbers.units(case.width());
    for (head, x) in row.chunks_exact_mut(case.dim).enumerate() {
        let scale = [2.0, 0.5, 1.0][(head + position) % 3];
        x.iter_mut().for_each(|x| *x *= scale);
    }
    row
}

impl Made {
    /// `change` is told whose token it is, and of which position.
    fn new(case: &Case, change: impl Fn(usize, usize, &mut [f32])) -> Self {
        let size = case.block_size;
        let blocks_of = |span: usize| case.end(span).div_ceil(size);
        let blocks: usize = (0..case.spans.len()).map(blocks_of).sum();
        // Block 0 is nobody's.
        let mut cache = Bytes::poisoned(CacheShape {
            blocks: blocks + 1,
            block_size: size,
            kv_heads: case.kv_heads,
            head_dim: case.dim,
            dtype: case.dtype,
            latent: None,
            // Longer than what is in them, where heads are shared by two.
            least_bytes: if case.heads == 2 * case.kv_heads {
                20 + 4 * size * 4 * case.dim * case.kv_heads
            } else {
                0
            },
        });
        let mut free: Vec<u32> = (1..=blocks as u32).collect();
        let mut numbers = Numbers::new(5);
        let (mut qkv, mut keys, mut values, mut tables) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (span, (start, _)) in case.spans.iter().enumerate() {
            let mut table: Vec<u32> =
                (0..blocks_of(span)).map(|_| free.swap_remove(numbers.below(free.len()))).collect();
            let mut seen = [Vec::new(), Vec::new()];
            for position in 0..case.end(span) {
                let mut row = token(case, case.seeds[span], position);
                change(span, position, &mut row);
                let block = table[position / size] as usize;
                for (side, head) in (0..2).flat_map(|side| (0..case.kv_heads).map(move |head| (side, head))) {
                    let x = &row[(case.heads + side * case.kv_heads + head) * case.dim..][..case.dim];
                    let slot = Slot { block, head, offset: position % size, value: side == 1 };
                    cache.write(slot, x);
                    if let Some(at) = cache.scale(slot).filter(|_| x[0].is_nan()) {
                        cache.bytes[at].fill(0xff);
                    }
                    seen[side].extend(cache.read(slot));
                }
                if position >= *start {
                    qkv.extend(&row);
                }
            }
            // Blocks that the window has left behind are gone, and what they held is poison.
            for entry in &mut table[..case.first_seen(*start) / size] {
                let bytes = paged::stride(&cache.shape);
                cache.bytes[*entry as usize * bytes..][..bytes].fill(0xff);
                *entry = 0;
            }
            let [k, v] = seen;
            keys.push(k);
            values.push(v);
            tables.push(table);
        }
        Self { qkv, keys, values, cache, tables }
    }

    fn rows(&self, case: &Case) -> usize {
        self.qkv.len() / case.width()
    }
}

/// The slow twin: softmax(q K^T) V in f64. [rows, heads, dim]; rows of spans of one row are left out.
fn twin(case: &Case, made: &Made) -> Vec<Option<Vec<f64>>> {
    let mut rows = Vec::new();
    for (span, (start, len)) in case.spans.iter().enumerate() {
        for i in 0..*len {
            let row = &made.qkv[rows.len() * case.width()..][..case.width()];
            rows.push((*len > 1).then(|| {
                (0..case.heads).flat_map(|head| twin_head(case, made, span, start + i, head, row)).collect()
            }));
        }
    }
    rows
}

fn twin_head(case: &Case, made: &Made, span: usize, position: usize, head: usize, row: &[f32]) -> Vec<f64> {
    let (dim, kv_head) = (case.dim, head / (case.heads / case.kv_heads));
    let at = |p: usize| (p * case.kv_heads + kv_head) * dim;
    let q = &row[head * dim..][..dim];
    let seen = case.first_seen(position)..position + 1;
    let scores: Vec<f64> = seen
        .clone()
        .map(|p| {
            let k = &made.keys[span][at(p)..][..dim];
            let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
            let score = dot * f64::from(case.scale);
            case.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
        })
        .collect();
    let sink = case.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
    let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().copied().chain(sink).map(|s| (s - most).exp()).sum();
    let mut out = vec![0.0; dim];
    for (p, score) in seen.zip(scores) {
        let weight = (score - most).exp() / total;
        let v = &made.values[span][at(p)..][..dim];
        out.iter_mut().zip(v).for_each(|(out, v)| *out += weight * f64::from(*v));
    }
    out
}

/// By the kernels: [rows][heads * dim].
fn run(gpu: &Gpu, case: &Case, made: &Made) -> Vec<Vec<f32>> {
    let rows = made.rows(case);
    let (mut spans, mut others, mut first) = (Vec::new(), Vec::new(), 0);
    for ((start, len), table) in case.spans.iter().zip(&made.tables) {
        let span = Span { first, len: *len, start: *start, table };
        spans.push(span);
        others.push(Span { table: &[u32::MAX >> 8], ..span });
        first += len;
    }
    let work = Work {
        tokens: &vec![0; rows],
        groups: &[&others, &spans],
        ropes: &[],
        wanted: &[],
        tile_rows: case.tile_rows,
    };
    let step = paged::step(gpu, &work);
    let cut = |(_, len): &(usize, usize)| if *len > 1 { len.div_ceil(case.tile_rows) } else { 0 };
    let tiles = case.spans.iter().map(cut).sum::<usize>() + case.surplus;

    let cache = made.cache.put(gpu);
    let (qkv, out) = (put(gpu, &made.qkv), room::<f32>(gpu, rows * case.heads * case.dim));
    let sinks = case.sinks.as_ref().map(|sinks| put(gpu, sinks));
    let workspace = case.splits.map(|limits| room::<u8>(gpu, limits.bytes(case.heads, case.dim)));
    let splits = case.splits.zip(workspace.as_ref());
    prefill::attend(
        gpu,
        (&out, &qkv),
        &cache,
        Place { step: &step, group: 1, rows, spans: spans.len() },
        &attention(case, sinks.as_ref()),
        Tiles { most: tiles, rows: case.tile_rows },
        splits.map(|(limits, workspace)| Splits { limits, workspace }),
    )
    .unwrap();
    let out: Vec<f32> = get(gpu, &out, rows * case.heads * case.dim);
    out.chunks_exact(case.heads * case.dim).map(<[f32]>::to_vec).collect()
}

fn attention<'a>(case: &Case, sinks: Option<&'a Memory>) -> Attention<'a> {
    let Case { heads, scale, window, cap, .. } = *case;
    Attention { heads, scale, window, cap, sinks }
}

/// Queries and weights are rounded to the products' type: half a step of it (2^-12, 2^-9) moves a score of
/// some units by about as much, and each weight. Relative to the head's largest value.
fn tolerance(case: &Case) -> f64 {
    if case.dtype == CacheDtype::Bf16 { 1.2e-2 } else { 1.5e-3 }
}

/// Every case against its twin, in every order.
fn check(cases: impl IntoIterator<Item = Case>) {
    let ready: Vec<_> = cases
        .into_iter()
        .map(|case| {
            let made = Made::new(&case, |_, _, _| {});
            let wanted = twin(&case, &made);
            (case, made, wanted)
        })
        .collect();
    in_every_order(|gpu| {
        for (case, made, wanted) in &ready {
            near(case, &run(gpu, case, made), wanted);
        }
    });
}

/// Says the worst.
fn near(case: &Case, got: &[Vec<f32>], wanted: &[Option<Vec<f64>>]) {
    let mut worst = (0.0, String::new());
    for (row, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let Some(wanted) = wanted else {
            // Not ours: what was there, which is no number, is there still.
            assert!(got.iter().all(|x| on_device(*x)), "row {row} was written");
            continue;
        };
        for (head, (got, wanted)) in got.chunks(case.dim).zip(wanted.chunks(case.dim)).enumerate() {
            let most = wanted.iter().fold(1e-30f64, |most, x| most.max(x.abs()));
            for (d, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                let off = (f64::from(*got) - wanted).abs() / most;
                if off.is_nan() || off > worst.0 {
                    worst = (off, format!("row {row} head {head} column {d}: {got} for {wanted}"));
                }
            }
        }
    }
    if std::env::var_os("SAY").is_some() {
        eprintln!("{:?} dim {} : {}", case.dtype, case.dim, worst.0);
    }
    assert!(worst.0 <= tolerance(case), "{} at {} of {:?} {:?}", worst.0, worst.1, case.dtype, case.spans);
}

/// Only the emulator fills memory with what is no number.
fn on_device(x: f32) -> bool {
    crate::harness::on_gpu() || x.is_nan()
}

/// A span that starts anew and one after a prefix, neither at a border of anything.
const TWO: [(usize, usize); 2] = [(0, 21), (45, 7)];

#[test]
fn every_element_and_head_size() {
    const SIZES: [(usize, usize); 9] =
        [(16, 4), (32, 2), (64, 6), (80, 2), (96, 4), (112, 2), (128, 8), (192, 2), (256, 4)];
    let of = |dtype| SIZES.map(|(dim, heads)| Case::new(dtype, (heads, 2, dim), &TWO));
    check(ELEMENTS.into_iter().flat_map(of));
}

#[test]
fn every_group_and_tile() {
    check((1..=9).map(|group| Case::new(CacheDtype::F16, (group, 1, 32), &[(3, 40)])));
    // Fourteen heads on two, tiles of few rows, tiles of more rows than a block has.
    let tiles = [(64, 18), (64, 1), (64, 5), (64, 40), (192, 16)];
    let of = |dim| Case::new(CacheDtype::F16, (14, 2, dim), &[(70, 23)]);
    check(tiles.map(|(dim, tile_rows)| Case { tile_rows, ..of(dim) }));
}

#[test]
fn every_block_size() {
    let of = |dtype| {
        [1, 8, 17, 32, 256].map(|block_size| Case { block_size, ..Case::new(dtype, (4, 2, 48), &TWO) })
    };
    check(ELEMENTS.into_iter().flat_map(of));
}

/// A cap and sinks that matter, windows shorter than a block and longer than a step, alone and together.
#[test]
fn windows_caps_and_sinks() {
    check([CacheDtype::F16, CacheDtype::Bf16, CacheDtype::Fp8].into_iter().flat_map(|dtype| {
        let case = Case { block_size: 8, ..Case::new(dtype, (4, 2, 64), &[(0, 50), (101, 40)]) };
        let sinks = Some(vec![1.5, -2.0, 0.0, 40.0]);
        let windows = [1, 5, 32, 50].map(|window| Case { window: Some(window), ..case.clone() });
        let capped = Case { cap: Some(3.0), scale: 1.0, ..case.clone() };
        let all = Case { window: Some(20), sinks: sinks.clone(), ..capped.clone() };
        windows.into_iter().chain([Case { sinks, ..case }, capped, all])
    }));
}

const LIMITS: SplitLimits = SplitLimits { spans: 3, rows: 8, most: 2 };

/// Drafts over a past of three splits' length at the least size, which so are two of twice that; beside
/// a decoding row, a long span and one beyond those that have room.
#[test]
fn short_spans_are_split() {
    let cases = [
        (CacheDtype::F16, None, None),
        (CacheDtype::Int8, None, Some(vec![0.5, 1.0])),
        (CacheDtype::Bf16, Some(300), Some(vec![0.5, -1.0])),
        (CacheDtype::Fp8, Some(700), None),
    ];
    check(cases.map(|(dtype, window, sinks)| {
        let case = Case::new(dtype, (2, 1, 32), &[(0, 1), (1100, 4), (1022, 5), (600, 3), (520, 9)]);
        Case { window, sinks, surplus: 2, splits: Some(LIMITS), ..case }
    }));
    // Tiles of fewer rows than a short span: its rows are in several.
    let case = Case::new(CacheDtype::F16, (4, 2, 16), &[(515, 7)]);
    check([Case { tile_rows: 3, splits: Some(LIMITS), ..case }]);
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// A row's bits do not depend on its neighbours, on how a sequence is cut into chunks, on tiles, on the
/// size of blocks.
#[test]
fn the_same_bits_in_any_company() {
    in_every_order(|gpu| {
        for (dtype, window) in [
            (CacheDtype::F16, None),
            (CacheDtype::Int8, Some(37)),
            (CacheDtype::Fp8, None),
            (CacheDtype::Bf16, Some(50)),
        ] {
            let shape = (6, 2, 32);
            let whole = Case { window, block_size: 16, ..Case::new(dtype, shape, &[(0, 110)]) };
            let of = |case: &Case| bits(&run(gpu, case, &Made::new(case, |_, _, _| {})));
            let wanted = of(&whole);
            for (start, len, tile_rows, block_size) in
                [(0, 50, 42, 16), (50, 60, 42, 4), (29, 3, 42, 32), (90, 20, 7, 1)]
            {
                let alone = Case { spans: vec![(start, len)], tile_rows, block_size, ..whole.clone() };
                assert!(of(&alone) == wanted[start..start + len], "{dtype:?}: {len} from {start}");
                let spans = vec![(3, 9), (start, len), (0, 1), (64, 70)];
                let among = Case { spans, seeds: vec![7, 0, 8, 9], surplus: 3, ..alone };
                assert!(
                    of(&among)[9..][..len] == wanted[start..start + len],
                    "{dtype:?}: {len} from {start}, among"
                );
            }
        }
    });
}

/// The same of spans whose past is split, whatever else is.
#[test]
fn split_spans_have_the_same_bits_in_any_company() {
    in_every_order(|gpu| {
        let alone = Case { splits: Some(LIMITS), ..Case::new(CacheDtype::F16, (2, 1, 16), &[(700, 4)]) };
        let of = |case: &Case| bits(&run(gpu, case, &Made::new(case, |_, _, _| {})));
        let wanted = of(&alone);
        let among = Case { spans: vec![(5, 4), (700, 4), (2000, 3)], seeds: vec![3, 0, 4], ..alone.clone() };
        assert!(of(&among)[4..8] == wanted);
        let (front, back) =
            (Case { spans: vec![(700, 2)], ..alone.clone() }, Case { spans: vec![(702, 2)], ..alone });
        assert!(of(&front) == wanted[..2] && of(&back) == wanted[2..]);
    });
}

/// What is no number must reach the logits, where a row is refused for it; earlier rows never see it.
#[test]
fn what_is_no_number_stays_none() {
    in_every_order(|gpu| {
        for dtype in ELEMENTS {
            let case = Case::new(dtype, (4, 2, 16), &[(10, 60)]);
            // In the second query head of row 5; in the first key head's key at position 50, and value at 48.
            let query = Made::new(&case, |_, position, row| {
                if position == 15 {
                    row[16] = f32::NAN;
                }
            });
            for (row, got) in run(gpu, &case, &query).iter().enumerate() {
                for (head, got) in got.chunks_exact(16).enumerate() {
                    assert!(
                        got.iter().all(|x| x.is_nan() == (row == 5 && head == 1)),
                        "{dtype:?} {row} {head}"
                    );
                }
            }
            let key = Made::new(&case, |_, position, row| {
                if position == 50 {
                    row[4 * 16..][..16].fill(f32::NAN);
                }
            });
            for (row, got) in run(gpu, &case, &key).iter().enumerate() {
                for (head, got) in got.chunks_exact(16).enumerate() {
                    assert!(
                        got.iter().all(|x| x.is_nan() == (row >= 40 && head < 2)),
                        "{dtype:?} {row} {head}"
                    );
                }
            }
            let value = Made::new(&case, |_, position, row| {
                if position == 48 {
                    row[6 * 16..][..16].fill(f32::NAN);
                }
            });
            for (row, got) in run(gpu, &case, &value).iter().enumerate() {
                for (head, got) in got.chunks_exact(16).enumerate() {
                    // A row of no weight times no number: rows before it that a warp has too say so as well.
                    let (must, may) = (row >= 38 && head < 2, row >= 16 && head < 2);
                    assert!(
                        got.iter().all(|x| if must { x.is_nan() } else { may || !x.is_nan() }),
                        "{dtype:?} {row} {head}"
                    );
                }
            }
        }
    });
}

/// Queries far beyond halves, keys and values of bytes with scales far below: powers of two take them in.
#[test]
fn ranges_of_queries_and_scales() {
    in_every_order(|gpu| {
        for (dtype, up) in [
            (CacheDtype::F16, 1e20),
            (CacheDtype::Int8, 1e20),
            (CacheDtype::Bf16, 1e20),
            (CacheDtype::Fp8, 1e-20),
        ] {
            let case = Case { scale: 0.25 / up, ..Case::new(dtype, (2, 1, 16), &[(0, 40)]) };
            let small = if matches!(dtype, CacheDtype::Int8 | CacheDtype::Fp8) { 1e-9 } else { 1.0 };
            let change = |_: usize, position: usize, row: &mut [f32]| {
                row[..32].iter_mut().for_each(|x| *x *= up);
                // Values grow: what was summed before shrinks beside them.
                let small = small * 1.25f32.powi(position as i32);
                row[48..].iter_mut().for_each(|x| *x *= small);
            };
            let made = Made::new(&case, change);
            near(&case, &run(gpu, &case, &made), &twin(&case, &made));
        }
    });
}

#[test]
fn heads_without_a_kernel_are_refused() {
    in_every_order(|gpu| {
        let memory = room::<u32>(gpu, 64);
        let case = Case::new(CacheDtype::F16, (1, 1, 512), &[(0, 2)]);
        let cache = Made::new(&case, |_, _, _| {}).cache.put(gpu);
        let (place, tiles) =
            (Place { step: &memory, group: 0, rows: 2, spans: 1 }, Tiles { most: 1, rows: 2 });
        let said =
            prefill::attend(gpu, (&memory, &memory), &cache, place, &attention(&case, None), tiles, None);
        assert!(said.unwrap_err().0.contains("heads of 512"));
    });
}
