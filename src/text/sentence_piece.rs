use super::bars::Bars;
use super::bpe;
use super::fallback::Fallback;
use super::index::TextIndex;
use super::vocab::{Kind, Pieces, VocabSpec};
use super::words::Words;
use crate::protocol::TokenId;
use std::borrow::Cow;

/// SentencePiece's BPE: of all neighbours whose joint text is a token, the pair with the highest
/// score is joined first, the leftmost of equals; what is left over is spelt in bytes.
pub(super) struct SentencePiece {
    ids: TextIndex,
    scores: Vec<f32>,
    /// The longest token, in bytes: a longer pair need not be looked up.
    longest: usize,
    bars: Bars,
    fallback: Fallback,
    space_prefix: bool,
    trims: bool,
}

impl SentencePiece {
    pub fn new(spec: &VocabSpec, kinds: &[Kind], pieces: &Pieces) -> Self {
        // Control tokens are never spelt by text; user-defined ones are found before.
        let normal = || (0..kinds.len()).filter(|id| kinds[*id] == Kind::Normal);
        Self {
            ids: TextIndex::new(&spec.tokens, normal()),
            longest: normal().map(|id| spec.tokens.get(id).len()).max().unwrap_or(0),
            scores: spec.scores.clone(),
            bars: Bars::new(&spec.tokens, |id| kinds[id] == Kind::Normal),
            fallback: Fallback::new(kinds, pieces, spec.unk, false),
            space_prefix: spec.add_space_prefix.unwrap_or(true),
            trims: spec.remove_extra_whitespaces.unwrap_or(false),
        }
    }

    /// Whether text is encoded, and must be shown, without the space it seems to begin with.
    pub fn has_space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Appends the ids of `text`, which holds no special tokens.
    pub fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let text = self.normalize(text);
        let mut words = Words::new();
        self.bars.split(&text, |word| words.encode(word, ids, |word, ids| self.merge(word, ids)));
    }

    fn merge(&self, word: &str, ids: &mut Vec<TokenId>) {
        bpe::join(word, |joined, _| self.priority(joined)).for_each(|piece| self.emit(piece, ids));
    }

    fn normalize(&self, text: &str) -> String {
        let text: Cow<str> = match self.trims {
            true => text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").into(),
            false => text.into(),
        };
        let prefix = if self.space_prefix && !text.is_empty() { "▁" } else { "" };
        prefix.to_owned() + &text.replace(' ', "▁")
    }

    fn priority(&self, joined: &str) -> Option<i32> {
        if joined.len() > self.longest {
            return None;
        }
        self.ids.get(joined.as_bytes()).map(|id| in_order(self.scores[id as usize]))
    }

    fn emit(&self, piece: &str, ids: &mut Vec<TokenId>) {
        match self.ids.get(piece.as_bytes()) {
            Some(id) => ids.push(id),
            None => self.fallback.emit(piece, ids.len(), ids),
        }
    }
}

