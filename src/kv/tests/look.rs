//! A look inside: what a block holds, and the tree of cached prefixes, whichever index is in use.

use super::*;

fn runs(world: &World) -> Vec<(Option<usize>, Vec<u32>, u32)> {
    let (runs, left_out) = world.kv.cached_runs(99);
    assert_eq!(left_out, 0);
    for run in &runs {
        assert_eq!(run.tokens, 4 * run.blocks.len());
    }
    let seen = |run: CachedRun| (run.parent, run.first, run.references);
    runs.into_iter().map(seen).collect()
}

fn chain(seq: &Seq, blocks: usize) -> Vec<u64> {
    seq.chain.hashes()[..blocks].iter().map(|hash| hash.short()).collect()
}

both! {
    fn prefixes_branch_where_sequences_part(cache) {
        let mut world = World::new(cache, 21);
        let mut a = world.start(&tokens(0..13));
        let other: Vec<u32> = (0..8).chain(50..55).collect();
        let b = world.start(&other);
        let _c = world.start(&tokens(30..35));
        let seen = runs(&world);
        let wanted = [
            (None, tokens(0..8), 2),
            (Some(0), tokens(8..12), 1),
            (Some(0), tokens(50..54), 1),
            (None, tokens(30..34), 1),
        ];
        assert_eq!(seen, wanted);
        world.release(&mut a);
        let seen = runs(&world);
        assert_eq!((seen[0].2, seen[1].2), (1, 0), "cached, and owned by one less");

        // Nobody owns the last block of the first: what it holds is known all the same.
        let (list, _) = world.kv.cached_runs(99);
        let last = list[1].blocks[0];
        assert_eq!(world.kv.cached_tokens(last), Some(&[8, 9, 10, 11][..]));
        assert_eq!(world.kv.cached_chain(last), chain(&a, 3));
        assert_eq!(world.kv.cached_chain(list[0].blocks[1]), chain(&b, 2));
        assert_eq!(list[1].used, world.kv.view(last).used);

        // The last block of a sequence that is not full is nobody's to find.
        let partial = b.table.blocks()[3];
        assert_eq!((world.kv.cached_tokens(partial), world.kv.cached_chain(partial)), (None, vec![]));
        assert_eq!(world.kv.cached_tokens(0), None);
    }

    fn what_is_forgotten_is_not_shown(cache) {
        let mut world = World::new(cache, 21);
        let mut a = world.start(&tokens(0..9));
        world.release(&mut a);
        world.kv.reset_prefix_cache();
        assert!(runs(&world).is_empty());
        let block = 1;
        assert_eq!((world.kv.cached_tokens(block), world.kv.cached_chain(block)), (None, vec![]));
    }

    fn only_the_newest_are_kept(cache) {
        let mut world = World::new(cache, 99);
        for i in 0..10 {
            let mut seq = world.start(&tokens(i * 100..i * 100 + 5));
            world.release(&mut seq);
        }
        let (kept, left_out) = world.kv.cached_runs(3);
        let mut first: Vec<u32> = kept.iter().map(|run| run.first[0]).collect();
        first.sort_unstable();
        assert_eq!((first, left_out), (vec![700, 800, 900], 7));
    }

    fn windows_beside_full_attention_show_the_full_prefix(cache) {
        let mut world = World::of(KvConfig { groups: vec![sliding(5), FULL], ..config(cache, 41) });
        let a = world.start(&tokens(0..13));
        assert_eq!(runs(&world), [(None, tokens(0..12), 1)]);
        for group in 0..2 {
            let block = a.table.group(group)[2];
            assert_eq!(world.kv.cached_tokens(block), Some(&[8, 9, 10, 11][..]), "{group}");
            assert_eq!(world.kv.cached_chain(block).last(), chain(&a, 3).last(), "{group}");
        }
    }

    fn a_state_has_a_name_and_no_tokens(cache) {
        let mut world = World::of(KvConfig { groups: vec![FULL, STATE], ..config(cache, 41) });
        let mut a = world.start(&tokens(0..8));
        let state = a.table.group(1)[1];
        world.decode(&mut a, &[8]);
        assert_eq!(world.kv.cached_tokens(state), None);
        assert_eq!(world.kv.cached_chain(state), chain(&a, 2)[1..]);
        assert_eq!(runs(&world), [(None, tokens(0..8), 1)]);
    }
}

#[test]
fn without_a_cache_there_is_no_tree() {
    let mut world = World::new(PrefixCache::Off, 21);
    world.start(&tokens(0..9));
    assert!(runs(&world).is_empty());
}
