/// Ids in an order, each at most once. A doubly linked list threaded through one array, so that an
/// id in the middle leaves as fast as one at an end.
#[derive(Debug)]
pub struct Queue {
    /// One for each id, then the two ends: the `next` of the ends is the front, their `previous`
    /// the back. An id that is not queued is linked to itself.
    links: Vec<Link>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

impl Queue {
    /// Empty, for ids below `ids`.
    pub fn new(ids: usize) -> Self {
        Self { links: (0..=ids as u32).map(|id| Link { previous: id, next: id }).collect(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, id: u32) -> bool {
        self.links[id as usize].next != id
    }

    pub fn front(&self) -> Option<u32> {
        Some(self.links[self.ends() as usize].next).filter(|id| *id != self.ends())
    }

    pub fn push_front(&mut self, id: u32) {
        let ends = self.ends();
        self.link(id, ends, self.links[ends as usize].next);
    }

    pub fn push_back(&mut self, id: u32) {
        let ends = self.ends();
        self.link(id, self.links[ends as usize].previous, ends);
    }

    pub fn pop_front(&mut self) -> Option<u32> {
        let id = self.front()?;
        self.remove(id);
        Some(id)
    }

    /// Gives back whether the id was queued.
    pub fn remove(&mut self, id: u32) -> bool {
        let Link { previous, next } = self.links[id as usize];
        if next == id {
            return false;
        }
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.links[id as usize] = Link { previous: id, next: id };
        self.len -= 1;
        true
    }

    /// From front to back.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.front(), |id| {
            Some(self.links[*id as usize].next).filter(|id| *id != self.ends())
        })
    }

    fn ends(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    fn link(&mut self, id: u32, previous: u32, next: u32) {
        debug_assert!(id != self.ends() && !self.contains(id), "id {id} is queued already");
        self.links[id as usize] = Link { previous, next };
        self.links[previous as usize].next = id;
        self.links[next as usize].previous = id;
        self.len += 1;
    }
}
