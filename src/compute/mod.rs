//! The operations a decoder needs, on a device.
//!
//! A model is written in about a dozen fused operations over buffers that are allocated once; what
//! an operation reads and writes is in its signature, and shapes are `[rows, columns]`, a row a
//! token. [`cpu::Cpu`] is one device, `cuda::Cuda` the other; [`Profiled`] is any device with a clock.
//! Operations are queued in order; only [`Backend::download`] promises that they are done.
//!
//! A pass is told as a whole before its first operation ([`Backend::begin`]) and ended after its last
//! ([`Backend::end`]): a device with memory of its own gets all numbers of it in one copy, and may have
//! recorded the same operations before.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod draw;
pub mod gpu;
mod profiled;

pub use profiled::{Amount, Profiled, Spent};

use self::draw::{DrawRow, Drawn, Unusable};
use crate::base::Memory;
use crate::weights::{BlockFormat, Checkpoint, Tensor, TensorInfo};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The device failed: what was tried and what it said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

pub type Result<T> = std::result::Result<T, DeviceError>;

/// Where a model runs, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// `CPU (2 threads, AVX2)`
    pub name: String,
}

/// `x / sqrt(mean(x^2) + eps) * weight`, fused in front of a projection.
pub struct Norm<'a, B: Backend> {
    pub weight: &'a B::Buf, // [columns]
    pub eps: f32,
}

/// What a device can do at most, per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// What it was measured on.
    pub units: Units,
    /// Bytes read from memory.
    pub memory_read: f64,
    /// Operations in the products that most weights are multiplied with, and what makes them.
    pub matrix: f64,
    pub matrix_name: String,
    /// Weights in f16 and bf16 are multiplied so as well, not as f32.
    pub halves: bool,
    pub f32: f64,
}

/// Of what a device has many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    Threads(usize),
    Multiprocessors(usize),
}

impl std::fmt::Display for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (n, name) = match self {
            Units::Threads(n) => (n, "thread"),
            Units::Multiprocessors(n) => (n, "multiprocessor"),
        };
        write!(f, "{n} {name}{}", if *n == 1 { "" } else { "s" })
    }
}

/// Measures them on threads of its own, until that is done or it is told to stop.
pub type Meter = Box<dyn FnOnce(Arc<AtomicBool>) -> Result<Limits> + Send>;

/// What a projection does with its result.
pub enum Write<'a, B: Backend> {
    /// `out = W x (+ bias)`
    Store { bias: Option<&'a B::Buf> },
    /// `out += W x (+ bias)`
    Add { bias: Option<&'a B::Buf> },
}

/// The two matrices of a gated feed-forward part, of one shape.
pub struct Gate<'a, B: Backend> {
    pub gate: &'a B::Matrix,
    pub up: &'a B::Matrix,
    pub gate_bias: Option<&'a B::Buf>,
    pub up_bias: Option<&'a B::Buf>,
    pub activation: Activation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The tanh form of GELU (Hendrycks and Gimpel 2016).
    GeluTanh,
}

/// Which two elements of a head turn together in rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `2i` and `2i + 1`: as in the paper, and in GGUF's llama files, whose rows are permuted for it.
    Interleaved,
    /// `i` and `i + n / 2`: as GPT-NeoX and transformers.
    Halves,
}

/// Angles of one launch's tokens: made once, used by every layer of a kind.
pub struct RopeTable {
    pub style: RopeStyle,
    /// [tokens, rotated / 2]
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    pub half: usize,
}

impl RopeTable {
    pub fn new(style: RopeStyle) -> Self {
        Self { style, cos: Vec::new(), sin: Vec::new(), half: 0 }
    }

    /// Angles `position * inverse_frequency`, computed in f32 as transformers does.
    pub fn fill(&mut self, positions: impl Iterator<Item = usize>, inverse_frequencies: &[f32]) {
        self.half = inverse_frequencies.len();
        self.cos.clear();
        self.sin.clear();
        for position in positions {
            for frequency in inverse_frequencies {
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                self.cos.push(cos);
                self.sin.push(sin);
            }
        }
    }
}

