//! How much memory the KV cache may take, decided before anything is allocated.

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

/// What a plan starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) bytes_per_token: usize,
    pub(super) block_size: usize,
    /// Trained context, and what the user asked for instead.
    pub(super) trained: usize,
    pub(super) max_model_len: Option<usize>,
    pub(super) kv_cache_bytes: Option<usize>,
    /// Free after the weights are loaded; `None` when the system does not say.
    pub(super) available: Option<usize>,
}

/// Sequences of full length that the pool holds when memory is plenty.
const CONTEXTS: usize = 4;

/// Sequences shorter than this are no use.
const LEAST_TOKENS: usize = 64;

impl Wanted {
    /// Memory is `kv_cache_bytes`, or a quarter of what is free and enough for four full contexts at most.
    /// A context nobody asked for is shortened to what fits; one that was asked for is refused
    /// (BUGLOG L18).
    pub(super) fn plan(&self) -> Result<KvPlan, DoesNotFit> {
        let wanted = self.max_model_len.unwrap_or(self.trained);
        if wanted > self.trained {
            return Err(DoesNotFit::BeyondTraining { wanted, trained: self.trained });
        }
        let block_bytes = self.bytes_per_token * self.block_size;
        let most = wanted.div_ceil(self.block_size).saturating_mul(CONTEXTS);
        let budget = self.kv_cache_bytes.or(self.available.map(|free| free / 4));
        let blocks = match (budget, self.kv_cache_bytes) {
            (Some(budget), Some(_)) => budget / block_bytes,
            (Some(budget), None) => (budget / block_bytes).min(most),
            (None, _) => most,
        };
        let holds = blocks * self.block_size;
        if holds < wanted.min(LEAST_TOKENS) || (self.max_model_len.is_some() && holds < wanted) {
            return Err(DoesNotFit::Memory(format!(
                "a context of {wanted} tokens needs {} MiB of KV cache, {} MiB are {}; it would hold {holds} tokens",
                (wanted * self.bytes_per_token).div_ceil(1 << 20),
                (blocks * block_bytes) >> 20,
                if self.kv_cache_bytes.is_some() { "allowed" } else { "a quarter of what is free" },
            )));
        }
        Ok(KvPlan {
            blocks: blocks + 1,
            block_size: self.block_size,
            max_model_len: wanted.min(holds),
            bytes: (blocks + 1) * block_bytes,
        })
    }
}

/// Memory the system would give without swapping.
pub(super) fn available_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WANTED: Wanted = Wanted {
        bytes_per_token: 1 << 10,
        block_size: 16,
        trained: 8192,
        max_model_len: None,
        kv_cache_bytes: None,
        available: Some(16 << 30),
    };

    #[test]
    fn plenty_of_memory_holds_four_contexts() {
        let plan = WANTED.plan().unwrap();
        assert_eq!((plan.blocks, plan.max_model_len), (4 * 512 + 1, 8192));
    }

    /// BUGLOG L18: a million tokens of trained context on a small machine.
    #[test]
    fn a_context_nobody_asked_for_is_shortened_and_one_asked_for_is_refused() {
        let huge = Wanted { bytes_per_token: 128 << 10, trained: 1 << 20, ..WANTED };
        let plan = huge.plan().unwrap();
        assert_eq!(plan.max_model_len, (4 << 30) / (128 << 10));
        assert!(plan.bytes <= (4 << 30) + ((16 * 128) << 10));
        let refused = Wanted { max_model_len: Some(1 << 20), ..huge }.plan().unwrap_err().to_string();
        assert!(refused.contains("131072 MiB") && refused.contains("4096 MiB"), "{refused}");
    }

    #[test]
    fn a_budget_is_kept_and_a_longer_context_than_trained_refused() {
        let plan = Wanted { kv_cache_bytes: Some(1 << 20), ..WANTED }.plan().unwrap();
        assert_eq!((plan.blocks, plan.max_model_len), (64 + 1, 1024));
        let beyond = Wanted { max_model_len: Some(9000), ..WANTED }.plan();
        assert_eq!(beyond, Err(DoesNotFit::BeyondTraining { wanted: 9000, trained: 8192 }));
        assert!(Wanted { kv_cache_bytes: Some(0), ..WANTED }.plan().is_err());
    }
}
