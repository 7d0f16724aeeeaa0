//! From a file to a model that runs: which family, which tensors, how much memory.

use super::config::{ConfigError, ModelConfig};
use super::layers::{Embedding, FeedForward, Head, RmsNorm, RowParallel};
use super::memory::{DoesNotFit, Wanted, available_bytes};
use super::model_runner::ModelRunner;
use super::{KvPlan, ModelLimits, Runner, gemma3, llama, qwen2};
use crate::compute::{Activation, Backend, DeviceError, MatrixSize, RopeStyle};
use crate::kv::CacheSpec;
use crate::parallel::Solo;
use crate::weights::{Gguf, GgufError, Tensor, decode};
use std::collections::HashSet;

/// Families by the name that files give them (`general.architecture`).
pub const SUPPORTED: &[&str] = &["llama", "qwen2", "gemma3"];

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub max_model_len: Option<usize>,
    pub block_size: usize,
    pub kv_cache_bytes: Option<usize>,
    pub max_batched_tokens: usize,
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
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    File(#[from] GgufError),
    #[error("{file}: {problem}")]
    Unsupported { file: String, problem: String },
    #[error(transparent)]
    Memory(#[from] DoesNotFit),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Loads a model onto a device. `progress(done, total)` counts bytes of the file.
pub fn load<B: Backend>(
    file: &Gguf,
    backend: B,
    options: &LoadOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Loaded, LoadError> {
    let unsupported =
        |problem: String| LoadError::Unsupported { file: file.path().display().to_string(), problem };
    let architecture = file.architecture()?;
    if !SUPPORTED.contains(&architecture) {
        let known = SUPPORTED.join(", ");
        return Err(unsupported(format!("the architecture {architecture:?} is not supported; {known} are")));
    }
    let config = ModelConfig::read(file).map_err(|e| match e {
        ConfigError::File(e) => LoadError::File(e),
        value => unsupported(value.to_string()),
    })?;
    let mut loader = Loader::new(file, backend, progress);
    let decoder = match config.architecture.as_str() {
        "qwen2" => qwen2::load(&mut loader, &config)?,
        "gemma3" => gemma3::load(&mut loader, &config)?,
        _ => llama::load(&mut loader, &config, RopeStyle::Interleaved)?,
    };
    loader.all_used()?;
    let kv = Wanted {
        bytes_per_token: config.kv_bytes_per_token(),
        block_size: options.block_size,
        trained: config.context_length,
        max_model_len: options.max_model_len,
        kv_cache_bytes: options.kv_cache_bytes,
        available: available_bytes(),
    }
    .plan()?;
    let limits = ModelLimits {
        vocab_size: config.vocab_size,
        max_model_len: kv.max_model_len,
        max_batched_tokens: options.max_batched_tokens,
        max_outputs: options.max_batched_tokens,
        block_size: kv.block_size,
        num_blocks: kv.blocks,
        bytes_per_block: config.kv_bytes_per_token() * kv.block_size,
        groups: vec![CacheSpec::Full],
        cache_identity: String::new(),
    };
    let weight_bytes = loader.size().bytes;
    let runner = ModelRunner::new(loader.backend, decoder, Box::new(Solo), &config, limits)?;
    Ok(Loaded {
        runner: Box::new(runner),
        architecture: config.architecture.clone(),
        layers: config.layers,
        trained_context_length: config.context_length,
        weight_bytes,
        kv_bytes_per_token: config.kv_bytes_per_token(),
        kv,
    })
}

/// Takes tensors from the file by name, checks their shape, and puts them on the device.
pub(super) struct Loader<'a, B: Backend> {
    file: &'a Gguf,
    backend: B,
    progress: &'a dyn Fn(u64, u64),
    done: u64,
    total: u64,
    size: MatrixSize,
    /// Names of the tensors that found their place.
    used: HashSet<&'a str>,
}

impl<'a, B: Backend> Loader<'a, B> {
    fn new(file: &'a Gguf, backend: B, progress: &'a dyn Fn(u64, u64)) -> Self {
        file.advise_sequential();
        let total = file.tensors().iter().map(|t| t.bytes as u64).sum();
        Self { file, backend, progress, done: 0, total, size: MatrixSize::default(), used: HashSet::new() }
    }

    pub(super) fn file(&self) -> &'a Gguf {
        self.file
    }

    /// Of the matrices loaded so far, as the device holds them.
    pub(super) fn size(&self) -> MatrixSize {
        self.size
    }

    /// A tensor that no part asked for would be left out of the model in silence: its output would
    /// be wrong and nobody would know.
    fn all_used(&self) -> Result<(), LoadError> {
        match self.file.tensors().iter().find(|t| !self.used.contains(t.name.as_str())) {
            None => Ok(()),
            Some(tensor) => Err(LoadError::Unsupported {
                file: self.file.path().display().to_string(),
                problem: format!("tensor {} has no place in the model as this version knows it", tensor.name),
            }),
        }
    }

    pub(super) fn embedding(&mut self, scale: f32) -> Result<Embedding<B>, LoadError> {
        self.used.insert("token_embd.weight");
        Ok(Embedding { table: self.backend.table(self.file, "token_embd.weight")?, scale })
    }

    /// The projection to the vocabulary is the embedding matrix where the file has none of its own.
    pub(super) fn head(&mut self, config: &ModelConfig) -> Result<Head<B>, LoadError> {
        let name =
            if self.file.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
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
        if self.file.tensor(&format!("blk.{layer}.attn_q.bias")).is_none() {
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
        self.file.tensor(name).map(|_| self.values(name, len)).transpose()
    }

    fn values(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.file.require_tensor(name)?;
        self.check(&tensor, &[len])?;
        let mut values = vec![0.0; len];
        decode(tensor.info.format, tensor.data, &mut values);
        self.count(&[tensor]);
        Ok(values)
    }

    /// Tensors of `cols` columns stacked; each with its name and rows.
    fn matrix(&mut self, parts: &[(String, usize)], cols: usize) -> Result<B::Matrix, LoadError> {
        let mut tensors = Vec::with_capacity(parts.len());
        for (name, rows) in parts {
            let tensor = self.file.require_tensor(name)?;
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
        self.used.extend(tensors.iter().map(|t| t.info.name.as_str()));
        self.done += tensors.iter().map(|t| t.info.bytes as u64).sum::<u64>();
        (self.progress)(self.done.min(self.total), self.total);
        for tensor in tensors {
            // The device has its own copy: the file's pages need not stay in our memory.
            self.file.advise_dontneed(tensor.info.offset..tensor.info.offset + tensor.info.bytes);
        }
    }
}

fn qkv_parts(config: &ModelConfig) -> [(&'static str, usize); 3] {
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    [("q", q), ("k", kv), ("v", kv)]
}
