use crate::protocol::{EvictionPolicy, KvCacheDtype, PrefixCache, SchedulerSettings, WeightFormat};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What the CPU's kernels are made for, as `compute` spells it.
pub const INSTRUCTION_SETS: [&str; 4] = ["portable", "avx2", "avx-vnni", "avx512-vnni"];

/// Where a model runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU if it can be used, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// The GPU of this number, and nothing else.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(0) => f.write_str("cuda"),
            Device::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

impl FromStr for Device {
    type Err = &'static str;

    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        let number = |typed: &str| typed.strip_prefix("cuda:")?.parse().ok();
        match typed {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => number(typed).map(Device::Cuda).ok_or("auto, cpu, cuda or cuda:N"),
        }
    }
}

/// How the engine schedules and how much it may hold. Names are vLLM's.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    pub device: Device,
    /// What may change while the engine runs. Its budget and number of sequences are also the most
    /// that a running engine can be changed to.
    pub scheduler: SchedulerSettings,
    /// Longest prompt plus answer; `None` is the model's, shortened to what memory allows.
    pub max_model_len: Option<usize>,
    /// Tokens of one KV block; `None` is 16, or more where a model has large states.
    pub block_size: Option<usize>,
    pub prefix_cache: PrefixCache,
    /// Of the radix tree; the hash cache is always LRU.
    pub radix_eviction_policy: EvictionPolicy,
    pub kv_cache_dtype: KvCacheDtype,
    /// What the matrices are encoded as while the model is loaded; `None` is as they are.
    pub quantize: Option<WeightFormat>,
    /// Memory for the KV cache; `None` is enough for four full contexts, or a share of what is free.
    pub kv_cache_bytes: Option<usize>,
    /// Most of the free memory that weights and KV cache may take together
    /// (`gpu_memory_utilization`'s twin).
    pub memory_utilization: f32,
    /// Host memory for blocks that the KV cache has no room for; 0 is none.
    pub host_kv_bytes: usize,
    /// Folder where cached blocks outlive the program.
    pub kv_cache_dir: Option<PathBuf>,
    /// Most bytes of that folder.
    pub kv_cache_dir_bytes: usize,
    /// Worker threads; `None` is one for each physical core.
    pub threads: Option<usize>,
    /// Each of them on a core of its own.
    pub pin_threads: bool,
    /// One of [`INSTRUCTION_SETS`]; `None` is the best that the processor has.
    pub instruction_set: Option<&'static str>,
    /// `auto`, `none`, or one of `protocol::REASONING_PARSERS`, `tags:<a>,</a>`.
    pub reasoning_parser: String,
    /// `auto`, `none`, or one of `protocol::TOOL_CALL_PARSERS`.
    pub tool_call_parser: String,
    /// Candidates traced for the sampling panel; 0 when nobody looks.
    pub trace_candidates: usize,
    /// Time the device's operations: [`StepRecord::operations`](crate::protocol::StepRecord::operations).
    pub profile: bool,
    /// Take tokens that a grammar forces without asking the model.
    pub fast_forward: bool,
    /// Send [`Event::Kv`](crate::protocol::Event::Kv).
    pub kv_events: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            scheduler: SchedulerSettings::default(),
            max_model_len: None,
            block_size: None,
            prefix_cache: PrefixCache::Hash,
            radix_eviction_policy: EvictionPolicy::Lru,
            kv_cache_dtype: KvCacheDtype::F16,
            quantize: None,
            kv_cache_bytes: None,
            memory_utilization: 0.9,
            host_kv_bytes: 0,
            kv_cache_dir: None,
            kv_cache_dir_bytes: 4 << 30,
            threads: None,
            pin_threads: false,
            instruction_set: None,
            reasoning_parser: "auto".into(),
            tool_call_parser: "auto".into(),
            trace_candidates: 0,
            profile: false,
            fast_forward: true,
            kv_events: false,
        }
    }
}
