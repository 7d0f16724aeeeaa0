use crate::harness::{Numbers, close, get, in_every_order, put, room};
use crate::paged::{Bytes, ELEMENTS, Slot, e4m3, step, words};
use glassbox::compute::Span;
use glassbox::compute::cuda::decode::{self, Attention, workspace_bytes};
use glassbox::compute::cuda::kv::{Cache, Place};
use glassbox::compute::cuda::step::Work;
use glassbox::compute::cuda::{Gpu, Memory};
use glassbox::compute::{CacheDtype, CacheShape};
use std::cell::OnceCell;

/// Sums of products and of exponentials in f32, where the twin has f64; a GPU's exponential is good to
/// two units in the last place of scores, which are below 8.
const SUMS: f32 = 1e-5;
/// What no kernel has written.
const UNTOUCHED: f32 = 7.5;
/// Where a table has no block: read, it is an access beyond the cache.
const NO_BLOCK: u32 = 0x00ff_ffff;

#[derive(Clone, Debug)]
struct Case {
    dtype: CacheDtype,
    dim: usize,
    kv_heads: usize,
    /// Query heads of each kv head.
    group: usize,
    block_size: usize,
    window: Option<usize>,
    cap: Option<f32>,
    sinks: bool,
    /// Tokens that each row sees, itself included, were there no window.
    contexts: Vec<usize>,
}

/// Sequences with their pasts; nothing that no row may see is a number.
struct Sequences {
    case: Case,
    cache: Bytes,
    tables: Vec<Vec<u32>>,
    qkv: Vec<f32>,
    sinks: Vec<f32>,
    /// What the twin makes of each row, once it was asked.
    wanted: OnceCell<Vec<Vec<f32>>>,
}

impl Sequences {
    fn new(case: Case) -> Self {
        let Case { dim, kv_heads, group, block_size, dtype, window, .. } = case;
        let mut numbers = Numbers::new((dim * group + block_size) as u64);
        let blocks: usize = case.contexts.iter().map(|n| n.div_ceil(block_size)).sum();
        let shape = CacheShape {
            blocks: blocks + 1,
            block_size,
            kv_heads,
            head_dim: dim,
            dtype,
            latent: None,
            least_bytes: 0,
        };
        // Every other cache has blocks that are longer than what is in them.
        let least_bytes = if group % 2 == 0 { shape.block_bytes() + 36 } else { 0 };
        let shape = CacheShape { least_bytes, ..shape };
        // Blocks from all over the cache, in no order.
        let mut free: Vec<u32> = (1..=blocks as u32).collect();
        (1..free.len()).rev().for_each(|i| free.swap(i, numbers.below(i + 1)));
        let mut cache = Bytes::poisoned(shape);
        let mut tables = Vec::new();
        for context in &case.contexts {
            let first = window.map_or(0, |window| context.saturating_sub(window));
            let mut table: Vec<u32> = free.drain(..context.div_ceil(block_size)).collect();
            for position in first..*context {
                for head in 0..kv_heads {
                    for value in [false, true] {
                        let block = table[position / block_size] as usize;
                        let slot = Slot { block, head, offset: position % block_size, value };
                        cache.write(slot, &numbers.units(dim));
                    }
                }
            }
            table[..first / block_size].fill(NO_BLOCK);
            tables.push(table);
        }
        let heads = kv_heads * group;
        let rows = case.contexts.len();
        let qkv: Vec<f32> =
            numbers.units(rows * (heads + 2 * kv_heads) * dim).iter().map(|x| x * 2.0).collect();
        let sinks = numbers.units(heads);
        Self { case, cache, tables, qkv, sinks, wanted: OnceCell::new() }
    }

    fn heads(&self) -> usize {
        self.case.kv_heads * self.case.group
    }

    fn scale(&self) -> f32 {
        (self.case.dim as f32).sqrt().recip() * 3.0
    }

    /// The textbook, for one row: [heads, dim].
    fn twin(&self, row: usize) -> Vec<f32> {
        (0..self.case.kv_heads).flat_map(|kv_head| self.twin_of(row, kv_head)).collect()
    }

