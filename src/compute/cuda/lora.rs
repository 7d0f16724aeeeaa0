//! LoRA for batches in which every row may have another adapter: `kernels/lora.cu`.
//!
//! For each matrix that adapters change, after its product is in `out`:
//!
//! 1. once, when adapters are loaded: [`table`] of the matrix, with an entry for each adapter;
//! 2. once a step: the adapter of each row on the device (i32, -1 for none), and for many rows the words of
//!    [`tiles`];
//! 3. [`shrink`] then [`expand`] with the same [`Batch`]: `out[t] += scale * B (A x[t])`. The input is the
//!    matrix's own, in f32 and after the norm, where there is one.
//!
//! Matrices that are stacked into one (query, key, value) are called one after the other, each with the
//! column its output begins at. `tmp` may be the same memory for all.

use super::gpu::{Arg, Gpu, Shape};
use super::memory::Memory;
use crate::compute::Result;

const MODULE: &str = "lora";
/// Columns of A to a block (`SPLIT`).
const SPLIT: usize = 1024;
/// Rows of a tile (`TILE`).
const TILE: usize = 16;
/// Largest rank.
pub const MOST_RANK: usize = 64;

/// One adapter's two matrices for one matrix of the model, on the device, 16-byte aligned.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    pub a: u64, // [rank, k]
    pub b: u64, // [n, rank]
    /// A multiple of 8 up to [`MOST_RANK`]; whoever loads others pads them with zeros.
    pub rank: usize,
    /// f16, or else bf16.
    pub half: bool,
    pub scale: f32,
}

/// The adapters of one matrix, as kernels find them; `None` where an adapter leaves the matrix alone.
pub fn table(gpu: &Gpu, adapters: &[Option<Adapter>]) -> Result<Memory> {
    let entry = |adapter: &Option<Adapter>| {
        let Some(adapter) = adapter else { return [0; 32] };
        assert!(adapter.rank % 8 == 0 && adapter.rank <= MOST_RANK, "rank {}", adapter.rank);
        assert!(adapter.a % 16 == 0 && adapter.b % 16 == 0, "adapters are read 16 bytes at a time");
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&adapter.a.to_le_bytes());
        bytes[8..16].copy_from_slice(&adapter.b.to_le_bytes());
        bytes[16..20].copy_from_slice(&(adapter.rank as i32).to_le_bytes());
        bytes[20..24].copy_from_slice(&i32::from(adapter.half).to_le_bytes());
        bytes[24..28].copy_from_slice(&adapter.scale.to_le_bytes());
        bytes
    };
    let bytes: Vec<u8> = adapters.iter().flat_map(entry).collect();
    let memory = gpu.alloc(bytes.len(), "a table of adapters")?;
    gpu.write(memory.at(0), &bytes)?;
    Ok(memory)
}

/// Rows sorted by their adapters, in pieces of at most 16: the words that go to the device. Never more
/// tiles than [`most_tiles`], and never more words than `2 + 3 * most_tiles + rows`.
pub fn tiles(adapter_of: &[i32]) -> Vec<i32> {
    let mut order: Vec<i32> =
        (0..adapter_of.len() as i32).filter(|row| adapter_of[*row as usize] >= 0).collect();
    order.sort_by_key(|row| adapter_of[*row as usize]);
    let mut words = vec![0, 0];
    let mut first = 0;
    for rows in order.chunk_by(|a, b| adapter_of[*a as usize] == adapter_of[*b as usize]) {
        for tile in rows.chunks(TILE) {
            words.extend([adapter_of[tile[0] as usize], first, tile.len() as i32]);
            first += tile.len() as i32;
        }
    }
    words[0] = (words.len() as i32 - 2) / 3;
    words[1] = words.len() as i32;
    words.extend(order);
    words
}

/// Tiles of that many rows, whatever their adapters are.
pub fn most_tiles(rows: usize, adapters: usize) -> usize {
    rows / TILE + adapters.min(rows)
}

/// Which row has which adapter.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    /// `i32 [rows]`, -1 for none: for few rows.
    Rows(&'a Memory),
    /// The words of [`tiles`], and how many there may be: for many rows.
    Tiles(&'a Memory, usize),
}

/// What both halves need to know.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub of: Of<'a>,
    /// Of [`table`].
    pub adapters: &'a Memory,
    pub rows: usize,
    /// Largest rank in the table.
    pub rank: usize,
}

fn splits(k: usize) -> usize {
    k.div_ceil(SPLIT)
}

/// Bytes of `tmp`, f32 [splits, rows, rank].
pub fn tmp_bytes(rows: usize, k: usize, rank: usize) -> usize {
    splits(k) * rows * rank * 4
}

/// `tmp[t] = A x[t]`; `x` f32 [rows, k], k a multiple of 32.
pub fn shrink(gpu: &Gpu, tmp: &Memory, x: &Memory, k: usize, batch: Batch) -> Result<()> {
    let Batch { of, adapters, rows, rank } = batch;
    assert!(k.is_multiple_of(32) && rank.is_multiple_of(8) && rank <= MOST_RANK, "k {k}, rank {rank}");
    let args = |of: &Memory| [tmp.into(), x.into(), of.into(), adapters.into()] as [Arg; 4];
    match of {
        Of::Rows(of) => {
            let shape = Shape::new([rank / 8, splits(k), rows], 256);
            let args = [&args(of)[..], &[k.into(), rank.into()]].concat();
            gpu.launch(MODULE, "lora_shrink", shape, &args)
        }
        Of::Tiles(tiles, most) => {
            let shape = Shape::new([most, splits(k), 1], 128);
            let args = [&args(tiles)[..], &[rows.into(), k.into(), rank.into()]].concat();
            gpu.launch(MODULE, "lora_shrink_tiles", shape, &args)
        }
    }
}

/// Columns of the output: `n` of them from `first` on, in rows of `width`.
#[derive(Clone, Copy)]
pub struct Columns {
    pub first: usize,
    pub n: usize,
    pub width: usize,
}

/// `out[t][first..first + n] += scale * B tmp[t]`; `k` as in [`shrink`]. All sizes are even.
pub fn expand(gpu: &Gpu, out: &Memory, columns: Columns, tmp: &Memory, k: usize, batch: Batch) -> Result<()> {
    let Batch { of, adapters, rows, rank } = batch;
    let Columns { first, n, width } = columns;
    assert!(
        (first | n | width).is_multiple_of(2),
        "{first} + {n} of {width}: two columns are written at once"
    );
    let args = |of: &Memory| [out.into(), tmp.into(), of.into(), adapters.into()] as [Arg; 4];
    let sizes: [Arg; 5] = [width.into(), first.into(), n.into(), splits(k).into(), rank.into()];
    match of {
        Of::Rows(of) => {
            let shape = Shape::new([n.div_ceil(128), rows, 1], 128);
            gpu.launch(MODULE, "lora_expand", shape, &[&args(of)[..], &sizes].concat())
        }
        Of::Tiles(tiles, most) => {
            let shape = Shape::new([most, n.div_ceil(256), 1], 128);
            gpu.launch(
                MODULE,
                "lora_expand_tiles",
                shape,
                &[&args(tiles)[..], &[rows.into()], &sizes].concat(),
            )
        }
    }
}
