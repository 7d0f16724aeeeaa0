use super::draw::{DrawRow, Drawn, Unusable};
use super::{
    Activation, AttentionSpec, By, CacheShape, Capacity, Columns, Convolution, DeltaRule, Device,
    DeviceError, Experts, Gate, HeadColumns, MatrixSize, Meter, MixtureShape, Need, Norm, Result, Routing,
    Scan, Span, Spent, State, Step, Write,
};
use crate::base::Memory;
use crate::weights::{BlockFormat, Checkpoint, Tensor, TensorInfo};
use std::ops::Range;

/// A device that can run a decoder.
pub trait Backend: Send + Sized + 'static {
    /// f32 activations, allocated once.
    type Buf: Send;
    /// Weights in the device's own layout; several tensors with the same columns may be stacked.
    type Matrix: Send;
    /// Token embeddings.
    type Table: Send;
    /// Keys and values of one layer.
    type Cache: Send;

    fn device(&self) -> Device;

    /// Bytes that it could still give, to be planned with; `None` where nobody says.
    fn available(&self) -> Option<usize> {
        Memory::now().available.map(|bytes| bytes as usize)
    }

    /// What it gives is not the host's memory.
    fn own_memory(&self) -> bool {
        false
    }

    /// What each operation took since this was last asked; empty where nobody measures.
    fn take_profile(&mut self) -> Vec<Spent> {
        Vec::new()
    }

    /// Takes times itself from here on, in one pass of `every` so many, for [`Backend::take_profile`]. `false`
    /// where it does not: [`Profiled`](super::Profiled) can.
    fn sample_times(&mut self, every: u32) -> bool {
        let _ = every;
        false
    }

    /// Asked before anything is loaded.
    ///
    /// # Errors
    /// It has no kernels for that, and what it has them for.
    fn supports(&self, need: &Need) -> Result<()> {
        let _ = need;
        Ok(())
    }

    /// Told once, before buffers and caches are made.
    fn prepare(&mut self, most: &Capacity) -> Result<()> {
        let _ = most;
        Ok(())
    }

    /// Rows of logits that are best made at a time: bounds their memory.
    fn logit_rows(&self) -> usize {
        16
    }

    /// Every operation up to [`Backend::end`] belongs to this pass.
    fn begin(&mut self, step: &Step) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// `whole`: no operation failed. The pass may still wait for [`Backend::start`], or for the logits
    /// that are asked for next.
    fn end(&mut self, whole: bool) -> Result<()> {
        let _ = whole;
        Ok(())
    }

    /// What was queued begins, if it has not: nobody will ask for logits at once.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// The device is gone with all that was on it: a fault that no call will recover from.
    fn is_lost(&self) -> bool {
        false
    }

    fn alloc(&mut self, len: usize) -> Result<Self::Buf>;
    fn upload(&mut self, values: &[f32]) -> Result<Self::Buf>;
    /// Rows of all parts, one part after the other.
    fn matrix(&mut self, parts: &[Tensor]) -> Result<Self::Matrix>;
    fn table(&mut self, file: &Checkpoint, tensor: &str) -> Result<Self::Table>;
    fn cache(&mut self, shape: CacheShape) -> Result<Self::Cache>;

    /// `out[t] = table[tokens[t]] * scale`
    fn embed(&mut self, out: &mut Self::Buf, table: &Self::Table, tokens: &[u32], scale: f32) -> Result<()>;

    /// `out[t] (=|+=) W norm(x[t])`
    fn project(
        &mut self,
        out: &mut Self::Buf, // [rows, W's rows]
        x: &Self::Buf,       // [rows, W's columns]
        rows: usize,
        norm: Option<Norm<Self>>,
        w: &Self::Matrix,
        write: Write<Self>,
    ) -> Result<()>;

    /// `out[t] = activation(gate norm(x[t]) (+ bias)) * (up norm(x[t]) (+ bias))`
    fn gated(
        &mut self,
        out: &mut Self::Buf, // [rows, gate's rows]
        x: &Self::Buf,       // [rows, gate's columns]
        rows: usize,
        norm: Option<Norm<Self>>,
        gate: Gate<Self>,
    ) -> Result<()>;

    /// `x += y * scale`, the first `len` values.
    fn add(&mut self, x: &mut Self::Buf, y: &Self::Buf, len: usize, scale: f32) -> Result<()>;

    /// `out[t] = norm(x[t])`
    fn normalise(&mut self, out: &mut Self::Buf, x: &Self::Buf, rows: usize, norm: Norm<Self>) -> Result<()>;

    /// `x = activation(x)`, the first `len` values.
    fn activate(&mut self, x: &mut Self::Buf, len: usize, activation: Activation) -> Result<()>;

    /// `x = x * scale`, and with a cap `x = cap * tanh(x * scale / cap)`: the first `len` values.
    fn scale(&mut self, x: &mut Self::Buf, len: usize, scale: f32, cap: Option<f32>) -> Result<()>;

    /// `out[t, to] = x[t, from]`
    fn copy_columns(
        &mut self,
        out: (&mut Self::Buf, Columns),
        x: (&Self::Buf, Columns),
        rows: usize,
    ) -> Result<()>;

    /// `out[t, h, to] = x[t, h, from]`
    fn copy_heads(
        &mut self,
        out: (&mut Self::Buf, HeadColumns),
        x: (&Self::Buf, HeadColumns),
        rows: usize,
        heads: usize,
    ) -> Result<()> {
        let of = |at: HeadColumns, head| {
            let first = at.first + head * at.step;
            Columns { first, len: at.len, stride: at.stride }
        };
        let ((out, to), (x, from)) = (out, x);
        (0..heads)
            .try_for_each(|head| self.copy_columns((&mut *out, of(to, head)), (x, of(from, head)), rows))
    }

    /// `x[t, at] *= by(gate[t, from])`; one column of the gate serves all of a row's.
    fn multiply_columns(
        &mut self,
        x: (&mut Self::Buf, Columns),
        gate: (&Self::Buf, Columns),
        rows: usize,
        by: By,
    ) -> Result<()>;

    /// `x[t] += table[position of t]`: learned positions.
    fn add_positions(&mut self, x: &mut Self::Buf, table: &Self::Table, spans: &[Span]) -> Result<()>;

    /// `out[t, h] = W_h x[t, h]`: each head has its own matrix, and `w` holds their rows one head after the
    /// other, made of as many tensors.
    fn project_heads(
        &mut self,
        out: (&mut Self::Buf, HeadColumns),
        x: (&Self::Buf, HeadColumns),
        rows: usize,
        heads: usize,
        w: &Self::Matrix,
    ) -> Result<()>;

    /// `out[t] += sum of weight * down_e(activation(gate_e x[t]) * (up_e x[t]))` over the experts that
    /// `logits[t]` choose.
    fn experts(
        &mut self,
        out: &mut Self::Buf, // [rows, dim]
        x: &Self::Buf,       // [rows, dim], normalised
        rows: usize,
        logits: &Self::Buf, // [rows, experts]
        routing: &Routing<Self>,
        experts: &Experts<Self>,
    ) -> Result<()>;

    /// In place, each span from its own state.
    fn convolve(
        &mut self,
        x: (&mut Self::Buf, Columns),
        spans: &[Span],
        convolution: &Convolution<Self>,
        state: State<Self>,
    ) -> Result<()>;

    fn delta_rule(
        &mut self,
        out: &mut Self::Buf, // [rows, value_heads * value_dim]
        x: &Self::Buf,
        gates: &Self::Buf,
        spans: &[Span],
        rule: &DeltaRule<Self>,
        state: State<Self>,
    ) -> Result<()>;

    fn scan(
        &mut self,
        out: &mut Self::Buf, // [rows, heads * head_dim]
        x: &Self::Buf,
        dt: &Self::Buf,
        spans: &[Span],
        scan: &Scan<Self>,
        state: State<Self>,
    ) -> Result<()>;

    /// `x[t] += norm(y[t])`
    fn add_norm(&mut self, x: &mut Self::Buf, y: &Self::Buf, rows: usize, norm: Norm<Self>) -> Result<()>;

    /// Normalises and rotates queries and keys in place, then writes keys and values to the cache.
    fn store_kv(
        &mut self,
        qkv: &mut Self::Buf, // [rows, (heads + 2 kv_heads) * head_dim], or heads + 1 where it is latent
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &mut Self::Cache,
    ) -> Result<()>;

    /// Causal attention of every row over its sequence, itself included.
    fn attend(
        &mut self,
        out: &mut Self::Buf, // [rows, heads * head_dim]
        qkv: &Self::Buf,
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &Self::Cache,
    ) -> Result<()>;

    /// `out[i] = x[rows[i]]`, rows of `columns`; the rows are those that the step wants.
    fn gather(&mut self, out: &mut Self::Buf, x: &Self::Buf, rows: &[usize], columns: usize) -> Result<()>;

    /// `out = x[first .. first + rows]`, rows of `columns`.
    fn copy_rows(
        &mut self,
        out: &mut Self::Buf,
        x: &Self::Buf,
        first: usize,
        rows: usize,
        columns: usize,
    ) -> Result<()>;

    /// Names how a block lies in its caches: bytes of one layout are nothing in another.
    fn cache_layout(&self) -> &'static str {
        ""
    }

    /// Matrices and tables may be of that format; others are encoded anew before they come here.
    fn takes(&self, format: BlockFormat) -> bool;

    /// Bytes that [`Backend::matrix`] takes for a tensor, to be known before it is loaded.
    fn matrix_bytes(&self, tensor: &TensorInfo) -> usize;

    /// The same of [`Backend::table`]; nothing where rows are read from the file.
    fn table_bytes(&self, tensor: &TensorInfo) -> usize {
        let _ = tensor;
        0
    }

    /// Bytes that the operations keep for themselves, beside every buffer, when they work on `rows`
    /// rows of at most `columns`.
    fn scratch_bytes(&self, rows: usize, columns: usize) -> usize;

    /// The same of [`Backend::experts`] on so many rows, beside that.
    fn mixture_bytes(&self, rows: usize, mixture: &MixtureShape) -> usize {
        let _ = (rows, mixture);
        0
    }

    /// What one multiplication with a matrix reads, and multiplies with for each row.
    fn matrix_size(&self, w: &Self::Matrix) -> MatrixSize;

    /// `None` where nobody can measure what it can do.
    fn meter(&self) -> Option<Meter> {
        None
    }

    /// Whether it draws tokens itself. One that does is told what to draw ([`Backend::begin_logits`]), then
    /// multiplies with the head and draws, and says what it drew.
    fn draws(&self) -> bool {
        false
    }

    /// Up to [`Backend::end_logits`] come as many rows of logits, and what is to be drawn from them.
    fn begin_logits(&mut self, rows: &[DrawRow]) -> Result<()> {
        let _ = rows;
        Ok(())
    }

    fn draw(&mut self, logits: &mut Self::Buf) -> Result<()> {
        let _ = logits;
        Err(DeviceError("this device draws no tokens".into()))
    }

    /// `whole`: no operation failed.
    fn end_logits(&mut self, whole: bool) -> Result<()> {
        let _ = whole;
        Ok(())
    }

    /// Waits for what was drawn from each row.
    fn drawn(&mut self) -> Result<Vec<std::result::Result<Drawn, Unusable>>> {
        Ok(Vec::new())
    }

    fn copy_blocks(&mut self, cache: &mut Self::Cache, copies: &[(u32, u32)]) -> Result<()>;

    /// The bytes of a block in every cache, one after the other: of each [`CacheShape::block_bytes`], as
    /// they lie there. Waits for everything queued.
    fn read_block(&mut self, caches: &[Self::Cache], block: u32, out: &mut [u8]) -> Result<()>;

    /// Puts back what `read_block` gave, for caches of the same shapes.
    fn write_block(&mut self, caches: &mut [Self::Cache], block: u32, from: &[u8]) -> Result<()>;

    /// Waits for everything queued; the values of a part, to be read and changed.
    fn download<'a>(&mut self, x: &'a mut Self::Buf, part: Range<usize>) -> Result<&'a mut [f32]>;
}