/// A number that compares as the score does, by `f32::total_cmp`.
fn in_order(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// Id 0 is unknown, 1 to 256 the bytes, 257 a control token `<s>`, then `words`, best first.
    fn spec(words: &[&str]) -> VocabSpec {
        let mut spec = VocabSpec { model: "llama".into(), unk: Some(0), ..VocabSpec::default() };
        let mut tokens = Vec::new();
        let mut add = |text: String, kind, score| {
            tokens.push(text);
            spec.types.push(kind);
            spec.scores.push(score);
        };
        add("<unk>".into(), 2, 0.0);
        (0..=255).for_each(|byte| add(format!("<0x{byte:02X}>"), 6, 0.0));
        add("<s>".into(), 3, 0.0);
        words.iter().enumerate().for_each(|(rank, word)| add((*word).into(), 1, -(rank as f32)));
        spec.tokens = tokens.into();
        spec
    }

    fn encoder(spec: &VocabSpec) -> SentencePiece {
        let kinds = spec.kinds().unwrap();
        let pieces = Pieces::new(spec, spec.check().unwrap(), kinds.clone()).unwrap();
        SentencePiece::new(spec, &kinds, &pieces)
    }

    /// Words by their text, bytes as `<..>`.
    fn encode(spec: &VocabSpec, text: &str) -> Vec<String> {
        let mut ids = Vec::new();
        encoder(spec).encode(text, &mut ids);
        ids.into_iter().map(|id| spec.tokens.text(id as usize)).collect()
    }

    const WORDS: &[&str] =
        &["lo", "ab", "bc", "▁h", "el", "▁hel", "▁hello", "▁", "a", "b", "c", "h", "e", "l", "o"];

    #[test]
    fn the_best_scored_pair_is_joined_first_and_the_leftmost_of_equals() {
        let spec = spec(WORDS);
        assert_eq!(encode(&spec, "hello"), ["▁hello"]);
        assert_eq!(encode(&spec, "abc"), ["▁", "ab", "c"]);
        assert_eq!(encode(&spec, "ababc"), ["▁", "ab", "ab", "c"]);
    }

    // BUGLOG T12.
    #[test]
    fn the_prefix_space_is_added_to_whatever_stands_there() {
        let mut spec = spec(WORDS);
        assert_eq!(encode(&spec, "hello hello"), ["▁hello", "▁hello"]);
        assert_eq!(encode(&spec, " hello hello"), ["▁", "▁hello", "▁hello"]);
        assert_eq!(encode(&spec, ""), [""; 0]);
        spec.add_space_prefix = Some(false);
        assert_eq!(encode(&spec, "hello"), ["h", "el", "lo"]);
        assert_eq!(encode(&spec, " hello"), ["▁hello"]);
    }

    #[test]
    fn extra_white_space_goes_only_where_the_vocabulary_says_so() {
        let mut spec = spec(WORDS);
        spec.remove_extra_whitespaces = Some(true);
        assert_eq!(encode(&spec, "  hello   hello "), ["▁hello", "▁hello"]);
    }

    #[test]
    fn what_is_no_token_is_spelt_in_bytes_and_looks_are_not_taken_for_it() {
        let spec = spec(WORDS);
        assert_eq!(encode(&spec, "é"), ["▁", "<0xC3>", "<0xA9>"]);
        let mut ids = Vec::new();
        encoder(&spec).encode("<0x0A><s><unk>", &mut ids);
        assert!(!ids.contains(&11) && !ids.contains(&257) && !ids.contains(&0), "{ids:?}");
    }

    #[test]
    fn without_byte_tokens_the_unknown_token_stands_in() {
        let words = spec(WORDS);
        let keep = |id: &usize| words.types[*id] != 6;
        let ids: Vec<usize> = (0..words.tokens.len()).filter(keep).collect();
        let spec = VocabSpec {
            tokens: ids.iter().map(|&id| words.tokens.text(id)).collect(),
            types: ids.iter().map(|&id| words.types[id]).collect(),
            scores: ids.iter().map(|&id| words.scores[id]).collect(),
            ..words
        };
        assert_eq!(encode(&spec, "é"), ["▁", "<unk>"]);
    }

    // BUGLOG T16.
    #[test]
    fn a_long_unbroken_run_is_not_quadratic() {
        let spec = spec(&["aaaa", "aa", "a", "▁"]);
        let (text, mut ids) = ("a".repeat(400_000), Vec::new());
        let start = Instant::now();
        encoder(&spec).encode(&text, &mut ids);
        // A tenth of a second; a quadratic join takes minutes.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(ids.len(), text.len() / 4 + 1);
    }

    proptest! {
        /// The definition, without a heap: scan for the best pair, join it, start again.
        #[test]
        fn equals_the_slow_twin(text in "[abchelo é]{0,24}") {
            let spec = spec(WORDS);
            let encoder = encoder(&spec);
            let mut ids = Vec::new();
            encoder.encode(&text, &mut ids);
            let mut parts: Vec<String> = encoder.normalize(&text).chars().map(String::from).collect();
            loop {
                let score = |i: &usize| {
                    let id = encoder.ids.get(parts[i - 1..=*i].concat().as_bytes());
                    id.map(|id| encoder.scores[id as usize])
                };
                let best = (1..parts.len())
                    .filter(|i| score(i).is_some())
                    .max_by(|a, b| score(a).unwrap().total_cmp(&score(b).unwrap()).then(b.cmp(a)));
                let Some(right) = best else { break };
                let joined = parts.remove(right);
                parts[right - 1] += &joined;
            }
            let mut expected = Vec::new();
            parts.iter().for_each(|part| encoder.emit(part, &mut expected));
            prop_assert_eq!(ids, expected);
        }
    }
}
