//! From a file to a model that runs: which family, which tensors, how much memory.

use super::config::{ConfigError, ModelConfig};
use super::groups::CacheLayout;
use super::identity::cache_identity;
use super::layers::{Embedding, FeedForward, Head, RmsNorm, RowParallel};
use super::memory::{DoesNotFit, Host, Wanted};
use super::model_runner::{self, ModelRunner};
use super::quantize::quantized;
use super::{KvPlan, ModelLimits, Runner, gemma3, llama, qwen2};
use crate::base::Memory;
use crate::compute::{Activation, Backend, CacheDtype, CacheShape, DeviceError, MatrixSize, RopeStyle};
use crate::kv::CacheSpec;
use crate::parallel::Solo;
use crate::protocol::{KvCacheDtype, MemoryPlan, WeightFormat};
use crate::weights::{BlockFormat, Checkpoint, CheckpointError, LayerLoss, Tensor, TensorInfo, decode};
use std::collections::HashSet;

/// Families by the name that files give them (`general.architecture`).
pub const SUPPORTED: &[&str] = &["llama", "qwen2", "gemma3"];

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub max_model_len: Option<usize>,
    pub block_size: usize,
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
            block_size: 16,
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
    pub kv_bytes_per_token: usize,
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
    dtype: CacheDtype,
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

impl Sizes {
    fn new(file: &Checkpoint, backend: &impl Backend, options: &LoadOptions) -> Result<Self, LoadError> {
        let unsupported =
            |problem: String| LoadError::Unsupported { file: file.path().display().to_string(), problem };
        let architecture = file.architecture()?;
        if !SUPPORTED.contains(&architecture) {
            let known = SUPPORTED.join(", ");
            return Err(unsupported(format!(
                "the architecture {architecture:?} is not supported; {known} are"
            )));
        }
        let config = ModelConfig::read(file).map_err(|e| match e {
            ConfigError::File(e) => LoadError::File(e),
            value => unsupported(value.to_string()),
        })?;
        if options.block_size == 0 {
            return Err(unsupported("blocks of 0 tokens hold nothing".into()));
        }
        let dtype = match options.kv_cache_dtype {
            KvCacheDtype::F16 => CacheDtype::F16,
            KvCacheDtype::Bf16 => CacheDtype::Bf16,
            KvCacheDtype::Int8 => CacheDtype::Int8,
            KvCacheDtype::Fp8 => CacheDtype::Fp8,
        };
        let layout = CacheLayout::new(&cache_specs(file, &config, options.hybrid_kv_cache)?);
        let shape = CacheShape {
            blocks: 0,
            block_size: options.block_size,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            dtype,
        };
        Ok(Self {
            bytes_per_block: layout.group_size * shape.block_bytes(),
            weights: weight_bytes(file, backend),
            workspace: model_runner::workspace_bytes(&config, options.max_batched_tokens, backend),
            config,
            dtype,
            layout,
            shape,
        })
    }

