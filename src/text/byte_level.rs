use super::bpe;
use super::fallback::Fallback;
use super::merge_list::MergeList;
use super::pre_tokenizer::PreTokenizer;
use super::vocab::{Kind, VocabError, VocabSpec};
use super::words::Words;
use crate::protocol::TokenId;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Byte-level BPE as GPT-2 has it: text is cut into words, a word's bytes are spelt as printable
/// characters, and the pairs of the merge list are joined, the most important first.
pub(super) struct ByteLevel {
    pre: PreTokenizer,
    /// Cuts words once more when they are spelt.
    spelt: PreTokenizer,
    list: MergeList,
    /// [256]: whether the byte itself is a token. One that is not is unknown, or dropped where there is no
    /// token for that.
    is_token: Vec<bool>,
    fallback: Option<Fallback>,
}

impl ByteLevel {
    /// `kinds` as `spec.kinds()`; `plain` as [`MergeList::new`] has it.
    pub fn new(
        spec: &VocabSpec,
        kinds: &[Kind],
        pre: PreTokenizer,
        plain: impl Fn(usize) -> bool,
    ) -> Result<Self, VocabError> {
        let list = MergeList::new(spec, kinds, plain, pre.ignore_merges)?;
        let is_token = |byte| list.token(spell(byte).encode_utf8(&mut [0; 4]).as_bytes()).is_some();
        let fuse = spec.recipe.as_ref().is_some_and(|recipe| recipe.fuse_unknown);
        let unknown = spec.unk.filter(|_| spec.recipe.is_some());
        let cuts = spec.recipe.as_ref().map_or(&[][..], |recipe| &recipe.spelt_cuts);
        Ok(Self {
            pre,
            spelt: PreTokenizer::new(Vec::new(), cuts)?,
            is_token: (0..=255).map(is_token).collect(),
            fallback: unknown.map(|_| Fallback::unknown(unknown, fuse)),
            list,
        })
    }

    /// Appends the ids of `text`, which holds no special tokens; `is_first`: nothing stands before it.
    pub fn encode(&self, text: &str, is_first: bool, ids: &mut Vec<TokenId>) {
        let text = self.pre.normalize(text, is_first);
        let (mut words, mut spelt, mut key) = (Words::new(), String::new(), Vec::new());
        self.pre.split(&text, |word| {
            words.encode(word, ids, |word, ids| {
                spelt.clear();
                let is_kept = |byte: &u8| self.is_token[*byte as usize] || self.fallback.is_some();
                spelt.extend(word.bytes().filter(is_kept).map(spell));
                self.spelt.split(&spelt, |word| self.merge(word, &mut key, ids));
            });
        });
    }

    fn merge(&self, spelt: &str, key: &mut Vec<u8>, ids: &mut Vec<TokenId>) {
        match self.list.token(spelt.as_bytes()).filter(|_| self.pre.ignore_merges) {
            Some(id) => ids.push(id),
            None => {
                let pieces = bpe::join(spelt, |joined, at| self.list.rank(joined, at, key));
                let start = ids.len();
                for piece in pieces {
                    match (self.list.token(piece.as_bytes()), &self.fallback) {
                        (Some(id), _) => ids.push(id),
                        (None, Some(fallback)) => fallback.emit(piece, start, ids),
                        (None, None) => {}
                    }
                }
            }
        }
    }
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
        let encoder = ByteLevel::new(spec, &spec.kinds().unwrap(), pre, |_| false).unwrap();
        encoder.encode(text, true, &mut ids);
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
        let error = ByteLevel::new(&bad, &bad.kinds().unwrap(), pre(), |_| false).err().unwrap().to_string();
        assert!(error.contains("merge 1 \"ab q😀\"") && error.contains("is no token"), "{error}");
        bad.merges = vec!["a b", "ab"].into();
        assert!(ByteLevel::new(&bad, &bad.kinds().unwrap(), pre(), |_| false).is_err());

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
