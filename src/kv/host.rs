use super::queue::Queue;
use super::{CacheKey, HostSlot};
use crate::protocol::{Medium, TierView};
use std::collections::HashMap;

/// Blocks in host memory, by number: evicted content that a prefix may still hit, blocks of
/// swapped-out sequences, and what is on its way from disk.
#[derive(Debug)]
pub struct HostPool {
    slots: Vec<Slot>,
    free: Queue,
    /// Cached and not pinned, the least recently used in front.
    cached: Queue,
    found: HashMap<CacheKey, HostSlot>,
    pub queries: u64,
    pub hits: u64,
    stored: u64,
    evicted: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    holds: Use,
    /// Moves that will still read it.
    pins: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    Nothing,
    Cached(CacheKey),
    /// A block of a swapped-out sequence.
    Private,
    /// Content on its way here.
    Arriving(CacheKey),
}

/// A slot to write to, and what it held until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSlot {
    pub slot: HostSlot,
    pub evicted: Option<CacheKey>,
}

impl HostPool {
    pub fn new(slots: usize) -> Self {
        let mut free = Queue::new(slots);
        (0..slots as HostSlot).for_each(|slot| free.push_back(slot));
        Self {
            slots: vec![Slot::default(); slots],
            free,
            cached: Queue::new(slots),
            found: HashMap::with_capacity(slots),
            queries: 0,
            hits: 0,
            stored: 0,
            evicted: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        !self.slots.is_empty()
    }

    pub fn find(&self, key: &CacheKey) -> Option<HostSlot> {
        self.found.get(key).copied()
    }

    /// Slots that can be written to now.
    pub fn room(&self) -> usize {
        self.free.len() + self.cached.len()
    }

    /// Room for content that leaves the device; none where it is here already or nothing is left.
    pub fn store(&mut self, key: CacheKey) -> Option<NewSlot> {
        if let Some(slot) = self.find(&key) {
            if self.cached.remove(slot) {
                self.cached.push_back(slot);
            }
            return None;
        }
        let new = self.take(Use::Cached(key))?;
        self.found.insert(key, new.slot);
        self.cached.push_back(new.slot);
        self.stored += 1;
        Some(new)
    }

    pub fn take_private(&mut self) -> Option<NewSlot> {
        self.take(Use::Private)
    }

    pub fn drop_private(&mut self, slot: HostSlot) {
        debug_assert_eq!(self.slots[slot as usize].holds, Use::Private);
        self.empty(slot);
    }

    /// A slot for content that comes from elsewhere. None where it is here or under way already.
    pub fn reserve(&mut self, key: CacheKey) -> Option<NewSlot> {
        let arriving = self.slots.iter().any(|slot| slot.holds == Use::Arriving(key));
        if arriving || self.found.contains_key(&key) {
            return None;
        }
        self.take(Use::Arriving(key))
    }

    /// The content is here: a prefix may hit it. Gives its key, where it became known.
    pub fn arrived(&mut self, slot: HostSlot) -> Option<CacheKey> {
        let Use::Arriving(key) = self.slots[slot as usize].holds else { return None };
        if self.found.contains_key(&key) {
            // Evicted from the device meanwhile.
            self.empty(slot);
            return None;
        }
        self.slots[slot as usize].holds = Use::Cached(key);
        self.found.insert(key, slot);
        self.cached.push_back(slot);
        self.stored += 1;
        Some(key)
    }

    pub fn failed(&mut self, slot: HostSlot) {
        if matches!(self.slots[slot as usize].holds, Use::Arriving(_)) {
            self.empty(slot);
        }
    }

    /// Nothing may be written to the slot until it is unpinned.
    pub fn pin(&mut self, slot: HostSlot) {
        self.slots[slot as usize].pins += 1;
        self.cached.remove(slot);
    }

    pub fn unpin(&mut self, slot: HostSlot) {
        let Slot { holds, pins } = &mut self.slots[slot as usize];
        *pins -= 1;
        match (holds, *pins) {
            (Use::Cached(_), 0) => self.cached.push_back(slot),
            (Use::Nothing, 0) => self.free.push_back(slot),
            _ => {}
        }
    }

    /// Forgets everything a prefix could hit.
    pub fn forget_cached(&mut self, forgotten: &mut Vec<CacheKey>) {
        for (key, slot) in std::mem::take(&mut self.found) {
            forgotten.push(key);
            self.cached.remove(slot);
            self.empty(slot);
        }
        forgotten.sort_unstable();
    }

    /// Forgets all but what is on its way here: the device did not send that.
    pub fn reset(&mut self, forgotten: &mut Vec<CacheKey>) {
        self.forget_cached(forgotten);
        for slot in 0..self.slots.len() as HostSlot {
            self.slots[slot as usize].pins = 0;
            if !matches!(self.slots[slot as usize].holds, Use::Arriving(_)) && !self.free.contains(slot) {
                self.empty(slot);
            }
        }
    }

    pub fn view(&self) -> TierView {
        let blocks = self.slots.len();
        TierView {
            medium: Medium::Host,
            blocks,
            used: blocks - self.free.len(),
            queries: self.queries,
            hits: self.hits,
            stored: self.stored,
            evicted: self.evicted,
        }
    }

    fn take(&mut self, holds: Use) -> Option<NewSlot> {
        let (slot, evicted) = match self.free.pop_front() {
            Some(slot) => (slot, None),
            None => {
                let slot = self.cached.pop_front()?;
                let Use::Cached(key) = self.slots[slot as usize].holds else { unreachable!("it is cached") };
                self.found.remove(&key);
                self.evicted += 1;
                (slot, Some(key))
            }
        };
        self.slots[slot as usize].holds = holds;
        Some(NewSlot { slot, evicted })
    }

    fn empty(&mut self, slot: HostSlot) {
        self.slots[slot as usize].holds = Use::Nothing;
        if self.slots[slot as usize].pins == 0 {
            self.free.push_back(slot);
        }
    }

    /// Recounts; `pins[slot]` is how many moves still read it.
    pub fn check(&self, pins: &[u32]) -> Result<(), String> {
        let mut cached = 0;
        for (id, slot) in (0..).zip(&self.slots) {
            let pinned = slot.pins > 0;
            let place = match slot.holds {
                Use::Nothing => (!pinned, false),
                Use::Cached(key) => {
                    cached += 1;
                    if self.find(&key) != Some(id) {
                        return Err(format!("host slot {id} cannot be found"));
                    }
                    (false, !pinned)
                }
                Use::Private | Use::Arriving(_) => (false, false),
            };
            if place != (self.free.contains(id), self.cached.contains(id)) {
                return Err(format!("host slot {id}, {slot:?}, is in the wrong list"));
            }
            if slot.pins != pins[id as usize] {
                return Err(format!("host slot {id} has {} pins, {} moves", slot.pins, pins[id as usize]));
            }
        }
        if cached != self.found.len() {
            return Err(format!("{} contents for {cached} cached host slots", self.found.len()));
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.found.len()
    }

    #[cfg(test)]
    pub fn private(&self) -> usize {
        self.slots.iter().filter(|slot| slot.holds == Use::Private).count()
    }
}