    fn wanted(&self, options: &LoadOptions, available: Option<usize>, host: Host) -> Wanted<'_> {
        Wanted {
            groups: &self.layout.groups,
            block_size: options.block_size,
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
    let Sizes { config, dtype, layout, shape, bytes_per_block, .. } = sizes;
    let limits = ModelLimits {
        vocab_size: config.vocab_size,
        max_model_len: kv.max_model_len,
        max_batched_tokens: options.max_batched_tokens,
        max_outputs: options.max_batched_tokens,
        block_size: kv.block_size,
        num_blocks: kv.blocks,
        bytes_per_block,
        groups: layout.groups.clone(),
        cache_identity: cache_identity(
            file,
            &config.architecture,
            options.kv_cache_dtype,
            kv.block_size,
            &layout,
            backend.cache_layout(),
        ),
    };
    let mut loader = Loader::new(file, backend, progress);
    let decoder = match config.architecture.as_str() {
        "qwen2" => qwen2::load(&mut loader, &config)?,
        "gemma3" => gemma3::load(&mut loader, &config)?,
        _ => llama::load(&mut loader, &config, RopeStyle::Interleaved)?,
    };
    loader.all_used()?;
    let weight_bytes = loader.size().bytes;
    let shape = CacheShape { blocks: kv.blocks, ..shape };
    let runner = ModelRunner::new(loader.backend, decoder, Box::new(Solo), &config, layout, shape, limits)?;
    Ok(Loaded {
        runner: Box::new(runner),
        architecture: config.architecture.clone(),
        layers: config.layers,
        trained_context_length: config.context_length,
        weight_bytes,
        kv_bytes_per_token: config.kv_bytes_per_token(dtype),
        kv,
        memory,
        losses: losses.map(|losses| losses.layers()).unwrap_or_default(),
    })
}

/// What each layer keeps of the past.
fn cache_specs(file: &Checkpoint, config: &ModelConfig, hybrid: bool) -> Result<Vec<CacheSpec>, LoadError> {
    if config.architecture != "gemma3" || !hybrid {
        return Ok(vec![CacheSpec::Full; config.layers]);
    }
    let spec = |window| match window {
        None => CacheSpec::Full,
        Some(window) => CacheSpec::Sliding { window },
    };
    Ok(gemma3::windows(file, config)?.into_iter().map(spec).collect())
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

/// Takes tensors from the file by name, checks their shape, and puts them on the device.
pub(super) struct Loader<'a, B: Backend> {
    file: &'a Checkpoint,
    backend: B,
    progress: &'a dyn Fn(u64, u64),
    done: u64,
    total: u64,
    size: MatrixSize,
    /// Names of the tensors that found their place.
    used: HashSet<String>,
}

impl<'a, B: Backend> Loader<'a, B> {
    fn new(file: &'a Checkpoint, backend: B, progress: &'a dyn Fn(u64, u64)) -> Self {
        file.advise_sequential();
        let total = file.tensors().map(|t| t.bytes as u64).sum();
        Self { file, backend, progress, done: 0, total, size: MatrixSize::default(), used: HashSet::new() }
    }

    pub(super) fn file(&self) -> &'a Checkpoint {
        self.file
    }

    /// Of the matrices loaded so far, as the device holds them.
    pub(super) fn size(&self) -> MatrixSize {
        self.size
    }

    /// A tensor that no part asked for would be left out of the model in silence: its output would
    /// be wrong and nobody would know.
    fn all_used(&self) -> Result<(), LoadError> {
        match self.file.tensors().find(|t| !self.used.contains(t.name.as_str())) {
            None => Ok(()),
            Some(tensor) => Err(LoadError::Unsupported {
                file: self.file.path().display().to_string(),
                problem: format!("tensor {} has no place in the model as this version knows it", tensor.name),
            }),
        }
    }

    pub(super) fn embedding(&mut self, scale: f32) -> Result<Embedding<B>, LoadError> {
        self.used.insert("token_embd.weight".to_owned());
        Ok(Embedding { table: self.backend.table(self.file, "token_embd.weight")?, scale })
    }

