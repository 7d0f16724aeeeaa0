#![allow(clippy::unwrap_used)]
use super::*;

/// Blocks of two tokens, and a letter for each token.
struct Bench {
    tree: RadixTree,
}

fn bench(eviction: EvictionPolicy) -> Bench {
    Bench { tree: RadixTree::new(2, eviction) }
}

fn tokens(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

impl Bench {
    fn insert(&mut self, text: &str, blocks: &[BlockId]) -> usize {
        self.insert_with_priority(text, blocks, 0)
    }

    fn insert_with_priority(&mut self, text: &str, blocks: &[BlockId], priority: i32) -> usize {
        let had = self.tree.insert(0, &tokens(text), blocks, priority);
        self.tree.check().unwrap();
        had
    }

    fn find(&mut self, text: &str) -> Vec<BlockId> {
        let mut found = Vec::new();
        self.tree.match_prefix(0, &tokens(text), usize::MAX, &mut found);
        self.tree.check().unwrap();
        found
    }

    fn lock(&mut self, block: BlockId) {
        self.tree.lock(block);
        self.tree.check().unwrap();
    }

    fn unlock(&mut self, block: BlockId) {
        self.tree.unlock(block);
        self.tree.check().unwrap();
    }

    /// The order in which everything evictable goes.
    fn drain(&mut self) -> Vec<BlockId> {
        std::iter::from_fn(|| {
            let block = self.tree.evict();
            self.tree.check().unwrap();
            block
        })
        .collect()
    }

    fn counts(&self) -> (usize, usize) {
        (self.tree.evictable(), self.tree.protected())
    }
}

#[test]
fn the_longest_prefix_of_whole_blocks_is_found() {
    let mut bench = bench(EvictionPolicy::Lru);
    assert_eq!(bench.insert("aabbcc", &[1, 2, 3]), 0);
    assert_eq!(bench.find("aabbccdd"), [1, 2, 3]);
    assert_eq!(bench.find("aabbxx"), [1, 2]);
    assert_eq!(bench.find("aab"), [1]);
    assert!(bench.find("a").is_empty());
    assert!(bench.find("bbcc").is_empty());
    assert_eq!(bench.tree.len(), 3);
}

#[test]
fn a_match_ends_where_the_caller_says_so_that_the_last_token_can_run() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    let mut found = vec![9];
    bench.tree.match_prefix(0, &tokens("aabbcc"), 2, &mut found);
    assert_eq!(found, [9, 1, 2]);
    assert_eq!((bench.tree.peek(0, &tokens("aabbcc"), 2), bench.tree.peek(0, &tokens("aabbcc"), 9)), (2, 3));
}

#[test]
fn the_partly_filled_last_block_stays_private() {
    let mut bench = bench(EvictionPolicy::Lru);
    assert_eq!(bench.insert("aabbc", &[1, 2, 3]), 0);
    assert_eq!(bench.tree.len(), 2);
    assert!(!bench.tree.contains(3));
    assert_eq!(bench.insert("aabbcc", &[1, 2, 3]), 2);
    assert!(bench.tree.contains(3));
}

#[test]
fn sequences_that_differ_inside_a_block_share_nothing_of_it() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabc", &[1, 2]);
    assert_eq!(bench.insert("aabd", &[7, 3]), 1);
    assert_eq!(bench.find("aabc"), [1, 2]);
    assert_eq!(bench.find("aabd"), [1, 3]);
}

#[test]
fn looking_changes_nothing() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aaaa", &[1, 2]);
    bench.insert("bbbb", &[3, 4]);
    assert_eq!(bench.tree.peek(0, &tokens("aaaaxx"), usize::MAX), 2);
    assert_eq!(bench.tree.peek(0, &tokens("aaxx"), usize::MAX), 1);
    assert_eq!(bench.drain(), [2, 1, 4, 3]);
}

#[test]
fn who_computed_the_same_again_keeps_his_own_blocks() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    assert_eq!(bench.insert("aabbcc", &[11, 12, 13]), 3);
    assert_eq!(bench.insert("aabbdd", &[11, 12, 14]), 2);
    assert_eq!(bench.insert("aa", &[15]), 1);
    assert_eq!(bench.find("aabbcc"), [1, 2, 3]);
    assert_eq!(bench.find("aabbdd"), [1, 2, 14]);
    assert!([11, 12, 13, 15].iter().all(|block| !bench.tree.contains(*block)));
}

#[test]
fn namespaces_share_nothing() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    assert_eq!(bench.tree.insert(7, &tokens("aabb"), &[3, 4], 0), 0);
    assert_eq!(bench.tree.peek(8, &tokens("aabb"), 9), 0);
    let mut found = Vec::new();
    bench.tree.match_prefix(7, &tokens("aabb"), 9, &mut found);
    assert_eq!((found.as_slice(), bench.find("aabb").as_slice()), ([3, 4].as_slice(), [1, 2].as_slice()));
    bench.tree.remove(3, &mut found);
    assert_eq!((bench.tree.peek(7, &tokens("aabb"), 9), bench.tree.peek(0, &tokens("aabb"), 9)), (0, 2));
    bench.tree.check().unwrap();
}

