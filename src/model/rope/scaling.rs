//! What a file's `{architecture}.rope.scaling.*` asks for. GGUF has no keys for some of it that a hub's
//! configuration has; those are ours (see [`weights::hub`](crate::weights)).

use super::lengths::RopeLengths;
use crate::model::config::{ConfigError, bad};
use crate::weights::Checkpoint;

/// How a model is stretched beyond the length that it was first trained for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::model) enum Scaling {
    #[default]
    None,
    /// All pairs turn slower (Chen et al. 2023).
    Linear(f32),
    /// By the length of the sequence, beyond `trained` tokens.
    Dynamic {
        factor: f32,
        trained: usize,
    },
    Yarn(Yarn),
    Llama3(Llama3),
    Long(LongRope),
}

/// Peng et al. 2023.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct Yarn {
    pub(super) factor: f32,
    /// Tokens of the context before the stretching.
    pub(super) original: usize,
    /// Turns within that context, from which on a pair is left alone, and up to which it is slowed in full.
    pub(super) beta_fast: f32,
    pub(super) beta_slow: f32,
    /// The pairs between are counted from a whole pair on.
    pub(super) truncate: bool,
    /// Multiplies cosines and sines.
    pub(super) attention: f32,
}

/// Grattafiori et al. 2024.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct Llama3 {
    pub(super) factor: f32,
    pub(super) low: f32,
    pub(super) high: f32,
    pub(super) original: usize,
}

/// Ding et al. 2024: a divisor for each pair, found by search; other ones for long sequences.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct LongRope {
    /// Longest sequence, in tokens, that has the short ones.
    pub(super) original: usize,
    /// `None`: in tensors.
    pub(super) short: Option<Vec<f32>>,
    pub(super) long: Option<Vec<f32>>,
    pub(super) short_attention: f32,
    pub(super) long_attention: f32,
}

pub(super) const SHORT_TENSOR: &str = "rope_factors_short.weight";
pub(super) const LONG_TENSOR: &str = "rope_factors_long.weight";

/// The keys of one file.
struct Keys<'a> {
    file: &'a Checkpoint,
    architecture: &'a str,
    /// Tokens that the model was trained for in the end.
    context: usize,
}

impl Scaling {
    /// `context`: `{architecture}.context_length`; `dims`: elements of a head that turn.
    pub(in crate::model) fn read(
        file: &Checkpoint,
        context: usize,
        dims: usize,
    ) -> Result<Self, ConfigError> {
        let keys = Keys { file, architecture: file.architecture()?, context };
        let name = keys.key("type");
        match file.str(&name)? {
            None | Some("none" | "default" | "longrope") if file.info(LONG_TENSOR).is_some() => {
                keys.long(dims)
            }
            None => keys.of_old_files(),
            Some("none" | "default") => Ok(Scaling::None),
            Some("linear") => Ok(Scaling::Linear(keys.require_positive("factor")?)),
            Some("dynamic") if dims > 2 => {
                Ok(Scaling::Dynamic { factor: keys.require_positive("factor")?, trained: keys.original()? })
            }
            Some("yarn") => keys.yarn(),
            Some("llama3") => keys.llama3(),
            Some("longrope") => keys.long(dims),
            Some(other) => {
                let known = "none, linear, dynamic, yarn, llama3 and longrope are supported";
                Err(bad(&name, other, known))
            }
        }
    }
}

impl Scaling {
    /// Which sequences' pairs turn alike.
    pub(in crate::model) fn lengths(&self) -> RopeLengths {
        match self {
            Scaling::Dynamic { trained, .. } => RopeLengths::Each(*trained),
            Scaling::Long(long) => RopeLengths::Border(long.original),
            _ => RopeLengths::Same,
        }
    }

