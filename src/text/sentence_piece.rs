use super::vocab::{Kind, Pieces, VocabSpec};
use crate::protocol::TokenId;
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use tokenizers::models::bpe::Vocab;

/// SentencePiece's BPE: of all neighbours whose joint text is a token, the pair with the highest
/// score is joined first, the leftmost of equals; what is left over is spelt in bytes.
/// Kudo & Richardson 2018, section 3.1: a heap makes it O(n log n) in the length of the text.
pub(super) struct SentencePiece {
    ids: Vocab,
    scores: Vec<f32>,
    /// The longest token, in bytes: a longer pair need not be looked up.
    longest: usize,
    bytes: Box<[Option<TokenId>; 256]>,
    unknown: Option<TokenId>,
    space_prefix: bool,
    trims: bool,
}

/// A run of text that is a token or a single character; a link of the list of them.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// 0 once joined to its left neighbour.
    len: usize,
    previous: usize,
    next: usize,
}

const NONE: usize = usize::MAX;

/// Two neighbours that may be joined, as they were when found.
struct Pair {
    score: f32,
    left: Reverse<usize>,
    right: usize,
    len: usize,
}

impl SentencePiece {
    pub fn new(spec: &VocabSpec, kinds: &[Kind], pieces: &Pieces) -> Self {
        let mut ids = Vocab::with_capacity(spec.tokens.len());
        let mut bytes = Box::new([None; 256]);
        for (id, text) in spec.tokens.iter().enumerate() {
            match kinds[id] {
                Kind::Normal => _ = ids.entry(text.clone()).or_insert(id as TokenId),
                Kind::Byte => bytes[pieces.bytes(id as TokenId)[0] as usize] = Some(id as TokenId),
                // Control tokens are never spelt by text; user-defined ones are found before.
                _ => {}
            }
        }
        Self {
            longest: ids.keys().map(String::len).max().unwrap_or(0),
            ids,
            scores: spec.scores.clone(),
            bytes,
            unknown: spec.unk,
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
        let mut symbols = single_characters(&text);
        self.join(&text, &mut symbols);
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            self.emit(&text[symbol.start..symbol.start + symbol.len], ids);
        }
    }

    fn normalize(&self, text: &str) -> String {
        let text: Cow<str> = match self.trims {
            true => text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").into(),
            false => text.into(),
        };
        let prefix = if self.space_prefix && !text.is_empty() { "▁" } else { "" };
        prefix.to_owned() + &text.replace(' ', "▁")
    }

    fn join(&self, text: &str, symbols: &mut [Symbol]) {
        let mut queue = BinaryHeap::new();
        for left in 1..symbols.len() {
            self.propose(text, symbols, left - 1, left, &mut queue);
        }
        while let Some(Pair { left: Reverse(left), right, len, .. }) = queue.pop() {
            let is_stale = symbols[left].len == 0
                || symbols[right].len == 0
                || symbols[left].next != right
                || symbols[left].len + symbols[right].len != len;
            if is_stale {
                continue;
            }
            let after = symbols[right].next;
            symbols[left].len = len;
            symbols[left].next = after;
            symbols[right].len = 0;
            if after != NONE {
                symbols[after].previous = left;
                self.propose(text, symbols, left, after, &mut queue);
            }
            let before = symbols[left].previous;
            if before != NONE {
                self.propose(text, symbols, before, left, &mut queue);
            }
        }
    }

    fn propose(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let start = symbols[left].start;
        let len = symbols[left].len + symbols[right].len;
        if len > self.longest {
            return;
        }
        if let Some(&id) = self.ids.get(&text[start..start + len]) {
            queue.push(Pair { score: self.scores[id as usize], left: Reverse(left), right, len });
        }
    }

    fn emit(&self, piece: &str, ids: &mut Vec<TokenId>) {
        if let Some(&id) = self.ids.get(piece) {
            return ids.push(id);
        }
        let spelt: Option<Vec<TokenId>> = piece.bytes().map(|byte| self.bytes[byte as usize]).collect();
        match spelt {
            Some(bytes) => ids.extend(bytes),
            None => ids.extend(self.unknown),
        }
    }
}

fn single_characters(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(at, (start, c))| Symbol {
            start,
            len: c.len_utf8(),
            previous: at.checked_sub(1).unwrap_or(NONE),
            next: at + 1,
        })
        .collect();
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.left.cmp(&other.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// Id 0 is unknown, 1 to 256 the bytes, 257 a control token `<s>`, then `words`, best first.
    fn spec(words: &[&str]) -> VocabSpec {
        let mut spec = VocabSpec { model: "llama".into(), unk: Some(0), ..VocabSpec::default() };
        let mut add = |text: String, kind, score| {
            spec.tokens.push(text);
            spec.types.push(kind);
            spec.scores.push(score);
        };
        add("<unk>".into(), 2, 0.0);
        (0..=255).for_each(|byte| add(format!("<0x{byte:02X}>"), 6, 0.0));
        add("<s>".into(), 3, 0.0);
        words.iter().enumerate().for_each(|(rank, word)| add((*word).into(), 1, -(rank as f32)));
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
        ids.into_iter().map(|id| spec.tokens[id as usize].clone()).collect()
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
            tokens: ids.iter().map(|&id| words.tokens[id].clone()).collect(),
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
                    encoder.ids.get(&parts[i - 1..=*i].concat()).map(|&id| encoder.scores[id as usize])
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
