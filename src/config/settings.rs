/// How the engine schedules and how much it may hold. Names are vLLM's.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Token budget of one step.
    pub max_num_batched_tokens: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Longest prompt plus answer; `None` is the model's, shortened to what memory allows.
    pub max_model_len: Option<usize>,
    /// Tokens of one KV block.
    pub block_size: usize,
    pub enable_prefix_caching: bool,
    /// Memory for the KV cache; `None` is enough for one full context, or a quarter of what is free.
    pub kv_cache_bytes: Option<usize>,
    /// Worker threads; `None` is one for each physical core.
    pub threads: Option<usize>,
    /// Candidates traced for the sampling panel; 0 when nobody looks.
    pub trace_candidates: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_num_batched_tokens: 512,
            max_num_seqs: 32,
            max_model_len: None,
            block_size: 16,
            enable_prefix_caching: true,
            kv_cache_bytes: None,
            threads: None,
            trace_candidates: 0,
        }
    }
}
