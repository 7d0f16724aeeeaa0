//! Each kernel alone, at the shapes of a model of 8 billion weights: how long it takes, and what it reads and
//! multiplies at least. Numbers are any; results are not looked at.

use super::attention::attended;
use super::decode::{self, Attention};
use super::draw::Draws;
use super::gpu::Gpu;
use super::kv::{self, Cache, Place, Store};
use super::matmul::Out;
use super::memory::Memory;
use super::prefill::{self, Tiles};
use super::rows::{self, Norm};
use super::step::{StepWords, Work};
use super::weights::Part;
use super::{gemm, gemv};
use crate::compute::draw::DrawRow;
use crate::compute::gpu::{Alone, Rate};
use crate::compute::{
    Amount, CacheDtype, CacheShape, DeviceError, NormKind, Result, RopeStyle, RopeTable, Span,
};
use crate::weights::BlockFormat;
use std::time::{Duration, Instant};

/// Sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    dim: usize,
    feed_forward: usize,
    vocab: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Rows of a small and of a large prompt.
    prompts: [usize; 2],
    /// Tokens in the cache, few and many.
    contexts: [usize; 2],
    /// Sequences that decode together.
    sequences: usize,
    /// Bytes that copies of what is read take together, so that no cache holds them all.
    spread: usize,
    /// A measurement is of launches that take so long together.
    stretch: Duration,
}

impl Sizes {
    pub const LLAMA_8B: Sizes = Sizes {
        dim: 4096,
        feed_forward: 14336,
        vocab: 128_256,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        prompts: [512, 4096],
        contexts: [4096, 32_768],
        sequences: 32,
        spread: 256 << 20,
        stretch: Duration::from_millis(2),
    };
    /// To see that everything runs.
    pub const TINY: Sizes = Sizes {
        dim: 256,
        feed_forward: 512,
        vocab: 1024,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        prompts: [16, 24],
        contexts: [32, 64],
        sequences: 2,
        spread: 0,
        stretch: Duration::ZERO,
    };
}

