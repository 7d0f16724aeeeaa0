//! How much memory everything takes, decided before anything is allocated.

use crate::kv::{self, CacheSpec};
use crate::protocol::MemoryPlan;

/// Blocks of the pool, and the longest sequence they serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPlan {
    /// The null block included.
    pub blocks: usize,
    pub block_size: usize,
    pub max_model_len: usize,
    pub bytes: usize,
}

/// What was asked for cannot be had, with the numbers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DoesNotFit {
    #[error("a context of {wanted} tokens was asked for; the model was trained for {trained}")]
    BeyondTraining { wanted: usize, trained: usize },
    #[error("{0}")]
    Memory(String),
}

/// What a plan starts from. All sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) groups: &'a [CacheSpec],
    pub(super) block_size: usize,
    pub(super) block_bytes: usize,
    /// Most tokens that a sequence brings in one step.
    pub(super) chunk: usize,
    /// Trained context, and what the user asked for instead.
    pub(super) trained: usize,
    pub(super) max_model_len: Option<usize>,
    pub(super) kv_cache_bytes: Option<usize>,
    pub(super) host_kv_bytes: usize,
    pub(super) weights: usize,
    pub(super) workspace: usize,
    /// On the device before anything was loaded; `None` when nobody says.
    pub(super) available: Option<usize>,
    pub(super) host: Host,
    /// Most of it that everything together may take.
    pub(super) utilization: f32,
}

/// Whose memory the blocks outside the cache take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// The device has none of its own: they count with everything else.
    Same,
    /// The host's, which has so many bytes left.
    Apart { available: Option<usize> },
}

/// Sequences of full length that the pool holds when memory is plenty.
const CONTEXTS: usize = 4;

/// States of each group beyond those: of short sequences, and at borders of blocks, for others to start from.
const STATES: usize = 64;

/// Sequences shorter than this are no use.
const LEAST_TOKENS: usize = 64;

