use super::*;
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

    fn add(&mut self, x: &mut B::Buf, y: &B::Buf, len: usize) -> Result<()> {
        self.timed("add", |b| b.add(x, y, len))
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
    Norm { weight: norm.weight, eps: norm.eps }
}

fn inner_spec<'a, B: Backend>(spec: &AttentionSpec<'a, Profiled<B>>) -> AttentionSpec<'a, B> {
    let norm = |norm: &Option<Norm<'a, Profiled<B>>>| {
        norm.as_ref().map(|norm| Norm { weight: norm.weight, eps: norm.eps })
    };
    AttentionSpec {
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        scale: spec.scale,
        window: spec.window,
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
            b.add(&mut x, &y, 1 << 16).unwrap();
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
