//! Cached prefixes: what is hit, what is evicted and when, what it costs.

use super::*;

both! {
    /// One that may not read the cache (its prompt is scored) computes what is cached already, and
    /// goes on: it holds its own blocks, not those of the others too.
    fn who_computes_what_is_cached_holds_its_own_blocks_only(cache) {
        let mut kv = BlockManager::new(config(cache, 12));
        let tokens: Vec<u32> = (0..12).collect();
        let mut chain = HashChain::new(4, ExtraKeys::default());
        chain.extend(&tokens);
        let prefix = Prefix { tokens: &tokens, chain: &chain, priority: 0 };
        let mut tables = Vec::new();
        for len in [8, 12] {
            kv.begin_step(len as u64);
            let mut moves = Moves::default();
            let seq = SeqId { request: RequestId(len as u64), choice: 0 };
            let mut table = kv.admit(seq, &Hits::default(), len, len, 0, &mut moves).unwrap();
            kv.offer(&mut table, prefix, len);
            if len == 8 {
                kv.release(&mut table);
            }
            tables.push(table);
            kv.check(&tables).unwrap();
        }
        assert_eq!(kv.pool().available(), 11 - 3);
        kv.release(&mut tables[1]);
        kv.check(&tables).unwrap();
        let mut hits = Hits::default();
        kv.find_prefix(prefix, 13, &mut hits);
        assert_eq!(hits.tokens(), 12);
    }

    fn a_second_sequence_shares_the_full_blocks_of_a_common_prefix(cache) {
        let mut world = World::new(cache, 11);
        let a = world.start(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let b = world.start(&[1, 2, 3, 4, 5, 6, 7, 8, 10, 11]);
        assert_eq!((b.hit, &b.table.blocks()[..2]), (8, &a.table.blocks()[..2]));
        assert_eq!(world.kv.pool().references(a.table.blocks()[0]), 2);
        let c = world.start(&[9, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(c.hit, 0, "another first token, nothing in common");
        assert_eq!(world.kv.counts().hit, 2);
        world.check([&a, &b, &c]);
    }

    /// A row of the same step: its blocks are written before they are read.
    fn two_equal_prompts_of_one_step_share_their_blocks(cache) {
        let mut world = World::new(cache, 11);
        let (mut a, mut b) = (world.seq(&tokens(0..10)), world.seq(&tokens(0..10)));
        world.begin();
        world.admit(&mut a, 99).unwrap();
        world.admit(&mut b, 99).unwrap();
        world.run();
        assert_eq!((a.hit, b.hit), (0, 8));
        world.check([&a, &b]);
    }

    /// K03: a prompt that is cached to its last token still leaves one block to compute.
    fn k03_a_full_hit_at_a_block_border_leaves_the_last_block_to_run(cache) {
        let mut world = World::new(cache, 11);
        let mut a = world.start(&tokens(0..8));
        world.release(&mut a);
        assert_eq!((world.hit(&tokens(0..8)), world.hit(&tokens(0..9))), (4, 8));
        let b = world.start(&tokens(0..8));
        assert_eq!((b.hit, b.computed), (4, 8));
        world.check([&b]);
    }

    /// K16: an empty cache, an empty prompt, and one too short for a block are plain misses.
    fn k16_nothing_cached_and_nothing_asked_are_misses(cache) {
        let mut world = World::new(cache, 5);
        assert_eq!((world.hit(&[]), world.hit(&[1]), world.hit(&tokens(0..9))), (0, 0, 0));
        let _a = world.start(&[1, 2, 3, 4]);
        assert_eq!((world.hit(&[]), world.hit(&[1, 2, 3, 4])), (0, 0));
    }

    /// K05: the same prompt with an adapter, with a salt, and with neither.
    fn k05_adapters_and_salts_never_hit_each_others_blocks(cache) {
        let mut world = World::new(cache, 41);
        let lora = |path: &str| Some(("name".to_owned(), path.to_owned()));
        let kinds = [
            ExtraKeys::default(),
            ExtraKeys { lora: lora("/a"), ..ExtraKeys::default() },
            ExtraKeys { lora: lora("/b"), ..ExtraKeys::default() },
            ExtraKeys { cache_salt: Some("name".into()), ..ExtraKeys::default() },
        ];
        for round in [0, 8] {
            for keys in &kinds {
                let mut seq = world.seq_with(&tokens(0..9), keys.clone());
                world.start_seq(&mut seq);
                assert_eq!(seq.hit, round, "{keys:?}");
                world.release(&mut seq);
            }
        }
    }

    fn evictable_hits_count_once_against_the_free_blocks(cache) {
        let mut world = World::new(cache, 5); // 4 blocks to own
        let mut a = world.start(&tokens(0..9));
        let b = world.start(&[77]);
        world.release(&mut a);
        // 3 available, 2 of them cached. The prompt needs 4 blocks, 2 of them by hits: 2 + 2 > 3.
        let mut c = world.seq(&tokens(0..14));
        world.begin();
        let short = world.admit(&mut c, 99).unwrap_err();
        assert_eq!(short, Shortage { needed: 4, free: 1, cached: 2, reserved: 0 });
        let mut d = world.seq(&tokens(0..12));
        world.admit(&mut d, 99).unwrap();
        world.run();
        assert_eq!((d.hit, world.kv.pool().available()), (8, 0));
        world.check([&b, &d]);
    }

    fn a_refused_admission_changes_nothing(cache) {
        let mut world = World::new(cache, 6);
        let mut a = world.start(&tokens(0..13));
        let b = world.start(&[77]);
        world.release(&mut a);
        let (order, available) = (world.kv.pool().free_order(), world.kv.pool().available());
        let mut c = world.seq(&tokens(0..30));
        world.begin();
        assert!(world.admit(&mut c, 4).is_err());
        assert_eq!((world.kv.pool().free_order(), world.kv.pool().available()), (order, available));
        assert_eq!(world.hit(&tokens(0..13)), 12, "what it would have hit is still there");
        world.check([&b]);
    }

    fn blocks_of_a_hit_are_not_evicted_to_make_room_for_the_rest_of_the_prompt(cache) {
        let mut world = World::new(cache, 6);
        let mut a = world.start(&tokens(0..9)); // 3 of 5
        world.release(&mut a);
        let b = world.start(&tokens(0..20));
        assert_eq!((b.hit, world.kv.pool().available(), world.kv.counts().evicted), (8, 0, 0));
        world.check([&b]);
    }

    fn owned_blocks_are_never_evicted(cache) {
        let mut world = World::new(cache, 7);
        let a = world.start(&tokens(0..9));
        for other in 1..20 {
            let mut b = world.start(&tokens(other * 100..other * 100 + 9));
            world.release(&mut b);
        }
        assert_eq!(world.hit(&tokens(0..9)), 8);
        world.check([&a]);
    }

    /// The end of a prefix is worth less than its start: it goes first.
    fn a_prefix_is_evicted_from_its_end(cache) {
        let mut world = World::new(cache, 6);
        let mut a = world.start(&tokens(0..16)); // 4 of 5, all known
        world.release(&mut a);
        let hits: Vec<usize> = (1..5).map(|blocks| {
            let mut b = world.start(&tokens(100..100 + blocks * 4 - 1));
            world.release(&mut b);
            world.hit(&tokens(0..17))
        }).collect();
        // Each `b` ends with a block that is not full: no prefix can hit it, and it is used first.
        assert_eq!(hits, [16, 12, 8, 4]);
        world.check([]);
    }

    fn decoded_tokens_are_hit_once_they_fill_a_block(cache) {
        let mut world = World::new(cache, 11);
        let mut a = world.start(&[1, 2, 3]);
        world.decode(&mut a, &[4]);
        assert_eq!(world.hit(&[1, 2, 3, 4, 5]), 4);
        world.decode(&mut a, &[5, 6, 7]);
        assert_eq!(world.hit(&tokens(1..10)), 4);
        world.decode(&mut a, &[8]);
        assert_eq!(world.hit(&tokens(1..10)), 8);
        world.check([&a]);
    }

    /// Two that run side by side compute the same; a third finds one of them.
    fn equal_blocks_stay_private_and_the_first_is_the_one_that_is_found(cache) {
        let mut world = World::new(cache, 20);
        let (mut a, mut b) = (world.seq(&tokens(0..6)), world.seq(&tokens(0..6)));
        world.begin();
        world.admit(&mut a, 2).unwrap();
        world.admit(&mut b, 2).unwrap();
        world.run();
        world.begin();
        world.grow(&mut a, 4).unwrap();
        world.grow(&mut b, 4).unwrap();
        world.run();
        assert_ne!(a.table.blocks(), b.table.blocks());
        let c = world.start(&tokens(0..5));
        assert_eq!(c.table.blocks()[0], a.table.blocks()[0]);
        world.check([&a, &b, &c]);
    }

    /// The block before what `b` alone has made known is `a`'s; when `a` goes, it must stay.
    fn what_follows_an_equal_block_of_somebody_else_can_be_hit(cache) {
        let mut world = World::new(cache, 20);
        let (mut a, mut b) = (world.seq(&tokens(0..4)), world.seq(&tokens(0..8)));
        world.begin();
        world.admit(&mut a, 2).unwrap();
        world.admit(&mut b, 2).unwrap();
        world.run();
        world.begin();
        world.grow(&mut a, 2).unwrap();
        world.grow(&mut b, 2).unwrap();
        world.run();
        world.begin();
        world.grow(&mut b, 4).unwrap();
        world.run();
        world.release(&mut a);
        world.check([&b]);
        let c = world.start(&tokens(0..9));
        assert_eq!(c.hit, 8);
        world.release(&mut b);
        world.check([&c]);
        assert_eq!(world.hit(&tokens(0..9)), 8);
    }

    /// Its content was somebody else's to be found until that one was evicted.
    fn a_block_that_becomes_known_late_is_kept_for_all_who_share_it(cache) {
        let mut world = World::new(cache, 8);
        let (mut a, mut b) = (world.seq(&tokens(0..4)), world.seq(&tokens(0..8)));
        world.begin();
        world.admit(&mut a, 2).unwrap();
        world.admit(&mut b, 2).unwrap();
        world.run();
        world.begin();
        world.grow(&mut a, 2).unwrap();
        world.grow(&mut b, 2).unwrap();
        world.run();
        let mut c = world.fork(&b, 4);
        world.release(&mut a);
        world.kv.reset_prefix_cache();
        world.begin();
        world.grow(&mut b, 4).unwrap();
        world.run();
        world.check([&b, &c]);
        world.release(&mut b);
        let d = world.start(&tokens(100..116));
        world.decode(&mut c, &[50, 51]);
        world.check([&c, &d]);
    }

    fn what_is_forgotten_is_never_hit_and_what_is_owned_stays_owned(cache) {
        let mut world = World::new(cache, 11);
        let a = world.start(&tokens(0..5));
        world.kv.forget(&a.table);
        assert_eq!(world.hit(&tokens(0..5)), 0);
        let b = world.start(&tokens(0..5));
        assert_eq!(b.hit, 0);
        assert_eq!(world.hit(&tokens(0..5)), 4, "computed anew, and right this time");
        world.check([&a, &b]);
    }

    /// K17: numbers that went wrong infect all that is computed from them.
    fn k17_what_is_computed_after_a_wrong_block_is_not_offered_either(cache) {
        let mut world = World::new(cache, 21);
        let mut a = world.start(&tokens(0..6));
        let mut fork = world.fork(&a, 6);
        world.kv.forget(&a.table);
        world.decode(&mut a, &tokens(6..14));
        world.decode(&mut fork, &tokens(6..14));
        assert_eq!(world.hit(&tokens(0..14)), 0);
        world.check([&a, &fork]);
        world.release(&mut a);
        world.release(&mut fork);
        let b = world.start(&tokens(0..14));
        assert_eq!((b.hit, world.hit(&tokens(0..14))), (0, 12), "the blocks themselves are as good as new");
    }

    fn forgetting_one_leaves_another_prompt_cached_and_protected(cache) {
        let mut world = World::new(cache, 11);
        let (a, b) = (world.start(&tokens(0..9)), world.start(&tokens(100..109)));
        world.kv.forget(&a.table);
        assert_eq!((world.hit(&tokens(0..9)), world.hit(&tokens(100..109))), (0, 8));
        let c = world.start(&tokens(200..216)); // all that is left
        world.check([&a, &b, &c]);
        assert_eq!(world.hit(&tokens(100..109)), 8);
    }

    fn a_reset_of_the_cache_keeps_what_is_owned(cache) {
        let mut world = World::new(cache, 11);
        let (mut a, mut b) = (world.start(&tokens(0..9)), world.start(&tokens(100..109)));
        world.release(&mut a);
        world.kv.reset_prefix_cache();
        assert_eq!((world.hit(&tokens(0..9)), world.hit(&tokens(100..109))), (0, 8));
        world.release(&mut b);
        world.kv.reset_prefix_cache();
        assert_eq!(world.hit(&tokens(100..109)), 0);
        assert_eq!((world.kv.pool().cached(), world.kv.pool().available()), (0, 10));
        world.check([]);
    }

    fn a_reset_takes_everything_back(cache) {
        let mut world = World::new(cache, 11);
        let _void = [world.start(&tokens(0..9)), world.start(&tokens(0..12))];
        world.kv.reset();
        world.check([]);
        assert_eq!((world.kv.pool().available(), world.hit(&tokens(0..9))), (10, 0));
        assert_eq!(world.kv.counts().freed, 4);
        let a = world.start(&tokens(0..9));
        world.check([&a]);
    }

    /// A row that was planned and then gave way never ran: nobody may hit what it would have written.
    fn what_a_withdrawn_row_offered_is_not_hit(cache) {
        let mut world = World::new(cache, 11);
        let mut a = world.start(&tokens(0..5));
        a.push(&tokens(5..13));
        world.begin();
        world.grow(&mut a, 8).unwrap();
        assert_eq!(world.hit(&tokens(0..14)), 12);
        world.unplan(&mut a);
        world.kv.withdraw(&mut a.table, a.computed);
        assert_eq!(world.hit(&tokens(0..14)), 4, "what ran before is still good");
        world.check([&a]);
        world.begin();
        world.grow(&mut a, 8).unwrap();
        world.run();
        assert_eq!(world.hit(&tokens(0..14)), 12);
    }

    /// K02: a length that divides by the block size, then one more.
    fn k02_blocks_are_counted_right_at_a_border(cache) {
        let mut world = World::new(cache, 6);
        let mut a = world.start(&tokens(0..8));
        assert_eq!((a.table.len(), world.kv.blocks_for(8), world.kv.blocks_for(9)), (2, 2, 3));
        world.decode(&mut a, &[8]);
        assert_eq!(a.table.len(), 3);
        world.release(&mut a);
        assert_eq!((world.kv.pool().available(), world.kv.pool().cached()), (5, 2));
        world.check([]);
    }

    /// K02: a recycled block has lost its old name.
    fn k02_a_recycled_block_is_not_hit_under_its_old_content(cache) {
        let mut world = World::new(cache, 3);
        let mut a = world.start(&tokens(0..8));
        world.release(&mut a);
        let mut b = world.start(&tokens(100..108));
        assert_eq!((world.hit(&tokens(0..9)), world.kv.counts().evicted), (0, 2));
        world.check([&b]);
        world.release(&mut b);
        world.check([]);
    }

    /// K01: as many blocks at the end as at the start, whatever came between.
    fn k01_every_block_comes_back(cache) {
        let mut world = World::new(cache, 31);
        for round in 0..40u32 {
            let mut a = world.start(&tokens(round..round + 9 + round % 5));
            let mut b = world.fork(&a, a.computed);
            world.decode(&mut a, &[1, 2, 3]);
            world.decode(&mut b, &[4, 5, 6]);
            world.release(&mut a);
            world.release(&mut b);
            assert_eq!(world.kv.pool().available(), 30);
        }
        world.check([]);
    }

    fn any_block_size_will_do(cache) {
        for block_size in [1, 2, 16, 256] {
            let mut world = World::of(KvConfig { block_size, ..config(cache, 40) });
            let prompt = tokens(0..(2 * block_size + 1) as u32);
            let mut a = world.start(&prompt);
            world.decode(&mut a, &[1, 2, 3]);
            let b = world.start(&prompt);
            assert_eq!(b.hit, 2 * block_size, "blocks of {block_size}");
            world.check([&a, &b]);
        }
    }
}

#[test]
fn without_caching_nothing_is_known() {
    let mut world = World::new(PrefixCache::Off, 6);
    let mut a = world.start(&tokens(0..5));
    world.release(&mut a);
    assert_eq!((world.kv.pool().cached(), world.hit(&tokens(0..5))), (0, 0));
    let b = world.start(&tokens(0..5));
    world.check([&b]);
}

#[test]
fn a_prompt_that_fits_only_in_part_is_not_admitted() {
    let mut kv = BlockManager::new(config(PrefixCache::Off, 5));
    let (seq, none, moves) = (SeqId::default(), Hits::default(), &mut Moves::default());
    assert_eq!(kv.admit(seq, &none, 4, 20, 0, moves).unwrap_err().needed, 5);
    assert_eq!(kv.admit(seq, &none, 4, 8, 3, moves).unwrap_err().reserved, 3);
    assert_eq!(kv.admit(seq, &none, 4, 8, 2, moves).unwrap().blocks(), [1]);
}

/// Ten blocks, six and three of them used: the worked example of vLLM's `test_evict`.
#[test]
fn blocks_are_used_again_in_the_order_unknown_then_least_recently_used() {
    let mut world = World::new(PrefixCache::Hash, 11);
    let (mut a, mut b) = (world.start(&tokens(0..23)), world.start(&tokens(50..62)));
    assert_eq!((a.table.blocks(), b.table.blocks()), (&[1, 2, 3, 4, 5, 6][..], &[7, 8, 9][..]));
    world.release(&mut a);
    assert_eq!(world.kv.pool().free_order(), [6, 10, 5, 4, 3, 2, 1]);
    world.release(&mut b);
    assert_eq!(world.kv.pool().free_order(), [6, 10, 5, 4, 3, 2, 1, 9, 8, 7]);
    // A hit takes its blocks out of the middle.
    let c = world.start(&tokens(0..9));
    assert_eq!((c.hit, c.table.blocks()), (8, &[1, 2, 6][..]));
    assert_eq!(world.kv.pool().free_order(), [10, 5, 4, 3, 9, 8, 7]);
}

#[test]
fn the_radix_tree_evicts_what_its_policy_names() {
    // Two cached prompts, the first hit twice more and of higher priority.
    let evicted_first = |eviction| {
        let mut world = World::of(KvConfig { eviction, ..config(PrefixCache::Radix, 6) });
        for (first, priority) in [(0, 5), (100, 1), (0, 5), (0, 5), (100, 1)] {
            let mut seq = world.seq(&tokens(first..first + 5));
            seq.priority = priority;
            world.start_seq(&mut seq);
            world.release(&mut seq);
        }
        let _other = world.start(&tokens(200..215)); // 4 of 5: one cached block must go
        match (world.hit(&tokens(0..5)), world.hit(&tokens(100..105))) {
            (0, 4) => "first",
            (4, 0) => "second",
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(evicted_first(EvictionPolicy::Lru), "first");
    assert_eq!(evicted_first(EvictionPolicy::Mru), "second");
    assert_eq!(evicted_first(EvictionPolicy::Fifo), "first");
    assert_eq!(evicted_first(EvictionPolicy::Filo), "second");
    assert_eq!(evicted_first(EvictionPolicy::Lfu), "second");
    assert_eq!(evicted_first(EvictionPolicy::Slru), "second");
    assert_eq!(evicted_first(EvictionPolicy::Priority), "second");
}
