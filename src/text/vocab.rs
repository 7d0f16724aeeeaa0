use super::byte_level;
use super::hub::{AddedFlags, BETWEEN, Recipe};
use crate::base::Texts;
use crate::protocol::TokenId;
use std::borrow::Cow;
use std::collections::HashMap;

/// What a model's file says of its vocabulary: the `tokenizer.ggml.*` keys of a GGUF, as they are.
#[derive(Clone, Debug, Default)]
pub struct VocabSpec {
    /// `gpt2`: byte-level BPE. `llama`: SentencePiece BPE with scores and byte fallback. `bpe`: BPE of
    /// characters with a list of merges and byte fallback, which a [`Recipe`] describes; `gemma4` names one.
    pub model: String,
    /// Name of the rule that cuts text into words before BPE; only `gpt2` vocabularies have one.
    pub pre: Option<String>,
    /// Token texts by id, in UTF-8.
    pub tokens: Texts,
    /// By id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. Empty: all normal.
    pub types: Vec<i32>,
    /// By id; `llama` vocabularies merge the pair whose token scores highest.
    pub scores: Vec<f32>,
    /// `left right`, the most important first; only `gpt2` vocabularies have them. In UTF-8.
    pub merges: Texts,
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    pub eot: Option<TokenId>,
    pub unk: Option<TokenId>,
    /// More tokens that end an answer, such as the list in a generation config.
    pub extra_end: Vec<TokenId>,
    pub add_bos: Option<bool>,
    /// `llama` vocabularies: text begins with a space that was not written.
    pub add_space_prefix: Option<bool>,
    /// `llama` vocabularies: runs of spaces count as one, those at either end as none.
    pub remove_extra_whitespaces: Option<bool>,
    pub chat_template: Option<String>,
    /// Another one for chats that offer tools.
    pub tool_template: Option<String>,
    pub pad: Option<TokenId>,
    /// How text becomes tokens, where a `tokenizer.json` says it; it stands for `pre` and for what only
    /// `llama` vocabularies have, and its merges have a sign that no token has in place of a space.
    pub recipe: Option<Recipe>,
    /// Of those tokens that are found in a special way, as a `tokenizer.json` has them.
    pub added_flags: HashMap<TokenId, AddedFlags>,
    /// `general.architecture`: it tells families apart that mark their thoughts alike.
    pub architecture: String,
}

/// Why a vocabulary cannot be used. Names the key, token or merge at fault.
#[derive(Debug, thiserror::Error)]
pub enum VocabError {
    #[error(
        "tokenizer.ggml.model is {0:?}; supported are gpt2 (byte-level BPE), llama (SentencePiece) and gemma4"
    )]
    UnknownModel(String),
    #[error("tokenizer.ggml.pre is {name:?}; supported are {supported}")]
    UnknownPreTokenizer { name: String, supported: String },
    #[error("tokenizer.ggml.tokens is empty")]
    Empty,
    #[error("{key} has {found} entries for {tokens} tokens")]
    Length { key: &'static str, found: usize, tokens: usize },
    #[error("{key} is {id}, but there are only {tokens} tokens")]
    IdOutOfRange { key: &'static str, id: TokenId, tokens: usize },
    #[error("token {id} {text:?} has the unknown type {kind}")]
    UnknownType { id: usize, text: String, kind: i32 },
    #[error("byte token {id} is {text:?}, not of the form <0x00> to <0xFF>")]
    ByteToken { id: usize, text: String },
    #[error("merge {index} {merge:?}: {problem}")]
    Merge { index: usize, merge: String, problem: String },
    /// It needs more than automata can do, which are what keeps the time linear in the text.
    #[error("the pattern {pattern:?} that cuts text into words cannot be used: {reason}")]
    Pattern { pattern: String, reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    ByteLevel,
    SentencePiece,
    Characters,
}

/// Texts of tokens that end an answer whatever else the file says; the names in common use.
const END_NAMES: [&str; 15] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
];

/// Reasoning tags are seen by the reasoning parser even where a file calls them control tokens.
pub(super) const THINK: &str = "<think>";
pub(super) const END_THINK: &str = "</think>";

/// Of all of a vocabulary, few tokens need the whole list.
fn is_end_name(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'<' | b'[' | b'_')) && END_NAMES.iter().any(|name| name.as_bytes() == text)
}

impl VocabSpec {
    /// What stands between the two tokens of a merge.
    pub(super) fn between(&self) -> u8 {
        if self.recipe.is_some() && self.model != "gemma4" { BETWEEN } else { b' ' }
    }

