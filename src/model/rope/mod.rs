//! Rotary position embedding of a model (Su et al. 2021): how fast its pairs turn, and how that is stretched
//! for longer sequences than the model was first trained for.
//!
//! | file | says |
//! |---|---|
//! | `scaling` | which of the kinds of stretching a file asks for |
//! | `angles` | their formulas |
//! | `lengths` | what of it depends on a sequence's length |

mod angles;
mod lengths;
mod scaling;

pub use lengths::RopeLengths;

pub(super) use angles::Angles;
pub(super) use scaling::Scaling;

use super::config::ModelConfig;
use super::load::LoadError;
use super::loader::Loader;
use crate::compute::{Backend, RopeStyle, RopeTable};
use angles::{dynamic, llama3, plain, yarn};
use std::borrow::Cow;
use std::ops::Range;

/// One kind of rotary embedding; layers of a model share one or two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rope {
    pub(super) style: RopeStyle,
    turns: Turns,
}

#[derive(Clone, Debug, PartialEq)]
enum Turns {
    Same(Angles),
    /// Long sequences have others: those of more than `border` tokens.
    Border {
        border: usize,
        short: Angles,
        long: Angles,
    },
    Dynamic {
        base: f32,
        dims: usize,
        factor: f32,
        trained: usize,
    },
}

impl Rope {
    /// Without any stretching: `base^(-2i / dims)`.
    pub(super) fn plain(style: RopeStyle, base: f32, dims: usize) -> Self {
        Self::new(style, plain(base, dims))
    }

    pub(super) fn new(style: RopeStyle, angles: Angles) -> Self {
        Self { style, turns: Turns::Same(angles) }
    }

    /// Cosines and sines of some positions of a sequence, whose factors are those for `len` tokens.
    pub(super) fn extend(&self, table: &mut RopeTable, positions: Range<usize>, len: usize) {
        let angles = self.angles(len);
        table.extend(positions, &angles.inverse_frequencies, angles.factor);
    }

    fn angles(&self, len: usize) -> Cow<'_, Angles> {
        match &self.turns {
            Turns::Same(angles) => Cow::Borrowed(angles),
            Turns::Border { border, short, long } => Cow::Borrowed(if len > *border { long } else { short }),
            Turns::Dynamic { base, dims, factor, trained } => {
                Cow::Owned(dynamic(*base, *dims, *factor, *trained, len))
            }
        }
    }
}

impl<B: Backend> Loader<'_, B> {
    /// What the file's keys and tensors say of the rotary embedding of most families' layers.
    pub(super) fn rope(&mut self, config: &ModelConfig, style: RopeStyle) -> Result<Rope, LoadError> {
        let (base, dims) = (config.rope_base, config.rope_dims);
        let turns = match &config.rope_scaling {
            Scaling::None => Turns::Same(self.divided(plain(base, dims))?),
            Scaling::Linear(factor) => Turns::Same(self.divided(plain(base, dims).slower(*factor))?),
            Scaling::Dynamic { factor, trained } => {
                Turns::Dynamic { base, dims, factor: *factor, trained: *trained }
            }
            Scaling::Yarn(scaling) => Turns::Same(yarn(base, dims, scaling)),
            Scaling::Llama3(scaling) => Turns::Same(llama3(base, dims, scaling)),
            Scaling::Long(long) => {
                let mut angles = |list: &Option<Vec<f32>>, tensor: &str, factor| {
                    let divisors = match list {
                        Some(list) => list.clone(),
                        None => self.values(tensor, dims / 2)?,
                    };
                    Ok::<_, LoadError>(Angles { factor, ..plain(base, dims).divided(&divisors) })
                };
                Turns::Border {
                    border: long.original,
                    short: angles(&long.short, scaling::SHORT_TENSOR, long.short_attention)?,
                    long: angles(&long.long, scaling::LONG_TENSOR, long.long_attention)?,
                }
            }
        };
        Ok(Rope { style, turns })
    }

    /// By one number for each pair, where the file has them: that is how GGUF writes Llama 3's scaling.
    fn divided(&mut self, angles: Angles) -> Result<Angles, LoadError> {
        let pairs = angles.inverse_frequencies.len();
        let divisors = self.optional_vector("rope_freqs.weight", pairs)?;
        Ok(divisors.iter().fold(angles, |angles, divisors| angles.divided(divisors)))
    }
}
