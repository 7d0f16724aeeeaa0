//! The operations of a decoder on the device.

use super::attention::Attends;
use super::draw::Draws;
use super::elements;
use super::embed;
use super::experts::Mixtures;
use super::gpu::{Event, Gpu};
use super::graphs::{Key, Logits, Passes, bucket};
use super::kv::{self, Cache, Place};
use super::limits;
use super::load::Staging;
use super::matmul::{Multiplier, Out, Room};
use super::memory::{Memory, Pinned};
use super::moe;
use super::prefill;
use super::recurrent::{self, States};
use super::rows::{self, Rows};
use super::step::{MOST_GROUPS, StepWords, Work};
use super::times::Times;
use super::weights::{self, FORMATS, Matrix};
use crate::compute::draw::{DrawRow, Drawn, Unusable};
use crate::compute::{
    Activation, AttentionSpec, Backend, By, CacheShape, Capacity, Columns, Convolution, DeltaRule, Device,
    DeviceError, Experts, Gate, HeadColumns, MatrixSize, Meter, MixtureShape, Need, Norm, Result, RopeTable,
    Routing, Scan, Span, Spent, State, Step, Write,
};
use crate::weights::{BlockFormat, Checkpoint, Tensor, TensorInfo};
use std::ops::Range;
use std::sync::Arc;

/// A GPU with everything that a model's passes need on it.
pub struct Cuda {
    pass: Pass,
    passes: Passes,
    words: Words,
    multiplier: Multiplier,
    attends: Attends,
    mixtures: Mixtures,
    /// `None` before [`Backend::prepare`].
    draws: Option<Draws>,
    /// Those that are asked for now.
    logits: Option<Logits>,
    /// While weights are loaded.
    staging: Option<Staging>,
    /// Of copies on write: i32 [copies, 2].
    pairs: Room,
    /// A block on its way.
    block: Option<Pinned>,
    most: Capacity,
    /// Embeddings, of which one is the head as well where they are tied.
    tables: Vec<(String, Arc<Matrix>)>,
    times: Times,
    lost: bool,
    // Last: what lies on it is freed before.
    gpu: Gpu,
}

/// f32 on the device, and on the host what was asked for last.
pub struct Buf {
    memory: Memory,
    host: Option<Pinned>,
}

/// What the launches of a pass depend on.
#[derive(Clone, Copy, Default)]
pub(super) struct Pass {
    /// Rows that they cover: a bucket's in a pass of decoding, else as many as there are.
    pub(super) rows: usize,
    /// As many as there are.
    tokens: usize,
    pub(super) outputs: usize,
    pub(super) spans: usize,
    /// Some spans have one row.
    pub(super) singles: bool,
    /// Tiles of longer spans.
    pub(super) tiles: usize,
    running: bool,
}

/// The step's words: on the device at one address, on the host twice, so that the next are written
/// while the last are still read.
struct Words {
    device: Memory,
    host: [(Pinned, Event); 2],
    turn: usize,
}

/// Bytes of weights on their way at a time.
const STAGING_BYTES: usize = 16 << 20;
/// Rows of logits that are made at a time: 64 of 150,000 are 38 MiB.
const LOGIT_ROWS: usize = 64;
/// Words of a step to begin with; they grow.
const FIRST_WORDS: usize = 1 << 16;

/// What every model runs; repacking first, for it is waited for first.
const MODULES: [&str; 9] = ["repack", "rows", "embed", "kv", "draw", "gemv", "decode", "gemm", "prefill"];

impl Cuda {
    pub fn new(gpu: Gpu) -> Result<Self> {
        Ok(Self {
            pass: Pass::default(),
            passes: Passes::default(),
            words: Words::new(&gpu, FIRST_WORDS)?,
            multiplier: Multiplier::default(),
            attends: Attends::default(),
            mixtures: Mixtures::default(),
            draws: None,
            logits: None,
            staging: None,
            pairs: Room::default(),
            block: None,
            most: Capacity::default(),
            tables: Vec::new(),
            times: Times::default(),
            lost: false,
            gpu,
        })
    }

    /// Counts launches of kernels and of graphs: in the steady state one a step.
    pub fn launches(&self) -> Arc<std::sync::atomic::AtomicU64> {
        self.gpu.launches()
    }