const BLOCK_SIZE: usize = 16;
const CACHE: CacheDtype = CacheDtype::F16;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    what: What,
    rows: usize,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Rows and columns of a matrix.
    Product(BlockFormat, usize, usize),
    /// Each row is a sequence with so many tokens.
    Decode(usize),
    /// After so many tokens.
    Prefill(usize),
    Norm,
    Store,
    Draw(Drawing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawing {
    Greedy,
    TopP,
}

/// All of them, in the order of a report.
pub fn cases(sizes: &Sizes) -> Vec<Case> {
    use BlockFormat::{BF16, Q4_K, Q8_0};
    let Sizes { dim, feed_forward, vocab, prompts, contexts, sequences, .. } = *sizes;
    let case = |what, rows| Case { what, rows };
    let mut all = Vec::new();
    for format in [Q4_K, BF16] {
        for n in [dim, feed_forward, vocab] {
            all.extend([1, gemv::MOST_ROWS].map(|rows| case(What::Product(format, n, dim), rows)));
        }
    }
    for format in [Q4_K, BF16, Q8_0] {
        for n in [dim, feed_forward] {
            all.extend(prompts.map(|rows| case(What::Product(format, n, dim), rows)));
        }
    }
    for context in contexts {
        all.extend([1, sequences].map(|rows| case(What::Decode(context), rows)));
    }
    for rows in prompts {
        all.extend([0, contexts[1]].map(|past| case(What::Prefill(past), rows)));
    }
    for rows in [1, prompts[0]] {
        all.extend([case(What::Norm, rows), case(What::Store, rows)]);
    }
    for rows in [1, sequences] {
        all.extend([Drawing::Greedy, Drawing::TopP].map(|kind| case(What::Draw(kind), rows)));
    }
    all
}

/// Measures one for about as long as `budget`; what goes wrong is a part of what is told.
pub fn measure(gpu: &Gpu, sizes: &Sizes, case: Case, budget: Duration) -> Alone {
    let time = Stand { gpu, sizes, budget }.run(case);
    // What failed half-way must not be recorded into the next.
    if time.is_err() {
        gpu.discard();
    }
    Alone { time, ..case.left_out(sizes, DeviceError(String::new())) }
}

impl Case {
    /// Not measured, for this reason.
    pub fn left_out(self, sizes: &Sizes, why: DeviceError) -> Alone {
        let (kernel, shape) = (self.kernel(), self.shape());
        Alone { kernel, shape, work: self.work(sizes), rate: self.rate(), time: Err(why) }
    }

    fn is_few(self) -> bool {
        self.rows <= gemv::MOST_ROWS
    }

    fn kernel(self) -> String {
        match self.what {
            What::Product(format, ..) if self.is_few() => format!("gemv {}", format.name()),
            What::Product(format, ..) => format!("gemm {}", format.name()),
            What::Decode(_) => "attention".into(),
            What::Prefill(_) => "attention, prompt".into(),
            What::Norm => "norm to f16".into(),
            What::Store => "store of keys".into(),
            What::Draw(Drawing::Greedy) => "draw, greedy".into(),
            What::Draw(Drawing::TopP) => "draw, top-p".into(),
        }
    }

    fn shape(self) -> String {
        let s = if self.rows == 1 { "" } else { "s" };
        match self.what {
            What::Product(_, n, k) => format!("{n} x {k}, {} row{s}", self.rows),
            What::Decode(context) => format!("{} x {context} tokens", self.rows),
            What::Prefill(past) => format!("{} after {past}", self.rows),
            What::Norm | What::Store | What::Draw(_) => format!("{} row{s}", self.rows),
        }
    }

    /// What any kernel would have to read (and write), and to compute.
    fn work(self, sizes: &Sizes) -> Amount {
        let Sizes { dim, vocab, heads, kv_heads, head_dim, .. } = *sizes;
        let rows = self.rows;
        let bytes = |bytes: usize| Amount { bytes: bytes as u64, flops: 0 };
        match self.what {
            What::Product(format, n, k) => {
                let weights = n * k / format.block_len() * format.block_bytes();
                let activations = if self.is_few() { 0 } else { rows * (2 * k + 4 * n) };
                Amount { flops: (2 * rows * n * k) as u64, ..bytes(weights + activations) }
            }
            What::Decode(context) => attended(&sizes.cache(0), heads, rows * context, rows * context),
            What::Prefill(past) => {
                attended(&sizes.cache(0), heads, past + rows, rows * past + rows * (rows + 1) / 2)
            }
            What::Norm => bytes(rows * dim * (4 + 2)),
            // Queries and keys turn: f32 read and queries written; keys and values to the cache.
            What::Store => {
                let queries = heads * head_dim * (4 + 4);
                bytes(rows * (queries + 2 * kv_heads * head_dim * 4 + kv_heads * CACHE.token_bytes(head_dim)))
            }
            What::Draw(_) => bytes(rows * vocab * 4),
        }
    }

    fn rate(self) -> Rate {
        match self.what {
            What::Product(BlockFormat::BF16, ..) => Rate::Bf16,
            What::Product(BlockFormat::Q8_0, ..) => Rate::Int8,
            What::Product(..) if self.is_few() => Rate::Int8,
            What::Product(..) | What::Decode(_) | What::Prefill(_) => Rate::F16,
            What::Norm | What::Store | What::Draw(_) => Rate::F32,
        }
    }
}

impl Sizes {
    fn cache(&self, blocks: usize) -> CacheShape {
        let Sizes { kv_heads, head_dim, .. } = *self;
        CacheShape {
            blocks,
            block_size: BLOCK_SIZE,
            kv_heads,
            head_dim,
            latent: None,
            dtype: CACHE,
            least_bytes: 0,
        }
    }

    /// Copies of something of so many bytes: what is read again is to come from memory.
    fn copies(&self, bytes: usize) -> usize {
        (self.spread / bytes.max(1)).clamp(1, 64)
    }
}

/// Where one is measured.
struct Stand<'a> {
    gpu: &'a Gpu,
    sizes: &'a Sizes,
    budget: Duration,
}

