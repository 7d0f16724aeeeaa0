//! A layer's attention: new keys and values into the cache, then single rows and longer spans, each by
//! its own kernel.

use super::backend::{Buf, Cuda, Pass};
use super::gpu::Gpu;
use super::kv::{self, Cache, Place, Store};
use super::matmul::Room;
use super::memory::Memory;
use super::prefill::{SplitLimits, Splits};
use super::{decode, prefill, rows};
use crate::compute::{Amount, AttentionSpec, CacheShape, Capacity, Columns, HeadNorm, Over, Result, Span};

/// Memory of the splits that a past is cut into.
#[derive(Default)]
pub(super) struct Attends {
    decode: Room,
    prefill: Room,
    /// Rows of a tile.
    tile_rows: usize,
}

/// Short spans over a long past, as those of speculation, are cut: so many of them, of so many rows.
const SPLITS: SplitLimits = SplitLimits { spans: 8, rows: 16, most: 16 };

impl Attends {
    /// About what all of it takes at most.
    pub(super) const MOST_BYTES: usize = 128 << 20;

    pub(super) fn new(gpu: &Gpu, most: &Capacity) -> Result<Self> {
        let group = (most.heads / most.kv_heads.max(1)).max(1);
        let mut prefill = Room::default();
        prefill.reserve(gpu, SPLITS.bytes(most.heads, most.head_dim), &mut false)?;
        let tile_rows = prefill::tile_rows(most.head_dim, group);
        Ok(Self { decode: Room::default(), prefill, tile_rows })
    }

    pub(super) fn tile_rows(&self) -> usize {
        self.tile_rows.max(1)
    }

    /// `qkv` f32 [rows, (heads + 2 kv_heads) * head_dim]: queries are made ready in place.
    pub(super) fn store(
        gpu: &Gpu,
        qkv: &Memory,
        spec: &AttentionSpec<Cuda>,
        cache: &Cache,
        step: &Memory,
        pass: &Pass,
    ) -> Result<()> {
        let place = Place { step, group: spec.group, rows: pass.rows, spans: pass.spans };
        let stride = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
        let columns = |first: usize, heads: usize| Columns {
            first: first * spec.head_dim,
            len: heads * spec.head_dim,
            stride,
        };
        let [queries, keys] = [columns(0, spec.heads), columns(spec.heads, spec.kv_heads)];
        let store = Store {
            heads: spec.heads,
            rope: spec.rope.map(|rope| (spec.rope_index, rope.style)),
            query_norm: of_heads(gpu, (qkv, queries), pass.rows, &spec.query_norm)?,
            key_norm: of_heads(gpu, (qkv, keys), pass.rows, &spec.key_norm)?,
        };
        kv::store(gpu, qkv, cache, place, &store)
    }

    /// out f32 [rows, heads * head_dim]. `true` where memory moved.
    pub(super) fn attend(
        &mut self,
        gpu: &Gpu,
        (out, qkv): (&Memory, &Memory),
        spec: &AttentionSpec<Cuda>,
        cache: &Cache,
        (step, spans): (&Memory, &[Span]),
        pass: &Pass,
    ) -> Result<bool> {
        let mut moved = false;
        let place = Place { step, group: spec.group, rows: pass.rows, spans: pass.spans };
        let attention = decode::Attention {
            heads: spec.heads,
            scale: spec.scale,
            window: spec.window,
            cap: spec.soft_cap,
            sinks: spec.sinks.map(Buf::memory),
        };
        if pass.singles {
            let bytes = decode::workspace_bytes(pass.spans, spec.heads, spec.head_dim);
            self.decode.reserve(gpu, bytes, &mut moved)?;
            gpu.work(|| past(spans.iter().filter(|span| span.len == 1), spec, cache));
            decode::attend(gpu, out, qkv, cache, place, &attention, self.decode.memory())?;
        }
        if pass.tiles > 0 {
            let tiles = prefill::Tiles { most: pass.tiles, rows: self.tile_rows() };
            gpu.work(|| past(spans.iter().filter(|span| span.len > 1), spec, cache));
            let splits = Splits { limits: SPLITS, workspace: self.prefill.memory() };
            prefill::attend(gpu, (out, qkv), cache, place, &attention, tiles, Some(splits))?;
        }
        Ok(moved)
    }
}

/// What is left to do to each head alone: heads that are normalised together are so here, for they are of
/// several blocks there.
fn of_heads<'a>(
    gpu: &Gpu,
    (qkv, columns): (&Memory, Columns),
    rows: usize,
    norm: &Option<HeadNorm<'a, Cuda>>,
) -> Result<Option<kv::HeadNorm<'a>>> {
    let Some(HeadNorm { norm, over }) = norm else { return Ok(None) };
    let norm = super::backend::norm(norm);
    if *over == Over::Heads {
        return rows::norm_columns(gpu, qkv, rows, columns, norm).map(|()| None);
    }
    Ok(Some(kv::HeadNorm { norm, each: *over == Over::EachHead }))
}

/// What these spans read of the cache, each position once, and compute with it.
fn past<'a>(spans: impl Iterator<Item = &'a Span<'a>>, spec: &AttentionSpec<Cuda>, cache: &Cache) -> Amount {
    let window = spec.window.unwrap_or(usize::MAX);
    let mut work = Amount::default();
    for span in spans {
        let read = span.start.min(window.saturating_sub(1)) + span.len;
        let seen: usize = (1..=span.len).map(|i| (span.start + i).min(window)).sum();
        work += attended(&cache.shape(), spec.heads, read, seen);
    }
    work
}

/// `read` positions of the cache, and `seen` pairs of a row and a position.
pub(super) fn attended(cache: &CacheShape, heads: usize, read: usize, seen: usize) -> Amount {
    let bytes = read * cache.kv_heads * cache.dtype.token_bytes(cache.head_dim);
    // Scores, and values by them: two operations each for every element of every head.
    Amount { bytes: bytes as u64, flops: (4 * seen * heads * cache.head_dim) as u64 }
}
