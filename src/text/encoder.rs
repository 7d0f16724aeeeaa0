use super::byte_level::ByteLevel;
use super::characters::Characters;
use super::pre_tokenizer::PreTokenizer;
use super::sentence_piece::SentencePiece;
use super::specials::is_plain_token;
use super::vocab::{Algorithm, Kind, Pieces, VocabError, VocabSpec};
use crate::protocol::TokenId;

/// The kinds of BPE that vocabularies have.
pub(super) enum Encoder {
    ByteLevel(Box<ByteLevel>),
    SentencePiece(SentencePiece),
    Characters(Box<Characters>),
}

impl Encoder {
    /// And whether vocabularies of its kind begin prompts with BOS when the file does not say.
    pub fn new(
        spec: &VocabSpec,
        kinds: &[Kind],
        pieces: &Pieces,
        algorithm: Algorithm,
    ) -> Result<(Self, bool), VocabError> {
        // A GGUF's user-defined tokens are found in text before it is merged, whatever they say.
        let is_plain = |id: usize| spec.recipe.is_some() && is_plain_token(spec, id);
        match algorithm {
            Algorithm::ByteLevel => {
                let pre = pre_tokenizer(spec)?;
                let adds_bos = pre.add_bos;
                let encoder = ByteLevel::new(spec, kinds, pre, is_plain)?;
                Ok((Encoder::ByteLevel(Box::new(encoder)), adds_bos))
            }
            Algorithm::SentencePiece => {
                Ok((Encoder::SentencePiece(SentencePiece::new(spec, kinds, pieces)), true))
            }
            Algorithm::Characters => {
                let encoder = Characters::new(spec, kinds, pieces, pre_tokenizer(spec)?, is_plain)?;
                Ok((Encoder::Characters(Box::new(encoder)), false))
            }
        }
    }

    /// Whether text is encoded, and must be shown, without the space it seems to begin with.
    pub fn has_space_prefix(&self) -> bool {
        matches!(self, Encoder::SentencePiece(encoder) if encoder.has_space_prefix())
    }

    /// Appends the ids of `text`, which holds no special tokens; `is_first`: nothing stands before it.
    pub fn encode(&self, text: &str, is_first: bool, ids: &mut Vec<TokenId>) {
        match self {
            Encoder::ByteLevel(encoder) => encoder.encode(text, is_first, ids),
            Encoder::SentencePiece(encoder) => encoder.encode(text, ids),
            Encoder::Characters(encoder) => encoder.encode(text, is_first, ids),
        }
    }
}

fn pre_tokenizer(spec: &VocabSpec) -> Result<PreTokenizer, VocabError> {
    let Some(recipe) = &spec.recipe else { return PreTokenizer::named(spec.pre.as_deref()) };
    let mut pre = PreTokenizer::new(recipe.prefixes.clone(), &recipe.cuts)?;
    pre.ignore_merges = recipe.ignore_merges;
    Ok(pre)
}
