//! The tokens of an answer as they were drawn: small enough to be kept for every token of every answer.

use super::sanitize;
use crate::protocol::{Channel, TokenId, TokenInfo};

/// In the order they were drawn. All texts stand in one buffer.
#[derive(Clone, Default)]
pub struct DrawnTokens {
    kept: Vec<Kept>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Kept {
    /// Where its bytes end.
    end: u32,
    id: TokenId,
    score: Option<Score>,
    channel: Channel,
    forced: bool,
}

/// Of the raw distribution: natural logarithms, nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub rank: u32,
    pub logprob: f32,
    pub entropy: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn<'a> {
    pub id: TokenId,
    pub bytes: &'a [u8],
    /// None of a token that a fork was made to take: nobody asked the model about it.
    pub score: Option<Score>,
    pub channel: Channel,
    /// Nothing else could follow.
    pub forced: bool,
}

impl DrawnTokens {
    pub fn push(&mut self, token: &TokenInfo) {
        // The text of a special token is in its name only.
        let bytes = if token.bytes.is_empty() { token.text.as_bytes() } else { &token.bytes };
        let score = Score { rank: token.rank, logprob: token.logprob, entropy: token.entropy };
        self.add(token.id, bytes, Some(score), token.channel, token.forced);
    }

    /// A token that was put there, not drawn.
    pub fn push_given(&mut self, id: TokenId, text: &str, channel: Channel) {
        self.add(id, text.as_bytes(), None, channel, false);
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<Drawn<'_>> {
        let kept = self.kept.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.kept[before].end as usize);
        let bytes = &self.bytes[start..kept.end as usize];
        Some(Drawn { id: kept.id, bytes, score: kept.score, channel: kept.channel, forced: kept.forced })
    }

    pub fn iter(&self) -> impl Iterator<Item = Drawn<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The first `n` of them: what a branch keeps of its parent.
    pub fn first(&self, n: usize) -> Self {
        let kept: Vec<Kept> = self.kept.iter().take(n).copied().collect();
        let bytes = self.bytes[..kept.last().map_or(0, |last| last.end as usize)].to_vec();
        Self { kept, bytes }
    }

    /// How many tokens both begin with.
    pub fn shared(&self, other: &Self) -> usize {
        self.kept.iter().zip(&other.kept).take_while(|(a, b)| a.id == b.id).count()
    }

    fn add(&mut self, id: TokenId, bytes: &[u8], score: Option<Score>, channel: Channel, forced: bool) {
        self.bytes.extend_from_slice(bytes);
        self.kept.push(Kept { end: self.bytes.len() as u32, id, score, channel, forced });
    }
}

impl Drawn<'_> {
    /// On one line, with what is not seen made visible: `↵` for a line break, `⇥` for a tab, `‹e2›`
    /// for a byte that is no character by itself.
    pub fn shown(&self) -> String {
        let mut shown = String::with_capacity(self.bytes.len());
        for chunk in self.bytes.utf8_chunks() {
            shown.push_str(&sanitize::visible(&chunk.valid().replace('\n', "↵").replace('\t', "⇥")));
            shown.extend(chunk.invalid().iter().map(|byte| format!("‹{byte:02x}›")));
        }
        shown
    }

    pub fn ends_line(&self) -> bool {
        self.bytes.contains(&b'\n')
    }

    /// Of the raw distribution.
    pub fn probability(&self) -> Option<f64> {
        self.score.map(|score| f64::from(score.logprob).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(texts: &[&[u8]]) -> DrawnTokens {
        let mut drawn = DrawnTokens::default();
        for (id, bytes) in texts.iter().enumerate() {
            drawn.add(id as u32, bytes, None, Channel::Content, false);
        }
        drawn
    }

    #[test]
    fn every_token_keeps_its_own_text() {
        let drawn = tokens(&[b"The", b"", " 🦙".as_bytes(), b"\n"]);
        let texts: Vec<_> = drawn.iter().map(|token| token.bytes.to_vec()).collect();
        assert_eq!(texts, [b"The".to_vec(), b"".to_vec(), " 🦙".into(), b"\n".to_vec()]);
        assert_eq!(drawn.first(3).get(2), drawn.get(2));
        assert_eq!((drawn.first(9).len(), drawn.first(2).shared(&drawn)), (4, 2));
    }

    #[test]
    fn what_is_not_seen_is_made_visible() {
        let drawn = tokens(&[b"a\n\n", b"\t\x1b[31m", &[0xf0, 0x9f], b"caf\xc3\xa9"]);
        let shown: Vec<_> = drawn.iter().map(|token| token.shown()).collect();
        assert_eq!(shown, ["a↵↵", "⇥\\x1b[31m", "‹f0›‹9f›", "café"]);
        assert!(drawn.get(0).is_some_and(|token| token.ends_line()));
    }
}
