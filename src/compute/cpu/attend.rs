//! Which thread attends to what.

use super::attention::{self, Desk, Merged, QUERIES, Query, SPLIT, SplitJob};
use super::cache::{self, Cache};
use super::norm::{self, RowNorm};
use super::rows;
use super::shared::Slots;
use super::{Cpu, Isa};
use crate::compute::{AttentionSpec, HeadNorm, Over, Span};
use std::ops::Range;

/// Rows of one sequence that a thread takes at a time.
const ROWS: usize = 16;

/// Rows below this are rotated and stored by the calling thread alone.
const ROWS_ALONE: usize = 8;

/// The results of splits wait for each other in no more than this.
pub(super) const MOST_PARTIALS_BYTES: usize = 16 << 20;

/// A thread's piece of work: some rows of one sequence under one key head, over all splits of
/// their past or over one of them.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    span: usize,
    kv_head: usize,
    /// Within the span.
    first: usize,
    len: usize,
    split: Option<usize>,
}

impl Cpu {
    pub(super) fn rotate_and_store(
        &self,
        qkv: &mut [f32],
        spans: &[Span],
        spec: &AttentionSpec<Self>,
        cache: &mut Cache,
    ) {
        let (isa, dim) = (self.isa, spec.head_dim);
        let (turned, width) = (spec.heads + spec.kv_heads, row_width(spec));
        let rows = spans.iter().map(|s| s.len).sum::<usize>();
        let turn = |row: usize, x: &mut [f32]| {
            let (queries, keys) = x[..turned * dim].split_at_mut(spec.heads * dim);
            normalise_heads(isa, queries, dim, spec.query_norm.as_ref());
            normalise_heads(isa, keys, dim, spec.key_norm.as_ref());
            let Some(rope) = spec.rope else { return };
            let half = rope.half;
            let (cos, sin) = (&rope.cos[row * half..][..half], &rope.sin[row * half..][..half]);
            for head in x[..turned * dim].chunks_exact_mut(dim) {
                rows::rotate(isa, head, cos, sin, rope.style);
            }
        };
        let shape = cache.shape();
        let all = Slots::new(cache.bytes_mut());
        let store = |kv_head: usize, qkv: &[f32]| {
            for span in spans {
                for i in 0..span.len {
                    let x = &qkv[(span.first + i) * width..][..width];
                    let k = &x[(spec.heads + kv_head) * dim..][..dim];
                    let v = match spec.latent {
                        Some(_) => &[],
                        None => &x[(turned + kv_head) * dim..][..dim],
                    };
                    let position = span.start + i;
                    let block = span.table[position / shape.block_size];
                    let start = shape.part(block, kv_head);
                    // SAFETY: every key head has its own part of a block, and one task.
                    let part = unsafe { all.take(start..start + shape.part_bytes()) };
                    let offset = position % shape.block_size;
                    cache::store_token(isa, part, shape, offset, k, v);
                }
            }
        };
        if rows < ROWS_ALONE {
            qkv.chunks_exact_mut(width).take(rows).enumerate().for_each(|(row, x)| turn(row, x));
            (0..spec.kv_heads).for_each(|h| store(h, qkv));
        } else {
            let slots = Slots::new(qkv);
            // SAFETY: rows do not overlap.
            self.pool.run(rows, |row, _| turn(row, unsafe { slots.take(row * width..(row + 1) * width) }));
            self.pool.run(spec.kv_heads, |h, _| store(h, qkv));
        }
    }

    pub(super) fn attend_spans(&mut self, out: &mut [f32], past: Past) {
        let Past { spans, spec, .. } = past;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        for (i, span) in spans.iter().enumerate() {
            for kv_head in 0..spec.kv_heads {
                for first in (0..span.len).step_by(ROWS) {
                    let len = ROWS.min(span.len - first);
                    pieces.push(Piece { span: i, kv_head, first, len, split: None });
                }
            }
        }
        let most_splits = spans.iter().map(|s| (s.start + s.len).div_ceil(SPLIT)).max().unwrap_or(0);
        // Few pieces with a long past: cut the past as well, so that every thread has work.
        let partials =
            4 * spans.iter().map(|s| s.len).sum::<usize>() * spec.heads * most_splits * (value_dim(spec) + 2);
        let cut = pieces.len() < 4 * self.pool.threads() && most_splits > 1;
        if cut && partials <= MOST_PARTIALS_BYTES {
            self.attend_in_splits(out, past, &mut pieces, most_splits);
        } else {
            self.attend_whole(out, past, &pieces);
        }
        self.pieces = pieces;
    }

