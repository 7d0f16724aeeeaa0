use std::fmt;
use std::sync::Arc;

/// Many short texts that stay where they are, in a mapped file or in a buffer of their own: a vocabulary
/// and its merges. Clones share them.
#[derive(Clone)]
pub struct Texts {
    buffer: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// Of the first text in the buffer.
    first: usize,
    /// Where each begins, from `first` on, and where one more would: 4 bytes a text, not 24.
    starts: Arc<Vec<u32>>,
    /// Bytes between two texts.
    gap: usize,
}

impl Texts {
    /// Text `i` is `starts[i] .. starts[i + 1] - gap` of what follows `first` in the buffer, where
    /// `starts` has one number more than there are texts.
    ///
    /// # Panics
    /// Where the last text ends beyond the buffer.
    pub fn in_buffer(
        buffer: Arc<dyn AsRef<[u8]> + Send + Sync>,
        first: usize,
        starts: Vec<u32>,
        gap: usize,
    ) -> Self {
        let end = starts.last().map_or(0, |start| (*start as usize).saturating_sub(gap));
        assert!(first + end <= (*buffer).as_ref().len());
        Self { buffer, first, starts: Arc::new(starts), gap }
    }

    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Panics
    /// Where there is no such text, as a slice does.
    pub fn get(&self, index: usize) -> &[u8] {
        let (start, end) = (self.starts[index] as usize, self.starts[index + 1] as usize - self.gap);
        &(*self.buffer).as_ref()[self.first + start..self.first + end]
    }

    /// For display: what is no UTF-8 is U+FFFD.
    pub fn text(&self, index: usize) -> String {
        String::from_utf8_lossy(self.get(index)).into_owned()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self::in_buffer(Arc::new([]), 0, Vec::new(), 0)
    }
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    /// Copies them, 4 GiB at most.
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let (mut buffer, mut starts) = (Vec::new(), vec![0]);
        for text in texts {
            buffer.extend_from_slice(text.as_ref().as_bytes());
            starts.push(u32::try_from(buffer.len()).expect("texts of 4 GiB at most"));
        }
        Self::in_buffer(Arc::new(buffer), 0, starts, 0)
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Texts {
    fn from(texts: Vec<S>) -> Self {
        texts.into_iter().collect()
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|index| self.text(index))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_the_same_from_both_kinds_of_buffer() {
        let copied: Texts = ["a", "", "bcd"].into_iter().collect();
        let buffer: Arc<Vec<u8>> = Arc::new(b"xx1a0_3bcd".to_vec());
        let there = Texts::in_buffer(buffer, 3, vec![0, 2, 4, 8], 1);
        assert_eq!(there.iter().collect::<Vec<_>>(), [&b"a"[..], b"_", b"bcd"]);
        assert_eq!((copied.len(), copied.get(1), copied.text(2)), (3, &b""[..], "bcd".to_owned()));
        assert!(Texts::default().is_empty());
    }

    #[test]
    #[should_panic]
    fn a_text_beyond_the_buffer_is_refused_at_once() {
        Texts::in_buffer(Arc::new(b"abc".to_vec()), 1, vec![0, 3], 0);
    }
}
