//! The CPU: own threads, weights repacked for the widest instructions there are.

mod activation;
mod arena;
mod attend;
mod attention;
mod cache;
mod columns;
mod experts;
mod float8;
mod format;
mod grouped;
mod heads;
mod latent;
mod levels;
mod limits;
mod matmul;
mod matrix;
mod norm;
mod pairs;
mod pin;
mod pool;
mod project;
mod recurrent;
mod routing;
mod rows;
mod shared;
mod simd;
mod table;

#[cfg(test)]
mod attention_tests;
#[cfg(test)]
mod blind_tests;
#[cfg(test)]
mod expert_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod tests;

pub use format::FORMATS;
pub use limits::Limits;
pub use simd::Isa;

use self::arena::Arena;
use self::attend::Past;
use self::attention::Desk;
use self::cache::Cache;
use self::experts::Mixing;
use self::grouped::Grouped;
use self::matrix::Matrix;
use self::pool::Pool;
use self::project::Bench;
use self::rows::Quantized;
use self::table::Table;
use crate::compute::{
    Activation, AttentionSpec, Backend, By, CacheShape, Columns, Convolution, DeltaRule, Device, DeviceError,
    Experts, Gate, HeadColumns, MatrixSize, Meter, MixtureShape, Norm, Result, Routing, Scan, Span, State,
    Write,
};
use crate::weights::{BlockFormat, Checkpoint, Tensor, TensorInfo};
use std::ops::Range;

pub struct Cpu {
    isa: Isa,
    pool: Pool,
    arena: Arena,
    /// Normalised activations, and the same as bytes: written by one phase of an operation, read by
    /// the next.
    floats: Vec<f32>,
    quantized: Quantized,
    /// One for each thread, as desks are.
    benches: Vec<Bench>,
    mixing: Mixing,
    heads: Grouped,
    desks: Vec<Desk>,
    recurrent: Vec<recurrent::Bench>,
    partials: Vec<f32>,
    pieces: Vec<attend::Piece>,
}

impl Cpu {
    /// `None` takes every core the process may run on.
    pub fn new(threads: Option<usize>) -> Self {
        Self::with_isa(threads, Isa::detect())
    }

