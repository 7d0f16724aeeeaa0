//! Rotary position embedding of a model: how fast its pairs turn.

use crate::compute::RopeStyle;

/// One kind of rotary embedding; layers of a model share one or two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rope {
    pub(super) style: RopeStyle,
    pub(super) inverse_frequencies: Vec<f32>,
    /// Multiplies cosines and sines: YaRN's attention factor (Peng et al. 2023, section 3.4).
    pub(super) factor: f32,
}
