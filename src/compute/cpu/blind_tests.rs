//! Rows of queries that may look at nothing.

#![allow(clippy::unwrap_used)]

use super::attention::{Desk, Merged, Query, SplitJob, attend_split, merge};
use super::cache::{Cache, store_token};
use super::*;
use crate::compute::CacheDtype;

const DIM: usize = 16;

fn cache() -> Cache {
    let shape = CacheShape {
        blocks: 2,
        block_size: 16,
        kv_heads: 1,
        head_dim: DIM,
        latent: None,
        dtype: CacheDtype::F32,
        least_bytes: 0,
    };
    let mut cache = Cache::new(shape).unwrap();
    for offset in 0..8 {
        let (k, v) = ([0.1 * offset as f32; DIM], [offset as f32; DIM]);
        let start = shape.part(1, 0);
        let part = &mut cache.bytes_mut()[start..start + shape.part_bytes()];
        store_token(Isa::Portable, part, shape, offset, &k, &v);
    }
    cache
}

/// What each query comes to, after the merge of its only split.
fn attended(isa: Isa, cache: &Cache, queries: &[Query]) -> Vec<[f32; DIM]> {
    let mut desk = Desk::new();
    let (table, shape) = ([1u32], cache.shape());
    let job = SplitJob {
        cache: cache.bytes(),
        shape,
        head: 0,
        table: &table,
        index: 0,
        scale: 0.25,
        soft_cap: None,
        queries,
    };
    attend_split(isa, job, &mut desk);
    let one = |found: &super::attention::Found| {
        let mut out = [f32::NAN; DIM];
        let mut merged = Merged::new(&mut out);
        merge(isa, &mut merged, found.largest, found.sum, &found.values[..DIM]);
        merged.finish(None);
        out
    };
    desk.found[..queries.len()].iter().map(one).collect()
}

/// BUGLOG A08: such a row is zeros, not NaN, and the others are what they are alone.
#[test]
fn a_row_that_sees_nothing_is_zeros_and_harms_no_other() {
    let cache = cache();
    let q = [0.5; DIM];
    let (seeing, blind) = (Query { q: &q, first: 0, end: 8 }, Query { q: &q, first: 5, end: 5 });
    for isa in Isa::available() {
        let alone = attended(isa, &cache, &[seeing])[0];
        assert!(alone.iter().all(|x| (0.0..=7.0).contains(x) && *x > 0.0), "{alone:?}");
        for queries in [&[blind, seeing, blind][..], &[seeing, blind]] {
            for (query, found) in queries.iter().zip(attended(isa, &cache, queries)) {
                let expected = if query.end > query.first { alone } else { [0.0; DIM] };
                assert_eq!(found, expected, "{}", isa.name());
            }
        }
    }
}