    /// Remembers that the device is gone.
    fn heard<T>(&mut self, result: Result<T>) -> Result<T> {
        self.lost |= result.is_err() && self.gpu.is_lost();
        result
    }

    /// Nothing waits, and nothing is recorded: anything may be asked of the driver.
    fn settled(&mut self) -> Result<&Gpu> {
        if !self.pass.running {
            let started = self.passes.start(&self.gpu);
            self.heard(started)?;
        }
        Ok(&self.gpu)
    }

    fn load(&mut self, tensors: &[Tensor]) -> Result<Arc<Matrix>> {
        self.settled()?;
        if self.staging.is_none() {
            // The kernels are compiled while weights are on their way.
            self.gpu.preload(&MODULES);
        }
        let staging = match &mut self.staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(&self.gpu, STAGING_BYTES)?),
        };
        Matrix::load(&self.gpu, staging, tensors, &mut |_| ()).map(Arc::new)
    }

    /// Rows that launches cover for so many: in a pass as many times as it has tokens (a token may be several
    /// rows, one for each of its heads), those of its bucket.
    fn covers(&self, rows: usize) -> usize {
        match self.pass.running {
            true => rows / self.pass.tokens.max(1) * self.pass.rows,
            false => self.padded(rows),
        }
    }

    /// The same of values of whole rows: of the pass, or of its logits.
    fn covers_values(&self, len: usize) -> usize {
        let (columns, rows) = match self.pass.running {
            true => (len / self.pass.tokens.max(1), self.pass.rows),
            false if self.most.vocab > 0 && len.is_multiple_of(self.most.vocab) => {
                (self.most.vocab, self.padded(len / self.most.vocab))
            }
            false => (len, 1),
        };
        columns * rows
    }

    /// Writes the pass's words, and says what its launches depend on.
    fn begin_pass(&mut self, step: &Step) -> Result<()> {
        let groups: Vec<&[Span]> = step.groups.iter().map(Vec::as_slice).collect();
        let ropes: Vec<&RopeTable> = step.ropes.iter().collect();
        let tile_rows = self.attends.tile_rows();
        let work =
            Work { tokens: step.tokens, groups: &groups, ropes: &ropes, wanted: step.wanted, tile_rows };
        let spans = groups.first().copied().unwrap_or_default();
        let decodes = !spans.is_empty() && spans.iter().all(|span| span.len == 1);
        let covered = bucket(step.tokens.len(), self.most.tokens.min(self.most.outputs)).filter(|_| decodes);
        self.pass = Pass {
            rows: covered.unwrap_or(step.tokens.len()),
            tokens: step.tokens.len(),
            // Recorded with as many as there are rows: what is not wanted is found in the words.
            outputs: covered.unwrap_or(step.wanted.len()),
            spans: covered.unwrap_or(spans.len()),
            singles: spans.iter().any(|span| span.len == 1),
            tiles: work.tiles(),
            running: false,
        };
        if self.words.write(&self.gpu, &work)? {
            self.passes.forget();
        }
        // A fork may want more outputs than there are rows: then it is not recorded.
        let fits = step.wanted.len() <= self.pass.outputs;
        let key = covered.filter(|_| fits).map(|rows| Key { rows });
        self.pass.outputs = self.pass.outputs.max(step.wanted.len());
        // A pass is timed kernel by kernel, and so is no graph.
        let timed = self.times.begin(&self.gpu, !step.wanted.is_empty())?;
        let key = key.filter(|_| !timed);
        self.passes.begin(&self.gpu, key)
    }

    fn states<'a>(&'a self, state: &'a State<Self>) -> States<'a> {
        let (step, spans) = (&self.words.device, self.pass.spans);
        let place = Place { step, group: state.group, rows: self.pass.rows, spans };
        States { cache: state.cache, place, first: state.first }
    }

    /// Rows that launches cover where there are so many rows outside a pass.
    fn padded(&self, rows: usize) -> usize {
        bucket(rows, self.logit_rows().min(self.most.outputs)).unwrap_or(rows)
    }
}

