use crate::protocol::MemoryPlan;
use serde::Serialize;
use std::fmt;

/// What a model would take with the settings in force; or why it would not load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MemoryRow {
    Planned {
        #[serde(flatten)]
        plan: MemoryPlan,
        /// That sequences can own.
        kv_blocks: usize,
        block_size: usize,
        /// Longest prompt plus answer, in tokens.
        context: usize,
    },
    Refused {
        problem: String,
    },
}

impl fmt::Display for MemoryRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plan, kv_blocks, block_size, context) = match self {
            Self::Refused { problem } => return write!(f, "does not load: {problem}"),
            Self::Planned { plan, kv_blocks, block_size, context } => (plan, kv_blocks, block_size, context),
        };
        let mb = |bytes: u64| match bytes {
            1_000_000_000.. => format!("{:.2} GB", bytes as f64 / 1e9),
            _ => format!("{:.1} MB", bytes as f64 / 1e6),
        };
        write!(f, "weights {} + workspace {}", mb(plan.weights), mb(plan.workspace))?;
        let host =
            (plan.host_kv_cache > 0).then(|| format!("KV cache on the host {}", mb(plan.host_kv_cache)));
        if let Some(host) = host.as_ref().filter(|_| !plan.own_memory) {
            write!(f, " + {host}")?;
        }
        write!(f, " + KV cache {} ({kv_blocks} blocks of {block_size})", mb(plan.kv_cache))?;
        write!(f, ", context {context}")?;
        if plan.available > 0 {
            write!(f, ", {} of {} left", mb(plan.left), mb(plan.available))?;
        }
        // Of another memory than the sum before it.
        host.filter(|_| plan.own_memory).map_or(Ok(()), |host| write!(f, "; {host}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_as_a_sum_and_a_refusal_as_its_reason() {
        let plan = MemoryPlan {
            available: 22_109_000_000,
            weights: 96_600_000,
            kv_cache: 755_300_000,
            workspace: 34_200_000,
            host_kv_cache: 0,
            own_memory: false,
            left: 21_222_900_000,
        };
        let apart = MemoryPlan { host_kv_cache: 2_000_000_000, own_memory: true, ..plan };
        let row = MemoryRow::Planned { plan: apart, kv_blocks: 2048, block_size: 16, context: 8192 };
        assert!(
            row.to_string().ends_with("21.22 GB of 22.11 GB left; KV cache on the host 2.00 GB"),
            "{row}"
        );
        let row = MemoryRow::Planned { plan, kv_blocks: 2048, block_size: 16, context: 8192 };
        assert_eq!(
            row.to_string(),
            "weights 96.6 MB + workspace 34.2 MB + KV cache 755.3 MB (2048 blocks of 16), context 8192, \
             21.22 GB of 22.11 GB left"
        );
        let refused = MemoryRow::Refused { problem: "too large".into() };
        assert_eq!(refused.to_string(), "does not load: too large");
    }
}
