//! From a file to a model that runs: which family, which tensors, how much memory.

use super::config::{ConfigError, ModelConfig};
use super::families::{Family, SUPPORTED, family};
use super::groups::CacheLayout;
use super::identity::cache_identity;
use super::loader::Loader;
use super::memory::{DoesNotFit, Host, Wanted};
use super::model_runner::{self, ModelRunner};
use super::quantize::quantized;
use super::{KvPlan, ModelLimits, Runner};
use crate::base::Memory;
use crate::compute::{Backend, CacheDtype, CacheShape, DeviceError, Need};
use crate::kv::CacheSpec;
use crate::parallel::Solo;
use crate::protocol::{KvCacheDtype, MemoryPlan, WeightFormat};
use crate::weights::{BlockFormat, Checkpoint, CheckpointError, LayerLoss, TensorInfo};

/// Tokens of a block, where nobody asked for another size.
pub const BLOCK_SIZE: usize = 16;

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub max_model_len: Option<usize>,
    pub block_size: usize,
    /// Blocks may be longer than that, where those of keys and values would be much smaller than the states
    /// of recurrent layers that lie in blocks of the same pool.
    pub longer_blocks: bool,
    pub kv_cache_dtype: KvCacheDtype,
    pub kv_cache_bytes: Option<usize>,
    /// Most of the available memory that all of it may take.
    pub memory_utilization: f32,
    /// Host memory that the caller will take for blocks outside the cache: planned, not allocated here.
    pub host_kv_bytes: usize,
    pub max_batched_tokens: usize,
    /// Layers with a window keep only what it shows, in cache groups of their own. Without, every layer
    /// keeps everything, in one group (vLLM's `disable_hybrid_kv_cache_manager`).
    pub hybrid_kv_cache: bool,
    /// What the matrices are encoded as on their way; `None` is as they are.
    pub quantize: Option<WeightFormat>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            max_model_len: None,
            block_size: BLOCK_SIZE,
            longer_blocks: false,
            kv_cache_dtype: KvCacheDtype::F16,
            kv_cache_bytes: None,
            memory_utilization: 0.9,
            host_kv_bytes: 0,
            max_batched_tokens: 512,
            hybrid_kv_cache: true,
            quantize: None,
        }
    }
}

