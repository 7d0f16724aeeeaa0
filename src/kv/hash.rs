use sha2::{Digest, Sha256};

/// Names the content of a full block: its tokens, every token before them, and what else makes
/// the keys and values differ. SHA-256, so that equal names may be trusted to mean equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// `extra` tells apart what tokens alone do not: an adapter, a tenant's salt. The token count
    /// is hashed before the tokens, so that no token can pass for a part of `extra`.
    pub fn of(parent: Option<&BlockHash>, tokens: &[u32], extra: &[u8]) -> Self {
        let mut sha = Sha256::new();
        sha.update(parent.map_or([0; 32], |hash| hash.0));
        sha.update((tokens.len() as u64).to_le_bytes());
        for token in tokens {
            sha.update(token.to_le_bytes());
        }
        sha.update(extra);
        BlockHash(sha.finalize().into())
    }
}

/// The hashes of a sequence's full blocks, extended as its tokens grow.
#[derive(Clone, Debug)]
pub struct HashChain {
    block_size: usize,
    extra: Box<[u8]>,
    hashes: Vec<BlockHash>,
}

impl HashChain {
    pub fn new(block_size: usize, extra: &[u8]) -> Self {
        Self { block_size, extra: extra.into(), hashes: Vec::new() }
    }

    /// Hashes the blocks of `tokens` that became full. `tokens` is the whole sequence, and only
    /// ever grows.
    pub fn extend(&mut self, tokens: &[u32]) {
        let done = self.hashes.len() * self.block_size;
        for block in tokens.get(done..).unwrap_or_default().chunks_exact(self.block_size) {
            self.hashes.push(BlockHash::of(self.hashes.last(), block, &self.extra));
        }
    }

    /// Forgets the hashes of blocks that do not lie wholly within the first `tokens` tokens.
    pub fn truncate(&mut self, tokens: usize) {
        self.hashes.truncate(tokens / self.block_size);
    }

    /// Of full blocks, first block first.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_blocks_have_a_hash_and_growing_in_steps_changes_nothing() {
        let tokens: Vec<u32> = (0..11).collect();
        let mut whole = HashChain::new(4, b"");
        whole.extend(&tokens);
        assert_eq!(whole.hashes().len(), 2);
        let mut stepwise = HashChain::new(4, b"");
        (0..=tokens.len()).for_each(|len| stepwise.extend(&tokens[..len]));
        assert_eq!(whole.hashes(), stepwise.hashes());
    }

    #[test]
    fn the_same_tokens_after_another_past_or_with_another_extra_are_another_block() {
        let of = |tokens: &[u32], extra: &[u8]| {
            let mut chain = HashChain::new(2, extra);
            chain.extend(tokens);
            *chain.hashes().last().expect("a full block")
        };
        let base = of(&[1, 2, 3, 4], b"");
        assert_eq!(base, of(&[1, 2, 3, 4], b""));
        for other in [of(&[9, 2, 3, 4], b""), of(&[3, 4], b""), of(&[1, 2, 3, 4], b"adapter")] {
            assert_ne!(base, other);
        }
        assert_ne!(BlockHash::of(None, &[1], &2u32.to_le_bytes()), BlockHash::of(None, &[1, 2], b""));
    }
}
