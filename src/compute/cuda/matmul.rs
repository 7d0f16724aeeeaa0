//! Which kernel multiplies: weights times few rows, or tensor cores.
//!
//! Shapes and formats alone decide. Up to [`FEW`] rows the weights are read once and multiplied as they
//! lie ([`gemv`]); more rows share them on tensor cores ([`gemm`]). The two round differently: a row's
//! result is the same bits beside any neighbours on either side of that line, not across it.

use super::gpu::Gpu;
use super::memory::Memory;
use super::rows::{self, Norm};
use super::weights::{Matrix, Part};
use super::{gemm, gemv};
use crate::compute::{Activation, Amount, Result};
use crate::weights::BlockFormat;

/// Most rows that are multiplied without tensor cores.
pub const FEW: usize = 8;

/// Where results go: a part's rows are columns from its first on.
#[derive(Clone, Copy)]
pub struct Out<'a> {
    /// f32 [rows, columns]
    pub to: &'a Memory,
    pub columns: usize,
    /// To what is there, or in its place.
    pub add: bool,
    /// `f32 [columns]`: of the whole matrix.
    pub bias: Option<&'a Memory>,
}

/// The two matrices of a gated feed-forward part.
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    pub gate: &'a Part,
    pub up: &'a Part,
    pub gate_bias: Option<&'a Memory>,
    pub up_bias: Option<&'a Memory>,
    pub activation: Activation,
}

/// What activations are made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// f32
    Floats,
    /// i8, with a scale and a sum for each 32.
    Bytes,
    /// With a scale for each row.
    F16,
    Bf16,
}

impl Kind {
    fn of(format: BlockFormat, rows: usize) -> Self {
        match format {
            BlockFormat::F32 => Kind::Floats,
            BlockFormat::F16 | BlockFormat::BF16 if rows <= FEW => Kind::Floats,
            BlockFormat::F16 => Kind::F16,
            BlockFormat::BF16 => Kind::Bf16,
            // Bytes times bytes are exact, and twice as fast as f16.
            BlockFormat::Q8_0 => Kind::Bytes,
            _ if rows <= FEW => Kind::Bytes,
            _ => Kind::F16,
        }
    }
}

/// What rows times all rows of these parts read and compute; activations are small beside weights.
fn product(rows: usize, parts: &[&Part]) -> Amount {
    let weights: usize = parts.iter().map(|part| part.rows * part.cols).sum();
    let bytes: usize = parts.iter().map(|part| part.bytes()).sum();
    Amount { bytes: bytes as u64, flops: (2 * rows * weights) as u64 }
}

/// Memory that grows when more of it is asked for; graphs that know its address are wrong then.
#[derive(Default)]
pub(super) struct Room(Option<Memory>);

impl Room {
    /// At least so many bytes; `moved` becomes true where the address changes.
    pub(super) fn reserve(&mut self, gpu: &Gpu, bytes: usize, moved: &mut bool) -> Result<()> {
        if self.0.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            *moved |= self.0.is_some();
            self.0 = None;
            self.0 = Some(gpu.alloc(bytes, "workspace")?);
        }
        Ok(())
    }

    pub(super) fn memory(&self) -> &Memory {
        self.0.as_ref().expect("reserved before it is used")
    }
}

/// Multiplies; has the memory in which activations are made ready.
#[derive(Default)]
pub(super) struct Multiplier {
    floats: Room, // f32 [rows, cols]
    bytes: Room,  // i8 [rows, cols]
    sums: Room,   // f32x2 [rows, cols / 32]
    halves: Room, // f16 or bf16 [rows, cols]
    scales: Room, // f32 [rows]
    /// Of the splits of a product.
    work: Room,
    /// Of the second of two matrices that cannot be multiplied in one.
    other: Room,
}

impl Multiplier {
    /// Most that all of it takes for so many rows of so many columns.
    pub(super) fn bytes_for(rows: usize, columns: usize) -> usize {
        /// Splits are few where rows are many: `gemm` makes at most 8 of 64 rows.
        const WORK_ROWS: usize = 8 * 64;
        rows * columns * (4 + 1 + 2) + rows * (columns / 4 + 4) + WORK_ROWS * columns * 4 * 2
    }

