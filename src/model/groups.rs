//! Which layers share a block table, and which share memory: vLLM's hybrid KV cache manager.
//!
//! Layers of one kind are cut into groups of equal size. A block belongs to one group at a time and
//! holds that group's layers, so all groups draw from one pool, and there are only as many tensors as
//! a group has layers.
//!
//! ```text
//! Gemma 3, 18 layers, the 6th, 12th and 18th of them full: 6 groups of 3
//!
//!             tensor 0   tensor 1   tensor 2
//! full             5         11         17      layers
//! window           0          1          2
//! window           3          4          6
//! ...
//! ```

use crate::kv::CacheSpec;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CacheLayout {
    pub(super) groups: Vec<CacheSpec>,
    /// Layers of a group, and tensors of the cache.
    pub(super) group_size: usize,
    /// Of each layer.
    pub(super) places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: usize,
    /// Tensor.
    pub(super) cache: usize,
}

impl CacheLayout {
    /// Groups are as large as the rarest kind. The last group of a kind may be smaller: its blocks
    /// then have room they do not use.
    pub(super) fn new(layers: &[CacheSpec]) -> Self {
        let mut kinds: Vec<CacheSpec> = Vec::new();
        for spec in layers {
            if !kinds.contains(spec) {
                kinds.push(*spec);
            }
        }
        kinds.sort_by_key(|spec| *spec != CacheSpec::Full);
        let count = |kind: &CacheSpec| layers.iter().filter(|spec| *spec == kind).count();
        let group_size = kinds.iter().map(count).min().unwrap_or(0);
        let mut layout =
            Self { groups: Vec::new(), group_size, places: vec![Place { group: 0, cache: 0 }; layers.len()] };
        for kind in kinds {
            let members = (0..layers.len()).filter(|layer| layers[*layer] == kind);
            for (i, layer) in members.enumerate() {
                if i % group_size == 0 {
                    layout.groups.push(kind);
                }
                layout.places[layer] = Place { group: layout.groups.len() - 1, cache: i % group_size };
            }
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: CacheSpec = CacheSpec::Sliding { window: 512 };

    fn every(n: usize, layers: usize) -> Vec<CacheSpec> {
        (1..=layers).map(|i| if i % n == 0 { CacheSpec::Full } else { WINDOW }).collect()
    }

    #[test]
    fn layers_of_one_kind_are_one_group_with_a_tensor_each() {
        let layout = CacheLayout::new(&[CacheSpec::Full; 4]);
        assert_eq!((layout.groups, layout.group_size), (vec![CacheSpec::Full], 4));
        assert!(layout.places.iter().enumerate().all(|(i, p)| *p == Place { group: 0, cache: i }));
    }

    #[test]
    fn gemma_3_270m_has_six_groups_of_three() {
        let layout = CacheLayout::new(&every(6, 18));
        assert_eq!(layout.group_size, 3);
        assert_eq!(layout.groups, [&[CacheSpec::Full][..], &[WINDOW; 5]].concat());
        assert_eq!(layout.places[17], Place { group: 0, cache: 2 });
        assert_eq!(layout.places[6], Place { group: 2, cache: 2 });
    }

    /// Two layers of a group must never share a tensor: they would overwrite each other.
    #[test]
    fn a_group_that_is_not_full_wastes_its_tail_and_nothing_is_shared() {
        for (n, layers) in [(2, 5), (3, 7), (4, 6), (6, 26)] {
            let layout = CacheLayout::new(&every(n, layers));
            let mut places = layout.places.clone();
            places.sort_by_key(|p| (p.group, p.cache));
            places.dedup();
            assert_eq!(places.len(), layers);
            assert!(places.iter().all(|p| p.group < layout.groups.len() && p.cache < layout.group_size));
        }
        assert_eq!(CacheLayout::new(&every(2, 5)).groups, [CacheSpec::Full, WINDOW, WINDOW]);
    }
}