impl Words {
    fn new(gpu: &Gpu, words: usize) -> Result<Self> {
        let host = || Ok((gpu.pinned(words * 4)?, gpu.event()?));
        Ok(Self { device: gpu.alloc(words * 4, "a step")?, host: [host()?, host()?], turn: 0 })
    }

    /// Writes a step and queues its copy; `true` where that took new memory, at another address.
    fn write(&mut self, gpu: &Gpu, work: &Work) -> Result<bool> {
        let needed = work.words();
        let grows = self.device.bytes() < needed * 4;
        if grows {
            gpu.wait()?;
            *self = Self::new(gpu, needed.next_power_of_two())?;
        }
        self.turn = 1 - self.turn;
        let (words, read) = &mut self.host[self.turn];
        read.wait()?;
        let used = StepWords::new(words.words_mut()).write(work)?;
        gpu.upload(self.device.at(0), words, used * 4)?;
        gpu.mark(read)?;
        Ok(grows)
    }
}

impl Buf {
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

pub(super) fn norm<'a>(norm: &Norm<'a, Cuda>) -> rows::Norm<'a> {
    let Norm { weight, bias, eps, kind } = *norm;
    rows::Norm { weight: &weight.memory, bias: bias.map(Buf::memory), eps, kind }
}

impl Backend for Cuda {
    type Buf = Buf;
    type Matrix = Arc<Matrix>;
    type Table = Arc<Matrix>;
    type Cache = Cache;

    fn sample_times(&mut self, every: u32) -> bool {
        self.times.sample(every);
        true
    }

    fn take_profile(&mut self) -> Vec<Spent> {
        if self.pass.running { Vec::new() } else { self.times.take(&self.gpu) }
    }

    fn available(&self) -> Option<usize> {
        self.gpu.memory().ok().map(|(free, _)| free)
    }

    fn own_memory(&self) -> bool {
        true
    }

    fn device(&self) -> Device {
        let facts = &self.gpu.facts;
        Device { name: format!("CUDA:{} ({})", facts.ordinal, facts.name) }
    }

    fn supports(&self, need: &Need) -> Result<()> {
        match need {
            Need::Attention(shape) => kv::check(shape).and_then(|()| prefill::check(shape.head_dim)),
            Need::Experts(mixture) => moe::check(mixture.experts, mixture.top),
            Need::States => Ok(()),
        }
    }

    /// Refuses here what no pass could do, so that another device can be tried.
    fn prepare(&mut self, most: &Capacity) -> Result<()> {
        if most.groups > MOST_GROUPS {
            let groups = most.groups;
            return Err(DeviceError(format!(
                "CUDA: {groups} groups of caches; {MOST_GROUPS} at most are known"
            )));
        }
        self.staging = None;
        self.most = *most;
        let rows = self.logit_rows().min(most.outputs);
        self.draws = Some(Draws::new(&self.gpu, most.vocab, rows)?);
        self.attends = Attends::new(&self.gpu, most)?;
        self.mixtures = Mixtures::new(most.tokens);
        Ok(())
    }

    fn logit_rows(&self) -> usize {
        LOGIT_ROWS
    }

    fn begin(&mut self, step: &Step) -> Result<()> {
        self.settled()?;
        let begun = self.begin_pass(step);
        self.pass.running = begun.is_ok();
        self.heard(begun)
    }

    fn end(&mut self, whole: bool) -> Result<()> {
        self.pass.running = false;
        self.lost |= !whole && self.gpu.is_lost();
        let ended = self.passes.end(&self.gpu, whole);
        self.heard(ended)
    }

    fn start(&mut self) -> Result<()> {
        self.settled().map(drop)
    }

    fn is_lost(&self) -> bool {
        self.lost
    }

    fn alloc(&mut self, len: usize) -> Result<Buf> {
        let gpu = self.settled()?;
        let memory = gpu.alloc(len * size_of::<f32>(), "activations")?;
        gpu.zero(&memory)?;
        Ok(Buf { memory, host: None })
    }

