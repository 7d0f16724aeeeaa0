use super::rope::Scaling;
use crate::compute::{Activation, CacheDtype, CacheShape, MixtureShape, NormKind};
use crate::kv::CacheSpec;
use crate::weights::{Checkpoint, CheckpointError};

/// What a decoder's file says of its shape, under `{architecture}.*`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelConfig {
    pub(super) architecture: String,
    pub(super) layers: usize,
    /// Width of the hidden state.
    pub(super) dim: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Width of the feed-forward part.
    pub(super) feed_forward: usize,
    pub(super) vocab_size: usize,
    /// Longest sequence the model was trained for.
    pub(super) context_length: usize,
    pub(super) eps: f32,
    /// Of all normalisations but those that a family says more of.
    pub(super) norm: NormKind,
    /// Weights of normalisations are stored less 1 (Gemma's folders of hubs; its GGUF files have it added).
    pub(super) norm_plus_one: bool,
    /// Multiplies scores, where the file says so.
    pub(super) attention_scale: Option<f32>,
    /// Of the feed-forward parts, where the file says so.
    pub(super) activation: Option<Activation>,
    /// What each layer keeps of the past.
    pub(super) caches: Vec<CacheSpec>,
    /// Values (f32) of the state of a layer that keeps one.
    pub(super) state_len: usize,
    /// The cache holds latent vectors: see [`CacheShape::latent`](crate::compute::CacheShape).
    pub(super) latent: Option<usize>,
    pub(super) widths: Widths,
    /// Of layers with experts.
    pub(super) mixture: Option<MixtureShape>,
    pub(super) rope_base: f32,
    /// Elements of a head that turn.
    pub(super) rope_dims: usize,
    pub(super) rope_scaling: Scaling,
}

/// Columns of the buffers that layers work in; of each the widest layer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Widths {
    /// A second copy of the residual stream is normalised.
    pub(super) normed: bool,
    pub(super) qkv: usize,
    pub(super) attended: usize,
    pub(super) gated: usize,
    pub(super) router: usize,
    pub(super) side: usize,
}

/// A file whose shape we cannot run, and why.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error(transparent)]
    File(#[from] CheckpointError),
    #[error("{key} is {value}: {problem}")]
    Value { key: String, value: String, problem: String },
}

