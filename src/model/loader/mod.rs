mod mixture;
mod state;

pub(super) use mixture::MixtureConfig;

use super::config::{ConfigError, ModelConfig};
use super::layers::{Attention, Dense, Embedding, Gated, Head, Normalisation, Normed, RowParallel};
use super::load::LoadError;
use crate::compute::{Activation, Backend, MatrixSize, Over};
use crate::weights::{Checkpoint, Tensor, decode};
use std::collections::HashSet;

/// Takes tensors from the file by name, checks their shape, and puts them on the device.
pub(super) struct Loader<'a, B: Backend> {
    file: &'a Checkpoint,
    pub(super) backend: B,
    progress: &'a dyn Fn(u64, u64),
    done: u64,
    total: u64,
    size: MatrixSize,
    expert_size: MatrixSize,
    /// Names of the tensors that found their place.
    used: HashSet<String>,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub(super) fn new(file: &'a Checkpoint, backend: B, progress: &'a dyn Fn(u64, u64)) -> Self {
        file.advise_sequential();
        let total = file.tensors().map(|t| t.bytes as u64).sum();
        Self {
            file,
            backend,
            progress,
            done: 0,
            total,
            size: MatrixSize::default(),
            expert_size: MatrixSize::default(),
            used: HashSet::new(),
        }
    }

    pub(super) fn file(&self) -> &'a Checkpoint {
        self.file
    }

    /// What a family reads once more of the settings.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Checkpoint) -> Result<T, ConfigError>,
    ) -> Result<T, LoadError> {
        read(self.file).map_err(|error| match error {
            ConfigError::File(error) => LoadError::File(error),
            value => LoadError::Unsupported {
                file: self.file.path().display().to_string(),
                problem: value.to_string(),
            },
        })
    }

    /// Of the matrices loaded so far, as the device holds them.
    pub(super) fn size(&self) -> MatrixSize {
        self.size
    }

    /// Of the experts' matrices, which [`Self::size`] leaves out.
    pub(super) fn expert_size(&self) -> MatrixSize {
        self.expert_size
    }

    /// A tensor that no part asked for would be left out of the model in silence: its output would
    /// be wrong and nobody would know.
    pub(super) fn all_used(&self) -> Result<(), LoadError> {
        // Old files have frequencies in every layer, which are computed.
        let is_known = |name: &str| self.used.contains(name) || name.ends_with(".attn_rot_embd.weight");
        match self.file.tensors().find(|t| !is_known(&t.name)) {
            None => Ok(()),
            Some(tensor) => Err(LoadError::Unsupported {
                file: self.file.path().display().to_string(),
                problem: format!("tensor {} has no place in the model as this version knows it", tensor.name),
            }),
        }
    }

    /// `{name}.weight`, and `{name}.bias` where there is one.
    pub(super) fn norm(
        &mut self,
        config: &ModelConfig,
        name: &str,
        len: usize,
    ) -> Result<Normalisation<B>, LoadError> {
        self.norm_of(config, name, &[len])
    }

    fn norm_of(
        &mut self,
        config: &ModelConfig,
        name: &str,
        dims: &[usize],
    ) -> Result<Normalisation<B>, LoadError> {
        let mut weight = self.values_of(&format!("{name}.weight"), dims)?;
        if config.norm_plus_one {
            weight.iter_mut().for_each(|w| *w += 1.0);
        }
        let weight = self.backend.upload(&weight)?;
        let bias = self.bias(name, dims.iter().product())?;
        Ok(Normalisation { weight, bias, eps: config.eps, kind: config.norm })
    }

    /// `None` where the file has none of that name.
    pub(super) fn optional_norm(
        &mut self,
        config: &ModelConfig,
        name: &str,
        len: usize,
    ) -> Result<Option<Normalisation<B>>, LoadError> {
        let there = self.file.info(&format!("{name}.weight")).is_some();
        there.then(|| self.norm(config, name, len)).transpose()
    }

    pub(super) fn embedding(&mut self, scale: f32) -> Result<Embedding<B>, LoadError> {
        Ok(Embedding { table: self.table("token_embd.weight")?, scale, positions: None })
    }

    pub(super) fn table(&mut self, name: &str) -> Result<B::Table, LoadError> {
        self.used.insert(name.to_owned());
        Ok(self.backend.table(self.file, name)?)
    }

    /// The projection to the vocabulary is the embedding matrix where the file has none of its own.
    pub(super) fn head(&mut self, config: &ModelConfig) -> Result<Head<B>, LoadError> {
        self.head_after(config, "output_norm")
    }

    /// The same, where the last normalisation has another name.
    pub(super) fn head_after(&mut self, config: &ModelConfig, norm: &str) -> Result<Head<B>, LoadError> {
        let own = self.file.info("output.weight").is_some();
        let name = if own { "output.weight" } else { "token_embd.weight" };
        Ok(Head {
            weight: self.matrix(&[(name.to_owned(), config.vocab_size)], config.dim)?,
            bias: self.bias("output", config.vocab_size)?,
            norm: self.norm(config, norm, config.dim)?,
            scale: 1.0,
            soft_cap: None,
            vocab: config.vocab_size,
        })
    }

    /// Attention as most families have it: whatever the file has of it, and all of the past. A family
    /// changes what is its own.
    pub(super) fn attention(&mut self, config: &ModelConfig, i: usize) -> Result<Attention<B>, LoadError> {
        let (dim, head_dim) = (config.dim, config.head_dim);
        let name = |part: &str| format!("blk.{i}.{part}");
        let query_norm = self.head_norm(config, &name("attn_q_norm"), config.heads)?;
        let key_norm = self.head_norm(config, &name("attn_k_norm"), config.kv_heads)?;
        Ok(Attention {
            norm: self.optional_norm(config, &name("attn_norm"), dim)?,
            qkv: self.qkv(config, i)?,
            bias: self.qkv_bias(config, i)?,
            query_norm,
            key_norm,
            gate: None,
            output: self.row_parallel(&name("attn_output"), config.heads * head_dim, dim, None)?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim,
            scale: config.attention_scale.unwrap_or(1.0 / (head_dim as f32).sqrt()),
            window: config.window(i),
            soft_cap: None,
            sinks: None,
            rope: Some(0),
        })
    }

    /// Of queries or keys, where there is one; what it is over shows in the shape of its weights.
    fn head_norm(
        &mut self,
        config: &ModelConfig,
        name: &str,
        heads: usize,
    ) -> Result<Option<Normed<B>>, LoadError> {
        let Some(info) = self.file.info(&format!("{name}.weight")) else { return Ok(None) };
        let head_dim = config.head_dim;
        let (over, dims) = match (info.row_len(), info.rows()) {
            (_, 2..) => (Over::EachHead, vec![head_dim, heads]),
            (len, _) if len > head_dim => (Over::Heads, vec![heads * head_dim]),
            _ => (Over::Head, vec![head_dim]),
        };
        Ok(Some(Normed { norm: self.norm_of(config, name, &dims)?, over }))
    }

    /// Queries, keys and values: three tensors, or one that holds their rows one after the other.
    fn qkv(&mut self, config: &ModelConfig, layer: usize) -> Result<B::Matrix, LoadError> {
        let fused = format!("blk.{layer}.attn_qkv.weight");
        if self.file.info(&fused).is_some() {
            return self.matrix(&[(fused, config.qkv_rows())], config.dim);
        }
        let parts = qkv_parts(config).map(|(part, rows)| (format!("blk.{layer}.attn_{part}.weight"), rows));
        self.matrix(&parts, config.dim)
    }

    fn qkv_bias(&mut self, config: &ModelConfig, layer: usize) -> Result<Option<B::Buf>, LoadError> {
        let fused = self.bias(&format!("blk.{layer}.attn_qkv"), config.qkv_rows())?;
        if fused.is_some() || self.file.info(&format!("blk.{layer}.attn_q.bias")).is_none() {
            return Ok(fused);
        }
        let mut all = Vec::with_capacity(config.qkv_rows());
        for (part, rows) in qkv_parts(config) {
            all.extend(self.values(&format!("blk.{layer}.attn_{part}.bias"), rows)?);
        }
        Ok(Some(self.backend.upload(&all)?))
    }

    /// `{name}.bias`, where there is one.
    pub(super) fn bias(&mut self, name: &str, len: usize) -> Result<Option<B::Buf>, LoadError> {
        let values = self.optional_vector(&format!("{name}.bias"), len)?;
        Ok(values.map(|values| self.backend.upload(&values)).transpose()?)
    }

    pub(super) fn row_parallel(
        &mut self,
        name: &str,
        cols: usize,
        dim: usize,
        post_norm: Option<Normalisation<B>>,
    ) -> Result<RowParallel<B>, LoadError> {
        let weight = self.matrix(&[(format!("{name}.weight"), dim)], cols)?;
        Ok(RowParallel { weight, bias: self.bias(name, dim)?, dim, post_norm, scale: 1.0 })
    }

    /// A gated feed-forward part; gate and up are two tensors, or the halves of `ffn_up`. Its activation is the
    /// file's, or the family's usual one.
    pub(super) fn gated(
        &mut self,
        config: &ModelConfig,
        i: usize,
        usual: Activation,
    ) -> Result<Gated<B>, LoadError> {
        let (dim, width) = (config.dim, config.feed_forward);
        let name = |part: &str| format!("blk.{i}.ffn_{part}");
        let (gate, up) = self.gate_and_up(&name("gate"), &name("up"), width, dim)?;
        Ok(Gated {
            norm: self.optional_norm(config, &name("norm"), dim)?,
            gate,
            up,
            gate_bias: self.bias(&name("gate"), width)?,
            up_bias: self.bias(&name("up"), width)?,
            activation: config.activation.unwrap_or(usual),
            down: self.row_parallel(&name("down"), width, dim, None)?,
        })
    }

    fn gate_and_up(
        &mut self,
        gate: &str,
        up: &str,
        width: usize,
        dim: usize,
    ) -> Result<(B::Matrix, B::Matrix), LoadError> {
        let (gate, up) = (format!("{gate}.weight"), format!("{up}.weight"));
        if self.file.info(&gate).is_some() {
            return Ok((self.matrix(&[(gate, width)], dim)?, self.matrix(&[(up, width)], dim)?));
        }
        let halves = [self.file.part(&up, 0, 2)?, self.file.part(&up, 1, 2)?];
        halves.iter().try_for_each(|half| self.check(half, &[dim, width]))?;
        let [gate, up] = halves;
        Ok((self.stacked(vec![gate])?, self.stacked(vec![up])?))
    }

    /// The same without a gate.
    pub(super) fn dense(
        &mut self,
        config: &ModelConfig,
        i: usize,
        usual: Activation,
    ) -> Result<Dense<B>, LoadError> {
        let (dim, width) = (config.dim, config.feed_forward);
        let name = |part: &str| format!("blk.{i}.ffn_{part}");
        Ok(Dense {
            norm: self.optional_norm(config, &name("norm"), dim)?,
            up: self.matrix(&[(format!("{}.weight", name("up")), width)], dim)?,
            up_bias: self.bias(&name("up"), width)?,
            width,
            activation: config.activation.unwrap_or(usual),
            down: self.row_parallel(&name("down"), width, dim, None)?,
        })
    }

    pub(super) fn vector(&mut self, name: &str, len: usize) -> Result<B::Buf, LoadError> {
        let values = self.values(name, len)?;
        Ok(self.backend.upload(&values)?)
    }

    pub(super) fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        self.file.info(name).map(|_| self.values(name, len)).transpose()
    }

    pub(super) fn values(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.values_of(name, &[len])
    }

    fn values_of(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        let tensor = self.file.tensor(name)?;
        self.check(&tensor, dims)?;
        let mut values = vec![0.0; dims.iter().product()];
        decode(tensor.info.format, &tensor.data, &mut values);
        tensor.release(0..1);
        self.count(&[tensor]);
        Ok(values)
    }

    /// Tensors of `cols` columns stacked; each with its name and rows.
    pub(super) fn matrix(&mut self, parts: &[(String, usize)], cols: usize) -> Result<B::Matrix, LoadError> {
        let mut tensors = Vec::with_capacity(parts.len());
        for (name, rows) in parts {
            let tensor = self.file.tensor(name)?;
            self.check(&tensor, &[cols, *rows])?;
            tensors.push(tensor);
        }
        self.stacked(tensors)
    }

    /// The same of experts, of which a pass reads some.
    fn stacked_experts(&mut self, tensors: Vec<Tensor<'a>>) -> Result<B::Matrix, LoadError> {
        let matrix = self.backend.matrix(&tensors)?;
        self.expert_size += self.backend.matrix_size(&matrix);
        self.count(&tensors);
        Ok(matrix)
    }

    /// Tensors, or parts of them, whose shapes are checked: their rows one after the other.
    pub(super) fn stacked(&mut self, tensors: Vec<Tensor<'a>>) -> Result<B::Matrix, LoadError> {
        let matrix = self.backend.matrix(&tensors)?;
        self.size += self.backend.matrix_size(&matrix);
        self.count(&tensors);
        Ok(matrix)
    }

    pub(super) fn check(&self, tensor: &Tensor, dims: &[usize]) -> Result<(), LoadError> {
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
