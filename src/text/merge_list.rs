use super::index::TextIndex;
use super::vocab::{Kind, VocabError, VocabSpec};
use crate::protocol::TokenId;
use std::cmp::Reverse;

/// Which neighbours BPE joins, by the order of a list of merges, and the tokens that come of it.
pub(super) struct MergeList {
    /// Those that merging makes: a control token is never spelt by text.
    tokens: TextIndex,
    /// By `left right`. Some may lead to tokens of another kind, and count for nothing.
    merges: TextIndex,
    /// Between the two.
    between: u8,
    /// There is no list: what makes the lower id is joined first, as tiktoken has it.
    by_id: bool,
}

impl MergeList {
    /// `kinds` as `spec.kinds()`; `plain`: whether a user-defined token may come out of merging too.
    pub fn new(
        spec: &VocabSpec,
        kinds: &[Kind],
        plain: impl Fn(usize) -> bool,
        by_id: bool,
    ) -> Result<Self, VocabError> {
        let is_ordinary = |id: &usize| match kinds[*id] {
            Kind::Normal | Kind::Byte => true,
            Kind::UserDefined => plain(*id),
            _ => false,
        };
        let between = spec.between();
        let tokens = TextIndex::new(&spec.tokens, (0..spec.tokens.len()).filter(is_ordinary));
        check(spec, &tokens, between)?;
        let merges = TextIndex::new(&spec.merges, 0..spec.merges.len());
        Ok(Self { tokens, merges, between, by_id: by_id && spec.merges.is_empty() })
    }

    pub fn token(&self, text: &[u8]) -> Option<TokenId> {
        self.tokens.get(text)
    }

    /// Of the merge of `joined[..at]` and `joined[at..]`; `key` is scratch.
    pub fn rank(&self, joined: &str, at: usize, key: &mut Vec<u8>) -> Option<Reverse<u32>> {
        if self.by_id {
            return self.tokens.get(joined.as_bytes()).map(Reverse);
        }
        let (left, right) = joined.as_bytes().split_at(at);
        key.clear();
        key.extend_from_slice(left);
        key.push(self.between);
        key.extend_from_slice(right);
        let rank = self.merges.get(key)?;
        self.tokens.get(joined.as_bytes()).map(|_| Reverse(rank))
    }
}

/// Every merge makes a token. It may be one of another kind than the ordinary ones: then the merge is
/// none of ours, and no error. Nor is one of parts that are no tokens themselves: they never come up.
fn check(spec: &VocabSpec, ordinary: &TextIndex, between: u8) -> Result<(), VocabError> {
    let tokens = &spec.tokens;
    // Merges and the tokens they make come in one order, nearly always.
    let mut next = 0;
    // Rare enough to be looked into only when it comes to that.
    let mut all: Option<TextIndex> = None;
    for (index, merge) in spec.merges.iter().enumerate() {
        let problem = |problem| {
            let merge =
                merge.iter().map(|byte| if *byte == between { b' ' } else { *byte }).collect::<Vec<_>>();
            VocabError::Merge { index, merge: String::from_utf8_lossy(&merge).into_owned(), problem }
        };
        let space = merge.iter().position(|byte| *byte == between);
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
