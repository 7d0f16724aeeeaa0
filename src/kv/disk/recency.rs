use super::CacheKey;
use std::collections::{BTreeMap, HashMap};

/// Which blocks are on disk, and in which order they were last used.
#[derive(Debug, Default)]
pub struct Recency {
    used: HashMap<CacheKey, u64>,
    order: BTreeMap<u64, CacheKey>,
    clock: u64,
}

impl Recency {
    pub fn contains(&self, key: &CacheKey) -> bool {
        self.used.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Adds it, or makes it the most recent one.
    pub fn touch(&mut self, key: CacheKey) {
        self.clock += 1;
        if let Some(before) = self.used.insert(key, self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, key);
    }

    pub fn remove(&mut self, key: &CacheKey) {
        if let Some(used) = self.used.remove(key) {
            self.order.remove(&used);
        }
    }

    pub fn oldest(&self) -> Option<CacheKey> {
        self.order.values().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> CacheKey {
        CacheKey::from_bytes([n; 36])
    }

    #[test]
    fn the_oldest_is_the_one_that_was_used_last_before_all_others() {
        let mut recency = Recency::default();
        for n in [1, 2, 3, 1] {
            recency.touch(key(n));
        }
        assert_eq!((recency.len(), recency.oldest()), (3, Some(key(2))));
        recency.remove(&key(2));
        recency.remove(&key(2));
        assert_eq!((recency.len(), recency.oldest(), recency.contains(&key(2))), (2, Some(key(3)), false));
    }
}
