use crate::base::mix;
use crate::protocol::TokenId;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

/// Where words of one text were encoded before: prose says most words again and again.
pub(super) struct Words<'t> {
    seen: HashMap<&'t str, Range<usize>, Seeded>,
}

/// Longer words hardly come again.
const LONGEST: usize = 64;

impl<'t> Words<'t> {
    pub fn new() -> Self {
        Self { seen: HashMap::with_hasher(Seeded(RandomState::new().hash_one(0))) }
    }

    /// Appends the ids of `word`, which `encode` finds where they are not known.
    pub fn encode(
        &mut self,
        word: &'t str,
        ids: &mut Vec<TokenId>,
        encode: impl FnOnce(&'t str, &mut Vec<TokenId>),
    ) {
        if let Some(range) = self.seen.get(word) {
            return ids.extend_from_within(range.clone());
        }
        let start = ids.len();
        encode(word, ids);
        if word.len() <= LONGEST {
            self.seen.insert(word, start..ids.len());
        }
    }
}

/// Not the same twice, so that no text can bring words that all collide.
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(self.0)
    }
}

struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let last = rest.iter().fold(bytes.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        let all = words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]);
        self.0 = all.fold(self.0, mix);
    }

    fn write_u8(&mut self, _: u8) {
        // What ends a text; its length is in it already.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
