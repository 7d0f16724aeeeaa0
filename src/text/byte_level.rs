use super::bpe;
use super::index::TextIndex;
use super::pre_tokenizer::PreTokenizer;
use super::vocab::{Kind, VocabError, VocabSpec};
use crate::protocol::TokenId;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::LazyLock;

/// Byte-level BPE as GPT-2 has it: text is cut into words, a word's bytes are spelt as printable
/// characters, and the pairs of the merge list are joined, the most important first.
pub(super) struct ByteLevel {
    pre: PreTokenizer,
    /// The ordinary tokens: a control token is never spelt by text.
    tokens: TextIndex,
    /// By `left right`. Some may lead to tokens of another kind, and count for nothing.
    merges: TextIndex,
    /// [256]: whether the byte itself is a token. One that is not is dropped.
    is_token: Vec<bool>,
}

impl ByteLevel {
    /// `kinds` as `spec.kinds()`.
    pub fn new(spec: &VocabSpec, kinds: &[Kind], pre: PreTokenizer) -> Result<Self, VocabError> {
        let ordinary = (0..spec.tokens.len()).filter(|id| matches!(kinds[*id], Kind::Normal | Kind::Byte));
        let tokens = TextIndex::new(&spec.tokens, ordinary);
        check_merges(spec, &tokens)?;
        let is_token = |byte| tokens.get(spell(byte).encode_utf8(&mut [0; 4]).as_bytes()).is_some();
        Ok(Self {
            pre,
            is_token: (0..=255).map(is_token).collect(),
            merges: TextIndex::new(&spec.merges, 0..spec.merges.len()),
            tokens,
        })
    }

    /// Appends the ids of `text`, which holds no special tokens.
    pub fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let (mut spelt, mut key) = (String::new(), Vec::new());
        self.pre.split(&self.pre.normalize(text, true), |word| {
            spelt.clear();
            spelt.extend(word.bytes().filter(|byte| self.is_token[*byte as usize]).map(spell));
            match self.tokens.get(spelt.as_bytes()).filter(|_| self.pre.ignore_merges) {
                Some(id) => ids.push(id),
                None => {
                    let pieces = bpe::join(&spelt, |joined, at| self.rank(joined, at, &mut key));
                    ids.extend(pieces.filter_map(|piece| self.tokens.get(piece.as_bytes())));
                }
            }
        });
    }

    /// Of the merge of `joined[..at]` and `joined[at..]`; `key` is scratch.
    fn rank(&self, joined: &str, at: usize, key: &mut Vec<u8>) -> Option<Reverse<u32>> {
        let (left, right) = joined.as_bytes().split_at(at);
        key.clear();
        key.extend_from_slice(left);
        key.push(b' ');
        key.extend_from_slice(right);
        let rank = self.merges.get(key)?;
        self.tokens.get(joined.as_bytes()).map(|_| Reverse(rank))
    }
}

/// Every merge makes a token. It may be one of another kind than the ordinary ones: then the merge is
/// none of ours, and no error. Nor is one of parts that are no tokens themselves: they never come up.
fn check_merges(spec: &VocabSpec, ordinary: &TextIndex) -> Result<(), VocabError> {
    let tokens = &spec.tokens;
    // Merges and the tokens they make come in one order, nearly always.
    let mut next = 0;
    // Rare enough to be looked into only when it comes to that.
    let mut all: Option<TextIndex> = None;
    for (index, merge) in spec.merges.iter().enumerate() {
        let problem = |problem| VocabError::Merge { index, merge: spec.merges.text(index), problem };
        let space = merge.iter().position(|byte| *byte == b' ');
        let (left, right) = match space.map(|at| (&merge[..at], &merge[at + 1..])) {
            Some((left, right)) if !left.is_empty() && !right.is_empty() => (left, right),
            _ => return Err(problem("not two tokens with a space between".into())),
        };
        let is_next = next < tokens.len() && tokens.get(next).strip_prefix(left) == Some(right);
        if !is_next {
            let joined = [left, right].concat();
            let every = || TextIndex::new(tokens, 0..tokens.len());
            let found = ordinary.get(&joined).or_else(|| all.get_or_insert_with(every).get(&joined));
            let no_token = || problem(format!("{:?} is no token", String::from_utf8_lossy(&joined)));
            next = found.ok_or_else(no_token)? as usize;
        }
        next += 1;
    }
    Ok(())
}

/// GPT-2's spelling of bytes as printable characters: itself where Latin-1 prints it, else the next
/// free character from U+0100 on.
struct Spelling {
    chars: [char; 256],
    /// By code point below 0x180.
    bytes: [Option<u8>; 0x180],
}

