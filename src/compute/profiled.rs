use super::draw::{DrawRow, Drawn, Unusable};
use super::*;
use crate::weights::{Checkpoint, Tensor, TensorInfo};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What an operation took since it was last asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// As [`Backend`] calls it; the projection to the vocabulary is `head`.
    pub name: &'static str,
    pub calls: u32,
    pub time: Duration,
    /// What it read and computed; 0 where nobody counts.
    pub work: Amount,
}

/// Bytes read, and operations: a multiplication and an addition are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub bytes: u64,
    pub flops: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.flops += other.flops;
    }
}

/// A device that times every operation of a step, for [`Backend::take_profile`].
///
/// Times are of the call. The CPU works in the call, so they are true there; a device that queues
/// operations times them itself ([`Backend::sample_times`]).
pub struct Profiled<B: Backend> {
    backend: B,
    spent: Vec<Spent>,
    /// Rows were chosen since the pass began: what is projected now are logits.
    gathered: bool,
}

impl<B: Backend> Profiled<B> {
    pub fn new(backend: B) -> Self {
        Self { backend, spent: Vec::new(), gathered: false }
    }

    fn timed<T>(&mut self, name: &'static str, run: impl FnOnce(&mut B) -> T) -> T {
        let start = Instant::now();
        let result = run(&mut self.backend);
        let time = start.elapsed();
        match self.spent.iter_mut().find(|spent| spent.name == name) {
            Some(spent) => (spent.calls, spent.time) = (spent.calls + 1, spent.time + time),
            None => self.spent.push(Spent { name, calls: 1, time, work: Amount::default() }),
        }
        result
    }
}

impl<B: Backend> Backend for Profiled<B> {
    type Buf = B::Buf;
    type Matrix = B::Matrix;
    type Table = B::Table;
    type Cache = B::Cache;

    fn take_profile(&mut self) -> Vec<Spent> {
        std::mem::take(&mut self.spent)
    }

    fn device(&self) -> Device {
        self.backend.device()
    }

    fn available(&self) -> Option<usize> {
        self.backend.available()
    }

    fn own_memory(&self) -> bool {
        self.backend.own_memory()
    }

    fn supports(&self, need: &Need) -> Result<()> {
        self.backend.supports(need)
    }

    fn prepare(&mut self, most: &Capacity) -> Result<()> {
        self.backend.prepare(most)
    }

    fn logit_rows(&self) -> usize {
        self.backend.logit_rows()
    }

    fn begin(&mut self, step: &Step) -> Result<()> {
        self.timed("begin", |b| b.begin(step))
    }

    fn end(&mut self, whole: bool) -> Result<()> {
        self.timed("end", |b| b.end(whole))
    }

    fn start(&mut self) -> Result<()> {
        self.backend.start()
    }

    fn is_lost(&self) -> bool {
        self.backend.is_lost()
    }

    fn alloc(&mut self, len: usize) -> Result<B::Buf> {
        self.backend.alloc(len)
    }

    fn upload(&mut self, values: &[f32]) -> Result<B::Buf> {
        self.backend.upload(values)
    }

