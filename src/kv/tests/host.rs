//! Host memory: what was evicted comes back, sequences are swapped, disk stages its content here.

use super::*;

fn world(cache: PrefixCache, num_blocks: usize, host_blocks: usize) -> World {
    World::of(KvConfig { host_blocks, ..config(cache, num_blocks) })
}

/// Fills the device with something else.
fn flush(world: &mut World, first: u32) {
    let blocks = world.kv.pool().total() as u32;
    let mut other = world.start(&tokens(first..first + blocks * 4));
    world.release(&mut other);
}

both! {
    fn what_is_evicted_is_found_in_host_memory_and_loaded(cache) {
        let mut world = world(cache, 6, 20);
        let mut a = world.start(&tokens(0..13));
        world.release(&mut a);
        flush(&mut world, 100);
        assert_eq!((world.kv.counts().evicted, world.kv.counts().saved), (3, 3));
        assert_eq!(world.hit(&tokens(0..13)), 12, "host hits are hits");
        let mut b = world.start(&tokens(0..13));
        assert_eq!((b.hit, world.moves.loads.len(), world.kv.counts().loaded), (12, 3, 3));
        world.check([&b]);
        // Known on the device again.
        let mut hits = Hits::default();
        world.kv.find_prefix(b.prefix(), 13, &mut hits);
        assert_eq!((hits.tokens(), hits.host_blocks()), (12, 0));
        world.release(&mut b);
        world.check([]);
    }

    fn a_prefix_goes_on_in_host_memory_where_the_device_ends(cache) {
        let mut world = world(cache, 6, 20);
        let mut a = world.start(&tokens(0..17)); // 5 blocks, 4 known
        world.release(&mut a);
        let mut b = world.start(&tokens(100..111)); // evicts the last two of them
        world.release(&mut b);
        let c = world.start(&tokens(0..17));
        assert_eq!((c.hit, world.moves.loads.len()), (16, 2));
        assert_eq!(world.kv.counts().hit, 2);
        world.check([&c]);
    }

    fn content_is_saved_once(cache) {
        let mut world = world(cache, 4, 20);
        for round in 0..4 {
            let mut a = world.start(&tokens(0..9));
            assert_eq!(a.hit, if round == 0 { 0 } else { 8 });
            world.release(&mut a);
            flush(&mut world, 100);
        }
        // Two blocks of the one, three of the other, however often they come and go.
        assert_eq!((world.kv.tiers()[0].stored, world.kv.counts().saved), (5, 5));
        world.check([]);
    }

    fn host_memory_drops_what_was_unused_the_longest(cache) {
        let mut world = world(cache, 3, 3); // 2 blocks, 3 slots
        for first in [0, 100] {
            let mut a = world.start(&tokens(first..first + 5));
            world.release(&mut a);
        }
        let mut a = world.start(&tokens(0..5)); // found again: newer than the other
        world.release(&mut a);
        for first in [200, 300, 400] {
            let mut a = world.start(&tokens(first..first + 8));
            world.release(&mut a);
        }
        let tier = world.kv.tiers()[0];
        assert_eq!((tier.blocks, tier.used, tier.stored - tier.evicted), (3, 3, 3));
        assert_eq!((world.hit(&tokens(0..5)), world.hit(&tokens(100..105))), (0, 0));
        assert_eq!(world.hit(&tokens(300..309)), 8);
        world.check([]);
    }

    /// What a step loads from is not overwritten by what the same step saves: saves come first.
    fn a_slot_that_is_loaded_from_is_not_saved_to(cache) {
        let mut world = world(cache, 4, 3); // 3 blocks, 3 slots
        let mut a = world.start(&tokens(0..12));
        world.release(&mut a);
        let mut b = world.start(&tokens(100..112)); // all of `a` is in host memory now
        world.release(&mut b);
        // Loads two blocks and evicts three of `b`: there is one slot for those.
        let c = world.start(&tokens(0..9));
        assert_eq!((c.hit, world.moves.loads.len(), world.moves.saves.len()), (8, 2, 1));
        world.check([&c]);
    }

    /// A state is copied from its checkpoint after the loads of the step: none may go there.
    fn a_checkpoint_that_is_copied_from_is_not_loaded_over(cache) {
        let groups = vec![FULL, STATE];
        let mut world = World::of(KvConfig { groups, host_blocks: 20, ..config(cache, 9) });
        let mut a = world.start(&tokens(0..8));
        world.decode(&mut a, &[8]);
        world.release(&mut a);
        let mut other = world.start(&tokens(200..228)); // all 8 blocks
        world.release(&mut other);
        let mut b = world.start(&tokens(100..108));
        world.decode(&mut b, &[108]);
        world.release(&mut b);
        // Two blocks hit, one new, a state, and the checkpoint it is copied from: 3 of 8 are left.
        let (mut a, mut b) = (world.seq(&tokens(0..9)), world.seq(&tokens(100..109)));
        world.begin();
        world.admit(&mut b, 99).unwrap();
        let short = world.admit(&mut a, 99).unwrap_err();
        assert_eq!((b.hit, short.needed, short.free + short.cached), (8, 4, 3));
        world.run();
        world.begin();
        world.admit(&mut a, 99).unwrap();
        world.run();
        assert_eq!((a.hit, world.moves.loads.len()), (8, 3));
        world.check([&a, &b]);
    }

    fn looks_into_host_memory_are_counted_when_they_were_of_use(cache) {
        let mut world = world(cache, 6, 20);
        let mut a = world.start(&tokens(0..13));
        world.release(&mut a);
        flush(&mut world, 100);
        let before = world.kv.tiers()[0];
        (0..5).for_each(|_| assert_eq!(world.hit(&tokens(0..17)), 12));
        assert_eq!(world.kv.tiers()[0], before, "looking is free");
        let b = world.start(&tokens(0..17));
        let after = world.kv.tiers()[0];
        // Three are there, the fourth is not.
        assert_eq!((after.queries - before.queries, after.hits - before.hits), (4, 3));
        world.check([&b]);
    }

    fn a_reset_of_the_cache_empties_host_memory(cache) {
        let mut world = world(cache, 6, 20);
        let mut a = world.start(&tokens(0..13));
        world.release(&mut a);
        flush(&mut world, 100);
        world.kv.reset_prefix_cache();
        assert_eq!((world.hit(&tokens(0..13)), world.kv.tiers()[0].used), (0, 0));
        world.check([]);
    }

    fn a_sequence_goes_to_host_memory_and_comes_back_as_it_was(cache) {
        for groups in [vec![FULL], vec![FULL, sliding(6)], vec![FULL, sliding(6), STATE]] {
            let mut world = World::of(KvConfig { groups, host_blocks: 20, ..config(cache, 25) });
            let mut a = world.start(&tokens(0..14));
            world.decode(&mut a, &[14]);
            let blocks = a.table.len();
            world.begin();
            a.swapped = world.kv.swap_out(&mut a.table, a.computed, &mut world.moves);
            assert!(a.swapped.is_some() && a.table.is_empty());
            assert_eq!(world.moves.saves.len(), blocks, "the partial block too");
            world.run();
            world.kv.reset_prefix_cache();
            let other = world.start(&tokens(100..112));
            world.begin();
            a.push(&[15, 16]);
            world.swap_in(&mut a).unwrap();
            world.run();
            assert_eq!(world.moves.loads.len(), blocks);
            world.decode(&mut a, &[17, 18, 19]);
            world.check([&a, &other]);
            assert_eq!(world.kv.private_host_blocks(), 0);
            world.release(&mut a);
        }
    }

    fn a_sequence_that_does_not_fit_into_host_memory_stays_as_it_is(cache) {
        let mut world = world(cache, 11, 2);
        let mut a = world.start(&tokens(0..9));
        let before = a.table.blocks().to_vec();
        world.begin();
        assert!(world.kv.swap_out(&mut a.table, a.computed, &mut world.moves).is_none());
        assert_eq!((a.table.blocks(), world.moves.is_empty()), (&before[..], true));
        assert_eq!(world.hit(&tokens(0..9)), 8);
        world.check([&a]);
    }

    fn a_swapped_sequence_waits_unharmed_until_there_is_room(cache) {
        let mut world = world(cache, 5, 8);
        let mut a = world.start(&tokens(0..9));
        world.begin();
        a.swapped = world.kv.swap_out(&mut a.table, a.computed, &mut world.moves);
        world.run();
        let mut b = world.start(&tokens(100..109));
        a.push(&[9]);
        world.begin();
        let short = world.swap_in(&mut a).unwrap_err();
        assert_eq!((short.needed, short.free + short.cached), (3, 1));
        assert_eq!(a.swapped.as_ref().unwrap().computed, 9);
        world.release(&mut b);
        world.begin();
        world.swap_in(&mut a).unwrap();
        world.run();
        world.check([&a]);
    }

    fn an_aborted_sequence_gives_its_slots_back(cache) {
        let mut world = world(cache, 11, 8);
        let mut a = world.start(&tokens(0..9));
        world.begin();
        let swapped = world.kv.swap_out(&mut a.table, a.computed, &mut world.moves).unwrap();
        assert_eq!((swapped.len(), world.kv.tiers()[0].used), (3, 3));
        world.kv.drop_swapped(swapped);
        assert_eq!(world.kv.tiers()[0].used, 0);
        world.check([]);
    }

    fn what_was_swapped_before_a_reset_is_void(cache) {
        let mut world = world(cache, 11, 4);
        let mut a = world.start(&tokens(0..9));
        world.begin();
        let swapped = world.kv.swap_out(&mut a.table, a.computed, &mut world.moves).unwrap();
        world.kv.reset();
        let mut b = world.start(&tokens(0..9));
        world.begin();
        let other = world.kv.swap_out(&mut b.table, b.computed, &mut world.moves).unwrap();
        world.kv.drop_swapped(swapped);
        assert_eq!(world.kv.private_host_blocks(), other.len());
        world.check([]);
    }

    /// A block that was forked and is to be copied in the step that swaps its new owner out.
    fn a_copy_that_was_planned_is_saved_from_where_it_still_lies(cache) {
        let mut world = world(cache, 11, 8);
        let mut a = world.start(&tokens(0..6));
        let mut b = world.fork(&a, 6);
        world.begin();
        b.push(&[66]);
        world.grow(&mut b, 1).unwrap();
        world.unplan(&mut b);
        b.swapped = world.kv.swap_out(&mut b.table, b.computed, &mut world.moves);
        world.run();
        world.release(&mut a);
        world.begin();
        world.swap_in(&mut b).unwrap();
        world.run();
        world.check([&b]);
    }

    fn content_from_disk_is_hit_when_it_has_arrived_and_not_before(cache) {
        for groups in [vec![FULL], vec![FULL, sliding(6), STATE]] {
            let count = groups.len();
            let mut world = World::of(KvConfig { groups, host_blocks: 20, ..config(cache, 41) });
            let mut seq = world.seq(&tokens(0..17));
            let wanted = world.kv.disk_wanted(seq.prefix(), 17, &|_| true);
            // The window looks at two blocks, the state is one.
            assert_eq!(wanted.len(), if count == 1 { 4 } else { 4 + 2 + 1 });
            let slots: Vec<_> = wanted.iter().map(|key| world.kv.host_slot_for(*key).unwrap()).collect();
            assert_eq!(world.kv.host_slot_for(wanted[0]), None, "it is on its way");
            assert_eq!(world.hit(&tokens(0..17)), 0);
            for (key, slot) in wanted.iter().zip(slots) {
                let at = seq.chain.hashes().iter().position(|hash| *hash == key.hash()).unwrap();
                world.arrive(slot, key.group(), &seq, at);
            }
            assert_eq!(world.kv.host_slot_for(wanted[0]), None, "it is here");
            assert_eq!(world.kv.disk_wanted(seq.prefix(), 17, &|_| true), []);
            world.start_seq(&mut seq);
            assert_eq!(seq.hit, 16);
            world.decode(&mut seq, &tokens(17..22));
            world.check([&seq]);
        }
    }

    fn disk_is_asked_only_for_what_follows_the_other_tiers(cache) {
        let mut world = world(cache, 11, 8);
        let mut a = world.start(&tokens(0..9));
        world.release(&mut a);
        let seq = world.seq(&tokens(0..25));
        let key = |at: usize| CacheKey::new(&seq.chain.hashes()[at], 0);
        let on_disk = [key(0), key(2), key(3), key(5)];
        let wanted = world.kv.disk_wanted(seq.prefix(), 25, &|key| on_disk.contains(key));
        assert_eq!(wanted, [key(2), key(3)], "the device has the first two, and nobody the fifth");
        let wanted = world.kv.disk_wanted(seq.prefix(), 12, &|key| on_disk.contains(key));
        assert_eq!(wanted, [], "the last token runs in any case");
    }

    fn content_that_did_not_arrive_leaves_no_trace(cache) {
        let mut world = world(cache, 11, 2);
        let seq = world.seq(&tokens(0..13));
        let wanted = world.kv.disk_wanted(seq.prefix(), 13, &|_| true);
        let slots: Vec<_> = wanted.iter().filter_map(|key| world.kv.host_slot_for(*key)).collect();
        assert_eq!(slots.len(), 2, "there are no more");
        slots.into_iter().for_each(|slot| world.kv.host_failed(slot));
        assert_eq!((world.kv.tiers()[0].used, world.hit(&tokens(0..13))), (0, 0));
        world.check([]);
    }

    fn a_table_lists_the_full_blocks_that_can_be_stored(cache) {
        let mut world = World::of(KvConfig { groups: vec![FULL, sliding(6), STATE], ..config(cache, 41) });
        let mut seq = world.start(&tokens(0..8));
        world.decode(&mut seq, &tokens(8..14));
        let keys: Vec<_> = world.kv.keys_of(&seq.table, seq.prefix(), 0).collect();
        let places: Vec<_> = keys.iter().map(|(key, _)| {
            (key.group(), seq.chain.hashes().iter().position(|hash| *hash == key.hash()).unwrap())
        }).collect();
        // Of the window what it still looks at, of the state where it stood at a border.
        assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 2), (2, 1), (2, 2)]);
        assert!(keys.iter().all(|(key, id)| world.kv.pool().key(*id) == Some(*key)));
        assert_eq!(world.kv.keys_of(&seq.table, seq.prefix(), 2).count(), 3);
        world.kv.forget(&seq.table);
        assert_eq!(world.kv.keys_of(&seq.table, seq.prefix(), 0).filter(|(key, _)| key.group() < 2).count(), 0);
    }
}