/// Keys and values of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    pub blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub dtype: CacheDtype,
}

impl CacheShape {
    /// Bytes of one head's keys (or values) in one block, their scales left out.
    pub fn side_bytes(&self) -> usize {
        self.block_size * self.head_dim * self.dtype.bytes()
    }

    /// Bytes of one head's part of a block.
    pub fn part_bytes(&self) -> usize {
        self.block_size * self.dtype.token_bytes(self.head_dim)
    }

    /// Bytes of one block: keys and values of all heads.
    pub fn block_bytes(&self) -> usize {
        self.block_size * self.kv_heads * self.dtype.token_bytes(self.head_dim)
    }
}

/// What keys and values are stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheDtype {
    #[default]
    F16,
    Bf16,
    /// Bytes around zero; each token's key and each token's value has an f32 scale in every head.
    Int8,
    /// The same, but the bytes are e4m3 (Micikevicius et al. 2022): finer near zero, coarser near the
    /// largest.
    Fp8,
}

impl CacheDtype {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        if self.is_scaled() { 1 } else { 2 }
    }

    /// Each token's key and value has a scale in every head.
    pub fn is_scaled(self) -> bool {
        matches!(self, CacheDtype::Int8 | CacheDtype::Fp8)
    }

    /// Bytes of one token's key and value in one head.
    pub fn token_bytes(self, head_dim: usize) -> usize {
        2 * (head_dim * self.bytes() + if self.is_scaled() { size_of::<f32>() } else { 0 })
    }
}

/// How queries, keys and values of a layer are made ready and used.
pub struct AttentionSpec<'a, B: Backend> {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies scores before the softmax.
    pub scale: f32,
    /// Each token sees the last `window` tokens, itself included.
    pub window: Option<usize>,
    /// Normalisation of every query and key head before the rotation.
    pub query_norm: Option<Norm<'a, B>>,
    pub key_norm: Option<Norm<'a, B>>,
    pub rope: &'a RopeTable,
    /// Of the [`Step`]: whose block tables these are, and which of its rope tables.
    pub group: usize,
    pub rope_index: usize,
}

/// Tokens of one sequence in a launch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Rows of the buffers: `first .. first + len`.
    pub first: usize,
    pub len: usize,
    /// Position of the first of them in its sequence.
    pub start: usize,
    /// Block `i` of the sequence holds positions `i * block_size ..`.
    pub table: &'a [u32],
}

/// The numbers of one pass: what its operations name again, one by one.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    pub tokens: &'a [u32],
    /// For each cache group, the rows with their tables in it.
    pub groups: &'a [Vec<Span<'a>>],
    pub ropes: &'a [RopeTable],
    /// Rows whose hidden state is wanted, in order.
    pub wanted: &'a [usize],
}

/// The largest pass there will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub tokens: usize,
    pub outputs: usize,
    /// Cache groups, and blocks of the longest table in one.
    pub groups: usize,
    pub blocks: usize,
    pub vocab: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixSize {
    pub bytes: usize,
    pub weights: usize,
}

impl std::ops::AddAssign for MatrixSize {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.weights += other.weights;
    }
}

/// Loaders ask [`Backend::takes`] first.
fn not_taken(format: BlockFormat) -> ! {
    unreachable!("{} is not a format that this device takes", format.name())
}

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
    /// where it does not: [`Profiled`] can.
    fn sample_times(&mut self, every: u32) -> bool {
        let _ = every;
        false
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

    /// `x += y`, the first `len` values.
    fn add(&mut self, x: &mut Self::Buf, y: &Self::Buf, len: usize) -> Result<()>;

    /// `x[t] += norm(y[t])`
    fn add_norm(&mut self, x: &mut Self::Buf, y: &Self::Buf, rows: usize, norm: Norm<Self>) -> Result<()>;

    /// Normalises and rotates queries and keys in place, then writes keys and values to the cache.
    fn store_kv(
        &mut self,
        qkv: &mut Self::Buf, // [rows, (heads + 2 kv_heads) * head_dim]
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