impl Wanted<'_> {
    /// The KV cache takes `kv_cache_bytes`; or else a quarter of what is free beside the weights, more
    /// if the context asked for needs more, enough for four full contexts at most. A context nobody
    /// asked for is shortened to what fits; one that was asked for is refused (BUGLOG L18).
    pub(super) fn plan(&self) -> Result<(KvPlan, MemoryPlan), DoesNotFit> {
        let wanted = self.max_model_len.unwrap_or(self.trained);
        if wanted > self.trained {
            return Err(DoesNotFit::BeyondTraining { wanted, trained: self.trained });
        }
        self.host_has_room()?;
        let room = self.room();
        if let (Some(asked), Some(room)) = (self.kv_cache_bytes, room)
            && asked > room
        {
            return Err(self.too_much(asked, None));
        }
        let blocks = self.blocks(wanted, room);
        let holds = self.longest(blocks, wanted);
        if holds < wanted.min(LEAST_TOKENS) || (self.max_model_len.is_some() && holds < wanted) {
            return Err(match self.kv_cache_bytes {
                Some(allowed) => self.too_little(allowed, wanted, holds),
                None => {
                    self.too_much((self.blocks_for(wanted) + 1) * self.block_bytes, Some((wanted, holds)))
                }
            });
        }
        let kv = KvPlan {
            blocks: blocks + 1,
            block_size: self.block_size,
            max_model_len: holds,
            bytes: (blocks + 1) * self.block_bytes,
        };
        Ok((kv, self.memory(kv.bytes)))
    }

    /// Bytes of everything, with the KV cache of one sequence of so many tokens.
    pub(super) fn least(&self, tokens: usize) -> usize {
        self.others() + (self.blocks_for(tokens) + 1) * self.block_bytes
    }

    /// Blocks that a sequence of so many tokens owns at most.
    pub(super) fn blocks_for(&self, tokens: usize) -> usize {
        kv::most_blocks(self.groups, tokens, self.chunk, self.block_size)
    }

    /// The longest sequence, up to `most`, that so many blocks serve.
    fn longest(&self, blocks: usize, most: usize) -> usize {
        let (mut fits, mut too_long) = (0, most + 1);
        while too_long - fits > 1 {
            let middle = fits.midpoint(too_long);
            if self.blocks_for(middle) <= blocks { fits = middle } else { too_long = middle }
        }
        fits
    }

    /// The null block left out.
    fn blocks(&self, wanted: usize, room: Option<usize>) -> usize {
        if let Some(bytes) = self.kv_cache_bytes {
            return bytes / self.block_bytes;
        }
        let states = self.groups.iter().filter(|spec| **spec == CacheSpec::Recurrent).count();
        let most = self.blocks_for(wanted).saturating_mul(CONTEXTS) + states * STATES;
        let (Some(available), Some(room)) = (self.available, room) else { return most };
        let quarter = available.saturating_sub(self.others()) / 4 / self.block_bytes;
        let asked = self.max_model_len.map_or(0, |len| self.blocks_for(len));
        quarter.max(asked).min(most).min((room / self.block_bytes).saturating_sub(1))
    }

    /// Everything on the device but the KV cache.
    fn others(&self) -> usize {
        self.weights + self.workspace + self.host_share()
    }

    /// Of the blocks outside the cache, what counts against the device's memory.
    fn host_share(&self) -> usize {
        if self.host == Host::Same { self.host_kv_bytes } else { 0 }
    }

    fn host_has_room(&self) -> Result<(), DoesNotFit> {
        let Host::Apart { available: Some(available) } = self.host else { return Ok(()) };
        if self.host_kv_bytes <= self.share(available) {
            return Ok(());
        }
        Err(DoesNotFit::Memory(format!(
            "KV cache on the host {} does not fit in {} of host memory available x {} (memory utilization)",
            mib(self.host_kv_bytes),
            mib(available),
            self.utilization,
        )))
    }

    fn budget(&self) -> Option<usize> {
        Some(self.share(self.available?))
    }

    fn share(&self, available: usize) -> usize {
        (available as f64 * f64::from(self.utilization)) as usize
    }

    /// Most that the KV cache may take.
    fn room(&self) -> Option<usize> {
        Some(self.budget()?.saturating_sub(self.others()))
    }

    fn memory(&self, kv_cache: usize) -> MemoryPlan {
        let available = self.available.unwrap_or(0);
        MemoryPlan {
            available: available as u64,
            weights: self.weights as u64,
            kv_cache: kv_cache as u64,
            workspace: self.workspace as u64,
            host_kv_cache: self.host_kv_bytes as u64,
            own_memory: self.host != Host::Same,
            left: available.saturating_sub(self.others() + kv_cache) as u64,
        }
    }

    /// A KV cache of so many bytes, for a context where one is meant and beside the one that would fit.
    fn too_much(&self, kv_cache: usize, context: Option<(usize, usize)>) -> DoesNotFit {
        let host = match self.host_share() {
            0 => String::new(),
            bytes => format!(" + KV cache on the host {}", mib(bytes)),
        };
        let of = context.map_or_else(String::new, |(wanted, _)| format!(" for a context of {wanted} tokens"));
        let instead = match context.map_or_else(
            || self.longest((self.room().unwrap_or(0) / self.block_bytes).saturating_sub(1), self.trained),
            |(_, holds)| holds,
        ) {
            0 => String::new(),
            tokens => format!("; a context of {tokens} tokens would fit"),
        };
        let whose = if self.host == Host::Same { "" } else { " on the device" };
        DoesNotFit::Memory(format!(
            "weights {} + workspace {}{host} + KV cache {}{of} do not fit in {} available{whose} x {} (memory utilization){instead}",
            mib(self.weights),
            mib(self.workspace),
            mib(kv_cache),
            mib(self.available.unwrap_or(0)),
            self.utilization,
        ))
    }

    fn too_little(&self, allowed: usize, wanted: usize, holds: usize) -> DoesNotFit {
        DoesNotFit::Memory(format!(
            "a context of {wanted} tokens needs {} of KV cache and {} are allowed, which hold {holds} tokens",
            mib(self.blocks_for(wanted) * self.block_bytes),
            mib(allowed),
        ))
    }
}