    pub fn with_isa(threads: Option<usize>, isa: Isa) -> Self {
        let threads = threads.unwrap_or_else(Self::cores).max(1);
        Self {
            isa,
            pool: Pool::new(threads),
            arena: Arena::default(),
            floats: Vec::new(),
            quantized: Quantized::default(),
            benches: vec![Bench::new(); threads],
            mixing: Mixing::default(),
            heads: Grouped::default(),
            desks: vec![Desk::new(); threads],
            recurrent: vec![recurrent::Bench::default(); threads],
            partials: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Binds every compute thread to a core of its own: the workers now, the thread that computes when
    /// a forward pass begins. Fails when there are more threads than cores; on Linux only, elsewhere
    /// nothing is bound.
    pub fn pinned(mut self) -> Result<Self> {
        self.pool.pin()?;
        Ok(self)
    }

    fn cores() -> usize {
        std::thread::available_parallelism().map_or(1, |n| n.get())
    }
}

impl Backend for Cpu {
    type Buf = Vec<f32>;
    type Matrix = Matrix;
    type Table = Table;
    type Cache = Cache;

    fn device(&self) -> Device {
        let threads = self.pool.threads();
        let plural = if threads == 1 { "" } else { "s" };
        Device { name: format!("CPU ({threads} thread{plural}, {})", self.isa.name()) }
    }

    fn alloc(&mut self, len: usize) -> Result<Vec<f32>> {
        arena::zeroed(len)
            .ok_or_else(|| DeviceError(format!("no memory for {} MiB of activations", (len * 4) >> 20)))
    }

    fn upload(&mut self, values: &[f32]) -> Result<Vec<f32>> {
        Ok(values.to_vec())
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<Matrix> {
        Matrix::pack(&self.pool, &mut self.arena, parts)
    }

    fn table(&mut self, file: &Checkpoint, tensor: &str) -> Result<Table> {
        Table::new(file, tensor)
    }

    fn cache(&mut self, shape: CacheShape) -> Result<Cache> {
        Cache::new(shape)
    }

    fn embed(&mut self, out: &mut Vec<f32>, table: &Table, tokens: &[u32], scale: f32) -> Result<()> {
        // Every forward pass begins here. Loading does not: whoever is started meanwhile stays free.
        self.pool.pin_caller()?;
        let rows = table.rows()?;
        for (token, out) in tokens.iter().zip(out.chunks_exact_mut(rows.columns())) {
            rows.decode(*token as usize, out)?;
            if scale != 1.0 {
                out.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(())
    }

    fn project(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        rows: usize,
        norm: Option<Norm<Self>>,
        w: &Matrix,
        write: Write<Self>,
    ) -> Result<()> {
        let tokens = self.prepare(x, rows, norm, &[w]);
        self.multiply(out, x, tokens, w, write);
        Ok(())
    }

    fn gated(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        rows: usize,
        norm: Option<Norm<Self>>,
        gate: Gate<Self>,
    ) -> Result<()> {
        let tokens = self.prepare(x, rows, norm, &[gate.gate, gate.up]);
        self.multiply_gated(out, x, tokens, gate);
        Ok(())
    }

    fn add(&mut self, x: &mut Vec<f32>, y: &Vec<f32>, len: usize, scale: f32) -> Result<()> {
        self.add_scaled(&mut x[..len], &y[..len], scale);
        Ok(())
    }

    fn normalise(&mut self, out: &mut Vec<f32>, x: &Vec<f32>, rows: usize, norm: Norm<Self>) -> Result<()> {
        self.normalise_rows(out, x, rows, norm);
        Ok(())
    }

    fn activate(&mut self, x: &mut Vec<f32>, len: usize, activation: Activation) -> Result<()> {
        if activation == Activation::ClampedSwiglu {
            return Err(DeviceError("a clamped SwiGLU has two sides: it is for gates".into()));
        }
        self.activate_all(&mut x[..len], activation);
        Ok(())
    }

    fn scale(&mut self, x: &mut Vec<f32>, len: usize, scale: f32, cap: Option<f32>) -> Result<()> {
        self.scale_all(&mut x[..len], scale, cap);
        Ok(())
    }

    fn copy_columns(
        &mut self,
        (out, to): (&mut Vec<f32>, Columns),
        (x, from): (&Vec<f32>, Columns),
        rows: usize,
    ) -> Result<()> {
        columns::copy((out, to), (x, from), rows);
        Ok(())
    }

    fn multiply_columns(
        &mut self,
        (x, at): (&mut Vec<f32>, Columns),
        (gate, from): (&Vec<f32>, Columns),
        rows: usize,
        by: By,
    ) -> Result<()> {
        columns::multiply(self.isa, (x, at), (gate, from), rows, by);
        Ok(())
    }

    fn add_positions(&mut self, x: &mut Vec<f32>, table: &Table, spans: &[Span]) -> Result<()> {
        let rows = table.rows()?;
        let cols = rows.columns();
        let mut learned = vec![0.0; cols];
        for (row, position) in spans.iter().flat_map(|s| (0..s.len).map(|i| (s.first + i, s.start + i))) {
            rows.decode(position, &mut learned)?;
            rows::add(self.isa, &mut x[row * cols..][..cols], &learned, 1.0);
        }
        Ok(())
    }

    fn project_heads(
        &mut self,
        (out, to): (&mut Vec<f32>, HeadColumns),
        (x, from): (&Vec<f32>, HeadColumns),
        rows: usize,
        heads: usize,
        w: &Matrix,
    ) -> Result<()> {
        self.multiply_heads((out, to), (x, from), rows, heads, w)
    }

    fn experts(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        rows: usize,
        logits: &Vec<f32>,
        routing: &Routing<Self>,
        experts: &Experts<Self>,
    ) -> Result<()> {
        self.mix_experts(out, x, rows, logits, routing, experts)
    }

    fn convolve(
        &mut self,
        x: (&mut Vec<f32>, Columns),
        spans: &[Span],
        convolution: &Convolution<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let (x, columns) = x;
        self.convolve_spans((x, columns), spans, convolution, state)
    }

    fn delta_rule(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        gates: &Vec<f32>,
        spans: &[Span],
        rule: &DeltaRule<Self>,
        state: State<Self>,
    ) -> Result<()> {
        self.delta_rule_spans(out, x, gates, spans, rule, state)
    }

    fn scan(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        dt: &Vec<f32>,
        spans: &[Span],
        scan: &Scan<Self>,
        state: State<Self>,
    ) -> Result<()> {
        self.scan_spans(out, x, dt, spans, scan, state)
    }

    fn add_norm(&mut self, x: &mut Vec<f32>, y: &Vec<f32>, rows: usize, norm: Norm<Self>) -> Result<()> {
        let cols = norm.weight.len();
        self.floats.resize(cols.max(self.floats.len()), 0.0);
        let scratch = &mut self.floats[..cols];
        for (x, y) in x.chunks_exact_mut(cols).zip(y.chunks_exact(cols)).take(rows) {
            norm::normalise(self.isa, scratch, y, norm.into());
            rows::add(self.isa, x, scratch, 1.0);
        }
        Ok(())
    }

    fn store_kv(
        &mut self,
        qkv: &mut Vec<f32>,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &mut Cache,
    ) -> Result<()> {
        self.rotate_and_store(qkv, spans, spec, cache);
        Ok(())
    }

    fn attend(
        &mut self,
        out: &mut Vec<f32>,
        qkv: &Vec<f32>,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &Cache,
    ) -> Result<()> {
        self.attend_spans(out, Past { qkv, spans, spec, cache });
        Ok(())
    }

    fn gather(&mut self, out: &mut Vec<f32>, x: &Vec<f32>, rows: &[usize], columns: usize) -> Result<()> {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(columns)) {
            out.copy_from_slice(&x[row * columns..][..columns]);
        }
        Ok(())
    }

    fn copy_rows(
        &mut self,
        out: &mut Vec<f32>,
        x: &Vec<f32>,
        first: usize,
        rows: usize,
        columns: usize,
    ) -> Result<()> {
        out[..rows * columns].copy_from_slice(&x[first * columns..][..rows * columns]);
        Ok(())
    }

    fn takes(&self, format: BlockFormat) -> bool {
        FORMATS.contains(&format)
    }

    fn matrix_bytes(&self, tensor: &TensorInfo) -> usize {
        Matrix::bytes_of(tensor)
    }

    fn scratch_bytes(&self, rows: usize, columns: usize) -> usize {
        rows * columns * size_of::<f32>() + Quantized::bytes_for(rows, columns) + attend::MOST_PARTIALS_BYTES
    }

    fn mixture_bytes(&self, rows: usize, mixture: &MixtureShape) -> usize {
        Mixing::bytes_for(rows, mixture)
    }

    fn meter(&self) -> Option<Meter> {
        let threads = self.pool.threads();
        Some(Box::new(move |stop| limits::measure_until(threads, stop)))
    }

    fn matrix_size(&self, w: &Matrix) -> MatrixSize {
        MatrixSize { bytes: w.bytes(), weights: w.rows * w.cols }
    }

    fn copy_blocks(&mut self, cache: &mut Cache, copies: &[(u32, u32)]) -> Result<()> {
        copies.iter().for_each(|(from, to)| cache.copy(*from, *to));
        Ok(())
    }

    fn read_block(&mut self, caches: &[Cache], block: u32, mut out: &mut [u8]) -> Result<()> {
        for cache in caches {
            let (part, rest) = out.split_at_mut(cache.block(block).len());
            part.copy_from_slice(cache.block(block));
            out = rest;
        }
        Ok(())
    }

    fn write_block(&mut self, caches: &mut [Cache], block: u32, mut from: &[u8]) -> Result<()> {
        for cache in caches {
            let (part, rest) = from.split_at(cache.block(block).len());
            cache.block_mut(block).copy_from_slice(part);
            from = rest;
        }
        Ok(())
    }

    fn download<'a>(&mut self, x: &'a mut Vec<f32>, part: Range<usize>) -> Result<&'a mut [f32]> {
        Ok(&mut x[part])
    }
}