    fn upload(&mut self, values: &[f32]) -> Result<Buf> {
        let buf = self.alloc(values.len())?;
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.gpu.write(buf.memory.at(0), &bytes)?;
        Ok(buf)
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<Arc<Matrix>> {
        if let [tensor] = parts
            && let Some((_, table)) = self.tables.iter().find(|(name, _)| *name == tensor.info.name)
        {
            return Ok(table.clone());
        }
        self.load(parts)
    }

    fn table(&mut self, file: &Checkpoint, tensor: &str) -> Result<Arc<Matrix>> {
        let found = file.tensor(tensor).map_err(|e| DeviceError(e.to_string()))?;
        let table = self.load(&[found])?;
        self.tables.push((tensor.to_owned(), table.clone()));
        Ok(table)
    }

    fn cache(&mut self, shape: CacheShape) -> Result<Cache> {
        Cache::new(self.settled()?, shape)
    }

    fn embed(&mut self, out: &mut Buf, table: &Arc<Matrix>, _: &[u32], scale: f32) -> Result<()> {
        embed::embed(&self.gpu, &out.memory, table, &self.words.device, self.pass.rows, scale)
    }

    fn project(
        &mut self,
        out: &mut Buf,
        x: &Buf,
        rows: usize,
        norm: Option<Norm<Self>>,
        w: &Arc<Matrix>,
        write: Write<Self>,
    ) -> Result<()> {
        let rows = self.covers(rows);
        let (add, bias) = match write {
            Write::Store { bias } => (false, bias),
            Write::Add { bias } => (true, bias),
        };
        let moved =
            self.multiplier.prepare(&self.gpu, &x.memory, rows, norm.as_ref().map(self::norm), &[w])?;
        let out = Out { to: &out.memory, columns: w.rows, add, bias: bias.map(Buf::memory) };
        if moved | self.multiplier.project(&self.gpu, out, rows, w)? {
            self.passes.forget();
        }
        Ok(())
    }

    fn gated(
        &mut self,
        out: &mut Buf,
        x: &Buf,
        rows: usize,
        norm: Option<Norm<Self>>,
        gate: Gate<Self>,
    ) -> Result<()> {
        let rows = self.covers(rows);
        let both = (&**gate.gate, &**gate.up);
        let norm = norm.as_ref().map(self::norm);
        let moved = self.multiplier.prepare(&self.gpu, &x.memory, rows, norm, &[both.0, both.1])?;
        let biases = [gate.gate_bias, gate.up_bias].map(|bias| bias.map(Buf::memory));
        if moved | self.multiplier.gated(&self.gpu, &out.memory, rows, both, biases, gate.activation)? {
            self.passes.forget();
        }
        Ok(())
    }

    fn add(&mut self, x: &mut Buf, y: &Buf, len: usize, scale: f32) -> Result<()> {
        elements::add(&self.gpu, &x.memory, &y.memory, self.covers_values(len), scale)
    }

    fn normalise(&mut self, out: &mut Buf, x: &Buf, rows: usize, norm: Norm<Self>) -> Result<()> {
        let (rows, columns) = (self.covers(rows), norm.weight.memory.bytes() / size_of::<f32>());
        rows::norm(&self.gpu, &out.memory, &x.memory, rows, columns, Some(self::norm(&norm)))
    }

    fn activate(&mut self, x: &mut Buf, len: usize, activation: Activation) -> Result<()> {
        elements::activate(&self.gpu, &x.memory, self.covers_values(len), activation)
    }

    fn scale(&mut self, x: &mut Buf, len: usize, scale: f32, cap: Option<f32>) -> Result<()> {
        elements::scale(&self.gpu, &x.memory, self.covers_values(len), scale, cap)
    }

    fn copy_columns(&mut self, out: (&mut Buf, Columns), x: (&Buf, Columns), rows: usize) -> Result<()> {
        elements::copy_columns(&self.gpu, (&out.0.memory, out.1), (&x.0.memory, x.1), self.covers(rows))
    }

    fn multiply_columns(
        &mut self,
        x: (&mut Buf, Columns),
        gate: (&Buf, Columns),
        rows: usize,
        by: By,
    ) -> Result<()> {
        let (x, gate) = ((&x.0.memory, x.1), (&gate.0.memory, gate.1));
        elements::multiply_columns(&self.gpu, x, gate, self.covers(rows), by)
    }

    fn add_positions(&mut self, x: &mut Buf, table: &Arc<Matrix>, _: &[Span]) -> Result<()> {
        embed::add_positions(&self.gpu, &x.memory, table, &self.words.device, self.pass.rows)
    }

    fn project_heads(
        &mut self,
        out: (&mut Buf, HeadColumns),
        x: (&Buf, HeadColumns),
        rows: usize,
        heads: usize,
        w: &Arc<Matrix>,
    ) -> Result<()> {
        let _ = (out, x, rows, heads, w);
        Err(DeviceError("CUDA: heads have no matrices of their own here; use --device cpu".into()))
    }

    fn experts(
        &mut self,
        out: &mut Buf,
        x: &Buf,
        rows: usize,
        logits: &Buf,
        routing: &Routing<Self>,
        experts: &Experts<Self>,
    ) -> Result<()> {
        let (both, logits) = ((&out.memory, &x.memory), (&logits.memory, self.covers(rows)));
        let step = self.pass.running.then_some(&self.words.device);
        if self.mixtures.run(&self.gpu, both, logits, routing, experts, step)? {
            self.passes.forget();
        }
        Ok(())
    }

    fn convolve(
        &mut self,
        x: (&mut Buf, Columns),
        _: &[Span],
        convolution: &Convolution<Self>,
        state: State<Self>,
    ) -> Result<()> {
        recurrent::convolve(&self.gpu, (&x.0.memory, x.1), convolution, self.states(&state))
    }

    fn delta_rule(
        &mut self,
        out: &mut Buf,
        x: &Buf,
        gates: &Buf,
        _: &[Span],
        rule: &DeltaRule<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let from = (&x.memory, &gates.memory);
        recurrent::delta_rule(&self.gpu, &out.memory, from, rule, self.states(&state))
    }

    fn scan(
        &mut self,
        out: &mut Buf,
        x: &Buf,
        dt: &Buf,
        _: &[Span],
        scan: &Scan<Self>,
        state: State<Self>,
    ) -> Result<()> {
        recurrent::scan(&self.gpu, &out.memory, (&x.memory, &dt.memory), scan, self.states(&state))
    }

    fn add_norm(&mut self, x: &mut Buf, y: &Buf, rows: usize, norm: Norm<Self>) -> Result<()> {
        let (rows, columns) = (self.covers(rows), norm.weight.memory.bytes() / size_of::<f32>());
        rows::add(&self.gpu, &x.memory, &y.memory, rows, columns, Some(self::norm(&norm)))
    }

    fn store_kv(
        &mut self,
        qkv: &mut Buf,
        _: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &mut Cache,
    ) -> Result<()> {
        Attends::store(&self.gpu, &qkv.memory, spec, cache, &self.words.device, &self.pass)
    }

    fn attend(
        &mut self,
        out: &mut Buf,
        qkv: &Buf,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &Cache,
    ) -> Result<()> {
        let (both, step) = ((&out.memory, &qkv.memory), (&self.words.device, spans));
        let moved = self.attends.attend(&self.gpu, both, spec, cache, step, &self.pass)?;
        if moved {
            self.passes.forget();
        }
        Ok(())
    }

    fn gather(&mut self, out: &mut Buf, x: &Buf, _: &[usize], columns: usize) -> Result<()> {
        if self.pass.outputs == 0 {
            return Ok(());
        }
        let wanted = Rows::Wanted(&self.words.device, self.pass.outputs);
        rows::gather(&self.gpu, &out.memory, &x.memory, wanted, columns)
    }

    fn copy_rows(&mut self, out: &mut Buf, x: &Buf, first: usize, rows: usize, columns: usize) -> Result<()> {
        let row = columns * size_of::<f32>();
        self.settled()?.copy(out.memory.at(0), x.memory.at(first * row), rows * row)
    }

    fn cache_layout(&self) -> &'static str {
        "cuda"
    }

