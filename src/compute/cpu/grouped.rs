//! Rows in groups, each to be multiplied with a part of its own of one matrix: an expert's rows with the
//! expert, a head's with the head's matrix.

use super::Isa;
use super::format::TILE;
use super::matmul::{Sums, Tokens};
use super::matrix::{Matrix, Tile};
use super::pool::Pool;
use super::project::{Bench, TASK, rows_at_once};
use super::rows::{self, Quantized};
use super::shared::Slots;
use super::simd;
use std::ops::Range;

/// Kept from call to call for its memory.
#[derive(Default)]
pub(super) struct Grouped {
    groups: Vec<Group>,
    rows: usize,
    cols: usize,
    /// One for each group, and as many more as there once were.
    quantized: Vec<Quantized>,
    /// [rows, cols], where some part multiplies numbers as they are.
    floats: Vec<f32>,
    tasks: Vec<Task>,
}

#[derive(Clone)]
struct Group {
    part: usize,
    /// Among the rows of all groups.
    rows: Range<usize>,
}

/// What a tile is multiplied with.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) part: usize,
    /// Within the part.
    pub(super) tile: usize,
    /// The first row's, among the rows of all groups.
    pub(super) row: usize,
}

impl At {
    /// Stores a tile's products in their rows of `columns`.
    ///
    /// # Safety
    /// Nobody else has the tile's columns of these rows.
    pub(super) unsafe fn write(self, out: &Slots<f32>, columns: usize, tile: &Tile, sums: &[Sums]) {
        for (i, Sums(sums)) in sums.iter().enumerate() {
            let start = (self.row + i) * columns + self.tile * TILE;
            // SAFETY: the caller's.
            unsafe { out.take(start..start + tile.rows) }.copy_from_slice(&sums[..tile.rows]);
        }
    }
}

/// Some tiles times some of a group's rows.
struct Task {
    group: usize,
    /// Within the group.
    rows: Range<usize>,
    tiles: Range<usize>,
}

impl Grouped {
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.rows = 0;
    }

    /// The next `rows` rows belong to that part.
    pub(super) fn push(&mut self, part: usize, rows: usize) {
        if rows > 0 {
            self.groups.push(Group { part, rows: self.rows..self.rows + rows });
            self.rows += rows;
        }
    }

    /// Of all groups.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Makes rows ready for matrices of `cols` columns: as bytes and as numbers, as far as they want them.
    pub(super) fn prepare<'a>(
        &mut self,
        pool: &Pool,
        isa: Isa,
        matrices: &[&Matrix],
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) {
        let cols = matrices[0].cols;
        let (bytes, numbers) =
            (matrices.iter().any(|w| w.wants_bytes()), matrices.iter().any(|w| w.wants_numbers()));
        self.cols = cols;
        if self.quantized.len() < self.groups.len() {
            self.quantized.resize_with(self.groups.len(), Quantized::default);
        }
        if numbers && self.floats.len() < self.rows * cols {
            self.floats.resize(self.rows * cols, 0.0);
        }
        let (quantized, floats) = (Slots::new(&mut self.quantized), Slots::new(&mut self.floats));
        let groups = &self.groups;
        pool.run(groups.len(), |g, _| {
            let rows = groups[g].rows.clone();
            if bytes {
                // SAFETY: a group has its own, and one task.
                let quantized = unsafe { quantized.one(g) };
                quantized.resize(rows.len(), cols, simd::tokens_at_a_time(isa));
                let writer = quantized.writer();
                rows.clone().enumerate().for_each(|(i, r)| rows::quantize(isa, row(r), i, &writer));
            }
            if numbers {
                // SAFETY: groups' rows do not overlap.
                let floats = unsafe { floats.take(rows.start * cols..rows.end * cols) };
                floats.chunks_exact_mut(cols).zip(rows).for_each(|(to, r)| to.copy_from_slice(row(r)));
            }
        });
    }

    /// Calls `each` for every tile of every group's part and every stretch of its rows.
    pub(super) fn for_tiles(
        &mut self,
        pool: &Pool,
        benches: &mut [Bench],
        w: &Matrix,
        each: impl Fn(Tile, At, &Tokens, &mut Bench) + Sync,
    ) {
        assert_eq!(w.cols, self.cols);
        self.cut(w, pool.threads());
        let Self { groups, quantized, floats, cols, tasks, .. } = self;
        let (cols, benches) = (*cols, Slots::new(benches));
        pool.run(tasks.len(), |i, thread| {
            let Task { group, rows, tiles } = &tasks[i];
            let Group { part, rows: all } = &groups[*group];
            let floats = floats.get(all.start * cols..all.end * cols).unwrap_or_default();
            let tokens = Tokens { quantized: &quantized[*group], floats, cols, rows: rows.clone() };
            // SAFETY: a thread runs one task at a time.
            let bench = unsafe { benches.one(thread) };
            for tile in tiles.clone() {
                let at = At { part: *part, tile, row: all.start + rows.start };
                each(w.part_tile(*part, tile), at, &tokens, bench);
            }
        });
    }

    /// Enough tasks to share evenly, and each large enough that taking it costs nothing.
    fn cut(&mut self, w: &Matrix, threads: usize) {
        self.tasks.clear();
        let all: usize = self.groups.iter().map(|group| w.part_tiles(group.part)).sum();
        for (g, group) in self.groups.iter().enumerate() {
            let (rows, tiles) = (group.rows.len(), w.part_tiles(group.part));
            let at_once = rows_at_once(w.cols).min(rows);
            let enough = TASK.div_ceil(w.cols * at_once);
            let per_task = (all / (threads * 8)).clamp(1, enough);
            for first in (0..rows).step_by(at_once) {
                let rows = first..(first + at_once).min(rows);
                let tasks = (0..tiles).step_by(per_task).map(|t| t..(t + per_task).min(tiles));
                self.tasks.extend(tasks.map(|tiles| Task { group: g, rows: rows.clone(), tiles }));
            }
        }
    }
}
