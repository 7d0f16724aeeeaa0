use crate::base::Texts;
use std::collections::HashSet;

const BAR: char = '▁';

/// Where text with U+2581 for its spaces can be cut before it is merged, and nothing is lost: before a
/// bar, where no token has one behind what stands there.
pub(super) struct Bars {
    /// The characters that some token has before a bar.
    joined: HashSet<char>,
}

impl Bars {
    pub fn new(tokens: &Texts, mergeable: impl Fn(usize) -> bool) -> Self {
        let mut joined = HashSet::new();
        for (_, token) in tokens.iter().enumerate().filter(|(id, _)| mergeable(*id)) {
            // A bar is three bytes; nearly all tokens have it in front, or not at all.
            let inner = token.get(1..).unwrap_or_default();
            if inner.windows(3).any(|bytes| bytes == BAR.encode_utf8(&mut [0; 4]).as_bytes()) {
                joined.extend(before_bars(&String::from_utf8_lossy(token)).map(|(_, c)| c));
            }
        }
        Self { joined }
    }

    /// Calls `word` with one stretch after the other; together they are the text.
    pub fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        let mut done = 0;
        for (at, _) in before_bars(text).filter(|(_, c)| !self.joined.contains(c)) {
            word(&text[done..at]);
            done = at;
        }
        if done < text.len() {
            word(&text[done..]);
        }
    }
}

/// Where bars begin behind something else, and behind what.
fn before_bars(text: &str) -> impl Iterator<Item = (usize, char)> {
    let before = |at: usize| Some((at, text[..at].chars().next_back()?));
    text.match_indices(BAR).filter_map(move |(at, _)| before(at)).filter(|(_, c)| *c != BAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_no_token_lies_across() {
        let tokens: Texts = ["a", "▁", "▁a", "▁▁", "\n▁", "b▁c"].into_iter().collect();
        let bars = Bars::new(&tokens, |id| id != 5);
        let mut words = Vec::new();
        bars.split("▁a▁▁a\n▁b▁c▁", |word| words.push(word));
        assert_eq!(words, ["▁a", "▁▁a\n▁b", "▁c", "▁"]);
    }
}