    fn takes(&self, format: BlockFormat) -> bool {
        FORMATS.contains(&format)
    }

    fn matrix_bytes(&self, tensor: &TensorInfo) -> usize {
        weights::matrix_bytes(tensor)
    }

    fn table_bytes(&self, tensor: &TensorInfo) -> usize {
        weights::matrix_bytes(tensor)
    }

    fn scratch_bytes(&self, rows: usize, columns: usize) -> usize {
        Multiplier::bytes_for(rows, columns) + Attends::MOST_BYTES + STAGING_BYTES
    }

    fn mixture_bytes(&self, rows: usize, mixture: &MixtureShape) -> usize {
        Mixtures::bytes_for(rows, mixture)
    }

    fn matrix_size(&self, w: &Arc<Matrix>) -> MatrixSize {
        MatrixSize { bytes: w.bytes(), weights: w.rows * w.cols }
    }

    fn meter(&self) -> Option<Meter> {
        let ordinal = self.gpu.facts.ordinal;
        Some(Box::new(move |stop| limits::measure_until(ordinal, &stop)))
    }

    fn copy_blocks(&mut self, cache: &mut Cache, copies: &[(u32, u32)]) -> Result<()> {
        self.settled()?;
        let pairs: Vec<u8> =
            copies.iter().flat_map(|(from, to)| [*from, *to]).flat_map(u32::to_le_bytes).collect();
        let mut moved = false;
        let copied = self.pairs.reserve(&self.gpu, pairs.len(), &mut moved).and_then(|()| {
            self.gpu.write(self.pairs.memory().at(0), &pairs)?;
            kv::at_once(copies)
                .try_for_each(|range| kv::copy_blocks(&self.gpu, cache, self.pairs.memory(), range))
        });
        self.heard(copied)
    }