impl ModelConfig {
    pub(super) fn read(file: &Checkpoint) -> Result<Self, ConfigError> {
        let architecture = file.architecture()?.to_owned();
        let key = |name: &str| format!("{architecture}.{name}");
        let whole = |name: &str| -> Result<usize, ConfigError> {
            let value = file.require_u64(&key(name))?;
            match usize::try_from(value) {
                Ok(value) if (1..=MOST).contains(&value) => Ok(value),
                _ => Err(bad(&key(name), value, &format!("from 1 to {MOST} is possible"))),
            }
        };
        let layers = whole("block_count")?;
        // Models without attention say that they have no heads.
        let whole_or = |name: &str, or: usize| match alike(file, &key(name), layers)? {
            None | Some(0) => Ok(or),
            Some(value) if value <= MOST => Ok(value),
            Some(value) => Err(bad(&key(name), value, &format!("from 1 to {MOST} is possible"))),
        };
        let (dim, heads) = (whole("embedding_length")?, whole_or("attention.head_count", 1)?);
        // Layers without attention have none.
        let most = |heads: Vec<u32>| heads.into_iter().max().filter(|heads| *heads > 0);
        let kv_heads = file.per_layer(&key("attention.head_count_kv"), layers)?.and_then(most);
        let kv_heads = kv_heads.map_or(heads, |heads| heads as usize);
        if heads % kv_heads != 0 {
            return Err(bad(
                &key("attention.head_count_kv"),
                kv_heads,
                &format!("{heads} heads cannot share them"),
            ));
        }
        let head_dim = match file.u64(&key("attention.key_length"))? {
            Some(_) => whole("attention.key_length")?,
            None if dim % heads == 0 => dim / heads,
            None => {
                return Err(bad(&key("embedding_length"), dim, &format!("not a multiple of {heads} heads")));
            }
        };
        // A latent cache has values of a size of their own.
        if let Some(value) = file.u64(&key("attention.value_length"))?
            && value != head_dim as u64
            && file.value(&key("attention.kv_lora_rank")).is_none()
        {
            return Err(bad(&key("attention.value_length"), value, &format!("keys have {head_dim}")));
        }
        let rope_dims = match file.u64(&key("rope.dimension_count"))? {
            Some(_) => whole("rope.dimension_count")?,
            None if head_dim % 2 != 0 => {
                return Err(bad(&key("attention.key_length"), head_dim, "rotary pairs need an even size"));
            }
            None => head_dim,
        };
        if rope_dims % 2 != 0 || rope_dims > head_dim {
            return Err(bad(
                &key("rope.dimension_count"),
                rope_dims,
                &format!("a head has {head_dim} elements"),
            ));
        }
        let context_length = whole("context_length")?;
        let rope_scaling = Scaling::read(file, context_length, rope_dims)?;
        let feed_forward = whole_or("feed_forward_length", 1)?;
        let (norm, eps) = match file.f32(&key("attention.layer_norm_epsilon"))? {
            Some(eps) => (NormKind::Layer, eps),
            None => (NormKind::Rms, file.require_f32(&key("attention.layer_norm_rms_epsilon"))?),
        };
        Ok(Self {
            layers,
            dim,
            heads,
            kv_heads,
            head_dim,
            feed_forward,
            vocab_size: vocab_size(file)?,
            context_length: rope_scaling.context(context_length),
            eps,
            norm,
            norm_plus_one: false,
            attention_scale: file.f32(&key("attention.scale"))?,
            activation: activation(file, &key("hidden_activation"))?,
            caches: vec![CacheSpec::Full; layers],
            state_len: 0,
            latent: None,
            widths: Widths {
                qkv: (heads + 2 * kv_heads) * head_dim,
                attended: heads * head_dim,
                gated: feed_forward,
                ..Widths::default()
            },
            mixture: None,
            rope_base: file.f32(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            rope_dims,
            rope_scaling,
            architecture,
        })
    }

    /// Layers that have no key heads keep a state instead of keys and values.
    pub(super) fn recurrent_where_no_heads(&mut self, file: &Checkpoint) -> Result<(), ConfigError> {
        let key = format!("{}.attention.head_count_kv", self.architecture);
        let heads = file.per_layer(&key, self.layers)?.unwrap_or_default();
        for (spec, _) in self.caches.iter_mut().zip(heads).filter(|(_, heads)| *heads == 0) {
            *spec = CacheSpec::Recurrent;
        }
        Ok(())
    }

    /// What a layer keeps of the past: the inputs of `channels` that a convolution of `width` tokens looks
    /// back at, and `more` values of a recurrence.
    pub(super) fn keep_state(
        &mut self,
        width: usize,
        channels: usize,
        more: usize,
    ) -> Result<(), ConfigError> {
        const MOST: usize = 1 << 30;
        let inputs = width.saturating_sub(1).checked_mul(channels);
        let values = inputs.and_then(|inputs| inputs.checked_add(more)).filter(|values| *values <= MOST);
        self.state_len = values.ok_or_else(|| {
            let key = format!("{}.embedding_length", self.architecture);
            let problem = format!(
                "with {channels} channels over {width} tokens and {more} values, a layer's state is too large"
            );
            bad(&key, self.dim, &problem)
        })?;
        Ok(())
    }

    /// A dimension that the family needs, under `{architecture}.`.
    pub(super) fn whole(&self, file: &Checkpoint, name: &str) -> Result<usize, ConfigError> {
        let key = format!("{}.{name}", self.architecture);
        let value = file.require_u64(&key)?;
        match usize::try_from(value) {
            Ok(value) if (1..=MOST).contains(&value) => Ok(value),
            _ => Err(bad(&key, value, &format!("from 1 to {MOST} is possible"))),
        }
    }

    /// Keys and values of one token in all layers that keep some.
    pub(super) fn kv_bytes_per_token(&self, dtype: CacheDtype) -> usize {
        let layers = self.caches.iter().filter(|spec| **spec != CacheSpec::Recurrent).count();
        layers * self.cache_shape(1, dtype).token_bytes() * self.cache_heads()
    }

    /// The same, with what is left empty in blocks that are as long as a state.
    pub(super) fn kv_bytes_per_token_in(&self, shape: &CacheShape) -> usize {
        let layers = self.caches.iter().filter(|spec| **spec != CacheSpec::Recurrent).count();
        (layers * shape.block_bytes()).div_ceil(shape.block_size)
    }

    /// How many tokens a block should have: keys and values take at least as much as a state, if such
    /// blocks are possible, and as few as that allows. Where there are none, what is cached of a sequence
    /// is its states after every block: few of them are to be made.
    pub(super) fn block_size_for_states(&self, least: usize, dtype: CacheDtype) -> usize {
        const MOST: usize = 256;
        if self.state_len == 0 {
            return least;
        }
        let tokens = match self.caches.iter().all(|spec| *spec == CacheSpec::Recurrent) {
            true => MOST,
            false => {
                let shape = self.cache_shape(1, dtype);
                shape.least_bytes.div_ceil((self.cache_heads() * shape.token_bytes()).max(1))
            }
        };
        tokens.next_multiple_of(16).clamp(least.min(MOST), MOST)
    }

    /// Heads of the cache: of latent vectors there is one for all.
    fn cache_heads(&self) -> usize {
        if self.latent.is_some() { 1 } else { self.kv_heads }
    }

    /// Of a cache without blocks.
    pub(super) fn cache_shape(&self, block_size: usize, dtype: CacheDtype) -> CacheShape {
        CacheShape {
            blocks: 0,
            block_size,
            kv_heads: self.cache_heads(),
            head_dim: self.head_dim,
            latent: self.latent,
            dtype,
            least_bytes: self.state_len * size_of::<f32>(),
        }
    }

    /// Tokens that a layer sees; `None` is all of them.
    pub(super) fn window(&self, layer: usize) -> Option<usize> {
        match self.caches[layer] {
            CacheSpec::Sliding { window } => Some(window),
            CacheSpec::Full | CacheSpec::Recurrent => None,
        }
    }

    /// Tokens of the window that some layers see, where the file has one. A token sees itself at least.
    pub(super) fn window_length(&self, file: &Checkpoint) -> Result<Option<usize>, ConfigError> {
        let window = file.u64(&format!("{}.{WINDOW}", self.architecture))?;
        Ok(window.filter(|window| *window > 0).map(|window| usize::try_from(window).unwrap_or(usize::MAX)))
    }

    /// The window of a family that has layers with one, as long as `usual` where the file says nothing.
    pub(super) fn require_window(
        &self,
        file: &Checkpoint,
        usual: Option<usize>,
    ) -> Result<usize, ConfigError> {
        match usual.filter(|_| file.value(&format!("{}.{WINDOW}", self.architecture)).is_none()) {
            Some(usual) => Ok(usual),
            None => self.whole(file, WINDOW),
        }
    }

    /// Whether each layer sees a window: as the file lists it, or all but every `period`-th where it
    /// gives no other period.
    pub(super) fn sliding_layers(&self, file: &Checkpoint, period: u64) -> Result<Vec<bool>, ConfigError> {
        let key = format!("{}.attention.sliding_window_pattern", self.architecture);
        if let Ok(Some(listed)) = file.bools(&key) {
            return match listed.len() == self.layers {
                true => Ok(listed),
                false => {
                    let problem = format!("the model has {} layers", self.layers);
                    Err(bad(&key, format!("a list of {}", listed.len()), &problem))
                }
            };
        }
        let period = file.u64(&key)?.unwrap_or(period).max(1);
        Ok((1..=self.layers as u64).map(|layer| !layer.is_multiple_of(period)).collect())
    }

    /// Those layers see `window` tokens, the others all.
    pub(super) fn slide(&mut self, window: usize, layers: &[bool]) {
        for (spec, _) in self.caches.iter_mut().zip(layers).filter(|(_, slides)| **slides) {
            *spec = CacheSpec::Sliding { window };
        }
    }

    pub(super) fn qkv_rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

const WINDOW: &str = "attention.sliding_window";

/// No dimension of a model is larger; a file that says so lies.
const MOST: usize = 1 << 24;

pub(super) fn bad(key: &str, value: impl ToString, problem: &str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), value: value.to_string(), problem: problem.to_owned() }
}

