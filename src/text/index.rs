use crate::base::{Texts, mix};
use std::hash::{BuildHasher, RandomState};

/// Finds the place of a text among many. Only places are hashed (open addressing, linear probing): the
/// texts stay where they are, and making it takes some 10 ns for each.
pub(super) struct TextIndex {
    texts: Texts,
    /// A place and 1; 0 is free. A power of two of them, at most two thirds taken.
    slots: Vec<u32>,
    /// Not the same twice, so that no file can bring texts that all want the same slot.
    seed: u64,
}

impl TextIndex {
    /// Of the texts at these places; of equal ones the first is found.
    pub fn new(texts: &Texts, places: impl Iterator<Item = usize>) -> Self {
        let slots = vec![0; (texts.len() * 3 / 2 + 1).next_power_of_two()];
        let mut index = Self { texts: texts.clone(), slots, seed: RandomState::new().hash_one(0) };
        for place in places {
            if let Err(free) = index.look_up(texts.get(place)) {
                index.slots[free] = place as u32 + 1;
            }
        }
        index
    }

    pub fn get(&self, text: &[u8]) -> Option<u32> {
        self.look_up(text).ok()
    }

    /// The text's place, or the slot where it would be.
    fn look_up(&self, text: &[u8]) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash(text) as usize & mask;
        loop {
            match self.slots[slot].checked_sub(1) {
                None => return Err(slot),
                Some(place) if self.texts.get(place as usize) == text => return Ok(place),
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }

    fn hash(&self, text: &[u8]) -> u64 {
        let (words, rest) = text.as_chunks::<8>();
        let last = rest.iter().fold(text.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        words.iter().fold(mix(self.seed, last), |hash, word| mix(hash, u64::from_le_bytes(*word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_found_at_its_first_place_and_no_other_is() {
        let texts: Texts = (0..1000).map(|i| format!("{}", i % 900)).collect();
        let index = TextIndex::new(&texts, (0..1000).filter(|i| i % 7 != 3));
        for i in 0..900 {
            let expected = [i, i + 900].into_iter().find(|i| *i < 1000 && i % 7 != 3);
            assert_eq!(index.get(i.to_string().as_bytes()), expected.map(|i| i as u32), "{i}");
        }
        assert_eq!((index.get(b""), index.get(b"900"), index.get(b"01")), (None, None, None));
        let none = TextIndex::new(&Texts::default(), 0..0);
        assert_eq!(none.get(b"a"), None);
    }

    #[test]
    fn length_and_every_byte_count() {
        let texts: Texts =
            ["", "\0", "\0\0", "abcdefgh", "abcdefgh\0", "abcdefghijklmnop"].into_iter().collect();
        let index = TextIndex::new(&texts, 0..texts.len());
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(index.get(text), Some(place as u32));
        }
        assert_eq!(index.get(b"abcdefgi"), None);
    }
}
