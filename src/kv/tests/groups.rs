//! Layers that keep only a window, or a state: one pool, one table for each group.

use super::*;

fn world(cache: PrefixCache, groups: &[CacheSpec], num_blocks: usize) -> World {
    World::of(KvConfig { groups: groups.to_vec(), ..config(cache, num_blocks) })
}

/// Of a table, which places of a group are kept.
fn kept(seq: &Seq, group: usize) -> Vec<bool> {
    seq.table.group(group).iter().map(|id| *id != 0).collect()
}

both! {
    fn a_window_gives_back_the_blocks_it_has_left(cache) {
        let mut world = world(cache, &[sliding(6)], 11);
        let mut seq = world.start(&tokens(0..9));
        // Position 9 looks at 4..=9: the first block is behind it.
        world.decode(&mut seq, &[9]);
        assert_eq!(kept(&seq, 0), [false, true, true]);
        world.decode(&mut seq, &tokens(10..14));
        assert_eq!(kept(&seq, 0), [false, false, true, true]);
        for token in 14..100 {
            world.decode(&mut seq, &[token]);
            assert!(seq.table.len() <= 3, "{} blocks for a window of 6", seq.table.len());
        }
        world.check([&seq]);
        world.release(&mut seq);
        assert_eq!(world.kv.pool().available(), 10);
    }

    /// The very first position that no longer looks at a block.
    fn a_block_is_kept_while_its_last_token_is_seen(cache) {
        let mut world = world(cache, &[sliding(5)], 11);
        let mut seq = world.start(&tokens(0..7));
        world.decode(&mut seq, &[7]); // position 7 looks at 3..=7
        assert_eq!(kept(&seq, 0), [true, true]);
        world.decode(&mut seq, &[8]); // position 8 looks at 4..=8
        assert_eq!(kept(&seq, 0), [false, true, true]);
    }

    fn the_tables_of_all_groups_have_one_length(cache) {
        let mut world = world(cache, &[FULL, sliding(6), STATE], 41);
        let mut seq = world.start(&tokens(0..5));
        world.decode(&mut seq, &tokens(5..14));
        assert_eq!(kept(&seq, 0), [true; 4]);
        assert_eq!(kept(&seq, 1), [false, false, true, true]);
        assert_eq!(kept(&seq, 2), [false, false, false, true]);
        assert_eq!((seq.table.stride(), seq.table.blocks().len(), seq.table.len()), (4, 12, 7));
        world.check([&seq]);
    }

    fn a_state_is_one_block_however_long_its_sequence_grows(cache) {
        let mut world = world(cache, &[STATE], 3);
        let mut seq = world.start(&tokens(0..5));
        for token in 5..60 {
            world.decode(&mut seq, &[token]);
            assert_eq!(seq.table.len(), 1);
        }
        world.check([&seq]);
    }

    fn blocks_are_counted_over_all_groups(cache) {
        let mut world = world(cache, &[FULL, sliding(6), STATE], 41);
        assert_eq!([0, 1, 4, 5, 40].map(|len| world.kv.blocks_for(len)), [0, 3, 3, 5, 21]);
        let mut seq = world.start(&tokens(0..20));
        world.decode(&mut seq, &[20]);
        // What the window left behind is not asked for again.
        assert_eq!(seq.table.len(), 6 + 3 + 1);
        assert_eq!([21, 24, 25].map(|len| world.kv.missing(&seq.table, len)), [0, 0, 2]);
        assert_eq!(world.kv.missing(&BlockTable::default(), 5), 5);
    }

    /// Which prefix can be gone on with, for every pattern of blocks that are still cached.
    fn a_window_is_hit_where_the_blocks_it_looks_at_are_there(cache) {
        // A window of 6 over blocks of 4 looks at no more than the last 2 before a border.
        for (pattern, hit) in [
            ("......", 0),
            ("x.....", 1),
            ("xx....", 2),
            (".x....", 0),
            (".xx...", 3),
            ("x.x...", 1),
            ("xx.x..", 2),
            ("xx.xx.", 5),
            ("xx.x.x", 2),
            ("....xx", 6),
            (".....x", 0),
            ("xxxxxx", 6),
            ("xxxx.x", 4),
        ] {
            let mut world = world(cache, &[sliding(6)], 11);
            let mut seq = world.start(&tokens(0..24));
            for (id, cached) in seq.table.blocks().to_vec().into_iter().zip(pattern.chars()) {
                if cached == '.' {
                    world.kv.pool.forget(id, &mut Vec::new());
                }
            }
            world.release(&mut seq);
            assert_eq!(world.hit(&tokens(0..25)), hit * 4, "{pattern}");
            let again = world.start(&tokens(0..25));
            let needed = (0..7).map(|at| at >= again.hit / 4 || at + 2 >= again.hit / 4);
            assert_eq!(kept(&again, 0), needed.collect::<Vec<_>>(), "{pattern}");
            world.check([&again]);
        }
    }

    /// Each group may shorten what the others found, until all agree.
    fn a_prefix_suits_all_groups_or_none(cache) {
        // Cached blocks of full attention, of the window, and where a state was kept.
        for (full, window, state, hit) in [
            ("xxxxxx", "xxxxxx", "xxxxxx", 6),
            ("xxxx.x", "xxxxxx", "xxxxxx", 4),
            ("xxxxxx", "xxx...", "xxxxxx", 3),
            ("xxxxxx", "xxxxxx", ".x....", 2),
            ("xxxxxx", "...xx.", "xxx.x.", 5),
            ("xxxxxx", "xx.xx.", ".x.x..", 2),
            ("xxxx..", "xx.xxx", "...x..", 0),
            (".xxxxx", "xxxxxx", "xxxxxx", 0),
        ] {
            let mut world = world(cache, &[FULL, sliding(6), STATE], 60);
            let mut seq = world.start(&tokens(0..24));
            for (group, pattern) in [(0, full), (1, window)] {
                for (at, _) in pattern.char_indices().filter(|(_, cached)| *cached == '.') {
                    world.kv.pool.forget(seq.table.group(group)[at], &mut Vec::new());
                }
            }
            for (at, _) in state.char_indices().filter(|(_, cached)| *cached == 'x') {
                let key = CacheKey::new(&seq.chain.hashes()[at], 2);
                let (id, _) = world.kv.pool.take(seq.id).unwrap();
                assert!(world.kv.pool.know(id, key));
                world.kv.pool.release(id, seq.id);
            }
            world.release(&mut seq);
            assert_eq!(world.hit(&tokens(0..25)), hit * 4, "{full} {window} {state}");
            world.check([]);
        }
    }

    fn a_state_is_cached_at_the_borders_where_it_stood(cache) {
        let mut world = world(cache, &[FULL, STATE], 41);
        let mut a = world.start(&tokens(0..6));
        world.decode(&mut a, &tokens(6..10));
        // It stood at 8, and was written again after: nobody can start at 4.
        assert_eq!((world.hit(&tokens(0..8)), world.hit(&tokens(0..20))), (0, 8));
        let mut b = world.start(&tokens(0..11));
        assert_eq!(b.hit, 8);
        world.decode(&mut b, &tokens(11..14));
        world.decode(&mut a, &tokens(50..60));
        world.check([&a, &b]);
        assert_eq!(world.hit(&tokens(0..20)), 12);
    }

    fn two_can_start_from_one_state(cache) {
        let mut world = world(cache, &[FULL, STATE], 41);
        let mut a = world.start(&tokens(0..8));
        world.decode(&mut a, &[8]);
        let (mut b, mut c) = (world.seq(&tokens(0..10)), world.seq(&tokens(0..9)));
        world.begin();
        world.admit(&mut b, 99).unwrap();
        world.admit(&mut c, 99).unwrap();
        world.run();
        assert_eq!((b.hit, c.hit), (8, 8));
        world.check([&a, &b, &c]);
    }

    fn no_state_is_kept_for_the_cache_at_the_price_of_one_that_runs(cache) {
        let mut world = world(cache, &[STATE], 3);
        let (mut a, mut b) = (world.start(&tokens(0..4)), world.start(&tokens(10..14)));
        world.decode(&mut a, &[4]);
        world.decode(&mut b, &[14]);
        assert_eq!((world.hit(&tokens(0..9)), world.hit(&tokens(10..19))), (0, 0));
        world.release(&mut b);
        world.decode(&mut a, &tokens(5..10));
        assert_eq!(world.hit(&tokens(0..9)), 8);
        world.check([&a]);
    }

    /// vLLM: allocate_with_lookahead. The row that is planned still reads its window and writes its
    /// state; what is taken for later rows is there when they come.
    fn blocks_taken_ahead_slide_no_window_and_set_no_state_aside(cache) {
        let mut world = world(cache, &[FULL, sliding(4), STATE], 41);
        let mut a = world.start(&tokens(0..6));
        for token in 6..30 {
            world.begin();
            a.push(&[token]);
            world.grow(&mut a, 1).unwrap();
            let ahead = (a.computed + 5).div_ceil(4);
            world.kv.reserve(&mut a.table, a.computed + 5, &mut world.moves).unwrap();
            assert_eq!(a.table.stride(), ahead);
            world.run();
            world.check([&a]);
        }
        assert_eq!(world.hit(&tokens(0..27)), 24);
    }

    /// Blocks that a window left behind are the first to go, though the others are older.
    fn cached_blocks_behind_a_window_can_still_be_hit(cache) {
        let mut world = world(cache, &[sliding(5)], 21);
        let mut a = world.start(&tokens(0..9));
        world.decode(&mut a, &tokens(9..30));
        assert_eq!(world.hit(&tokens(0..6)), 4);
        let b = world.start(&tokens(0..6));
        world.check([&a, &b]);
    }
}
