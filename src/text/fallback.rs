use super::vocab::{Kind, Pieces};
use crate::protocol::TokenId;

/// Spells in bytes what is no token, where there is a token for each byte; else the unknown token stands
/// for it.
pub(super) struct Fallback {
    bytes: Box<[Option<TokenId>; 256]>,
    unknown: Option<TokenId>,
    /// Of neighbours that are unknown, one token stands for all.
    fuse: bool,
}

impl Fallback {
    pub fn new(kinds: &[Kind], pieces: &Pieces, unknown: Option<TokenId>, fuse: bool) -> Self {
        let mut bytes = Box::new([None; 256]);
        for id in (0..kinds.len()).filter(|id| kinds[*id] == Kind::Byte) {
            bytes[pieces.bytes(id as TokenId)[0] as usize] = Some(id as TokenId);
        }
        Self { bytes, unknown, fuse }
    }

    /// Without tokens for bytes.
    pub fn unknown(unknown: Option<TokenId>, fuse: bool) -> Self {
        Self { bytes: Box::new([None; 256]), unknown, fuse }
    }

    /// `start`: where the ids of the same word begin.
    pub fn emit(&self, piece: &str, start: usize, ids: &mut Vec<TokenId>) {
        let before = ids.len();
        for byte in piece.bytes() {
            match self.bytes[byte as usize] {
                Some(id) => ids.push(id),
                None => {
                    ids.truncate(before);
                    let is_said = self.ends_unknown(&ids[start..]);
                    return ids.extend(self.unknown.filter(|_| !is_said));
                }
            }
        }
    }

    /// Whether what is unknown next is part of what is unknown already.
    pub fn ends_unknown(&self, ids: &[TokenId]) -> bool {
        self.fuse && self.unknown.is_some() && ids.last().copied() == self.unknown
    }
}
