//! A layer's mixture of experts: routed, multiplied and added up, in memory that layers take turns with.

use super::backend::{Buf, Cuda};
use super::gpu::Gpu;
use super::matmul::{FEW, Room};
use super::memory::Memory;
use super::moe::{self, Of, Router, Sorted, Up};
use super::weights::{Matrix, Part};
use super::{gemm, gemv, rows};
use crate::compute::{Amount, DeviceError, Experts, MixtureShape, Result, Routing};
use crate::weights::BlockFormat;

/// Memory of a layer's pairs ([`moe`]), taken for the largest pass when it is first needed.
#[derive(Default)]
pub(super) struct Mixtures {
    /// Of the largest pass.
    rows: usize,
    ids: Room,     // i32 [pairs]
    weights: Room, // f32 [pairs]
    gate: Room,    // f32 [pairs, width]
    up: Room,      // f32 [pairs, width], where the two are not multiplied in one
    down: Room,    // f32 [pairs, dim]
    ready: Ready,
    sorted: Vec<Sorted>,
}

/// Activations made ready for one product, and then for the next.
#[derive(Default)]
struct Ready {
    bytes: Room,  // i8 [count, k]
    sums: Room,   // f32x2 [count, k / 32]
    halves: Room, // f16 or bf16 [count, k]
    scales: Room, // f32 [count]
}

/// What one layer's products share.
struct Turn<'a> {
    gpu: &'a Gpu,
    ids: &'a Memory,
    /// Where there are rows enough for tensor cores.
    sorted: Option<&'a Sorted>,
    rows: usize,
    /// Rows of the largest pass.
    most: usize,
    top: usize,
    experts: usize,
}

impl Mixtures {
    pub(super) fn new(rows: usize) -> Self {
        Self { rows, ..Self::default() }
    }

    /// About what all of it takes for so many rows.
    pub(super) fn bytes_for(rows: usize, mixture: &MixtureShape) -> usize {
        let (pairs, width, dim) = (rows * mixture.top, mixture.width, mixture.dim);
        // Floats behind the products; bytes and halves of what goes into them; lists of both sizes of tile.
        let ready = 4 * (rows * dim).max(pairs * width);
        4 * pairs * (2 * width + dim) + ready + 2 * (64 * pairs + 64 * mixture.experts)
    }

    /// `out[t] +=` what its experts say of `x[t]`, weighed. `true` where memory moved.
    pub(super) fn run(
        &mut self,
        gpu: &Gpu,
        (out, x): (&Memory, &Memory),
        (logits, rows): (&Memory, usize),
        routing: &Routing<Cuda>,
        layer: &Experts<Cuda>,
        step: Option<&Memory>,
    ) -> Result<bool> {
        let (top, experts, mut moved) = (routing.top, layer.count, false);
        let [gate, up, down] = [one(layer.gate)?, one(layer.up)?, one(layer.down)?];
        let (width, dim, most) = (gate.rows / experts, down.rows / experts, self.rows.max(rows));
        for (room, bytes) in [
            (&mut self.ids, 4),
            (&mut self.weights, 4),
            (&mut self.gate, 4 * width),
            (&mut self.down, 4 * dim),
        ] {
            room.reserve(gpu, most * top * bytes, &mut moved)?;
        }
        let (ids, weights) = (self.ids.memory(), self.weights.memory());
        moe::route(gpu, (ids, weights), logits, rows, step, &router(routing))?;
        let sorted = match rows > FEW {
            true => Some(sort(gpu, &mut self.sorted, ids, (rows, most), (top, experts), &mut moved)?),
            false => None,
        };
        let turn = Turn { gpu, ids, sorted, rows, most, top, experts };
        let of_gate =
            moe::Experts { weights: gate, bias: layer.gate_bias.map(Buf::memory), gated: None, n: width };
        let of_up = moe::Experts { weights: up, bias: layer.up_bias.map(Buf::memory), ..of_gate };
        let (inner, ready) = (self.gate.memory(), &mut self.ready);
        if gemv::can_gate(gate, up) {
            let gated = Some(Up { weights: up, bias: of_up.bias, activation: layer.activation });
            turn.product(inner, (x, Of::Rows(top)), ready, &moe::Experts { gated, ..of_gate }, &mut moved)?;
        } else {
            self.up.reserve(gpu, most * top * width * 4, &mut moved)?;
            for (to, experts) in [(inner, of_gate), (self.up.memory(), of_up)] {
                turn.product(to, (x, Of::Rows(top)), ready, &experts, &mut moved)?;
            }
            gemv::gate(gpu, inner, self.up.memory(), rows * top * width, layer.activation)?;
        }
        let bias = layer.down_bias.map(Buf::memory);
        let of_down = moe::Experts { weights: down, bias, gated: None, n: dim };
        turn.product(self.down.memory(), (inner, Of::Pairs), ready, &of_down, &mut moved)?;
        moe::combine(gpu, out, self.down.memory(), (ids, weights), (rows, top, dim))?;
        Ok(moved)
    }
}