    /// Of the heads that share a kv head.
    fn twin_of(&self, row: usize, kv_head: usize) -> Vec<f32> {
        let Case { dim, group, block_size, window, cap, sinks, .. } = self.case;
        let end = self.case.contexts[row];
        let first = window.map_or(0, |window| end.saturating_sub(window));
        let read = |value: bool| {
            let slot = |position: usize| {
                let block = self.tables[row][position / block_size] as usize;
                Slot { block, head: kv_head, offset: position % block_size, value }
            };
            (first..end).map(|position| self.cache.read(slot(position))).collect::<Vec<_>>()
        };
        let (keys, values) = (read(false), read(true));
        let attend = |head: usize| {
            let q = &self.qkv_of(row)[head * dim..][..dim];
            let mut scores: Vec<f64> = keys
                .iter()
                .map(|k| {
                    let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    let score = dot * f64::from(self.scale());
                    cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            if sinks {
                scores.push(f64::from(self.sinks[head]));
            }
            let most = scores.iter().fold(f64::NEG_INFINITY, |most, s| most.max(*s));
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let all: f64 = weights.iter().sum();
            let mut sum = vec![0.0; dim];
            for (v, weight) in values.iter().zip(weights) {
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += weight * f64::from(*v));
            }
            sum.into_iter().map(move |x| (x / all) as f32)
        };
        (kv_head * group..(kv_head + 1) * group).flat_map(attend).collect()
    }

    /// The row's span, were it at `first` in a step.
    fn span(&self, row: usize, first: usize) -> Span<'_> {
        Span { first, len: 1, start: self.case.contexts[row] - 1, table: &self.tables[row] }
    }

    fn qkv_of(&self, row: usize) -> &[f32] {
        let width = self.qkv.len() / self.case.contexts.len();
        &self.qkv[row * width..][..width]
    }

    /// What the kernels make of a step: [rows + surplus, heads, dim].
    fn run(&self, gpu: &Gpu, cache: &Cache, spans: &[Span], qkv: &[f32], surplus: usize) -> Vec<f32> {
        let rows: usize = spans.iter().map(|span| span.len).sum();
        let tokens = vec![0; rows];
        let others: Vec<Span> = spans.iter().map(|span| Span { table: &[NO_BLOCK], ..*span }).collect();
        let work =
            Work { tokens: &tokens, groups: &[&others, spans], ropes: &[], wanted: &[], tile_rows: 16 };
        let (step, qkv) = (step(gpu, &work), put(gpu, qkv));
        let len = (rows + surplus) * self.heads() * self.case.dim;
        let (out, sinks) = (put(gpu, &vec![UNTOUCHED; len]), put(gpu, &self.sinks));
        let place = Place { step: &step, group: 1, rows: rows + surplus, spans: spans.len() + surplus };
        self.attend(gpu, &out, &qkv, cache, place, &sinks);
        get(gpu, &out, len)
    }

    fn attend(&self, gpu: &Gpu, out: &Memory, qkv: &Memory, cache: &Cache, place: Place, sinks: &Memory) {
        let attention = Attention {
            heads: self.heads(),
            scale: self.scale(),
            window: self.case.window,
            cap: self.case.cap,
            sinks: self.case.sinks.then_some(sinks),
        };
        let workspace = room::<u8>(gpu, workspace_bytes(place.spans, self.heads(), self.case.dim));
        decode::attend(gpu, out, qkv, cache, place, &attention, &workspace).unwrap();
    }