/// By the names that transformers gives them, in a key of ours: GGUF's families have one each.
fn activation(file: &Checkpoint, key: &str) -> Result<Option<Activation>, ConfigError> {
    Ok(Some(match file.str(key)? {
        None => return Ok(None),
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu") => Activation::Gelu,
        Some("gelu_new" | "gelu_fast" | "gelu_accurate" | "gelu_pytorch_tanh") => Activation::GeluTanh,
        Some(other) => return Err(bad(key, other, "only silu and forms of gelu are supported")),
    }))
}

/// A number that may be written once or for each layer; layers that differ in it are not supported.
fn alike(file: &Checkpoint, key: &str, layers: usize) -> Result<Option<usize>, ConfigError> {
    let Some(values) = file.per_layer(key, layers)? else { return Ok(None) };
    match values.iter().find(|value| **value != values[0]) {
        None => Ok(Some(values[0] as usize)),
        Some(other) => {
            let value = format!("{} in one layer and {other} in another", values[0]);
            Err(bad(key, value, "all layers must be of one shape"))
        }
    }
}

/// Rows of the embedding matrix; the file's own `vocab_size` may be padded or missing.
fn vocab_size(file: &Checkpoint) -> Result<usize, CheckpointError> {
    Ok(file.require_info("token_embd.weight")?.dims.get(1).copied().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one_head() -> ModelConfig {
        ModelConfig {
            architecture: "llama".into(),
            layers: 1,
            dim: 128,
            heads: 1,
            kv_heads: 1,
            head_dim: 128,
            feed_forward: 1,
            vocab_size: 1,
            context_length: 131_072,
            eps: 1e-5,
            norm: NormKind::Rms,
            norm_plus_one: false,
            attention_scale: None,
            activation: None,
            caches: vec![CacheSpec::Full],
            state_len: 0,
            latent: None,
            widths: Widths::default(),
            mixture: None,
            rope_base: 500_000.0,
            rope_dims: 128,
            rope_scaling: Scaling::None,
        }
    }

    /// SmolLM2-135M: 30 layers of 3 key heads of 64.
    #[test]
    fn a_token_costs_two_bytes_a_number_or_one_and_two_scales_a_head() {
        let config =
            ModelConfig { caches: vec![CacheSpec::Full; 30], kv_heads: 3, head_dim: 64, ..of_one_head() };
        assert_eq!(config.kv_bytes_per_token(CacheDtype::F16), 30 * 3 * 2 * 64 * 2);
        assert_eq!(config.kv_bytes_per_token(CacheDtype::Bf16), 30 * 3 * 2 * 64 * 2);
        for bytes in [CacheDtype::Int8, CacheDtype::Fp8] {
            assert_eq!(config.kv_bytes_per_token(bytes), 30 * 3 * 2 * (64 + 4));
        }
    }

    /// Qwen3-Next's shape: 2 MiB of state beside 2 KiB of keys and values a token; and LFM2-1.2B's.
    #[test]
    fn blocks_grow_to_the_size_of_a_state_where_there_is_one() {
        let caches = vec![CacheSpec::Recurrent, CacheSpec::Full];
        let hybrid = |kv_heads, head_dim, state_len| {
            let config =
                ModelConfig { caches: caches.clone(), kv_heads, head_dim, state_len, ..of_one_head() };
            let tokens = config.block_size_for_states(16, CacheDtype::F16);
            (tokens, config.kv_bytes_per_token_in(&config.cache_shape(tokens, CacheDtype::F16)))
        };
        let state = 32 * 128 * 128 + 3 * 8192;
        assert_eq!(hybrid(2, 256, state), (256, (4 * state).div_ceil(256)));
        assert_eq!(hybrid(8, 64, 2 * 2048), (16, 2048));
        assert_eq!(hybrid(2, 16, 5000), (160, 128));
        assert_eq!(of_one_head().block_size_for_states(16, CacheDtype::F16), 16);
    }
}