impl Turn<'_> {
    /// `out[pair] = W_e x`
    fn product(
        &self,
        out: &Memory,
        (x, of): (&Memory, Of),
        ready: &mut Ready,
        experts: &moe::Experts,
        moved: &mut bool,
    ) -> Result<()> {
        let part = experts.weights;
        let each = match of {
            Of::Rows(_) => 1,
            Of::Pairs => self.top,
        };
        let rows = (self.rows * each, self.most * each);
        let pairs = self.rows * self.top;
        // Floats have no tile: each pair reads its expert, however many there are.
        match self.sorted.filter(|_| part.format != BlockFormat::F32) {
            Some(sorted) => {
                let x = ready.many(self.gpu, x, rows, part, moved)?;
                self.gpu.work(|| self.work(experts));
                moe::many(self.gpu, out, (sorted, self.rows), (x, of), experts)
            }
            None => {
                let x = ready.few(self.gpu, x, rows, part, moved)?;
                self.gpu.work(|| self.work(experts));
                moe::few(self.gpu, out, self.ids, pairs, (x, of), experts)
            }
        }
    }

    /// Every expert once, or each pair's.
    fn work(&self, experts: &moe::Experts) -> Amount {
        let (part, pairs) = (experts.weights, self.rows * self.top);
        let sides = 1 + usize::from(experts.gated.is_some());
        let read = part.bytes() / self.experts * pairs.min(self.experts) * sides;
        Amount { bytes: read as u64, flops: (2 * pairs * experts.n * part.cols * sides) as u64 }
    }
}

impl Ready {
    /// For [`moe::few`]: floats stay as they are.
    fn few<'a>(
        &'a mut self,
        gpu: &Gpu,
        x: &'a Memory,
        (count, most): (usize, usize),
        part: &Part,
        moved: &mut bool,
    ) -> Result<gemv::Ready<'a>> {
        if !part.wants_bytes() {
            return Ok(gemv::Ready::Floats(x));
        }
        let k = part.cols;
        self.bytes.reserve(gpu, most * k, moved)?;
        self.sums.reserve(gpu, most * k / 32 * 8, moved)?;
        let (q, ds) = (self.bytes.memory(), self.sums.memory());
        rows::to_bytes(gpu, (q, ds), x, count, k, None)?;
        Ok(gemv::Ready::Bytes { q, ds })
    }

    /// For [`moe::many`].
    fn many<'a>(
        &'a mut self,
        gpu: &Gpu,
        x: &Memory,
        (count, most): (usize, usize),
        part: &Part,
        moved: &mut bool,
    ) -> Result<gemm::Ready<'a>> {
        let k = part.cols;
        self.halves.reserve(gpu, most * k * 2, moved)?;
        self.scales.reserve(gpu, most * 4, moved)?;
        let (h, scale) = (self.halves.memory(), self.scales.memory());
        if part.format == BlockFormat::BF16 {
            rows::to_bf16(gpu, h, x, count, k, None)?;
            return Ok(gemm::Ready::Bf16(h));
        }
        rows::to_f16(gpu, (h, scale), x, count, k, None)?;
        Ok(gemm::Ready::F16 { h, scale })
    }
}

/// Pairs by expert, for tiles as large as there are rows for.
fn sort<'a>(
    gpu: &Gpu,
    all: &'a mut Vec<Sorted>,
    ids: &Memory,
    (rows, most): (usize, usize),
    kind: (usize, usize),
    moved: &mut bool,
) -> Result<&'a Sorted> {
    let tile = moe::tile_for(rows, kind);
    let at = match all.iter().position(|sorted| sorted.is_for(most, kind, tile)) {
        Some(at) => at,
        None => {
            *moved = true;
            all.push(Sorted::new(gpu, most, kind, tile)?);
            all.len() - 1
        }
    };
    moe::sort(gpu, &all[at], ids, rows)?;
    Ok(&all[at])
}

fn one(matrix: &Matrix) -> Result<&Part> {
    match matrix.parts.as_slice() {
        [part] => Ok(part),
        parts => Err(DeviceError(format!(
            "CUDA: experts of a layer are of {} formats; they must be of one",
            parts.len()
        ))),
    }
}

fn router<'a>(routing: &Routing<'a, Cuda>) -> Router<'a> {
    Router {
        experts: routing.experts,
        top: routing.top,
        score: routing.score,
        bias: routing.bias.map(Buf::memory),
        groups: routing.groups,
        renormalise: routing.renormalise,
        scale: routing.scale,
    }
}
