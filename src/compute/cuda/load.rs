//! Weights from a file to the device: blocks go through pinned memory, and planes are made there
//! (`kernels/repack.cu`).

use super::gpu::{Event, Gpu, Shape};
use super::memory::{Memory, Pinned};
use super::weights::{Matrix, Part, SUB, by_format};
use crate::compute::{DeviceError, Result};
use crate::weights::{BlockFormat, Tensor, TensorInfo};

const MODULE: &str = "repack";
const THREADS: usize = 128;
/// Threads of the host that copy a stretch, and bytes that are too few to share. What takes long is
/// that the file's pages are mapped on the way.
const COPIERS: usize = 4;
const ALONE: usize = 1 << 20;

/// What bytes pass on their way: one buffer is filled while the other is read by the device.
pub struct Staging {
    buffers: [(Pinned, Event); 2],
    /// Blocks before they are planes. One is enough: the queue is in order.
    blocks: Memory,
    turn: usize,
}

impl Staging {
    /// Of so many bytes each. A row of a matrix must fit in.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let buffer = || Ok((gpu.pinned(bytes)?, gpu.event()?));
        let blocks = gpu.alloc(bytes, "loading weights")?;
        Ok(Self { buffers: [buffer()?, buffer()?], blocks, turn: 0 })
    }

    fn bytes(&self) -> usize {
        self.blocks.bytes()
    }

    /// Queues a copy of `bytes` to the device.
    fn upload(&mut self, gpu: &Gpu, to: u64, bytes: &[u8]) -> Result<()> {
        self.turn = 1 - self.turn;
        let (buffer, read) = &mut self.buffers[self.turn];
        read.wait()?;
        copy(&mut buffer.bytes_mut()[..bytes.len()], bytes);
        gpu.upload(to, buffer, bytes.len())?;
        gpu.mark(read)
    }
}

fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() <= ALONE {
        return to.copy_from_slice(from);
    }
    let share = from.len().div_ceil(COPIERS);
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(share).zip(from.chunks(share)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The buffers go; nothing may be reading them. What failed is heard of elsewhere.
        self.buffers.iter().for_each(|(_, read)| drop(read.wait()));
    }
}

impl Matrix {
    /// Rows of all tensors, one tensor after the other. `progress` is told how many bytes of the file
    /// were taken, every time. What is queued is done after [`Gpu::wait`], or in order with what follows.
    pub fn load(
        gpu: &Gpu,
        staging: &mut Staging,
        tensors: &[Tensor],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Matrix> {
        let cols = tensors[0].info.row_len();
        tensors.iter().try_for_each(|tensor| check(&tensor.info, cols, staging.bytes()))?;
        gpu.bind()?;
        let (mut parts, mut rows) = (Vec::new(), 0);
        for alike in tensors.chunk_by(|a, b| a.info.format == b.info.format) {
            let format = alike[0].info.format;
            let part_rows = alike.iter().map(|tensor| tensor.info.rows()).sum();
            let part = Part::empty(gpu, (format, rows), part_rows, cols)?;
            let mut first = 0;
            for tensor in alike {
                fill(gpu, staging, (&part, first), tensor, progress)?;
                first += tensor.info.rows();
            }
            rows += part_rows;
            parts.push(part);
        }
        Ok(Matrix { parts, rows, cols })
    }
}

fn check(tensor: &TensorInfo, cols: usize, staging: usize) -> Result<()> {
    let no = |why: String| Err(DeviceError(format!("CUDA: {} {why}", tensor.name)));
    let row = tensor.row_len();
    if row != cols {
        return no(format!("has rows of {row} weights where {cols} are needed"));
    }
    if !row.is_multiple_of(SUB) {
        return no(format!("has rows of {row} weights, and only multiples of {SUB} can be computed"));
    }
    if tensor.row_bytes() > staging {
        return no(format!("has rows of {} bytes, more than the {staging} to load with", tensor.row_bytes()));
    }
    Ok(())
}

/// Puts a tensor into a part, from row `first` on.
fn fill(
    gpu: &Gpu,
    staging: &mut Staging,
    (part, first): (&Part, usize),
    tensor: &Tensor,
    progress: &mut dyn FnMut(usize),
) -> Result<()> {
    let (all, row_bytes) = (tensor.info.rows(), tensor.info.row_bytes());
    let stretch = staging.bytes() / row_bytes;
    for start in (0..all).step_by(stretch) {
        let rows = start..(start + stretch).min(all);
        let blocks = &tensor.data[rows.start * row_bytes..rows.end * row_bytes];
        if part.format.block_len() == 1 {
            // A row lies in the plane as it does in the file.
            staging.upload(gpu, part.q_plane((first + start) * row_bytes), blocks)?;
        } else {
            let at = staging.blocks.at(0);
            staging.upload(gpu, at, blocks)?;
            repack(gpu, part, first + start, &staging.blocks, rows.len())?;
        }
        tensor.release(rows);
        progress(blocks.len());
    }
    Ok(())
}

fn repack(gpu: &Gpu, part: &Part, first: usize, blocks: &Memory, rows: usize) -> Result<()> {
    let subs = part.cols / SUB;
    let [q, h, s, d] = part.planes();
    let args = [q, h, s, d, blocks.into(), (first * subs).into(), (rows * subs).into()];
    let shape = Shape::new([(rows * subs).div_ceil(THREADS), 1, 1], THREADS);
    gpu.launch(MODULE, by_format!("repack_", part.format, ""), shape, &args)
}