    /// Tokens that the model is good for, trained for `context`: files say the context before or after the
    /// stretching.
    pub(in crate::model) fn context(&self, context: usize) -> usize {
        let stretched = |tokens: usize, factor: f32| (tokens as f32 * factor) as usize;
        match self {
            Scaling::Dynamic { factor, trained } => context.max(stretched(*trained, *factor)),
            Scaling::Yarn(yarn) => context.max(stretched(yarn.original, yarn.factor)),
            _ => context,
        }
    }
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.rope.scaling.{name}", self.architecture)
    }

    /// Finite and above 0.
    fn positive(&self, name: &str) -> Result<Option<f32>, ConfigError> {
        let key = self.key(name);
        match self.file.f32(&key)? {
            Some(value) if !(value > 0.0 && value.is_finite()) => {
                Err(bad(&key, value, "a number above 0 is needed"))
            }
            value => Ok(value),
        }
    }

    fn require_positive(&self, name: &str) -> Result<f32, ConfigError> {
        self.file.require_f32(&self.key(name))?;
        Ok(self.positive(name)?.expect("it is there"))
    }

    /// Tokens of the context before the stretching: the trained one where nothing else is said.
    fn original(&self) -> Result<usize, ConfigError> {
        let key = self.key("original_context_length");
        match self.file.u64(&key)? {
            None => Ok(self.context),
            Some(original @ 1..=0x100_0000) => Ok(original as usize),
            Some(wrong) => Err(bad(&key, wrong, "from 1 to 2^24 tokens are possible")),
        }
    }

    /// The factor by which the context grew, where it is not said.
    fn factor(&self, original: usize) -> Result<f32, ConfigError> {
        Ok(self.positive("factor")?.unwrap_or(self.context as f32 / original as f32))
    }

    /// Files that do not name a kind have a linear factor, or none.
    fn of_old_files(&self) -> Result<Scaling, ConfigError> {
        let old = format!("{}.rope.scale_linear", self.architecture);
        let factor = match self.positive("factor")? {
            None => self.file.f32(&old)?.filter(|factor| *factor != 0.0),
            some => some,
        };
        match factor {
            None => Ok(Scaling::None),
            Some(factor) if factor > 0.0 && factor.is_finite() => Ok(Scaling::Linear(factor)),
            Some(wrong) => Err(bad(&old, wrong, "a number above 0 is needed")),
        }
    }

    fn yarn(&self) -> Result<Scaling, ConfigError> {
        let original = self.original()?;
        let factor = self.factor(original)?;
        let extrapolates = self.key("yarn_ext_factor");
        if let Some(part) = self.file.f32(&extrapolates)?.filter(|part| *part != 1.0) {
            return Err(bad(&extrapolates, part, "only 1 is supported"));
        }
        Ok(Scaling::Yarn(Yarn {
            factor,
            original,
            beta_fast: self.positive("yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: self.positive("yarn_beta_slow")?.unwrap_or(1.0),
            truncate: self.file.bool(&self.key("truncate"))?.unwrap_or(true),
            attention: match self.attention()? {
                Some(said) => said,
                None => self.mscale(factor)?,
            },
        }))
    }

    /// What multiplies cosines and sines, where it is said.
    fn attention(&self) -> Result<Option<f32>, ConfigError> {
        match self.positive("attn_factor")? {
            None => self.positive("yarn_attn_factor"),
            said => Ok(said),
        }
    }

    fn mscale(&self, factor: f32) -> Result<f32, ConfigError> {
        let said = |name: &str| self.file.f32(&self.key(name));
        let all = said("mscale_all_dim")?;
        // DeepSeek's GGUF files have this of the two, and the models have both alike.
        let same = said("yarn_log_multiplier")?.filter(|multiplier| all.is_none() && *multiplier != 0.0);
        let all = all.or(same.map(|multiplier| 10.0 * multiplier)).unwrap_or(0.0);
        let own = said("mscale")?.unwrap_or(if same.is_some() { all } else { 0.0 });
        Ok(yarn_attention(factor, own, all))
    }

    fn llama3(&self) -> Result<Scaling, ConfigError> {
        let (low, high) =
            (self.require_positive("low_freq_factor")?, self.require_positive("high_freq_factor")?);
        if low >= high {
            return Err(bad(&self.key("high_freq_factor"), high, &format!("more than {low} is needed")));
        }
        let factor = self.require_positive("factor")?;
        Ok(Scaling::Llama3(Llama3 { factor, low, high, original: self.original()? }))
    }

    fn long(&self, dims: usize) -> Result<Scaling, ConfigError> {
        let original = self.original()?;
        let factor = self.factor(original)?;
        let grown = match factor {
            grown if grown > 1.0 && original > 1 => (1.0 + grown.ln() / (original as f32).ln()).sqrt(),
            _ => 1.0,
        };
        let attention = self.attention()?.unwrap_or(grown);
        Ok(Scaling::Long(LongRope {
            original,
            short: self.list("short_factor", SHORT_TENSOR, dims / 2)?,
            long: self.list("long_factor", LONG_TENSOR, dims / 2)?,
            short_attention: self.positive("short_mscale")?.unwrap_or(attention),
            long_attention: self.positive("long_mscale")?.unwrap_or(attention),
        }))
    }

    /// One number for each pair; `None` where the tensor has them.
    fn list(&self, name: &str, tensor: &str, pairs: usize) -> Result<Option<Vec<f32>>, ConfigError> {
        let key = self.key(name);
        if self.file.info(tensor).is_some() {
            return Ok(None);
        }
        match self.file.f32s(&key)? {
            None => {
                Err(bad(&self.key("type"), "longrope", &format!("there is no {key}, and no tensor {tensor}")))
            }
            Some(list) if list.len() != pairs => {
                Err(bad(&key, format!("a list of {}", list.len()), &format!("{pairs} pairs turn")))
            }
            Some(list) => match list.iter().find(|factor| !(**factor > 0.0 && factor.is_finite())) {
                None => Ok(Some(list)),
                Some(wrong) => Err(bad(&key, wrong, "numbers above 0 are needed")),
            },
        }
    }
}