    /// The projection to the vocabulary is the embedding matrix where the file has none of its own.
    pub(super) fn head(&mut self, config: &ModelConfig) -> Result<Head<B>, LoadError> {
        let name =
            if self.file.info("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
        let weight = self.matrix(&[(name.to_owned(), config.vocab_size)], config.dim)?;
        let norm = RmsNorm { weight: self.vector("output_norm.weight", config.dim)?, eps: config.eps };
        Ok(Head { norm, weight })
    }

    pub(super) fn norm(
        &mut self,
        layer: usize,
        name: &str,
        len: usize,
        eps: f32,
    ) -> Result<RmsNorm<B>, LoadError> {
        Ok(RmsNorm { weight: self.vector(&format!("blk.{layer}.{name}.weight"), len)?, eps })
    }

    pub(super) fn qkv(&mut self, config: &ModelConfig, layer: usize) -> Result<B::Matrix, LoadError> {
        let parts = qkv_parts(config).map(|(part, rows)| (format!("blk.{layer}.attn_{part}.weight"), rows));
        self.matrix(&parts, config.dim)
    }

    pub(super) fn qkv_bias(
        &mut self,
        config: &ModelConfig,
        layer: usize,
    ) -> Result<Option<B::Buf>, LoadError> {
        if self.file.info(&format!("blk.{layer}.attn_q.bias")).is_none() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(config.qkv_rows());
        for (part, rows) in qkv_parts(config) {
            all.extend(self.values(&format!("blk.{layer}.attn_{part}.bias"), rows)?);
        }
        Ok(Some(self.backend.upload(&all)?))
    }

    fn bias(&mut self, layer: usize, name: &str, len: usize) -> Result<Option<B::Buf>, LoadError> {
        let values = self.optional_vector(&format!("blk.{layer}.{name}.bias"), len)?;
        Ok(values.map(|values| self.backend.upload(&values)).transpose()?)
    }

    pub(super) fn row_parallel(
        &mut self,
        layer: usize,
        name: &str,
        cols: usize,
        dim: usize,
        post_norm: Option<RmsNorm<B>>,
    ) -> Result<RowParallel<B>, LoadError> {
        let weight = self.matrix(&[(format!("blk.{layer}.{name}.weight"), dim)], cols)?;
        let bias = self.bias(layer, name, dim)?;
        Ok(RowParallel { weight, bias, dim, post_norm })
    }

    pub(super) fn feed_forward(
        &mut self,
        config: &ModelConfig,
        layer: usize,
        norm: RmsNorm<B>,
        activation: Activation,
        post_norm: Option<RmsNorm<B>>,
    ) -> Result<FeedForward<B>, LoadError> {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}.weight");
        let width = config.feed_forward;
        Ok(FeedForward {
            norm,
            gate: self.matrix(&[(name("gate"), width)], config.dim)?,
            up: self.matrix(&[(name("up"), width)], config.dim)?,
            gate_bias: self.bias(layer, "ffn_gate", width)?,
            up_bias: self.bias(layer, "ffn_up", width)?,
            activation,
            down: self.row_parallel(layer, "ffn_down", width, config.dim, post_norm)?,
        })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<B::Buf, LoadError> {
        let values = self.values(name, len)?;
        Ok(self.backend.upload(&values)?)
    }

    pub(super) fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.file.info(name).map(|_| self.values(name, len)).transpose()
    }

    fn values(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.file.tensor(name)?;
        self.check(&tensor, &[len])?;
        let mut values = vec![0.0; len];
        decode(tensor.info.format, &tensor.data, &mut values);
        tensor.release(0..1);
        self.count(&[tensor]);
        Ok(values)
    }

    /// Tensors of `cols` columns stacked; each with its name and rows.
    fn matrix(&mut self, parts: &[(String, usize)], cols: usize) -> Result<B::Matrix, LoadError> {
        let mut tensors = Vec::with_capacity(parts.len());
        for (name, rows) in parts {
            let tensor = self.file.tensor(name)?;
            self.check(&tensor, &[cols, *rows])?;
            tensors.push(tensor);
        }
        let matrix = self.backend.matrix(&tensors)?;
        self.size += self.backend.matrix_size(&matrix);
        self.count(&tensors);
        Ok(matrix)
    }

    fn check(&self, tensor: &Tensor, dims: &[usize]) -> Result<(), LoadError> {
        let found = &tensor.info.dims;
        let significant = found.iter().rposition(|d| *d != 1).map_or(1, |last| last + 1).max(dims.len());
        if found.len() >= dims.len() && found[..significant.min(found.len())] == *dims {
            return Ok(());
        }
        Err(LoadError::Unsupported {
            file: self.file.path().display().to_string(),
            problem: format!("tensor {} has shape {found:?} where {dims:?} is needed", tensor.info.name),
        })
    }

    fn count(&mut self, tensors: &[Tensor<'a>]) {
        self.used.extend(tensors.iter().map(|t| t.info.name.clone()));
        let before = self.done;
        self.done += tensors.iter().map(|t| t.info.bytes as u64).sum::<u64>();
        // Whoever is told wakes up, on a core that has better things to do.
        let percent = |done: u64| 100 * done / self.total.max(1);
        if percent(self.done) > percent(before) {
            (self.progress)(self.done.min(self.total), self.total);
        }
    }
}

fn qkv_parts(config: &ModelConfig) -> [(&'static str, usize); 3] {
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    [("q", q), ("k", kv), ("v", kv)]
}