impl Stand<'_> {
    fn run(&self, case: Case) -> Result<Duration> {
        match case.what {
            What::Product(format, n, k) if case.is_few() => self.few(format, (n, k), case.rows),
            What::Product(format, n, k) => self.many(format, (n, k), case.rows),
            What::Decode(context) => {
                let spans: Vec<(usize, usize)> = vec![(context - 1, 1); case.rows];
                self.with_past(&spans, |on, i| on.decode(self.gpu, i))
            }
            What::Prefill(past) => self.with_past(&[(past, case.rows)], |on, i| on.prefill(self.gpu, i)),
            What::Store => self.with_past(&[(0, case.rows)], |on, i| on.store(self.gpu, i)),
            What::Norm => self.norm(case.rows),
            What::Draw(kind) => self.draw(kind, case.rows),
        }
    }

    fn few(&self, format: BlockFormat, (n, k): (usize, usize), rows: usize) -> Result<Duration> {
        let parts = self.parts(format, n, k)?;
        let (x, ds) = (self.filled(rows * k * 4)?, self.filled(rows * k / 32 * 8)?);
        let to = self.filled(rows * n * 4)?;
        let out = Out { to: &to, columns: n, add: false, bias: None };
        let ready = || match parts[0].wants_bytes() {
            true => gemv::Ready::Bytes { q: &x, ds: &ds },
            false => gemv::Ready::Floats(&x),
        };
        self.time(|i| gemv::project(self.gpu, out, ready(), rows, &parts[i % parts.len()]))
    }

    fn many(&self, format: BlockFormat, (n, k): (usize, usize), rows: usize) -> Result<Duration> {
        let parts = self.parts(format, n, k)?;
        let (x, ds) = (self.filled(rows * k * 2)?, self.filled(rows * k / 32 * 8)?);
        let scale = self.filled(rows * 4)?;
        let to = self.filled(rows * n * 4)?;
        let work = self.filled(gemm::work_bytes(self.gpu, &parts[0], rows).max(1))?;
        let out = Out { to: &to, columns: n, add: false, bias: None };
        let ready = || match format {
            BlockFormat::Q8_0 => gemm::Ready::Bytes { q: &x, ds: &ds },
            BlockFormat::BF16 => gemm::Ready::Bf16(&x),
            _ => gemm::Ready::F16 { h: &x, scale: &scale },
        };
        self.time(|i| gemm::project(self.gpu, out, ready(), rows, &parts[i % parts.len()], &work))
    }

    fn norm(&self, rows: usize) -> Result<Duration> {
        let n = self.sizes.dim;
        let (x, weight) = (self.filled(rows * n * 4)?, self.filled(n * 4)?);
        let (h, scale) = (self.filled(rows * n * 2)?, self.filled(rows * 4)?);
        let norm = Norm { weight: &weight, bias: None, eps: 1e-5, kind: NormKind::Rms };
        self.time(|_| rows::to_f16(self.gpu, (&h, &scale), &x, rows, n, Some(norm)))
    }

    fn draw(&self, kind: Drawing, rows: usize) -> Result<Duration> {
        let vocab = self.sizes.vocab;
        let logits = self.filled(rows * vocab * 4)?;
        let mut draws = Draws::new(self.gpu, vocab, rows)?;
        let row = DrawRow { draw: true, top_p: 0.95, seed: 1, ..DrawRow::SCORED };
        let row = DrawRow { greedy: kind == Drawing::Greedy, ..row };
        let passes = draws.stage(self.gpu, &vec![row; rows])?;
        self.time(|_| draws.launch(self.gpu, &logits, rows, passes))
    }

    /// Attention of spans of (tokens before, rows).
    fn with_past(
        &self,
        spans: &[(usize, usize)],
        launch: impl Fn(&Past, usize) -> Result<()>,
    ) -> Result<Duration> {
        let past = Past::new(self, spans)?;
        self.time(|i| launch(&past, i))
    }

    fn parts(&self, format: BlockFormat, n: usize, k: usize) -> Result<Vec<Part>> {
        let part = || {
            let part = Part::empty(self.gpu, (format, 0), n, k)?;
            self.fill(part.memory())?;
            Ok(part)
        };
        let first: Part = part()?;
        let more = self.sizes.copies(first.bytes()) - 1;
        let more = (0..more).map(|_| part()).collect::<Result<Vec<_>>>()?;
        Ok(std::iter::once(first).chain(more).collect())
    }

    fn filled(&self, bytes: usize) -> Result<Memory> {
        let memory = self.gpu.alloc(bytes, "a measurement")?;
        self.fill(&memory)?;
        Ok(memory)
    }

    /// Numbers that are finite as f16, bf16 and f32, again and again.
    fn fill(&self, memory: &Memory) -> Result<()> {
        let pattern = pattern(memory.bytes().min(1 << 20));
        self.gpu.write(memory.at(0), &pattern)?;
        let mut done = pattern.len();
        while done < memory.bytes() {
            let next = done.min(memory.bytes() - done);
            self.gpu.copy(memory.at(done), memory.at(0), next)?;
            done += next;
        }
        self.gpu.wait()
    }

    /// Of one launch (or the few that belong together): many in a graph, so that queueing them takes no
    /// time of theirs, over the shortest that this took.
    fn time(&self, launch: impl Fn(usize) -> Result<()>) -> Result<Duration> {
        const TRIES: u32 = 50;
        let gpu = self.gpu;
        // The first loads the module.
        launch(0)?;
        gpu.wait()?;
        let begun = Instant::now();
        launch(1)?;
        gpu.wait()?;
        let once = begun.elapsed().max(Duration::from_micros(1));
        let most = if self.budget.is_zero() { 1 } else { 512 };
        let times = (self.sizes.stretch.as_nanos() / once.as_nanos()).clamp(1, most) as u32;

        gpu.record()?;
        (0..times as usize).try_for_each(&launch)?;
        let graph = gpu.recorded()?;
        let run = || {
            let begun = Instant::now();
            gpu.start(&graph)?;
            gpu.wait()?;
            Ok::<_, DeviceError>(begun.elapsed())
        };
        let (begun, mut best) = (Instant::now(), run()?);
        for _ in 1..TRIES {
            if begun.elapsed() >= self.budget {
                break;
            }
            best = best.min(run()?);
        }
        Ok(best / times)
    }
}

