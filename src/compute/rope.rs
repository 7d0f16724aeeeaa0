//! Rotary position embedding.

/// Which two elements of a head turn together in rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `2i` and `2i + 1`: as in the paper, and in GGUF's llama files, whose rows are permuted for it.
    Interleaved,
    /// `i` and `i + n / 2`: as GPT-NeoX and transformers.
    Halves,
}

/// Angles of one launch's tokens: made once, used by every layer of a kind.
pub struct RopeTable {
    pub style: RopeStyle,
    /// [tokens, rotated / 2]
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
    pub half: usize,
}

impl RopeTable {
    pub fn new(style: RopeStyle) -> Self {
        Self { style, cos: Vec::new(), sin: Vec::new(), half: 0 }
    }

    /// Angles `position * inverse_frequency`, computed in f32 as transformers does; cosines and sines are
    /// multiplied by `factor`.
    pub fn fill(&mut self, positions: impl Iterator<Item = usize>, inverse_frequencies: &[f32], factor: f32) {
        self.clear();
        self.extend(positions, inverse_frequencies, factor);
    }

    /// For other tokens, which may turn otherwise.
    pub fn clear(&mut self) {
        self.cos.clear();
        self.sin.clear();
    }

    /// The same as [`Self::fill`], behind what is there.
    pub fn extend(
        &mut self,
        positions: impl IntoIterator<Item = usize>,
        inverse_frequencies: &[f32],
        factor: f32,
    ) {
        self.half = inverse_frequencies.len();
        for position in positions {
            for frequency in inverse_frequencies {
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                self.cos.push(cos * factor);
                self.sin.push(sin * factor);
            }
        }
    }
}