    /// Makes `norm(x)` into what the matrices are multiplied with. `true` where memory moved.
    pub(super) fn prepare(
        &mut self,
        gpu: &Gpu,
        x: &Memory,
        rows: usize,
        norm: Option<Norm>,
        matrices: &[&Matrix],
    ) -> Result<bool> {
        let (n, mut moved) = (matrices[0].cols, false);
        let needs = |kind| matrices.iter().flat_map(|m| &m.parts).any(|p| Kind::of(p.format, rows) == kind);
        if needs(Kind::Floats) {
            self.floats.reserve(gpu, rows * n * 4, &mut moved)?;
            rows::norm(gpu, self.floats.memory(), x, rows, n, norm)?;
        }
        if needs(Kind::Bytes) {
            self.bytes.reserve(gpu, rows * n, &mut moved)?;
            self.sums.reserve(gpu, rows * n / 32 * 8, &mut moved)?;
            rows::to_bytes(gpu, (self.bytes.memory(), self.sums.memory()), x, rows, n, norm)?;
        }
        if needs(Kind::F16) {
            self.halves.reserve(gpu, rows * n * 2, &mut moved)?;
            self.scales.reserve(gpu, rows * 4, &mut moved)?;
            rows::to_f16(gpu, (self.halves.memory(), self.scales.memory()), x, rows, n, norm)?;
        }
        if needs(Kind::Bf16) {
            self.halves.reserve(gpu, rows * n * 2, &mut moved)?;
            rows::to_bf16(gpu, self.halves.memory(), x, rows, n, norm)?;
        }
        Ok(moved)
    }

    /// `out (=|+=) W x (+ bias)` with what was prepared. `true` where memory moved.
    pub(super) fn project(&mut self, gpu: &Gpu, out: Out, rows: usize, w: &Matrix) -> Result<bool> {
        let mut moved = false;
        for part in &w.parts {
            moved |= self.part(gpu, out, rows, part)?;
        }
        Ok(moved)
    }

    fn part(&mut self, gpu: &Gpu, out: Out, rows: usize, part: &Part) -> Result<bool> {
        gpu.work(|| product(rows, &[part]));
        if rows <= FEW {
            return gemv::project(gpu, out, self.few(part), rows, part).map(|()| false);
        }
        let mut moved = false;
        self.work.reserve(gpu, gemm::work_bytes(gpu, part, rows).max(1), &mut moved)?;
        gemm::project(gpu, out, self.many(part, rows), rows, part, self.work.memory())?;
        Ok(moved)
    }

    /// `out = activation(gate x) * (up x)`; out f32 [rows, gate's rows]. `true` where memory moved.
    pub(super) fn gated(
        &mut self,
        gpu: &Gpu,
        out: &Memory,
        rows: usize,
        (gate, up): (&Matrix, &Matrix),
        [gate_bias, up_bias]: [Option<&Memory>; 2],
        activation: Activation,
    ) -> Result<bool> {
        let mut moved = false;
        if let ([g], [u]) = (gate.parts.as_slice(), up.parts.as_slice())
            && gemv::can_gate(g, u)
        {
            let both = Gate { gate: g, up: u, gate_bias, up_bias, activation };
            gpu.work(|| product(rows, &[g, u]));
            if rows <= FEW {
                gemv::gated(gpu, out, self.few(g), rows, both)?;
            } else {
                self.work.reserve(gpu, gemm::gated_work_bytes(gpu, &both, rows).max(1), &mut moved)?;
                gemm::gated(gpu, out, self.many(g, rows), rows, &both, self.work.memory())?;
            }
            return Ok(moved);
        }
        // Of two formats: one after the other.
        let mut other = std::mem::take(&mut self.other);
        other.reserve(gpu, rows * up.rows * 4, &mut moved)?;
        for (to, w, bias) in [(out, gate, gate_bias), (other.memory(), up, up_bias)] {
            moved |= self.project(gpu, Out { to, columns: w.rows, add: false, bias }, rows, w)?;
        }
        gemv::gate(gpu, out, other.memory(), rows * gate.rows, activation)?;
        self.other = other;
        Ok(moved)
    }

    fn few(&self, part: &Part) -> gemv::Ready<'_> {
        match Kind::of(part.format, 1) {
            Kind::Bytes => gemv::Ready::Bytes { q: self.bytes.memory(), ds: self.sums.memory() },
            _ => gemv::Ready::Floats(self.floats.memory()),
        }
    }

    fn many(&self, part: &Part, rows: usize) -> gemm::Ready<'_> {
        match Kind::of(part.format, rows) {
            Kind::Floats => gemm::Ready::F32(self.floats.memory()),
            Kind::Bytes => gemm::Ready::Bytes { q: self.bytes.memory(), ds: self.sums.memory() },
            Kind::F16 => gemm::Ready::F16 { h: self.halves.memory(), scale: self.scales.memory() },
            Kind::Bf16 => gemm::Ready::Bf16(self.halves.memory()),
        }
    }
}
