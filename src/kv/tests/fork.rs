//! Copy-on-write: sequences that continue one past.

use super::*;

both! {
    fn forks_share_all_blocks_and_copy_only_the_partial_one_when_it_is_written(cache) {
        let mut world = World::new(cache, 11);
        let mut parent = world.start(&tokens(0..6));
        let (mut one, mut two) = (world.fork(&parent, 6), world.fork(&parent, 6));
        assert_eq!((world.kv.pool().available(), world.kv.counts().forked), (8, 4));
        world.begin();
        for (i, seq) in [&mut parent, &mut one, &mut two].into_iter().enumerate() {
            seq.push(&[100 + i as u32]);
            world.grow(seq, 1).unwrap();
        }
        world.run();
        // The last of the three finds the block its own.
        assert_eq!((world.moves.copies.len(), world.kv.counts().copied), (2, 2));
        assert_eq!(world.kv.pool().references(parent.table.blocks()[0]), 3);
        world.decode(&mut one, &[7, 8, 9]);
        world.decode(&mut two, &[7, 8, 9]);
        assert_eq!(world.kv.counts().copied, 2, "once is enough");
        world.check([&parent, &one, &two]);
    }

    fn a_fork_at_a_block_border_copies_nothing(cache) {
        let mut world = World::new(cache, 11);
        let mut parent = world.start(&tokens(0..8));
        let mut child = world.fork(&parent, 8);
        world.decode(&mut parent, &[8]);
        world.decode(&mut child, &[9]);
        assert_eq!((world.kv.counts().copied, world.kv.pool().available()), (0, 6));
        world.check([&parent, &child]);
    }

    fn a_copy_that_does_not_fit_changes_nothing(cache) {
        let mut world = World::new(cache, 2);
        let mut parent = world.start(&[1, 2]);
        let child = world.fork(&parent, 2);
        parent.push(&[3]);
        world.begin();
        assert_eq!(world.grow(&mut parent, 1).unwrap_err().needed, 1);
        assert!(world.moves.is_empty());
        world.check([&parent, &child]);
    }

    /// A branch from the middle of a chat: the old branch stays as it was, in the cache too.
    fn a_fork_inside_a_known_block_leaves_that_block_to_the_cache(cache) {
        let mut world = World::new(cache, 11);
        let mut parent = world.start(&tokens(0..9));
        let mut child = world.fork(&parent, 6);
        world.release(&mut parent);
        world.decode(&mut child, &[77, 78, 79]);
        assert_eq!(world.kv.counts().copied, 1);
        assert_eq!(world.hit(&tokens(0..9)), 8);
        assert_eq!(world.hit(&[0, 1, 2, 3, 4, 5, 77, 78, 1]), 8);
        world.check([&child]);
    }

    /// The block is copied from in the step that frees it: it must not be taken meanwhile.
    fn what_is_copied_from_is_not_taken_before_the_next_step(cache) {
        let mut world = World::new(cache, 4);
        let mut parent = world.start(&tokens(0..8));
        let mut child = world.fork(&parent, 6);
        world.release(&mut parent);
        child.push(&[77]);
        world.begin();
        world.grow(&mut child, 1).unwrap();
        assert_eq!(world.kv.pool().available(), 0, "the old block is still to be read");
        world.run();
        world.begin();
        assert_eq!(world.kv.pool().available(), 1);
        world.check([&child]);
    }

    fn forks_of_forks_can_end_in_any_order(cache) {
        let mut world = World::new(cache, 21);
        let mut a = world.start(&tokens(0..7));
        let mut b = world.fork(&a, 7);
        world.decode(&mut b, &[8, 9, 10]);
        let mut c = world.fork(&b, 10);
        let mut d = world.fork(&b, 5);
        world.check([&a, &b, &c, &d]);
        world.release(&mut a);
        world.release(&mut b);
        world.decode(&mut d, &[50, 51]);
        world.check([&c, &d]);
        world.release(&mut d);
        world.decode(&mut c, &[60]);
        world.check([&c]);
        world.release(&mut c);
        assert_eq!(world.kv.pool().available(), 20);
        world.check([]);
    }

    fn a_fork_copies_the_state_and_shares_the_rest(cache) {
        let mut world = World::of(KvConfig { groups: vec![FULL, STATE], ..config(cache, 21) });
        let mut parent = world.start(&tokens(0..6));
        let mut child = world.fork(&parent, 6);
        assert_eq!(world.kv.pool().references(*parent.table.blocks().last().unwrap()), 2);
        world.decode(&mut child, &[7]);
        world.decode(&mut parent, &[8]);
        assert_eq!(world.kv.counts().copied, 2, "the partial block and the state, for the first writer");
        world.check([&parent, &child]);
    }
}

#[test]
fn a_window_that_has_slid_on_and_a_state_that_has_run_on_cannot_be_forked_back() {
    let fork_at = |groups: Vec<CacheSpec>| {
        let mut world = World::of(KvConfig { groups, ..config(PrefixCache::Hash, 41) });
        let mut seq = world.start(&tokens(0..4));
        world.decode(&mut seq, &tokens(4..20));
        (0..=21).filter(|keep| world.kv.can_fork(&seq.table, 20, *keep)).collect::<Vec<_>>()
    };
    assert_eq!(fork_at(vec![FULL]), (0..=20).collect::<Vec<_>>());
    // Positions 14 and on are kept, from the block border at 12 on.
    assert_eq!(fork_at(vec![FULL, sliding(6)]), [0].into_iter().chain(17..=20).collect::<Vec<_>>());
    assert_eq!(fork_at(vec![FULL, STATE]), [0, 20]);
}
