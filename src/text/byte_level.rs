use super::pre_tokenizer::PreTokenizer;
use super::vocab::{Kind, VocabError, VocabSpec};
use crate::protocol::TokenId;
use std::sync::LazyLock;
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

/// Byte-level BPE as GPT-2 has it: text is cut into words, a word's bytes are spelt as printable
/// characters, and the pairs of the merge list are joined, the most important first.
pub(super) struct ByteLevel {
    pre: PreTokenizer,
    bpe: BPE,
}

impl ByteLevel {
    /// `kinds` as `spec.kinds()`. Only ordinary tokens can come out of merging: a control token is
    /// never spelt by text.
    pub fn new(spec: &VocabSpec, kinds: &[Kind], pre: PreTokenizer) -> Result<Self, VocabError> {
        let vocab = ordinary_tokens(spec, kinds);
        let merges = spec.merges.iter().enumerate().map(split_merge).collect::<Result<Merges, _>>()?;
        let built = BPE::builder().ignore_merges(pre.ignore_merges).vocab_and_merges(vocab, merges).build();
        let bpe = match built {
            Ok(bpe) => bpe,
            // Rare enough to be looked into only now: a merge names a token that is not ordinary.
            Err(_) => BPE::builder()
                .ignore_merges(pre.ignore_merges)
                .vocab_and_merges(ordinary_tokens(spec, kinds), usable_merges(spec, kinds)?)
                .build()
                .map_err(|error| VocabError::Bpe(error.to_string()))?,
        };
        Ok(Self { pre, bpe })
    }

    /// Appends the ids of `text`, which holds no special tokens. A byte without a token is dropped.
    pub fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let mut spelt = String::new();
        self.pre.split(text, |word| {
            spelt.clear();
            spelt.extend(word.bytes().map(spell));
            let tokens = self.bpe.tokenize(&spelt).expect("BPE without an unknown token cannot fail");
            ids.extend(tokens.iter().map(|token| token.id));
        });
    }
}

fn ordinary_tokens(spec: &VocabSpec, kinds: &[Kind]) -> Vocab {
    let mut vocab = Vocab::with_capacity(spec.tokens.len());
    for (id, text) in spec.tokens.iter().enumerate() {
        if matches!(kinds[id], Kind::Normal | Kind::Byte) {
            vocab.entry(text.clone()).or_insert(id as TokenId);
        }
    }
    vocab
}

/// The merges between ordinary tokens. Leaves out those that touch another kind of token; errors on
/// one whose tokens do not exist at all.
fn usable_merges(spec: &VocabSpec, kinds: &[Kind]) -> Result<Merges, VocabError> {
    let ordinary = ordinary_tokens(spec, kinds);
    let others: std::collections::HashSet<&str> = spec.tokens.iter().map(String::as_str).collect();
    let mut usable = Merges::new();
    for (index, merge) in spec.merges.iter().enumerate() {
        let (left, right) = split_merge((index, merge))?;
        let joined = format!("{left}{right}");
        let parts = [left.as_str(), right.as_str(), joined.as_str()];
        if let Some(unknown) = parts.iter().find(|part| !others.contains(*part)) {
            let problem = format!("{unknown:?} is no token");
            return Err(VocabError::Merge { index, merge: merge.clone(), problem });
        }
        if parts.iter().all(|part| ordinary.contains_key(*part)) {
            usable.push((left, right));
        }
    }
    Ok(usable)
}

fn split_merge((index, merge): (usize, &String)) -> Result<(String, String), VocabError> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left.into(), right.into())),
        _ => Err(VocabError::Merge {
            index,
            merge: merge.clone(),
            problem: "not two tokens with a space between".into(),
        }),
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

/// Appends the bytes a token's spelling stands for; a text that is no such spelling stands for itself.
pub(super) fn decode(token: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for c in token.chars() {
        match SPELLING.bytes.get(c as usize).copied().flatten() {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend(token.bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Every byte, then the merges' results in order.
    fn spec(merges: &[&str]) -> VocabSpec {
        let mut tokens: Vec<String> = SPELLING.chars.iter().map(|c| c.to_string()).collect();
        tokens.extend(merges.iter().map(|merge| merge.replacen(' ', "", 1)));
        VocabSpec {
            model: "gpt2".into(),
            tokens,
            merges: merges.iter().map(|merge| (*merge).into()).collect(),
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
        let mut all = Vec::new();
        (0..=255).for_each(|byte: u8| decode(&SPELLING.chars[byte as usize].to_string(), &mut all));
        assert_eq!(all, (0..=255).collect::<Vec<u8>>());
        let mut literal = Vec::new();
        decode("a b", &mut literal);
        assert_eq!(literal, b"a b");
    }

    #[test]
    fn a_merge_of_unknown_tokens_is_named_and_one_into_a_control_token_is_left_out() {
        let mut bad = spec(&["a b"]);
        bad.merges.push("ab q\u{1F600}".into());
        let pre = || PreTokenizer::named(Some("gpt-2")).unwrap();
        let error = ByteLevel::new(&bad, &bad.kinds().unwrap(), pre()).err().unwrap().to_string();
        assert!(error.contains("merge 1 \"ab q😀\"") && error.contains("is no token"), "{error}");
        bad.merges[1] = "ab".into();
        assert!(ByteLevel::new(&bad, &bad.kinds().unwrap(), pre()).is_err());

        let mut control = spec(&["a b", "ab c"]);
        control.types = vec![1; control.tokens.len()];
        control.types[257] = 3;
        assert_eq!(encode(&control, "abc"), [256, u32::from(b'c')]);
    }
}