    fn read_block(&mut self, caches: &[Cache], block: u32, out: &mut [u8]) -> Result<()> {
        self.settled()?;
        let by = by(&mut self.block, &self.gpu, out.len())?;
        let read = kv::read_block(&self.gpu, caches, block, by, out);
        self.heard(read)
    }

    fn write_block(&mut self, caches: &mut [Cache], block: u32, from: &[u8]) -> Result<()> {
        self.settled()?;
        let by = by(&mut self.block, &self.gpu, from.len())?;
        let written = kv::write_block(&self.gpu, caches, block, by, from);
        self.heard(written)
    }

    fn download<'a>(&mut self, x: &'a mut Buf, part: Range<usize>) -> Result<&'a mut [f32]> {
        let bytes = part.len() * size_of::<f32>();
        let gpu = self.settled()?;
        let host = by(&mut x.host, gpu, bytes)?;
        let there =
            gpu.download(host, x.memory.at(part.start * size_of::<f32>()), bytes).and_then(|()| gpu.wait());
        self.times.logits_are_there();
        self.heard(there)?;
        Ok(host.floats_mut(part.len()))
    }

    fn draws(&self) -> bool {
        self.draws.is_some()
    }

    fn begin_logits(&mut self, rows: &[DrawRow]) -> Result<()> {
        let draws = self.draws.as_mut().ok_or_else(unprepared)?;
        let kind = draws.stage(&self.gpu, rows);
        let draws = self.heard(kind)?;
        let of = Logits { rows: self.padded(rows.len()), draws };
        let begun = self.passes.begin_logits(&self.gpu, of);
        self.logits = Some(of);
        self.heard(begun)
    }

    fn draw(&mut self, logits: &mut Buf) -> Result<()> {
        let (Some(draws), Some(of)) = (&self.draws, self.logits) else { return Err(unprepared()) };
        draws.launch(&self.gpu, &logits.memory, of.rows, of.draws)
    }

    fn end_logits(&mut self, whole: bool) -> Result<()> {
        self.lost |= !whole && self.gpu.is_lost();
        let ended = self.passes.end_logits(&self.gpu, whole);
        self.heard(ended)
    }

    fn drawn(&mut self) -> Result<Vec<std::result::Result<Drawn, Unusable>>> {
        let draws = self.draws.as_mut().ok_or_else(unprepared)?;
        let drawn = draws.results(&self.gpu);
        self.times.logits_are_there();
        self.heard(drawn)
    }
}

/// Pinned memory of so many bytes at least.
fn by<'a>(held: &'a mut Option<Pinned>, gpu: &Gpu, bytes: usize) -> Result<&'a mut Pinned> {
    if held.as_ref().is_none_or(|pinned| pinned.len() < bytes) {
        *held = Some(gpu.pinned(bytes)?);
    }
    Ok(held.as_mut().expect("made above"))
}

fn unprepared() -> DeviceError {
    DeviceError("CUDA: logits were asked for before anything was prepared".into())
}
