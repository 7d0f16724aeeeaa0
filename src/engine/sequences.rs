use super::sequence::Sequence;
use std::ops::{Index, IndexMut};

/// Every sequence the scheduler knows, in one place that does not move: queues and plans hold keys.
#[derive(Debug, Default)]
pub struct Sequences {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Names a sequence for as long as it lives; a key of one that is gone finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u32,
    generation: u32,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    seq: Option<Sequence>,
}

impl Sequences {
    pub fn insert(&mut self, seq: Sequence) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.seq = Some(seq);
        Key { slot, generation: place.generation }
    }

    pub fn remove(&mut self, key: Key) -> Option<Sequence> {
        let place =
            self.slots.get_mut(key.slot as usize).filter(|place| place.generation == key.generation)?;
        let seq = place.seq.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(seq)
    }

    pub fn get(&self, key: Key) -> Option<&Sequence> {
        let place = self.slots.get(key.slot as usize).filter(|place| place.generation == key.generation)?;
        place.seq.as_ref()
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Sequence> {
        let place =
            self.slots.get_mut(key.slot as usize).filter(|place| place.generation == key.generation)?;
        place.seq.as_mut()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// In no order that means anything.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.slots.iter_mut().filter_map(|slot| slot.seq.as_mut())
    }

    pub fn clear(&mut self) {
        for (slot, place) in (0..).zip(&mut self.slots) {
            if place.seq.take().is_some() {
                place.generation = place.generation.wrapping_add(1);
                self.free.push(slot);
            }
        }
    }
}

impl Index<Key> for Sequences {
    type Output = Sequence;

    fn index(&self, key: Key) -> &Sequence {
        self.get(key).expect("queues hold keys of living sequences")
    }
}

impl IndexMut<Key> for Sequences {
    fn index_mut(&mut self, key: Key) -> &mut Sequence {
        self.get_mut(key).expect("queues hold keys of living sequences")
    }
}
