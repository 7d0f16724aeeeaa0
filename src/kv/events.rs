use super::{BlockHash, CacheKey, HashChain};
use crate::protocol::{KvEvent, Medium, TokenId};

/// What happened to the content of the cache, where somebody asked to know.
#[derive(Debug)]
pub struct EventLog {
    on: bool,
    events: Vec<KvEvent>,
}

impl EventLog {
    pub fn new(on: bool) -> Self {
        Self { on, events: Vec::new() }
    }

    pub fn take(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    /// Block `at` of a sequence became known on the device. Blocks of one sequence that follow each
    /// other are one event.
    pub fn stored(
        &mut self,
        group: usize,
        at: usize,
        chain: &HashChain,
        tokens: &[TokenId],
        block_size: usize,
    ) {
        if !self.on {
            return;
        }
        let hash = chain.hashes()[at].short();
        let parent = at.checked_sub(1).map(|at| chain.hashes()[at].short());
        let tokens = &tokens[at * block_size..][..block_size];
        if let Some(KvEvent::BlockStored { block_hashes, token_ids, group_idx, medium, .. }) =
            self.events.last_mut()
            && (*group_idx, *medium) == (group, Medium::Device)
            && parent.is_some()
            && block_hashes.last().copied() == parent
            && !token_ids.is_empty()
        {
            block_hashes.push(hash);
            token_ids.extend(tokens);
            return;
        }
        self.events.push(KvEvent::BlockStored {
            block_hashes: vec![hash],
            parent_block_hash: parent,
            token_ids: tokens.to_vec(),
            block_size,
            lora_name: chain.lora_name().map(Into::into),
            medium: Medium::Device,
            group_idx: group,
        });
    }

    /// Content of which only the name is known here: a state, or a block that came to another tier.
    pub fn stored_by_name(&mut self, key: &CacheKey, block_size: usize, medium: Medium) {
        if self.on {
            self.events.push(KvEvent::BlockStored {
                block_hashes: vec![key.hash().short()],
                parent_block_hash: None,
                token_ids: Vec::new(),
                block_size,
                lora_name: None,
                medium,
                group_idx: key.group(),
            });
        }
    }

    pub fn removed(&mut self, key: &CacheKey, of: Medium) {
        if !self.on {
            return;
        }
        let hash = BlockHash::short(&key.hash());
        match self.events.last_mut() {
            Some(KvEvent::BlockRemoved { block_hashes, medium, group_idx })
                if (*medium, *group_idx) == (of, key.group()) =>
            {
                block_hashes.push(hash)
            }
            _ => self.events.push(KvEvent::BlockRemoved {
                block_hashes: vec![hash],
                medium: of,
                group_idx: key.group(),
            }),
        }
    }

    pub fn cleared(&mut self) {
        if self.on {
            self.events.push(KvEvent::AllBlocksCleared);
        }
    }
}