    /// With the recipe that its name stands for.
    pub(super) fn with_recipe(mut self) -> Self {
        if self.model == "gemma4" {
            self.recipe.get_or_insert_with(Recipe::gemma4);
        }
        self
    }

    /// Checks lengths and ids; after this every id in the spec is an index of `tokens`.
    pub(super) fn check(&self) -> Result<Algorithm, VocabError> {
        let algorithm = match self.model.as_str() {
            "gpt2" => Algorithm::ByteLevel,
            "llama" => Algorithm::SentencePiece,
            "bpe" | "gemma4" if self.recipe.is_some() => Algorithm::Characters,
            other => return Err(VocabError::UnknownModel(other.into())),
        };
        let tokens = self.tokens.len();
        if tokens == 0 {
            return Err(VocabError::Empty);
        }
        let length = |key, found| match found == tokens {
            true => Ok(()),
            false => Err(VocabError::Length { key, found, tokens }),
        };
        if !self.types.is_empty() {
            length("tokenizer.ggml.token_type", self.types.len())?;
        }
        if algorithm == Algorithm::SentencePiece {
            length("tokenizer.ggml.scores", self.scores.len())?;
        }
        let named = [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.eot_token_id", self.eot),
            ("tokenizer.ggml.unknown_token_id", self.unk),
            ("tokenizer.ggml.padding_token_id", self.pad),
        ];
        let extra = self.extra_end.iter().map(|&id| ("eos_token_id", Some(id)));
        for (key, id) in named.into_iter().chain(extra) {
            if let Some(id) = id.filter(|&id| id as usize >= tokens) {
                return Err(VocabError::IdOutOfRange { key, id, tokens });
            }
        }
        Ok(algorithm)
    }

    pub(super) fn kinds(&self) -> Result<Vec<Kind>, VocabError> {
        let mut kinds = (0..self.tokens.len()).map(|id| self.kind(id)).collect::<Result<Vec<_>, _>>()?;
        // Some files mark their end tokens as ordinary ones; shown or typed they must still be control.
        for id in self.end_tokens().into_iter().chain(self.bos) {
            kinds[id as usize] = Kind::Control;
        }
        Ok(kinds)
    }

    fn kind(&self, id: usize) -> Result<Kind, VocabError> {
        let is_tag = || [THINK, END_THINK].iter().any(|tag| tag.as_bytes() == self.tokens.get(id));
        Ok(match self.types.get(id).copied().unwrap_or(1) {
            3 | 4 if is_tag() => Kind::UserDefined,
            0 | 1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            kind => return Err(VocabError::UnknownType { id, text: self.tokens.text(id), kind }),
        })
    }

    /// Every token that ends an answer, ascending.
    pub(super) fn end_tokens(&self) -> Vec<TokenId> {
        let by_key = [self.eos, self.eot].into_iter().flatten().chain(self.extra_end.iter().copied());
        let by_name = self.tokens.iter().enumerate().filter(|(_, text)| is_end_name(text));
        let mut ends: Vec<TokenId> = by_key.chain(by_name.map(|(id, _)| id as TokenId)).collect();
        ends.sort_unstable();
        ends.dedup();
        // In gpt-oss <|end|> closes a channel, not the answer.
        let is = |id: TokenId, name: &str| self.tokens.get(id as usize) == name.as_bytes();
        let closes_channels =
            ["<|return|>", "<|call|>"].iter().all(|name| ends.iter().any(|&id| is(id, name)));
        ends.retain(|&id| !(closes_channels && is(id, "<|end|>")));
        ends
    }
}

/// The bytes every token stands for, read from its text when they are asked for.
#[derive(Debug)]
pub(super) struct Pieces {
    tokens: Texts,
    algorithm: Algorithm,
    /// U+2581 is a space.
    bars: bool,
    kinds: Vec<Kind>,
}

impl Pieces {
    pub fn new(spec: &VocabSpec, algorithm: Algorithm, kinds: Vec<Kind>) -> Result<Self, VocabError> {
        let bars = spec.recipe.as_ref().map_or(algorithm == Algorithm::SentencePiece, |recipe| recipe.bars);
        let pieces = Pieces { tokens: spec.tokens.clone(), algorithm, bars, kinds };
        let bad = |id: &usize| pieces.kinds[*id] == Kind::Byte && parse_byte(spec.tokens.get(*id)).is_none();
        match (0..pieces.len()).find(bad).filter(|_| algorithm != Algorithm::ByteLevel) {
            Some(id) => Err(VocabError::ByteToken { id, text: spec.tokens.text(id) }),
            None => Ok(pieces),
        }
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Nothing for an id beyond the vocabulary (models pad their output layer).
    pub fn bytes(&self, id: TokenId) -> Cow<'_, [u8]> {
        if id as usize >= self.len() {
            return Cow::Borrowed(&[]);
        }
        let text = self.tokens.get(id as usize);
        match (self.kind(id), self.algorithm) {
            (Kind::Normal | Kind::Byte | Kind::Unused, Algorithm::ByteLevel) => byte_level::decode(text),
            (Kind::Byte, _) => parse_byte(text).into_iter().collect(),
            (Kind::Normal | Kind::UserDefined, _) if self.bars => spaces_for_bars(text),
            _ => Cow::Borrowed(text),
        }
    }