/// A model that is ready, and what its loading decided.
pub struct Loaded {
    pub runner: Box<dyn Runner>,
    pub architecture: String,
    pub layers: usize,
    pub trained_context_length: usize,
    pub weight_bytes: usize,
    /// What blocks leave empty is counted.
    pub kv_bytes_per_token: usize,
    /// States of one sequence, likewise.
    pub state_bytes: usize,
    pub kv: KvPlan,
    pub memory: MemoryPlan,
    /// What the layers lost, where they were quantised.
    pub losses: Vec<LayerLoss>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    File(#[from] CheckpointError),
    #[error("{file}: {problem}")]
    Unsupported { file: String, problem: String },
    #[error(transparent)]
    Memory(#[from] DoesNotFit),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// How large the parts are.
struct Sizes {
    config: ModelConfig,
    layout: CacheLayout,
    shape: CacheShape,
    bytes_per_block: usize,
    weights: usize,
    workspace: usize,
}

/// What is decided before anything is allocated.
struct Plan {
    sizes: Sizes,
    kv: KvPlan,
    memory: MemoryPlan,
}

/// The least that [`load`] could do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    pub bytes: usize,
    /// Tokens of the one sequence that there is room for.
    pub context: usize,
}

/// What a model takes with room for one sequence of so many tokens, or as long as it was trained for.
pub fn needs(
    file: &Checkpoint,
    backend: &impl Backend,
    options: &LoadOptions,
    context: usize,
) -> Result<Needs, LoadError> {
    let (file, _) = quantized(file, options.quantize);
    let sizes = Sizes::new(&for_device(&file, backend), backend, options)?;
    let context = context.min(sizes.config.context_length);
    let host = if backend.own_memory() { Host::Apart { available: None } } else { Host::Same };
    Ok(Needs { bytes: sizes.wanted(options, None, host).least(context), context })
}

/// How much memory [`load`] would take, and for how many blocks.
pub fn plan(
    file: &Checkpoint,
    backend: &impl Backend,
    options: &LoadOptions,
) -> Result<(KvPlan, MemoryPlan), LoadError> {
    let (file, _) = quantized(file, options.quantize);
    Plan::new(&for_device(&file, backend), backend, options).map(|plan| (plan.kv, plan.memory))
}

impl Plan {
    fn new(file: &Checkpoint, backend: &impl Backend, options: &LoadOptions) -> Result<Self, LoadError> {
        let sizes = Sizes::new(file, backend, options)?;
        let host = match backend.own_memory() {
            false => Host::Same,
            true => Host::Apart { available: Memory::now().available.map(|bytes| bytes as usize) },
        };
        let (kv, memory) = sizes.wanted(options, backend.available(), host).plan()?;
        Ok(Self { sizes, kv, memory })
    }
}

fn unsupported(file: &Checkpoint, problem: String) -> LoadError {
    LoadError::Unsupported { file: file.path().display().to_string(), problem }
}

/// The family that a checkpoint names, and what shape its model has.
pub(super) fn configured<B: Backend>(file: &Checkpoint) -> Result<(Family<B>, ModelConfig), LoadError> {
    let architecture = file.architecture()?;
    let Some(family) = family::<B>(architecture) else {
        let known = SUPPORTED.join(", ");
        let problem = format!("the architecture {architecture:?} is not supported; {known} are");
        return Err(unsupported(file, problem));
    };
    let config = ModelConfig::read(file).and_then(|mut config| {
        (family.configure)(file, &mut config)?;
        Ok(config)
    });
    match config {
        Ok(config) => Ok((family, config)),
        Err(ConfigError::File(error)) => Err(LoadError::File(error)),
        Err(value) => Err(unsupported(file, value.to_string())),
    }
}

impl Sizes {
    fn new<B: Backend>(file: &Checkpoint, backend: &B, options: &LoadOptions) -> Result<Self, LoadError> {
        let (_, config) = configured::<B>(file)?;
        if options.block_size == 0 {
            return Err(unsupported(file, "blocks of 0 tokens hold nothing".into()));
        }
        let dtype = match options.kv_cache_dtype {
            KvCacheDtype::F16 => CacheDtype::F16,
            KvCacheDtype::Bf16 => CacheDtype::Bf16,
            KvCacheDtype::F32 => CacheDtype::F32,
            KvCacheDtype::Int8 => CacheDtype::Int8,
            KvCacheDtype::Fp8 => CacheDtype::Fp8,
        };
        let layout = CacheLayout::new(&cache_specs(&config, options.hybrid_kv_cache));
        let block_size = match options.longer_blocks {
            true => config.block_size_for_states(options.block_size, dtype),
            false => options.block_size,
        };
        let shape = config.cache_shape(block_size, dtype);
        needs_of(&config, shape).iter().try_for_each(|need| backend.supports(need))?;
        Ok(Self {
            bytes_per_block: layout.group_size * shape.block_bytes(),
            weights: weight_bytes(file, backend),
            workspace: model_runner::workspace_bytes(&config, options.max_batched_tokens, backend),
            config,
            layout,
            shape,
        })
    }

    fn wanted(&self, options: &LoadOptions, available: Option<usize>, host: Host) -> Wanted<'_> {
        Wanted {
            groups: &self.layout.groups,
            block_size: self.shape.block_size,
            block_bytes: self.bytes_per_block,
            chunk: options.max_batched_tokens,
            trained: self.config.context_length,
            max_model_len: options.max_model_len,
            kv_cache_bytes: options.kv_cache_bytes,
            host_kv_bytes: options.host_kv_bytes,
            weights: self.weights,
            workspace: self.workspace,
            available,
            host,
            utilization: options.memory_utilization,
        }
    }
}

/// What the device does not take is encoded anew as it is loaded: as Q8_0, which loses little, or as floats
/// where rows are no whole blocks of that.
fn for_device(file: &Checkpoint, backend: &impl Backend) -> Checkpoint {
    file.converted(|tensor| match backend.takes(tensor.format) {
        true => None,
        false => Some(if tensor.row_len().is_multiple_of(32) { BlockFormat::Q8_0 } else { BlockFormat::F32 }),
    })
}

/// Formats that are encoded anew for a device, and as what.
pub fn encoded_for(file: &Checkpoint, backend: &impl Backend) -> Vec<(BlockFormat, BlockFormat)> {
    let there = for_device(file, backend);
    let mut pairs: Vec<_> = file.tensors().zip(there.tensors()).map(|(a, b)| (a.format, b.format)).collect();
    pairs.retain(|(from, to)| from != to);
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Loads a model onto a device. `progress(done, total)` counts bytes of the file.
pub fn load<B: Backend>(
    file: &Checkpoint,
    backend: B,
    options: &LoadOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Loaded, LoadError> {
    let (file, losses) = quantized(file, options.quantize);
    let file = &for_device(&file, &backend);
    let Plan { sizes, kv, memory } = Plan::new(file, &backend, options)?;
    let Sizes { config, layout, shape, bytes_per_block, .. } = sizes;
    let limits = ModelLimits {
        vocab_size: config.vocab_size,
        max_model_len: kv.max_model_len,
        max_batched_tokens: options.max_batched_tokens,
        max_outputs: options.max_batched_tokens,
        block_size: kv.block_size,
        num_blocks: kv.blocks,
        bytes_per_block,
        groups: layout.groups.clone(),
        rope_lengths: config.rope_scaling.lengths(),
        cache_identity: cache_identity(
            file,
            &config.architecture,
            options.kv_cache_dtype,
            kv.block_size,
            &layout,
            backend.cache_layout(),
            shape.least_bytes,
        ),
    };
    let mut loader = Loader::new(file, backend, progress);
    let family = family::<B>(&config.architecture).expect("its sizes are known");
    let decoder = (family.load)(&mut loader, &config)?;
    loader.all_used()?;
    let weight_bytes = loader.size().bytes + loader.expert_size().bytes;
    let shape = CacheShape { blocks: kv.blocks, ..shape };
    let state_groups = layout.groups.iter().filter(|spec| **spec == CacheSpec::Recurrent).count();
    let runner = ModelRunner::new(loader.backend, decoder, Box::new(Solo), &config, layout, shape, limits)?;
    Ok(Loaded {
        runner: Box::new(runner),
        architecture: config.architecture.clone(),
        layers: config.layers,
        trained_context_length: config.context_length,
        weight_bytes,
        kv_bytes_per_token: config.kv_bytes_per_token_in(&shape),
        state_bytes: state_groups * bytes_per_block,
        kv,
        memory,
        losses: losses.map(|losses| losses.layers()).unwrap_or_default(),
    })
}

/// What its layers ask of a device.
fn needs_of(config: &ModelConfig, shape: CacheShape) -> Vec<Need> {
    let (states, pasts): (Vec<CacheSpec>, Vec<_>) =
        config.caches.iter().partition(|spec| **spec == CacheSpec::Recurrent);
    let attention = (!pasts.is_empty()).then_some(Need::Attention(shape));
    let states = (!states.is_empty()).then_some(Need::States);
    [attention, states, config.mixture.map(Need::Experts)].into_iter().flatten().collect()
}

/// One kind for all, where caches are not to be hybrid: a window's layers then keep everything.
fn cache_specs(config: &ModelConfig, hybrid: bool) -> Vec<CacheSpec> {
    let spec = |spec: &CacheSpec| match spec {
        CacheSpec::Sliding { .. } if !hybrid => CacheSpec::Full,
        other => *other,
    };
    config.caches.iter().map(spec).collect()
}

/// All weights as the device will hold them: matrices in its own layout, vectors as f32. Token
/// embeddings are a matrix as well where they are the head too; else they may stay in the file.
fn weight_bytes(file: &Checkpoint, backend: &impl Backend) -> usize {
    let tied = file.info("output.weight").is_none();
    let of = |tensor: &TensorInfo| match tensor.rows() {
        _ if tensor.name == "token_embd.weight" && !tied => backend.table_bytes(tensor),
        1 => tensor.elements() * size_of::<f32>(),
        _ => backend.matrix_bytes(tensor),
    };
    file.tensors().map(of).sum()
}