static SPELLING: LazyLock<Spelling> = LazyLock::new(|| {
    let mut spelling = Spelling { chars: ['\0'; 256], bytes: [None; 0x180] };
    let mut next = 0x100;
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { u32::from(byte) } else { next };
        next += u32::from(!printable);
        spelling.chars[byte as usize] = char::from_u32(code).expect("below the surrogates");
        spelling.bytes[code as usize] = Some(byte);
    }
    spelling
});

/// The printable character a byte is spelt with.
pub(super) fn spell(byte: u8) -> char {
    SPELLING.chars[byte as usize]
}

/// The bytes a token's spelling stands for; a text that is no such spelling stands for itself.
pub(super) fn decode(token: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(token) else { return Cow::Borrowed(token) };
    let bytes: Option<Vec<u8>> =
        text.chars().map(|c| SPELLING.bytes.get(c as usize).copied().flatten()).collect();
    bytes.map_or(Cow::Borrowed(token), Cow::Owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use tokenizers::Model;
    use tokenizers::models::bpe::{BPE, Vocab};

    /// Every byte, then the merges' results in order.
    fn spec(merges: &[&str]) -> VocabSpec {
        let bytes = SPELLING.chars.iter().map(|c| c.to_string());
        VocabSpec {
            model: "gpt2".into(),
            tokens: bytes.chain(merges.iter().map(|merge| merge.replacen(' ', "", 1))).collect(),
            merges: merges.iter().collect(),
            ..VocabSpec::default()
        }
    }

    fn encode(spec: &VocabSpec, text: &str) -> Vec<TokenId> {
        let pre = PreTokenizer::named(Some("gpt-2")).unwrap();
        let mut ids = Vec::new();
        ByteLevel::new(spec, &spec.kinds().unwrap(), pre).unwrap().encode(text, &mut ids);
        ids
    }

    #[test]
    fn merges_join_in_their_order() {
        let spec = spec(&["b c", "a b", "a bc"]);
        assert_eq!(encode(&spec, "abc ab"), [258, 32, 257]);
    }

    #[test]
    fn bytes_outside_latin_print_have_their_own_spelling() {
        assert_eq!(SPELLING.chars[b' ' as usize], 'Ġ');
        assert_eq!(SPELLING.chars[b'\n' as usize], 'Ċ');
        let all: String = SPELLING.chars.iter().collect();
        assert_eq!(*decode(all.as_bytes()), (0..=255).collect::<Vec<u8>>());
        assert_eq!(*decode(b"a b"), *b"a b");
    }

    #[test]
    fn a_merge_of_unknown_tokens_is_named_and_one_into_a_control_token_is_left_out() {
        let mut bad = spec(&["a b"]);
        bad.merges = vec!["a b", "ab q\u{1F600}"].into();
        let pre = || PreTokenizer::named(Some("gpt-2")).unwrap();
        let error = ByteLevel::new(&bad, &bad.kinds().unwrap(), pre()).err().unwrap().to_string();
        assert!(error.contains("merge 1 \"ab q😀\"") && error.contains("is no token"), "{error}");
        bad.merges = vec!["a b", "ab"].into();
        assert!(ByteLevel::new(&bad, &bad.kinds().unwrap(), pre()).is_err());

        let mut control = spec(&["a b", "ab c"]);
        control.types = vec![1; control.tokens.len()];
        control.types[257] = 3;
        assert_eq!(encode(&control, "abc"), [256, u32::from(b'c')]);
    }

    proptest! {
        #[test]
        fn ids_equal_those_of_the_tokenizers_library(
            pairs in prop::collection::vec((0usize..20, 0usize..20), 0..40),
            text in "[abcd]{0,24}",
        ) {
            let mut known: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
            let mut merges: Vec<(String, String)> = Vec::new();
            for (left, right) in pairs {
                let merge = (known[left % known.len()].clone(), known[right % known.len()].clone());
                if !merges.contains(&merge) {
                    known.push(format!("{}{}", merge.0, merge.1));
                    merges.push(merge);
                }
            }
            let lines: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
            let spec = spec(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            // Of equal tokens the first counts.
            let vocab: Vocab =
                (0..spec.tokens.len()).rev().map(|id| (spec.tokens.text(id), id as u32)).collect();
            let library = BPE::builder().vocab_and_merges(vocab, merges).build().unwrap();
            let expected = library.tokenize(&text).unwrap();
            prop_assert_eq!(encode(&spec, &text), expected.iter().map(|token| token.id).collect::<Vec<_>>());
        }
    }
}
