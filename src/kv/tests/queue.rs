//! The list of blocks that nobody owns.

use crate::kv::queue::Queue;
use proptest::prelude::*;
use std::collections::VecDeque;

fn order(queue: &Queue) -> Vec<u32> {
    queue.iter().collect()
}

fn filled(ids: u32) -> Queue {
    let mut queue = Queue::new(ids as usize);
    (0..ids).for_each(|id| queue.push_back(id));
    queue
}

#[test]
fn an_empty_queue_gives_nothing() {
    for mut queue in [Queue::new(0), Queue::new(3)] {
        assert_eq!((queue.len(), queue.front(), queue.pop_front()), (0, None, None));
    }
}

#[test]
fn ids_come_out_in_the_order_they_went_in() {
    let mut queue = filled(3);
    assert_eq!([queue.pop_front(), queue.pop_front(), queue.pop_front()], [Some(0), Some(1), Some(2)]);
    assert_eq!((queue.pop_front(), queue.len()), (None, 0));
}

#[test]
fn what_is_put_in_front_comes_out_first() {
    let mut queue = Queue::new(4);
    queue.push_back(2);
    queue.push_front(3);
    queue.push_front(0);
    assert_eq!(order(&queue), [0, 3, 2]);
}

#[test]
fn an_id_leaves_from_the_front_the_middle_and_the_back() {
    let mut queue = filled(5);
    assert!(queue.remove(2) && queue.remove(0) && queue.remove(4));
    assert_eq!((order(&queue), queue.len()), (vec![1, 3], 2));
    assert!(!queue.remove(2), "it is out already");
    assert!(!queue.contains(2) && queue.contains(3));
}

#[test]
fn a_drained_queue_can_be_filled_again() {
    let mut queue = filled(3);
    while queue.pop_front().is_some() {}
    [2, 0, 1].into_iter().for_each(|id| queue.push_back(id));
    assert_eq!(order(&queue), [2, 0, 1]);
}

proptest! {
    #[test]
    fn it_is_the_same_as_a_slow_queue(acts in prop::collection::vec((0u32..8, 0u8..4), 0..100)) {
        let (mut queue, mut slow) = (Queue::new(8), VecDeque::new());
        for (id, act) in acts {
            match act {
                0 if !slow.contains(&id) => { queue.push_front(id); slow.push_front(id); }
                1 if !slow.contains(&id) => { queue.push_back(id); slow.push_back(id); }
                2 => prop_assert_eq!(queue.pop_front(), slow.pop_front()),
                3 => {
                    prop_assert_eq!(queue.remove(id), slow.contains(&id));
                    slow.retain(|x| *x != id);
                }
                _ => {}
            }
            prop_assert_eq!(order(&queue), slow.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(queue.len(), slow.len());
        }
    }
}