    pub fn kind(&self, id: TokenId) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    pub fn is_control(&self, id: TokenId) -> bool {
        matches!(self.kind(id), Kind::Control | Kind::Unknown)
    }
}

/// `<0x0A>` -> 10.
fn parse_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let [high, low] = *digits else { return None };
    let digit = |c: u8| char::from(c).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// SentencePiece writes a space as U+2581.
pub(super) fn spaces_for_bars(text: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(text) {
        Ok(text) if text.contains('▁') => Cow::Owned(text.replace('▁', " ").into_bytes()),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(tokens: &[(&str, i32)]) -> VocabSpec {
        VocabSpec {
            model: "llama".into(),
            tokens: tokens.iter().map(|(text, _)| *text).collect(),
            types: tokens.iter().map(|(_, kind)| *kind).collect(),
            scores: vec![0.0; tokens.len()],
            ..VocabSpec::default()
        }
    }

    fn pieces(spec: &VocabSpec) -> Result<Pieces, VocabError> {
        Pieces::new(spec, spec.check()?, spec.kinds()?)
    }

    // BUGLOG T18.
    #[test]
    fn a_malformed_byte_token_is_an_error_that_names_it() {
        for bad in ["<0x-1>", "<0xZZ>", "<0x>", "<0x123>", "<0x+1>", "0x0A", "<0xé>", ""] {
            let error = pieces(&spec(&[("a", 1), (bad, 6)])).unwrap_err();
            let expected = format!("byte token 1 is {bad:?}, not of the form <0x00> to <0xFF>");
            assert_eq!(error.to_string(), expected);
        }
        let good = pieces(&spec(&[("<0x0A>", 6), ("<0xff>", 6), ("▁a", 1)])).unwrap();
        assert_eq!([good.bytes(0), good.bytes(1), good.bytes(2)], [&b"\n"[..], b"\xff", b" a"]);
    }

    #[test]
    fn lengths_ids_and_types_are_checked() {
        let mut short = spec(&[("a", 1), ("b", 1)]);
        short.scores.pop();
        assert_eq!(
            short.check().unwrap_err().to_string(),
            "tokenizer.ggml.scores has 1 entries for 2 tokens"
        );
        let mut short = spec(&[("a", 1), ("b", 1)]);
        short.types.pop();
        assert!(short.check().unwrap_err().to_string().contains("token_type has 1"));
        let far = VocabSpec { bos: Some(2), ..spec(&[("a", 1), ("b", 1)]) };
        assert_eq!(
            far.check().unwrap_err().to_string(),
            "tokenizer.ggml.bos_token_id is 2, but there are only 2 tokens"
        );
        assert!(spec(&[("a", 9)]).kinds().unwrap_err().to_string().contains("\"a\" has the unknown type 9"));
        assert!(spec(&[]).check().is_err());
        let other = VocabSpec { model: "wordpiece".into(), ..spec(&[("a", 1)]) };
        assert!(other.check().unwrap_err().to_string().contains("\"wordpiece\"; supported are gpt2"));
    }

    // BUGLOG E04.
    #[test]
    fn every_end_token_counts_by_key_by_list_and_by_name() {
        let spec = VocabSpec {
            eos: Some(1),
            extra_end: vec![3],
            ..spec(&[("a", 1), ("</s>", 3), ("<|im_end|>", 1), ("<stop>", 1), ("<|endoftext|>", 3)])
        };
        assert_eq!(spec.end_tokens(), [1, 2, 3, 4]);
        assert!(END_NAMES.iter().all(|name| is_end_name(name.as_bytes())) && !is_end_name(b"<a>"));
        let pieces = pieces(&spec).unwrap();
        assert!((1..=4).all(|id| pieces.is_control(id)) && !pieces.is_control(0));
    }

    #[test]
    fn in_gpt_oss_the_end_of_a_channel_is_not_the_end_of_the_answer() {
        let spec = spec(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)]);
        assert_eq!(spec.end_tokens(), [1, 2]);
    }
}