    /// Each piece walks its whole past.
    fn attend_whole(&mut self, out: &mut [f32], past: Past, pieces: &[Piece]) {
        let (isa, dim) = (self.isa, value_dim(past.spec));
        let (out, desks) = (Slots::new(out), Slots::new(&mut self.desks));
        self.pool.run(pieces.len(), |i, thread| {
            // SAFETY: a thread runs one piece at a time.
            let desk = unsafe { desks.one(thread) };
            past.for_groups(&pieces[i], |queries, places| {
                // SAFETY: a head of a row belongs to one piece.
                let row = |place: usize| unsafe { out.take(place * dim..(place + 1) * dim) };
                let mut merged: [Merged; QUERIES] =
                    std::array::from_fn(|n| Merged::new(places.get(n).map_or(&mut [], |place| row(*place))));
                for split in splits_of(queries) {
                    past.attend_split(isa, &pieces[i], queries, split, desk);
                    for (into, found) in merged.iter_mut().zip(&desk.found).take(queries.len()) {
                        attention::merge(isa, into, found.largest, found.sum, &found.values[..dim]);
                    }
                }
                for (merged, place) in merged.into_iter().zip(places) {
                    merged.finish(past.sink(*place));
                }
            });
        });
    }

    /// Each piece is one split of the past; the results are merged in order afterwards.
    fn attend_in_splits(&mut self, out: &mut [f32], past: Past, pieces: &mut Vec<Piece>, most_splits: usize) {
        let (isa, dim) = (self.isa, value_dim(past.spec));
        past.cut(pieces);
        // [rows, heads, splits] of (largest, sum, values).
        let rows = past.spans.iter().map(|s| s.len).sum::<usize>();
        let (places, slot) = (rows * past.spec.heads, dim + 2);
        self.partials.resize(self.partials.len().max(places * most_splits * slot), 0.0);
        // A split nobody attends to counts as "sees nothing".
        for partial in self.partials.chunks_exact_mut(slot).take(places * most_splits) {
            (partial[0], partial[1]) = (f32::NEG_INFINITY, 0.0);
        }
        let (partials, desks) = (Slots::new(&mut self.partials), Slots::new(&mut self.desks));
        self.pool.run(pieces.len(), |i, thread| {
            let split = pieces[i].split.expect("every piece was cut");
            // SAFETY: a thread runs one piece at a time.
            let desk = unsafe { desks.one(thread) };
            past.for_groups(&pieces[i], |queries, places| {
                if !splits_of(queries).contains(&split) {
                    return;
                }
                past.attend_split(isa, &pieces[i], queries, split, desk);
                for (found, place) in desk.found.iter().zip(places) {
                    let start = (place * most_splits + split) * slot;
                    // SAFETY: a head of a row in a split belongs to one piece.
                    let partial = unsafe { partials.take(start..start + slot) };
                    (partial[0], partial[1]) = (found.largest, found.sum);
                    partial[2..].copy_from_slice(&found.values[..dim]);
                }
            });
        });
        for (place, out) in out.chunks_exact_mut(dim).take(places).enumerate() {
            let mut merged = Merged::new(out);
            let partials = &self.partials[place * most_splits * slot..][..most_splits * slot];
            for partial in partials.chunks_exact(slot) {
                attention::merge(isa, &mut merged, partial[0], partial[1], &partial[2..]);
            }
            merged.finish(past.sink(place));
        }
    }
}

/// What a launch attends to.
#[derive(Clone, Copy)]
pub(super) struct Past<'a> {
    pub(super) qkv: &'a [f32],
    pub(super) spans: &'a [Span<'a>],
    pub(super) spec: &'a AttentionSpec<'a, Cpu>,
    pub(super) cache: &'a Cache,
}