    /// All rows in one step, in the middle of which stands a prompt; then each alone, to the same bits.
    fn check(&self, gpu: &Gpu) {
        let (rows, row_len) = (self.case.contexts.len(), self.heads() * self.case.dim);
        let cache = self.cache.put(gpu);
        let wanted = self.wanted.get_or_init(|| (0..rows).map(|row| self.twin(row)).collect());
        let prompt = 3;
        let first = |row: usize| if row > 0 { row + prompt } else { row };
        let mut spans: Vec<Span> = (0..rows).map(|row| self.span(row, first(row))).collect();
        spans.insert(1, Span { first: 1, len: prompt, start: 0, table: &[NO_BLOCK] });
        let width = self.qkv_of(0).len();
        let qkv: Vec<f32> = [self.qkv_of(0), &vec![f32::NAN; prompt * width], &self.qkv[width..]].concat();
        let got = self.run(gpu, &cache, &spans, &qkv, 2);
        for (row, wanted) in wanted.iter().enumerate() {
            let at = first(row) * row_len;
            let what = format!("{:?}, context {}", self.case, self.case.contexts[row]);
            close(&what, &got[at..][..row_len], wanted, SUMS);
            let alone = self.run(gpu, &cache, &[self.span(row, 0)], self.qkv_of(row), 0);
            assert!(same_bits(&alone, &got[at..][..row_len]), "{what}: alone it is something else");
        }
        let untouched = [&got[row_len..][..prompt * row_len], &got[(rows + prompt) * row_len..]];
        assert!(untouched.iter().all(|rows| rows.iter().all(|x| *x == UNTOUCHED)), "{:?}", self.case);
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

const DIMS: [usize; 11] = [16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 512];
const GROUPS: [usize; 9] = [1, 4, 8, 16, 3, 7, 2, 12, 5];
const CONTEXTS: [usize; 8] = [1, 15, 16, 17, 127, 128, 129, 300];
const SIMPLE: Case = Case {
    dtype: CacheDtype::F16,
    dim: 64,
    kv_heads: 1,
    group: 1,
    block_size: 16,
    window: None,
    cap: None,
    sinks: false,
    contexts: Vec::new(),
};

/// Every format with every size of heads and of groups, over the contexts around a split.
#[test]
fn attention_equals_the_textbook() {
    let mut n = 0;
    let mut cases = Vec::new();
    for dim in DIMS {
        for dtype in ELEMENTS {
            let contexts = if n % 4 == 0 { CONTEXTS.to_vec() } else { vec![CONTEXTS[n % 8], 140] };
            let group = GROUPS[n % 9];
            let kv_heads = 1 + usize::from(dim < 100 && group < 8);
            let block_size = [16, 32, 1, 17][n / 2 % 4];
            let cap = (n % 3 == 1).then_some(5.0);
            let case =
                Case { dtype, dim, kv_heads, group, block_size, cap, sinks: n % 5 < 2, contexts, ..SIMPLE };
            cases.push(Sequences::new(case));
            n += 1;
        }
    }
    in_every_order(|gpu| cases.iter().for_each(|case| case.check(gpu)));
}

/// Windows that begin anywhere in a split; blocks before them are gone.
#[test]
fn a_window_hides_what_is_before() {
    let mut cases = Vec::new();
    for (n, window) in [1, 16, 100, 128, 129, 1000].into_iter().enumerate() {
        let (dtype, block_size) = (ELEMENTS[n % 4], [16, 17, 1, 32][n % 4]);
        let contexts = vec![1, 127, 128, 129, 300];
        let (dim, group) = ([32, 256, 64, 80][n % 4], [1, 4][n % 2]);
        let case = Case { dtype, dim, group, block_size, window: Some(window), contexts, ..SIMPLE };
        cases.push(Sequences::new(Case { sinks: n % 2 == 0, ..case }));
    }
    in_every_order(|gpu| cases.iter().for_each(|case| case.check(gpu)));
}

/// Over 64 splits a slot has several, the last one fewer; heads as large that values come in four tiles.
#[test]
fn long_pasts_are_cut_into_longer_slots() {
    let case = Case { dim: 16, block_size: 256, contexts: vec![64 * 128, 64 * 128 + 1, 17_000], ..SIMPLE };
    let cases = [
        Sequences::new(case.clone()),
        Sequences::new(Case { dim: 256, block_size: 32, contexts: vec![16_500], ..case.clone() }),
        Sequences::new(Case { window: Some(9000), dtype: CacheDtype::Int8, contexts: vec![17_000], ..case }),
    ];
    in_every_order(|gpu| cases.iter().for_each(|case| case.check(gpu)));
}

/// One position has all the weight: what comes out is the value, exactly, of every code.
#[test]
fn bytes_are_read_exactly() {
    in_every_order(|gpu| {
        for (dtype, group) in
            [(CacheDtype::Fp8, 1), (CacheDtype::Fp8, 8), (CacheDtype::Int8, 4), (CacheDtype::Int8, 16)]
        {
            let case = Case { dtype, dim: 256, group, contexts: vec![1], ..SIMPLE };
            let mut one = Sequences::new(case);
            let slot = Slot { block: one.tables[0][0] as usize, head: 0, offset: 0, value: true };
            let codes: Vec<u8> = (0..=255).map(|code| if code & 0x7f == 0x7f { 0 } else { code }).collect();
            let at = one.cache.elements(slot);
            one.cache.bytes[at].copy_from_slice(&codes);
            let at = one.cache.scale(slot).unwrap();
            one.cache.bytes[at].copy_from_slice(&1f32.to_ne_bytes());
            let value = |code: &u8| match dtype {
                CacheDtype::Fp8 => e4m3(*code),
                _ => f32::from(*code as i8),
            };
            let wanted: Vec<f32> = codes.iter().map(value).collect();
            let got = one.run(gpu, &one.cache.put(gpu), &[one.span(0, 0)], &one.qkv, 0);
            got.chunks_exact(256).for_each(|got| assert_eq!(got, wanted));
        }
    });
}

/// A key, a value or a query that is no number reaches the result; those of other rows do not.
#[test]
fn what_is_no_number_stays_none() {
    in_every_order(|gpu| {
        for (dtype, value) in ELEMENTS.into_iter().flat_map(|e| [(e, false), (e, true)]) {
            let case = Case { dtype, dim: 32, group: 2, contexts: vec![140, 30], ..SIMPLE };
            let mut two = Sequences::new(case);
            let slot = Slot { block: two.tables[0][0] as usize, head: 0, offset: 5, value };
            let at = two.cache.scale(slot).unwrap_or(two.cache.elements(slot));
            two.cache.bytes[at].fill(0xff);
            let spans = [two.span(0, 0), two.span(1, 1)];
            let got = two.run(gpu, &two.cache.put(gpu), &spans, &two.qkv, 0);
            assert!(got[..64].iter().all(|x| x.is_nan()), "{dtype:?} {value}");
            close("the other row", &got[64..], &two.twin(1), SUMS);
        }
        let mut one = Sequences::new(Case { dim: 32, group: 2, contexts: vec![140], ..SIMPLE });
        one.qkv[3] = f32::NAN;
        let got = one.run(gpu, &one.cache.put(gpu), &[one.span(0, 0)], &one.qkv, 0);
        assert!(got[..32].iter().all(|x| x.is_nan()));
        close("the other head", &got[32..], &one.twin(0)[32..], SUMS);
    });
}

/// A graph of four rows, first over a step of two and then over one of four.
#[test]
fn a_graph_is_replayed_over_other_steps() {
    in_every_order(|gpu| {
        let all = Sequences::new(Case { group: 4, contexts: vec![20, 130, 260, 7], ..SIMPLE });
        let (cache, row_len) = (all.cache.put(gpu), all.heads() * all.case.dim);
        let block = room::<u32>(gpu, 1 << 10);
        let (qkv, out) = (put(gpu, &all.qkv), put(gpu, &vec![UNTOUCHED; 4 * row_len]));
        let place = Place { step: &block, group: 0, rows: 4, spans: 4 };
        let workspace = room::<u8>(gpu, workspace_bytes(4, all.heads(), all.case.dim));
        let attention =
            Attention { heads: all.heads(), scale: all.scale(), window: None, cap: None, sinks: None };
        let attend = || decode::attend(gpu, &out, &qkv, &cache, place, &attention, &workspace).unwrap();
        let send = |rows: usize| {
            let spans: Vec<Span> = (0..rows).map(|row| all.span(row, row)).collect();
            let tokens = vec![0; rows];
            let work = Work { tokens: &tokens, groups: &[&spans], ropes: &[], wanted: &[], tile_rows: 16 };
            gpu.write(block.at(0), crate::harness::bytes_of(&words(&work))).unwrap();
        };
        // The first launch loads the kernels, which cannot be recorded.
        send(4);
        attend();
        gpu.record().unwrap();
        attend();
        let graph = gpu.recorded().unwrap();
        gpu.write(out.at(0), crate::harness::bytes_of(&vec![UNTOUCHED; 4 * row_len])).unwrap();
        for rows in [2, 4] {
            send(rows);
            gpu.start(&graph).unwrap();
            let got: Vec<f32> = get(gpu, &out, 4 * row_len);
            for row in 0..rows {
                close("a replayed row", &got[row * row_len..][..row_len], &all.twin(row), SUMS);
            }
            assert!(got[rows * row_len..].iter().all(|x| *x == UNTOUCHED));
        }
    });
}