#[test]
fn a_lock_protects_all_the_way_to_the_root_and_nothing_beside_or_behind() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.insert("aabbdd", &[1, 2, 4]);
    bench.insert("xx", &[5]);
    assert_eq!(bench.counts(), (5, 0));
    bench.lock(3);
    assert_eq!(bench.counts(), (2, 3));
    assert_eq!(bench.drain(), [4, 5]);
    assert_eq!(bench.find("aabbcc"), [1, 2, 3]);
    bench.unlock(3);
    assert_eq!(bench.counts(), (3, 0));
}

#[test]
fn a_block_counts_once_however_often_it_is_locked() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    bench.lock(2);
    bench.lock(2);
    bench.lock(1);
    assert_eq!(bench.counts(), (0, 2));
    bench.unlock(2);
    assert_eq!(bench.counts(), (0, 2));
    bench.unlock(2);
    assert_eq!(bench.counts(), (1, 1));
    assert_eq!(bench.drain(), [2]);
    bench.unlock(1);
    assert_eq!(bench.drain(), [1]);
}

/// K02: no count passes below zero.
#[test]
fn k02_a_block_is_unlocked_as_often_as_it_was_locked() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    bench.lock(2);
    bench.unlock(2);
    assert!(std::panic::catch_unwind(move || bench.tree.unlock(2)).is_err());
}

#[test]
fn a_split_leaves_the_lock_on_both_parts_where_the_lower_one_is_in_use() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.lock(3);
    bench.insert("aaxx", &[1, 4]);
    assert_eq!(bench.counts(), (1, 3));
    bench.unlock(3);
    assert_eq!(bench.counts(), (4, 0));
}

#[test]
fn a_split_frees_the_lower_part_of_locks_that_name_the_upper() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.lock(1);
    assert_eq!(bench.find("aabb"), [1, 2]);
    assert_eq!(bench.counts(), (2, 1));
    assert_eq!(bench.drain(), [3, 2]);
    bench.unlock(1);
    assert_eq!(bench.drain(), [1]);
}

#[test]
fn a_split_hands_priority_and_hits_to_both_parts() {
    let mut bench = bench(EvictionPolicy::Priority);
    bench.insert_with_priority("aabbcc", &[1, 2, 3], 5);
    bench.insert_with_priority("aaxx", &[1, 4], 0);
    bench.insert_with_priority("yy", &[5], 3);
    assert_eq!(bench.drain(), [4, 5, 3, 2, 1]);

    let mut bench = self::bench(EvictionPolicy::Lfu);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.find("aabbcc");
    bench.insert("aaxx", &[1, 4]);
    bench.insert("yy", &[5]);
    assert_eq!(bench.drain(), [4, 5, 3, 2, 1]);
}

#[test]
fn the_end_of_a_prefix_goes_before_its_start_and_a_childless_parent_follows() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.insert("aabbdd", &[1, 2, 4]);
    assert_eq!(bench.tree.evict(), Some(3));
    assert_eq!(bench.find("aabbcc"), [1, 2]);
    assert_eq!(bench.drain(), [4, 2, 1]);
    assert!(bench.tree.is_empty());
    assert_eq!(bench.tree.evict(), None);
}

/// Three prefixes, inserted as 1, 2, 3; then 1 is hit twice, 3 once, and 2 last, once.
fn three_prefixes(eviction: EvictionPolicy) -> Bench {
    let mut bench = bench(eviction);
    bench.insert_with_priority("aa", &[1], 2);
    bench.insert_with_priority("bb", &[2], 1);
    bench.insert_with_priority("cc", &[3], 3);
    for hit in ["aa", "aa", "cc", "bb"] {
        bench.find(hit);
    }
    bench
}

#[test]
fn each_policy_has_its_own_order() {
    for (policy, order) in [
        (EvictionPolicy::Lru, [1, 3, 2]),
        (EvictionPolicy::Mru, [2, 3, 1]),
        (EvictionPolicy::Fifo, [1, 2, 3]),
        (EvictionPolicy::Filo, [3, 2, 1]),
        (EvictionPolicy::Lfu, [3, 2, 1]),
        (EvictionPolicy::Slru, [3, 2, 1]),
        (EvictionPolicy::Priority, [2, 1, 3]),
    ] {
        assert_eq!(three_prefixes(policy).drain(), order, "{policy:?}");
    }
}

#[test]
fn segmented_lru_protects_what_was_hit_twice_and_forgets_how_often_beyond() {
    let mut bench = bench(EvictionPolicy::Slru);
    for (text, block, hits) in [("aa", 1, 2), ("bb", 2, 9), ("cc", 3, 2), ("dd", 4, 1), ("ee", 5, 0)] {
        bench.insert(text, &[block]);
        for _ in 0..hits {
            assert_eq!(bench.find(text), [block]);
        }
    }
    assert_eq!(bench.drain(), [4, 5, 1, 2, 3]);
}