impl Past<'_> {
    /// One piece for each split that some row of a piece sees.
    fn cut(&self, pieces: &mut Vec<Piece>) {
        for i in 0..pieces.len() {
            let piece = pieces[i];
            let start = self.spans[piece.span].start + piece.first;
            let first = self.spec.window.map_or(0, |w| (start + 1).saturating_sub(w)) / SPLIT;
            pieces[i].split = Some(first);
            let rest = first + 1..(start + piece.len).div_ceil(SPLIT);
            pieces.extend(rest.map(|split| Piece { split: Some(split), ..piece }));
        }
    }

    /// The score beside those of a place in `[rows, heads]`.
    fn sink(&self, place: usize) -> Option<f32> {
        self.spec.sinks.map(|sinks| sinks[place % self.spec.heads])
    }

    /// Cuts a piece's queries (row after row, the heads of the group inside) into groups of at most
    /// [`QUERIES`]; `places` are their positions in `[rows, heads]`.
    fn for_groups(&self, piece: &Piece, mut each: impl FnMut(&[Query], &[usize])) {
        let (span, spec, dim) = (&self.spans[piece.span], self.spec, self.spec.head_dim);
        let (group, width) = (spec.heads / spec.kv_heads, row_width(spec));
        let total = piece.len * group;
        for start in (0..total).step_by(QUERIES) {
            let count = QUERIES.min(total - start);
            let mut places = [0; QUERIES];
            let mut queries = [Query { q: &[], first: 0, end: 0 }; QUERIES];
            for n in 0..count {
                let (i, g) = ((start + n) / group, (start + n) % group);
                let row = span.first + piece.first + i;
                let head = piece.kv_head * group + g;
                let end = span.start + piece.first + i + 1;
                let first = spec.window.map_or(0, |w| end.saturating_sub(w));
                places[n] = row * spec.heads + head;
                queries[n] = Query { q: &self.qkv[row * width + head * dim..][..dim], first, end };
            }
            each(&queries[..count], &places[..count]);
        }
    }

    fn attend_split(&self, isa: Isa, piece: &Piece, queries: &[Query], split: usize, desk: &mut Desk) {
        let job = SplitJob {
            cache: self.cache.bytes(),
            shape: self.cache.shape(),
            head: piece.kv_head,
            table: self.spans[piece.span].table,
            index: split,
            scale: self.spec.scale,
            soft_cap: self.spec.soft_cap,
            queries,
        };
        attention::attend_split(isa, job, desk);
    }
}

/// Of a row of queries, keys and values.
fn row_width(spec: &AttentionSpec<Cpu>) -> usize {
    let sides = if spec.latent.is_some() { 1 } else { 2 };
    (spec.heads + sides * spec.kv_heads) * spec.head_dim
}

fn value_dim(spec: &AttentionSpec<Cpu>) -> usize {
    spec.head_dim - spec.latent.unwrap_or(0)
}

/// The queries or the keys of one row.
fn normalise_heads(isa: Isa, heads: &mut [f32], dim: usize, norm: Option<&HeadNorm<Cpu>>) {
    let Some(HeadNorm { norm, over }) = norm else { return };
    let norm = RowNorm::from(*norm);
    match over {
        Over::Head => heads.chunks_exact_mut(dim).for_each(|x| norm::normalise_in_place(isa, x, norm)),
        Over::EachHead => {
            let each =
                |(h, x): (usize, &mut [f32])| norm::normalise_in_place(isa, x, norm.part(h * dim, dim));
            heads.chunks_exact_mut(dim).enumerate().for_each(each);
        }
        Over::Heads => norm::normalise_in_place(isa, heads, norm),
    }
}

fn splits_of(queries: &[Query]) -> Range<usize> {
    let first = queries.iter().map(|q| q.first).min().unwrap_or(0);
    let end = queries.iter().map(|q| q.end).max().unwrap_or(0);
    first / SPLIT..end.div_ceil(SPLIT)
}
