use crate::protocol::TokenId;
use crate::text::{Specials, TextModel};
use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;

/// A model's tokens as a trie of their bytes, and its tokenizer: what masks are made from.
pub struct Vocabulary {
    text: Arc<TextModel>,
    trie: TokTrie,
}

impl Vocabulary {
    /// Walks the whole vocabulary: a moment for a hundred thousand tokens.
    pub fn new(text: Arc<TextModel>) -> Self {
        let words: Vec<Vec<u8>> = (0..text.vocab_size() as TokenId).map(|id| word(&text, id)).collect();
        let first_end = text.end_tokens().first().copied();
        let info = TokRxInfo::new(words.len() as u32, first_end.unwrap_or(INVALID_TOKEN));
        let trie = TokTrie::from(&info, &words);
        let trie = match text.end_tokens() {
            [] => trie,
            ends => trie.with_eos_tokens(ends),
        };
        Self { text, trie }
    }
}

/// The bytes a token adds to an answer. A control token adds none: it goes by its name behind a mark
/// that no text has, so that only a grammar that names it can ask for it.
fn word(text: &TextModel, id: TokenId) -> Vec<u8> {
    let piece = text.piece(id);
    match (text.is_control(id), piece.first()) {
        (true, _) => [&[TokTrie::SPECIAL_TOKEN_MARKER], &*piece].concat(),
        // The byte FF is in no UTF-8; as a token it would be taken for the mark.
        (false, Some(&TokTrie::SPECIAL_TOKEN_MARKER)) => Vec::new(),
        (false, _) => piece.into_owned(),
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// As the model's tokenizer would, where that gives back these very bytes; a vocabulary that puts
    /// a space in front, or text cut inside a character, is taken apart by the longest match.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.text.encode(text, Specials::Text);
            let same = ids.iter().flat_map(|id| self.text.piece(*id).into_owned()).eq(text.bytes());
            if same { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
