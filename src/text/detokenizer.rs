/// Bytes in pieces -> whole characters. What can no longer become a character is shown as U+FFFD as
/// soon as that is known, in the same places as `String::from_utf8_lossy` on the whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Detokenizer {
    /// The beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Appends to `text` what the bytes so far make whole.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let is_last = done + chunk.invalid().len() == self.pending.len();
            if is_last && may_be_completed(chunk.invalid()) {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                done += chunk.invalid().len();
            }
        }
        self.pending.drain(..done);
    }

    /// Half a character at the end is one U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Whether more bytes could make a character of these.
fn may_be_completed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<String> {
        let mut detokenizer = Detokenizer::default();
        let mut shown: Vec<String> = pieces
            .into_iter()
            .map(|piece| {
                let mut text = String::new();
                detokenizer.push(piece, &mut text);
                assert!(detokenizer.pending.len() <= 3);
                text
            })
            .collect();
        let mut rest = String::new();
        detokenizer.finish(&mut rest);
        shown.push(rest);
        shown
    }

    // BUGLOG T01.
    #[test]
    fn nothing_is_shown_of_half_an_emoji() {
        let emoji = "😸".as_bytes();
        assert_eq!(stream([&emoji[..3], &emoji[3..]]), ["", "😸", ""]);
        assert_eq!(stream(emoji.chunks(1)), ["", "", "", "😸", ""]);
    }

    // BUGLOG T04.
    #[test]
    fn half_a_character_at_the_end_is_one_replacement_character() {
        assert_eq!(stream([&b"a\xF0\x9F"[..]]), ["a", "\u{FFFD}"]);
    }

    // BUGLOG T09.
    #[test]
    fn byte_fallback_characters_appear_once_each() {
        assert_eq!(stream("字字".as_bytes().chunks(1)).concat(), "字字");
    }

    #[test]
    fn an_impossible_byte_is_shown_as_soon_as_it_is_known() {
        assert_eq!(stream([&b"\xFF"[..], b"\xC3", b"a"]), ["\u{FFFD}", "", "\u{FFFD}a", ""]);
        assert_eq!(stream([&b"\xE0"[..], b"\x80"]), ["", "\u{FFFD}\u{FFFD}", ""]);
    }

    proptest! {
        // BUGLOG T02, T05: the incremental path against the whole, and a window that stays small.
        #[test]
        fn streamed_equals_whole(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "\\PC{0,20}", size in 1usize..5) {
            let mixed = [text.as_bytes(), &bytes, text.as_bytes()].concat();
            prop_assert_eq!(stream(mixed.chunks(size)).concat(), String::from_utf8_lossy(&mixed));
        }
    }
}