    fn meter(&self) -> Option<Meter> {
        self.backend.meter()
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<B::Matrix> {
        self.backend.matrix(parts)
    }

    fn table(&mut self, file: &Checkpoint, tensor: &str) -> Result<B::Table> {
        self.backend.table(file, tensor)
    }

    fn cache(&mut self, shape: CacheShape) -> Result<B::Cache> {
        self.backend.cache(shape)
    }

    fn embed(&mut self, out: &mut B::Buf, table: &B::Table, tokens: &[u32], scale: f32) -> Result<()> {
        self.gathered = false;
        self.timed("embed", |b| b.embed(out, table, tokens, scale))
    }

    fn project(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        rows: usize,
        norm: Option<Norm<Self>>,
        w: &B::Matrix,
        write: Write<Self>,
    ) -> Result<()> {
        let write = match write {
            Write::Store { bias } => Write::Store { bias },
            Write::Add { bias } => Write::Add { bias },
        };
        let name = if self.gathered { "head" } else { "project" };
        self.timed(name, |b| b.project(out, x, rows, norm.map(inner), w, write))
    }

    fn gated(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        rows: usize,
        norm: Option<Norm<Self>>,
        gate: Gate<Self>,
    ) -> Result<()> {
        let Gate { gate, up, gate_bias, up_bias, activation } = gate;
        let gate = Gate { gate, up, gate_bias, up_bias, activation };
        self.timed("gated", |b| b.gated(out, x, rows, norm.map(inner), gate))
    }

    fn add(&mut self, x: &mut B::Buf, y: &B::Buf, len: usize, scale: f32) -> Result<()> {
        self.timed("add", |b| b.add(x, y, len, scale))
    }

    fn normalise(&mut self, out: &mut B::Buf, x: &B::Buf, rows: usize, norm: Norm<Self>) -> Result<()> {
        self.timed("normalise", |b| b.normalise(out, x, rows, inner(norm)))
    }

    fn activate(&mut self, x: &mut B::Buf, len: usize, activation: Activation) -> Result<()> {
        self.timed("activate", |b| b.activate(x, len, activation))
    }

    fn scale(&mut self, x: &mut B::Buf, len: usize, scale: f32, cap: Option<f32>) -> Result<()> {
        self.timed("scale", |b| b.scale(x, len, scale, cap))
    }

    fn copy_columns(
        &mut self,
        out: (&mut B::Buf, Columns),
        x: (&B::Buf, Columns),
        rows: usize,
    ) -> Result<()> {
        self.timed("copy_columns", |b| b.copy_columns(out, x, rows))
    }

    fn multiply_columns(
        &mut self,
        x: (&mut B::Buf, Columns),
        gate: (&B::Buf, Columns),
        rows: usize,
        by: By,
    ) -> Result<()> {
        self.timed("multiply_columns", |b| b.multiply_columns(x, gate, rows, by))
    }

    fn add_positions(&mut self, x: &mut B::Buf, table: &B::Table, spans: &[Span]) -> Result<()> {
        self.timed("add_positions", |b| b.add_positions(x, table, spans))
    }

    fn project_heads(
        &mut self,
        out: (&mut B::Buf, HeadColumns),
        x: (&B::Buf, HeadColumns),
        rows: usize,
        heads: usize,
        w: &B::Matrix,
    ) -> Result<()> {
        self.timed("project_heads", |b| b.project_heads(out, x, rows, heads, w))
    }

    fn experts(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        rows: usize,
        logits: &B::Buf,
        routing: &Routing<Self>,
        experts: &Experts<Self>,
    ) -> Result<()> {
        let Routing { bias, experts: count, top, score, groups, renormalise, scale } = *routing;
        let routing = Routing { bias, experts: count, top, score, groups, renormalise, scale };
        let Experts { count, gate, up, down, gate_bias, up_bias, down_bias, activation } = *experts;
        let experts = Experts { count, gate, up, down, gate_bias, up_bias, down_bias, activation };
        self.timed("experts", |b| b.experts(out, x, rows, logits, &routing, &experts))
    }

    fn convolve(
        &mut self,
        x: (&mut B::Buf, Columns),
        spans: &[Span],
        convolution: &Convolution<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let Convolution { weight, bias, width, silu } = *convolution;
        let convolution = Convolution { weight, bias, width, silu };
        self.timed("convolve", |b| b.convolve(x, spans, &convolution, inner_state(state)))
    }

    fn delta_rule(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        gates: &B::Buf,
        spans: &[Span],
        rule: &DeltaRule<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let rule = inner_rule(rule);
        self.timed("delta_rule", |b| b.delta_rule(out, x, gates, spans, &rule, inner_state(state)))
    }

    fn scan(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        dt: &B::Buf,
        spans: &[Span],
        scan: &Scan<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let scan = inner_scan(scan);
        self.timed("scan", |b| b.scan(out, x, dt, spans, &scan, inner_state(state)))
    }

    fn add_norm(&mut self, x: &mut B::Buf, y: &B::Buf, rows: usize, norm: Norm<Self>) -> Result<()> {
        self.timed("add_norm", |b| b.add_norm(x, y, rows, inner(norm)))
    }

    fn store_kv(
        &mut self,
        qkv: &mut B::Buf,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &mut B::Cache,
    ) -> Result<()> {
        self.timed("store_kv", |b| b.store_kv(qkv, spans, &inner_spec(spec), cache))
    }

    fn attend(
        &mut self,
        out: &mut B::Buf,
        qkv: &B::Buf,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &B::Cache,
    ) -> Result<()> {
        self.timed("attend", |b| b.attend(out, qkv, spans, &inner_spec(spec), cache))
    }

    fn gather(&mut self, out: &mut B::Buf, x: &B::Buf, rows: &[usize], columns: usize) -> Result<()> {
        self.gathered = true;
        self.timed("gather", |b| b.gather(out, x, rows, columns))
    }

    fn copy_rows(
        &mut self,
        out: &mut B::Buf,
        x: &B::Buf,
        first: usize,
        rows: usize,
        columns: usize,
    ) -> Result<()> {
        self.gathered = true;
        self.timed("copy_rows", |b| b.copy_rows(out, x, first, rows, columns))
    }

    fn cache_layout(&self) -> &'static str {
        self.backend.cache_layout()
    }

    fn takes(&self, format: BlockFormat) -> bool {
        self.backend.takes(format)
    }

    fn matrix_bytes(&self, tensor: &TensorInfo) -> usize {
        self.backend.matrix_bytes(tensor)
    }

    fn scratch_bytes(&self, rows: usize, columns: usize) -> usize {
        self.backend.scratch_bytes(rows, columns)
    }

    fn mixture_bytes(&self, rows: usize, mixture: &MixtureShape) -> usize {
        self.backend.mixture_bytes(rows, mixture)
    }

