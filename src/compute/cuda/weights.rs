//! Matrices on the device: planes, as `kernels/planes.cuh` draws them.

use super::gpu::{Arg, Gpu};
use super::memory::Memory;
use crate::compute::Result;
use crate::weights::{BlockFormat, TensorInfo};

/// The name of a kernel that there is one of for every format: `by_format!("embed_", format, "")`.
macro_rules! by_format {
    ($before:literal, $format:expr, $after:literal) => {
        match $format {
            BlockFormat::F32 => concat!($before, "f32", $after),
            BlockFormat::F16 => concat!($before, "f16", $after),
            BlockFormat::BF16 => concat!($before, "bf16", $after),
            BlockFormat::Q4_0 => concat!($before, "q4_0", $after),
            BlockFormat::Q4_1 => concat!($before, "q4_1", $after),
            BlockFormat::Q5_0 => concat!($before, "q5_0", $after),
            BlockFormat::Q5_1 => concat!($before, "q5_1", $after),
            BlockFormat::Q8_0 => concat!($before, "q8_0", $after),
            BlockFormat::Q4_K => concat!($before, "q4_k", $after),
            BlockFormat::Q5_K => concat!($before, "q5_k", $after),
            BlockFormat::Q6_K => concat!($before, "q6_k", $after),
            other => $crate::compute::not_taken(other),
        }
    };
}
pub(super) use by_format;

/// Formats that there are kernels for.
pub const FORMATS: [BlockFormat; 11] = [
    BlockFormat::F32,
    BlockFormat::F16,
    BlockFormat::BF16,
    BlockFormat::Q4_0,
    BlockFormat::Q4_1,
    BlockFormat::Q5_0,
    BlockFormat::Q5_1,
    BlockFormat::Q8_0,
    BlockFormat::Q4_K,
    BlockFormat::Q5_K,
    BlockFormat::Q6_K,
];

/// Tensors with the same columns, stacked: queries, keys and values are one matrix.
pub struct Matrix {
    /// Neighbours of one format are one part.
    pub parts: Vec<Part>,
    pub rows: usize,
    pub cols: usize,
}

/// Rows of one format, in one allocation.
pub struct Part {
    pub format: BlockFormat,
    /// Of the matrix.
    pub first_row: usize,
    pub rows: usize,
    pub cols: usize,
    memory: Memory,
    planes: Planes,
}

/// Weights that have one scale in most formats: rows are whole subs.
pub const SUB: usize = 32;
/// Subs that share a scale of scales in the K formats.
const SUPER: usize = 8;

/// Bytes of a sub in the planes q, h, s, and of eight subs in d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    q: usize,
    h: usize,
    s: usize,
    d: usize,
}

const fn widths(format: BlockFormat) -> Widths {
    let (q, h, s, d) = match format {
        BlockFormat::F32 => (128, 0, 0, 0),
        BlockFormat::F16 | BlockFormat::BF16 => (64, 0, 0, 0),
        BlockFormat::Q4_0 => (16, 0, 2, 0),
        BlockFormat::Q4_1 => (16, 0, 4, 0),
        BlockFormat::Q5_0 => (16, 4, 2, 0),
        BlockFormat::Q5_1 => (16, 4, 4, 0),
        BlockFormat::Q8_0 => (32, 0, 2, 0),
        BlockFormat::Q4_K => (16, 0, 2, 4),
        BlockFormat::Q5_K => (16, 4, 2, 4),
        BlockFormat::Q6_K => (16, 8, 2, 2),
        _ => panic!("not one of FORMATS"),
    };
    Widths { q, h, s, d }
}

/// Where the planes begin, and where the last of them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planes {
    at: [usize; 4],
    bytes: usize,
}

impl Planes {
    fn new(format: BlockFormat, weights: usize) -> Self {
        let subs = weights / SUB;
        let Widths { q, h, s, d } = widths(format);
        let mut end = 0;
        let at = [subs * q, subs * h, subs * s, subs.div_ceil(SUPER) * d].map(|bytes| {
            let start = end;
            end = (start + bytes).next_multiple_of(256);
            start
        });
        Self { at, bytes: end }
    }
}

/// Bytes that a tensor takes as (a part of) a matrix.
pub fn matrix_bytes(tensor: &TensorInfo) -> usize {
    Planes::new(tensor.format, tensor.elements()).bytes
}

impl Part {
    /// Room for such a part: nothing is in it.
    pub(super) fn empty(
        gpu: &Gpu,
        (format, first_row): (BlockFormat, usize),
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let planes = Planes::new(format, rows * cols);
        let memory = gpu.alloc(planes.bytes, "weights")?;
        Ok(Self { format, first_row, rows, cols, memory, planes })
    }

    /// What kernels take: q, h, s, d. Planes that the format lacks are empty.
    pub fn planes(&self) -> [Arg; 4] {
        self.planes.at.map(|at| Arg::Ptr(self.memory.at(at)))
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A byte of its q plane.
    pub(super) fn q_plane(&self, offset: usize) -> u64 {
        self.memory.at(self.planes.at[0] + offset)
    }

    /// Multiplied with the activations' bytes, and not with activations as they are.
    pub fn wants_bytes(&self) -> bool {
        self.format.block_len() > 1
    }

    pub fn bytes(&self) -> usize {
        self.planes.bytes
    }
}

impl Matrix {
    /// Bytes read by one multiplication.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }
}