/// `1,118 MiB`, rounded up.
fn mib(bytes: usize) -> String {
    let digits = bytes.div_ceil(1 << 20).to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " MiB"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIB: usize = 1 << 30;

    const WANTED: Wanted = Wanted {
        groups: &[CacheSpec::Full],
        block_size: 16,
        block_bytes: 16 << 10,
        chunk: 512,
        trained: 8192,
        max_model_len: None,
        kv_cache_bytes: None,
        host_kv_bytes: 0,
        weights: GIB,
        workspace: GIB / 8,
        available: Some(16 * GIB),
        host: Host::Same,
        utilization: 0.9,
    };

    fn refused(wanted: Wanted) -> String {
        wanted.plan().unwrap_err().to_string()
    }

    #[test]
    fn plenty_of_memory_holds_four_contexts_and_everything_is_accounted_for() {
        let (kv, memory) = WANTED.plan().unwrap();
        assert_eq!((kv.blocks, kv.max_model_len), (4 * 512 + 1, 8192));
        assert_eq!(memory.kv_cache, kv.bytes as u64);
        let parts = memory.weights + memory.workspace + memory.kv_cache + memory.host_kv_cache;
        assert_eq!(parts + memory.left, memory.available);
    }

    /// BUGLOG L18: a million tokens of trained context on a small machine.
    #[test]
    fn a_context_nobody_asked_for_is_shortened_and_one_asked_for_is_refused() {
        let huge = Wanted { block_bytes: 16 * (128 << 10), trained: 1 << 20, ..WANTED };
        let (kv, _) = huge.plan().unwrap();
        let quarter = (16 * GIB - GIB - GIB / 8) / 4;
        assert!(kv.bytes <= quarter + huge.block_bytes && kv.bytes > quarter - huge.block_bytes);
        assert_eq!(kv.max_model_len, (kv.blocks - 1) * 16);
        let refused = refused(Wanted { max_model_len: Some(1 << 20), ..huge });
        // 16 x 0.9 - 1.125 GiB in blocks of 2 MiB, the null block left out.
        let would = (((16 * GIB) as f64 * f64::from(0.9f32)) as usize - GIB - GIB / 8) / (2 << 20) - 1;
        for part in [
            "weights 1,024 MiB + workspace 128 MiB + KV cache 131,074 MiB for a context of 1048576 tokens",
            "16,384 MiB available x 0.9",
            &format!("a context of {} tokens would", would * 16),
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }

    /// What is said to be needed is what would be planned with no more than that.
    #[test]
    fn the_least_is_just_enough() {
        let least = WANTED.least(2048);
        assert_eq!(least, GIB + GIB / 8 + (128 + 1) * (16 << 10));
        let with = |available| {
            let wanted = Wanted { available: Some(available), utilization: 1.0, ..WANTED };
            Wanted { max_model_len: Some(2048), ..wanted }.plan()
        };
        assert_eq!(with(least).unwrap().0.max_model_len, 2048);
        assert!(with(least - (16 << 10)).is_err());
    }

    #[test]
    fn a_context_that_was_asked_for_may_take_more_than_a_quarter() {
        let asked = Wanted { block_bytes: 16 * (128 << 10), trained: 1 << 20, ..WANTED };
        let (kv, memory) = Wanted { max_model_len: Some(65_536), ..asked }.plan().unwrap();
        assert_eq!(kv.max_model_len, 65_536);
        assert!(memory.kv_cache as usize > 8 * GIB && memory.left > 0);
    }

    #[test]
    fn a_budget_is_kept_and_a_longer_context_than_trained_refused() {
        let (kv, _) = Wanted { kv_cache_bytes: Some(1 << 20), ..WANTED }.plan().unwrap();
        assert_eq!((kv.blocks, kv.max_model_len), (64 + 1, 1024));
        let beyond = Wanted { max_model_len: Some(9000), ..WANTED }.plan();
        assert_eq!(beyond, Err(DoesNotFit::BeyondTraining { wanted: 9000, trained: 8192 }));
        assert!(Wanted { kv_cache_bytes: Some(0), ..WANTED }.plan().is_err());
        let small = refused(Wanted { kv_cache_bytes: Some(1 << 20), max_model_len: Some(4096), ..WANTED });
        assert!(small.contains("4096 tokens needs 4 MiB") && small.contains("hold 1024 tokens"), "{small}");
    }

    /// Killed by the system would be the alternative.
    #[test]
    fn a_budget_beyond_the_memory_is_refused_before_anything_is_loaded() {
        let refused = refused(Wanted { kv_cache_bytes: Some(14 * GIB), host_kv_bytes: GIB, ..WANTED });
        assert!(refused.contains("KV cache on the host 1,024 MiB + KV cache 14,336 MiB"), "{refused}");
        assert!(refused.contains("a context of 8192 tokens would"), "{refused}");
        let heavy = self::refused(Wanted { weights: 15 * GIB, ..WANTED });
        assert!(heavy.contains("weights 15,360 MiB") && !heavy.contains("would"), "{heavy}");
        assert!(Wanted { utilization: 1.0, weights: 15 * GIB, ..WANTED }.plan().is_ok());
    }

    /// Blocks outside the cache take nothing of a device that has memory of its own.
    #[test]
    fn the_host_pays_for_its_own_blocks() {
        let apart = Wanted { host: Host::Apart { available: Some(64 * GIB) }, ..WANTED };
        let (kv, memory) = Wanted { host_kv_bytes: 50 * GIB, ..apart }.plan().unwrap();
        assert_eq!(kv, apart.plan().unwrap().0);
        assert!(memory.own_memory && memory.host_kv_cache == 50 * GIB as u64);
        assert_eq!(memory.weights + memory.workspace + memory.kv_cache + memory.left, memory.available);
        let heavy = refused(Wanted { host_kv_bytes: 50 * GIB, weights: 15 * GIB, ..apart });
        assert!(
            !heavy.contains("host") && heavy.contains("16,384 MiB available on the device x 0.9"),
            "{heavy}"
        );
        let much = refused(Wanted { host_kv_bytes: 60 * GIB, ..apart });
        let said =
            "KV cache on the host 61,440 MiB does not fit in 65,536 MiB of host memory available x 0.9";
        assert!(much.starts_with(said), "{much}");
        assert!(WANTED.plan().is_ok_and(|(_, memory)| !memory.own_memory));
    }

    #[test]
    fn a_window_costs_its_own_length_and_no_more() {
        let groups = [CacheSpec::Full, CacheSpec::Sliding { window: 512 }];
        let wanted = Wanted { groups: &groups, ..WANTED };
        assert_eq!(wanted.blocks_for(100), 7 + 7);
        // 511 tokens of the past and 512 of the step are 64 blocks, and one for the edges.
        assert_eq!(wanted.blocks_for(8192), 512 + 65);
        for blocks in [0, 1, 14, 100, 130, 577, 5000] {
            let longest = wanted.longest(blocks, 8192);
            assert!(wanted.blocks_for(longest) <= blocks);
            assert!(longest == 8192 || wanted.blocks_for(longest + 1) > blocks);
        }
    }

    /// However long, it takes one block; many that are short take one each.
    #[test]
    fn states_have_room_for_many_sequences_and_none_for_their_length() {
        let wanted = Wanted { groups: &[CacheSpec::Recurrent], trained: 1 << 20, ..WANTED };
        let (kv, _) = wanted.plan().unwrap();
        assert_eq!((kv.blocks, kv.max_model_len), (CONTEXTS + STATES + 1, 1 << 20));
        let (kv, _) = Wanted { kv_cache_bytes: Some(3 * wanted.block_bytes), ..wanted }.plan().unwrap();
        assert_eq!((kv.blocks, kv.max_model_len), (3 + 1, 1 << 20));
    }

    #[test]
    fn without_word_from_the_system_there_is_room_for_four_contexts() {
        let (kv, memory) = Wanted { available: None, ..WANTED }.plan().unwrap();
        assert_eq!((kv.blocks, memory.available, memory.left), (4 * 512 + 1, 0, 0));
    }
}