    fn matrix_size(&self, w: &B::Matrix) -> MatrixSize {
        self.backend.matrix_size(w)
    }

    fn table_bytes(&self, tensor: &TensorInfo) -> usize {
        self.backend.table_bytes(tensor)
    }

    fn draws(&self) -> bool {
        self.backend.draws()
    }

    fn begin_logits(&mut self, rows: &[DrawRow]) -> Result<()> {
        self.timed("begin_logits", |b| b.begin_logits(rows))
    }

    fn draw(&mut self, logits: &mut B::Buf) -> Result<()> {
        self.timed("draw", |b| b.draw(logits))
    }

    fn end_logits(&mut self, whole: bool) -> Result<()> {
        self.timed("end_logits", |b| b.end_logits(whole))
    }

    fn drawn(&mut self) -> Result<Vec<std::result::Result<Drawn, Unusable>>> {
        self.timed("drawn", |b| b.drawn())
    }

    fn copy_blocks(&mut self, cache: &mut B::Cache, copies: &[(u32, u32)]) -> Result<()> {
        self.timed("copy_blocks", |b| b.copy_blocks(cache, copies))
    }

    fn read_block(&mut self, caches: &[B::Cache], block: u32, out: &mut [u8]) -> Result<()> {
        self.timed("read_block", |b| b.read_block(caches, block, out))
    }

    fn write_block(&mut self, caches: &mut [B::Cache], block: u32, from: &[u8]) -> Result<()> {
        self.timed("write_block", |b| b.write_block(caches, block, from))
    }

    fn download<'a>(&mut self, x: &'a mut B::Buf, part: Range<usize>) -> Result<&'a mut [f32]> {
        self.timed("download", |b| b.download(x, part))
    }
}

fn inner<B: Backend>(norm: Norm<'_, Profiled<B>>) -> Norm<'_, B> {
    let Norm { weight, bias, eps, kind } = norm;
    Norm { weight, bias, eps, kind }
}

fn inner_state<B: Backend>(state: State<'_, Profiled<B>>) -> State<'_, B> {
    let State { cache, group, first } = state;
    State { cache, group, first }
}

fn inner_rule<'a, B: Backend>(rule: &DeltaRule<'a, Profiled<B>>) -> DeltaRule<'a, B> {
    DeltaRule {
        key_heads: rule.key_heads,
        value_heads: rule.value_heads,
        key_dim: rule.key_dim,
        value_dim: rule.value_dim,
        query: rule.query,
        key: rule.key,
        value: rule.value,
        stride: rule.stride,
        b: rule.b,
        a: rule.a,
        gates_stride: rule.gates_stride,
        a_log: rule.a_log,
        dt_bias: rule.dt_bias,
    }
}

fn inner_scan<'a, B: Backend>(scan: &Scan<'a, Profiled<B>>) -> Scan<'a, B> {
    Scan {
        heads: scan.heads,
        head_dim: scan.head_dim,
        groups: scan.groups,
        state: scan.state,
        x: scan.x,
        b: scan.b,
        c: scan.c,
        stride: scan.stride,
        dt: scan.dt,
        dt_stride: scan.dt_stride,
        a: scan.a,
        d: scan.d,
        dt_bias: scan.dt_bias,
        dt_limit: scan.dt_limit,
    }
}

fn inner_spec<'a, B: Backend>(spec: &AttentionSpec<'a, Profiled<B>>) -> AttentionSpec<'a, B> {
    let norm = |norm: &Option<HeadNorm<'a, Profiled<B>>>| {
        norm.as_ref().map(|HeadNorm { norm, over }| HeadNorm { norm: inner(*norm), over: *over })
    };
    AttentionSpec {
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        scale: spec.scale,
        window: spec.window,
        soft_cap: spec.soft_cap,
        sinks: spec.sinks,
        latent: spec.latent,
        query_norm: norm(&spec.query_norm),
        key_norm: norm(&spec.key_norm),
        rope: spec.rope,
        group: spec.group,
        rope_index: spec.rope_index,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::cpu::Cpu;
    use super::*;

    #[test]
    fn calls_are_counted_and_timed_until_somebody_asks() {
        let mut b = Profiled::new(Cpu::new(Some(1)));
        let (mut x, y) = (b.upload(&[1.0; 1 << 16]).unwrap(), b.upload(&[2.0; 1 << 16]).unwrap());
        let start = Instant::now();
        for _ in 0..3 {
            b.add(&mut x, &y, 1 << 16, 1.0).unwrap();
        }
        let all = start.elapsed();
        assert_eq!(b.download(&mut x, 0..2).unwrap(), [7.0, 7.0]);
        let spent = b.take_profile();
        let seen: Vec<_> = spent.iter().map(|spent| (spent.name, spent.calls)).collect();
        assert_eq!(seen, [("add", 3), ("download", 1)]);
        assert!(spent[0].time > Duration::ZERO && spent[0].time <= all, "{spent:?} in {all:?}");
        assert!(b.take_profile().is_empty());
    }
}
