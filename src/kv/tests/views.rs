//! The block map: whose each block is, and what changed since it was last looked at.

use super::*;
use crate::protocol::BlockChange;

fn changes(world: &mut World) -> Vec<BlockChange> {
    let mut changes = Vec::new();
    world.kv.take_changes(&mut changes);
    changes
}

#[test]
fn a_block_with_one_owner_says_whose_it_is_whoever_came_and_went() {
    let mut world = World::new(PrefixCache::Hash, 11);
    let mut a = world.start(&tokens(0..6));
    let block = a.table.blocks()[1];
    let owner = |world: &World| world.kv.view(block).owner;
    assert_eq!(owner(&world), Some(a.id));
    let (mut b, mut c) = (world.fork(&a, 6), world.fork(&a, 6));
    assert_eq!((owner(&world), world.kv.view(block).references), (None, 3));
    world.release(&mut a);
    world.release(&mut c);
    assert_eq!(owner(&world), Some(b.id));
    world.release(&mut b);
    assert_eq!(owner(&world), None);
}

#[test]
fn names_of_owners_survive_any_request_number() {
    let mut kv = BlockManager::new(config(PrefixCache::Off, 3));
    let owner = SeqId { request: RequestId(u64::MAX), choice: u32::MAX };
    let other = SeqId { request: RequestId(u64::MAX - 1), choice: 0 };
    let table = kv.admit(owner, &Hits::default(), 1, 1, 0, &mut Moves::default()).unwrap();
    let mut forked = kv.fork(other, &table, 1);
    kv.check([&table, &forked]).unwrap();
    kv.release(&mut forked);
    assert_eq!(kv.view(1).owner, Some(owner));
}

#[test]
fn changes_are_told_once_and_only_where_something_looks_different() {
    let mut world = World::new(PrefixCache::Hash, 11);
    let mut a = world.start(&tokens(0..6));
    let told = changes(&mut world);
    assert_eq!(told.iter().map(|change| change.block).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((told[0].before.references, told[0].after.references), (0, 1));
    assert_eq!((told[0].before.cached, told[0].after.cached), (false, true));
    assert_eq!(told[0].after, world.kv.view(1));
    assert_eq!(changes(&mut world), []);
    // Shared and given back between two looks: nothing to tell but the step.
    let mut b = world.fork(&a, 6);
    world.release(&mut b);
    assert_eq!(changes(&mut world), []);
    world.begin();
    world.release(&mut a);
    let told = changes(&mut world);
    assert!(told.iter().all(|change| change.after.owner.is_none() && change.after.used == 2));
    assert_eq!(told.len(), 2);
}

both! {
    fn changes_lead_from_one_look_at_all_blocks_to_the_next(cache) {
        let mut world = World::of(KvConfig { groups: vec![FULL, sliding(5)], ..config(cache, 21) });
        let mut map: Vec<_> = (0..21).map(|id| world.kv.view(id)).collect();
        let mut seqs = Vec::new();
        for i in 0..30u32 {
            match i % 5 {
                0 | 2 => {
                    let mut seq = world.seq(&tokens(i % 3..i % 3 + 9));
                    world.begin();
                    if world.admit(&mut seq, 99).is_ok() {
                        seqs.push(seq);
                    }
                    world.run();
                }
                1 => seqs.iter_mut().for_each(|seq| {
                    world.begin();
                    seq.push(&[i]);
                    let _ = world.grow(seq, 1).is_err_and(|_| { seq.tokens.pop(); true });
                    world.run();
                }),
                3 if !seqs.is_empty() => world.release(&mut seqs.remove(0)),
                _ if i == 24 => {
                    world.kv.reset();
                    seqs.clear();
                }
                _ => world.kv.reset_prefix_cache(),
            }
            for change in changes(&mut world) {
                assert_eq!(std::mem::replace(&mut map[change.block as usize], change.after), change.before);
            }
            assert_eq!(map, (0..21).map(|id| world.kv.view(id)).collect::<Vec<_>>());
        }
    }

    fn the_step_of_the_last_use_is_remembered(cache) {
        let mut world = World::new(cache, 11);
        let mut a = world.start(&tokens(0..5)); // step 1
        assert_eq!(world.kv.view(1).used, 1);
        world.decode(&mut a, &[5]); // step 2 takes nothing
        assert_eq!((world.kv.view(1).used, world.kv.view(3).used), (1, 0));
        let mut b = world.start(&tokens(0..5)); // step 3 hits the first block
        assert_eq!((world.kv.view(1).used, world.kv.view(2).used), (3, 1));
        world.begin();
        world.release(&mut b);
        assert_eq!(world.kv.view(1).used, 4);
    }
}
