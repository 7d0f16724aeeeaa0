//! What the cache tells those who listen.

use super::*;
use crate::protocol::{KvEvent, Medium};

fn world(cache: PrefixCache, groups: &[CacheSpec], num_blocks: usize) -> World {
    World::of(KvConfig { groups: groups.to_vec(), host_blocks: 8, events: true, ..config(cache, num_blocks) })
}

fn short(seq: &Seq, at: usize) -> u64 {
    seq.chain.hashes()[at].short()
}

both! {
    fn stored_blocks_are_told_with_their_tokens_and_their_parent(cache) {
        let mut world = world(cache, &[FULL], 11);
        let mut a = world.start(&tokens(0..9));
        let stored = |block_hashes, parent_block_hash, token_ids| KvEvent::BlockStored {
            block_hashes,
            parent_block_hash,
            token_ids,
            block_size: 4,
            lora_name: None,
            medium: Medium::Device,
            group_idx: 0,
        };
        let both = vec![short(&a, 0), short(&a, 1)];
        assert_eq!(world.kv.take_events(), [stored(both, None, tokens(0..8))]);
        assert_eq!(world.kv.take_events(), []);
        world.decode(&mut a, &tokens(9..12));
        let (third, parent) = (vec![short(&a, 2)], Some(short(&a, 1)));
        assert_eq!(world.kv.take_events(), [stored(third, parent, tokens(8..12))]);
        // A hit stores nothing, and neither does an end.
        let mut b = world.start(&tokens(0..12));
        world.release(&mut a);
        world.release(&mut b);
        assert_eq!(world.kv.take_events(), []);
    }

    fn a_block_is_removed_when_it_is_evicted_and_stored_where_it_goes(cache) {
        let mut world = world(cache, &[FULL], 3);
        let mut a = world.start(&tokens(0..5));
        world.release(&mut a);
        world.kv.take_events();
        let b = world.start(&tokens(100..107));
        let events = world.kv.take_events();
        let hash = short(&a, 0);
        let removed = |medium| KvEvent::BlockRemoved { block_hashes: vec![hash], medium, group_idx: 0 };
        assert_eq!(events[0], removed(Medium::Device));
        assert!(matches!(&events[1], KvEvent::BlockStored { block_hashes, medium: Medium::Host, .. }
            if *block_hashes == [hash]));
        assert!(matches!(&events[2], KvEvent::BlockStored { block_hashes, medium: Medium::Device, .. }
            if *block_hashes == [short(&b, 0)]));
        assert_eq!(events.len(), 3);
    }

    fn every_group_tells_its_own(cache) {
        let mut world = world(cache, &[FULL, sliding(5), STATE], 41);
        let mut a = world.start(&tokens(0..4));
        world.decode(&mut a, &[4]);
        let groups: Vec<_> = world.kv.take_events().iter().map(|event| match event {
            KvEvent::BlockStored { group_idx, block_hashes, .. } => (*group_idx, block_hashes.clone()),
            other => panic!("{other:?}"),
        }).collect();
        assert_eq!(groups, (0..3).map(|group| (group, vec![short(&a, 0)])).collect::<Vec<_>>());
    }

    fn the_adapter_is_named(cache) {
        let mut world = world(cache, &[FULL], 11);
        let lora = Some(("poet".to_owned(), "/poet".to_owned()));
        let mut a = world.seq_with(&tokens(0..5), ExtraKeys { lora, ..ExtraKeys::default() });
        world.start_seq(&mut a);
        let events = world.kv.take_events();
        assert!(matches!(&events[..], [KvEvent::BlockStored { lora_name: Some(name), .. }] if name == "poet"));
    }

    fn an_emptied_cache_is_cleared_and_one_that_is_still_used_is_not(cache) {
        let mut world = world(cache, &[FULL], 11);
        let (mut a, mut b) = (world.start(&tokens(0..5)), world.start(&tokens(100..105)));
        world.release(&mut a);
        world.kv.take_events();
        world.kv.reset_prefix_cache();
        assert!(matches!(&world.kv.take_events()[..], [KvEvent::BlockRemoved { block_hashes, .. }]
            if *block_hashes == [short(&a, 0)]));
        world.release(&mut b);
        world.kv.reset_prefix_cache();
        assert_eq!(world.kv.take_events(), [KvEvent::AllBlocksCleared]);
        world.kv.reset();
        assert_eq!(world.kv.take_events(), [KvEvent::AllBlocksCleared]);
    }
}

#[test]
fn nobody_listens_and_nothing_is_kept() {
    let mut world = World::of(KvConfig { events: false, ..config(PrefixCache::Hash, 11) });
    let _a = world.start(&tokens(0..9));
    world.kv.reset();
    assert_eq!(world.kv.take_events(), []);
}