/// YaRN's attention factor (section 3.4), and what DeepSeek-V2 makes of it with two weights; 0 is none.
pub(super) fn yarn_attention(factor: f32, mscale: f32, mscale_all_dim: f32) -> f32 {
    let of = |weight: f32| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
    if mscale == 0.0 || mscale_all_dim == 0.0 { of(1.0) } else { of(mscale) / of(mscale_all_dim) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::GgufWriter;
    use std::path::Path;

    fn read(of: impl Fn(GgufWriter) -> GgufWriter) -> Result<Scaling, String> {
        let file = Checkpoint::from_bytes(Path::new("x.gguf"), of(GgufWriter::new("x")).to_bytes()).unwrap();
        Scaling::read(&file, 4096, 4).map_err(|e| e.to_string())
    }

    fn put(kind: &'static str) -> impl Fn(GgufWriter) -> GgufWriter {
        move |w| w.put("x.rope.scaling.type", kind).put("x.rope.scaling.factor", 4.0f32)
    }

    #[test]
    fn kinds_are_read_with_what_they_leave_out() {
        assert_eq!(read(|w| w), Ok(Scaling::None));
        assert_eq!(read(|w| w.put("x.rope.scaling.factor", 4.0f32)), Ok(Scaling::Linear(4.0)));
        assert_eq!(read(|w| w.put("x.rope.scale_linear", 2.0f32)), Ok(Scaling::Linear(2.0)));
        assert_eq!(read(put("none")), Ok(Scaling::None));
        assert_eq!(read(put("dynamic")), Ok(Scaling::Dynamic { factor: 4.0, trained: 4096 }));
        let Ok(Scaling::Yarn(yarn)) = read(put("yarn")) else { panic!() };
        assert_eq!((yarn.original, yarn.beta_fast, yarn.beta_slow, yarn.truncate), (4096, 32.0, 1.0, true));
        assert_eq!(yarn.attention, 0.1 * 4f32.ln() + 1.0);
        let of_deepseek = |w| put("yarn")(w).put("x.rope.scaling.yarn_log_multiplier", 0.0707f32);
        let Ok(Scaling::Yarn(yarn)) = read(of_deepseek) else { panic!() };
        assert_eq!(yarn.attention, 1.0);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let of = |read: Result<Scaling, String>| read.unwrap_err();
        assert!(of(read(put("ntk"))).contains("x.rope.scaling.type is ntk: none, linear, dynamic"));
        let zero = |w: GgufWriter| w.put("x.rope.scaling.factor", 0.0f32);
        assert!(of(read(zero)).contains("x.rope.scaling.factor is 0: a number above 0"));
        assert!(of(read(put("llama3"))).contains("low_freq_factor"));
        assert!(of(read(put("longrope"))).contains("rope_factors_short.weight"));
        let short = |w| put("longrope")(w).put("x.rope.scaling.short_factor", vec![1.0f32]);
        assert!(of(read(short)).contains("2 pairs turn"));
    }
}
