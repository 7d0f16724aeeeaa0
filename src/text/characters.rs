use super::bars::Bars;
use super::bpe;
use super::fallback::Fallback;
use super::merge_list::MergeList;
use super::pre_tokenizer::PreTokenizer;
use super::vocab::{Kind, Pieces, VocabError, VocabSpec};
use super::words::Words;
use crate::protocol::TokenId;

/// BPE of characters by a list of merges, with byte fallback: what a tokenizer.json makes of a
/// SentencePiece vocabulary.
pub(super) struct Characters {
    pre: PreTokenizer,
    list: MergeList,
    bars: Bars,
    fallback: Fallback,
}

impl Characters {
    /// `plain`: whether a user-defined token is ordinary text, and may come out of merging.
    pub fn new(
        spec: &VocabSpec,
        kinds: &[Kind],
        pieces: &Pieces,
        pre: PreTokenizer,
        plain: impl Fn(usize) -> bool,
    ) -> Result<Self, VocabError> {
        let fuse = spec.recipe.as_ref().is_some_and(|recipe| recipe.fuse_unknown);
        // What is spelt like a byte token is text, and no byte.
        let kinds_of_text = |kind: &Kind| if *kind == Kind::Byte { Kind::Unused } else { *kind };
        let texts: Vec<Kind> = kinds.iter().map(kinds_of_text).collect();
        Ok(Self {
            pre,
            bars: Bars::new(&spec.tokens, |id| matches!(texts[id], Kind::Normal | Kind::UserDefined)),
            list: MergeList::new(spec, &texts, plain, false)?,
            fallback: Fallback::new(kinds, pieces, spec.unk, fuse),
        })
    }

    /// Appends the ids of `text`, which holds no special tokens; `is_first`: nothing stands before it.
    pub fn encode(&self, text: &str, is_first: bool, ids: &mut Vec<TokenId>) {
        let text = self.pre.normalize(text, is_first);
        let (mut words, mut key) = (Words::new(), Vec::new());
        self.pre.split(&text, |word| {
            if let Some(id) = self.list.token(word.as_bytes()).filter(|_| self.pre.ignore_merges) {
                return ids.push(id);
            }
            let start = ids.len();
            self.bars.split(word, |word| match self.fallback.ends_unknown(&ids[start..]) {
                // What comes of it depends on what stands before.
                true => self.merge(word, start, &mut key, ids),
                false => words.encode(word, ids, |word, ids| self.merge(word, ids.len(), &mut key, ids)),
            });
        });
    }

    fn merge(&self, word: &str, start: usize, key: &mut Vec<u8>, ids: &mut Vec<TokenId>) {
        for piece in bpe::join(word, |joined, at| self.list.rank(joined, at, key)) {
            match self.list.token(piece.as_bytes()) {
                Some(id) => ids.push(id),
                None => self.fallback.emit(piece, start, ids),
            }
        }
    }
}