#[test]
fn a_prefix_takes_the_highest_priority_that_passes_through() {
    let mut bench = bench(EvictionPolicy::Priority);
    bench.insert_with_priority("aa", &[1], 1);
    bench.insert_with_priority("bb", &[2], 5);
    bench.insert_with_priority("aacc", &[1, 3], 9);
    assert_eq!(bench.drain(), [2, 3, 1]);
}

#[test]
fn only_matches_count_as_hits() {
    let mut bench = bench(EvictionPolicy::Lfu);
    bench.insert("aa", &[1]);
    for _ in 0..5 {
        assert_eq!(bench.insert("aa", &[1]), 1);
    }
    bench.insert("bb", &[2]);
    bench.find("bb");
    assert_eq!(bench.drain(), [1, 2]);
}

#[test]
fn the_part_of_a_prefix_that_was_not_hit_goes_before_the_part_that_was() {
    let mut bench = bench(EvictionPolicy::Lfu);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.insert("dddd", &[4, 5]);
    bench.find("aabb");
    assert_eq!(bench.drain(), [3, 5, 4, 2, 1]);
}

/// A prompt that runs in chunks: what is computed is inserted, and the lock moves on to its end.
#[test]
fn an_unfinished_chunk_is_found_by_others_and_stays_protected() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbc", &[1, 2, 3]);
    bench.lock(2);
    assert_eq!(bench.find("aabbcczz"), [1, 2]);
    assert_eq!(bench.insert("aabbccdd", &[1, 2, 3, 4]), 2);
    assert_eq!(bench.counts(), (2, 2));
    bench.lock(4);
    bench.unlock(2);
    assert_eq!(bench.counts(), (0, 4));
    assert!(bench.drain().is_empty());
    bench.unlock(4);
    assert_eq!(bench.drain(), [4, 3, 2, 1]);
}

#[test]
fn an_answer_that_grows_a_block_at_a_time_is_one_node() {
    let mut bench = bench(EvictionPolicy::Lru);
    let text = "aabbccddeeffgghh";
    for blocks in 1..=8u32 {
        let ids: Vec<_> = (1..=blocks).collect();
        bench.insert(&text[..2 * ids.len()], &ids);
        bench.lock(blocks);
        if blocks > 1 {
            bench.unlock(blocks - 1);
        }
        assert_eq!(bench.counts(), (0, blocks as usize));
    }
    assert_eq!(bench.tree.nodes.len(), 1);
    assert_eq!(bench.find("aabbxx"), [1, 2]);
    assert_eq!(bench.tree.nodes.len(), 2);
}

#[test]
fn a_prefix_that_was_hit_grows_in_a_node_of_its_own() {
    let mut bench = bench(EvictionPolicy::Slru);
    bench.insert("aa", &[1]);
    bench.find("aa");
    bench.find("aa");
    bench.insert("aabb", &[1, 2]);
    bench.insert("cc", &[3]);
    assert_eq!(bench.drain(), [2, 3, 1]);
}

#[test]
fn removing_a_block_takes_all_below_with_it_locked_or_not() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabbcc", &[1, 2, 3]);
    bench.insert("aabbddee", &[1, 2, 4, 5]);
    bench.insert("aaff", &[1, 6]);
    bench.lock(5);
    let mut removed = Vec::new();
    bench.tree.remove(2, &mut removed);
    bench.tree.check().unwrap();
    assert_eq!(removed[0], 2);
    removed.sort();
    assert_eq!(removed, [2, 3, 4, 5]);
    assert_eq!((bench.counts(), bench.tree.contains(5)), ((2, 0), false));
    assert_eq!(bench.find("aabbcc"), [1]);
    bench.tree.remove(2, &mut removed);
    assert_eq!(removed.len(), 4);
}

#[test]
fn a_lock_on_a_removed_block_is_still_its_owners_to_give_back() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    bench.lock(2);
    bench.tree.remove(1, &mut Vec::new());
    bench.insert("xxaabb", &[3, 1, 2]);
    assert_eq!(bench.counts(), (0, 3));
    bench.unlock(2);
    assert_eq!(bench.drain(), [2, 1, 3]);
}

#[test]
fn clearing_leaves_nothing_behind() {
    let mut bench = bench(EvictionPolicy::Lru);
    bench.insert("aabb", &[1, 2]);
    bench.lock(2);
    bench.tree.clear();
    assert_eq!((bench.find("aabb"), bench.tree.len(), bench.counts()), (vec![], 0, (0, 0)));
    bench.insert("cc", &[2]);
    assert_eq!(bench.counts(), (1, 0));
}

#[test]
fn nodes_are_used_again() {
    let mut bench = bench(EvictionPolicy::Lru);
    for round in 0..50 {
        bench.insert("aabbcc", &[1, 2, 3]);
        bench.insert("aaxx", &[1, 4]);
        if round % 2 == 0 {
            bench.drain();
        } else {
            bench.tree.remove(1, &mut Vec::new());
        }
    }
    assert!(bench.tree.nodes.len() <= 3 && bench.tree.namespaces.is_empty());
}
