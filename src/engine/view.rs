use super::sequence::Sequence;
use super::step::Engine;
use crate::kv::BlockId;
use crate::protocol::{BlockView, KvView, SequenceView, Snapshot};

impl Engine {
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            step: self.stats.step(),
            paused: self.is_paused(),
            sequences: self.scheduler.all().map(sequence).collect(),
            kv: self.kv_view(),
            counters: self.stats.counters(&self.kv, self.output.finished()),
            steps: self.stats.steps(),
            sampling: self.trace.clone(),
            ..Snapshot::default()
        }
    }

    fn kv_view(&self) -> KvView {
        let pool = self.kv.pool();
        let mut blocks: Vec<BlockView> = (0..=pool.total() as BlockId)
            .map(|id| BlockView {
                references: u16::try_from(pool.references(id)).unwrap_or(u16::MAX),
                cached: pool.is_known(id),
                owner: None,
                used: 0,
            })
            .collect();
        for seq in self.scheduler.all() {
            for id in seq.table.blocks() {
                blocks[*id as usize].owner.get_or_insert(seq.id);
            }
        }
        let (available, cached) = (pool.available(), pool.cached());
        KvView {
            block_size: self.kv.block_size(),
            bytes_per_block: self.runner.limits().bytes_per_block,
            blocks,
            free: available - cached,
            cached,
            owned: pool.total() - available,
            tiers: self.kv.tiers(),
        }
    }
}

fn sequence(seq: &Sequence) -> SequenceView {
    SequenceView {
        seq: seq.id,
        state: seq.state,
        prompt_tokens: seq.prompt_len,
        cached_tokens: seq.cached_tokens,
        generated_tokens: seq.num_generated(),
        computed_tokens: seq.num_computed,
        blocks: seq.table.blocks().to_vec(),
        params: seq.params.clone(),
        preemptions: seq.preemptions,
    }
}