/// Half of the words' second highest bits are 0, which are the highest of an exponent: what is a number in
/// no format is avoided.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let bytes = (0..len).map(|i| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let byte = (state >> 56) as u8;
        if i % 2 == 1 { byte & 0xbf } else { byte }
    });
    bytes.collect()
}

/// Sequences with their pasts, in several caches of one shape.
struct Past {
    caches: Vec<Cache>,
    step: Memory,
    qkv: Memory,
    out: Memory,
    workspace: Memory,
    heads: usize,
    scale: f32,
    rows: usize,
    spans: usize,
    tiles: Tiles,
}

impl Past {
    fn new(on: &Stand, spans: &[(usize, usize)]) -> Result<Self> {
        let Sizes { heads, kv_heads, head_dim, .. } = *on.sizes;
        let rows: usize = spans.iter().map(|(_, rows)| rows).sum();
        let blocks = |(past, rows): &(usize, usize)| (past + rows).div_ceil(BLOCK_SIZE);
        let all: usize = spans.iter().map(blocks).sum();
        // From all over the cache, in no order: each an odd number further than the last.
        let far = (all * 5 / 8) | 1;
        let far = (far..).step_by(2).find(|far| gcd(*far, all) == 1).unwrap_or(1);
        let mut order = (0..all).map(|i| 1 + (i * far % all) as u32);
        let tables: Vec<Vec<u32>> =
            spans.iter().map(|span| order.by_ref().take(blocks(span)).collect()).collect();
        let mut first = 0;
        let placed: Vec<Span> = spans
            .iter()
            .zip(&tables)
            .map(|((past, rows), table)| {
                first += rows;
                Span { first: first - rows, len: *rows, start: *past, table }
            })
            .collect();
        let mut rope = RopeTable::new(RopeStyle::Halves);
        let positions = placed.iter().flat_map(|span| span.start..span.start + span.len);
        rope.fill(positions, &vec![0.5; head_dim / 2], 1.0);
        let tile_rows = prefill::tile_rows(head_dim, heads / kv_heads);
        let work =
            Work { tokens: &vec![0; rows], groups: &[&placed], ropes: &[&rope], wanted: &[], tile_rows };
        let mut words = vec![0; work.words()];
        StepWords::new(&mut words).write(&work)?;
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let step = on.gpu.alloc(bytes.len(), "a step")?;
        on.gpu.write(step.at(0), &bytes)?;

        let shape = on.sizes.cache(all + 1);
        let copies = on.sizes.copies(shape.blocks * shape.block_bytes());
        let cache = || {
            let cache = Cache::new(on.gpu, shape)?;
            on.fill(cache.memory())?;
            Ok(cache)
        };
        Ok(Self {
            caches: (0..copies).map(|_| cache()).collect::<Result<Vec<_>>>()?,
            step,
            qkv: on.filled(rows * (heads + 2 * kv_heads) * head_dim * 4)?,
            out: on.filled(rows * heads * head_dim * 4)?,
            workspace: on.filled(decode::workspace_bytes(spans.len(), heads, head_dim))?,
            heads,
            scale: (head_dim as f32).sqrt().recip(),
            rows,
            spans: spans.len(),
            tiles: Tiles { most: work.tiles(), rows: tile_rows },
        })
    }

    fn place(&self) -> Place<'_> {
        Place { step: &self.step, group: 0, rows: self.rows, spans: self.spans }
    }

    fn cache(&self, i: usize) -> &Cache {
        &self.caches[i % self.caches.len()]
    }

    fn attention(&self) -> Attention<'_> {
        Attention { heads: self.heads, scale: self.scale, window: None, cap: None, sinks: None }
    }

    fn decode(&self, gpu: &Gpu, i: usize) -> Result<()> {
        let (cache, attention) = (self.cache(i), self.attention());
        decode::attend(gpu, &self.out, &self.qkv, cache, self.place(), &attention, &self.workspace)
    }

    fn prefill(&self, gpu: &Gpu, i: usize) -> Result<()> {
        let (cache, attention) = (self.cache(i), self.attention());
        let both = (&self.out, &self.qkv);
        prefill::attend(gpu, both, cache, self.place(), &attention, self.tiles, None)
    }

    fn store(&self, gpu: &Gpu, i: usize) -> Result<()> {
        let rope = Some((0, RopeStyle::Halves));
        let store = Store { heads: self.heads, rope, query_norm: None, key_norm: None };
        kv::store(gpu, &self.qkv, self.cache(i), self.place(), &store)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
