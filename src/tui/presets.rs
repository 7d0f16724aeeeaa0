//! Sampling in a word: sets of values that go well together.

pub struct Preset {
    pub name: &'static str,
    pub help: &'static str,
    /// By the names of `/set`. What is not named stays as it is.
    pub values: &'static [(&'static str, &'static str)],
}

macro_rules! preset {
    ($name:literal, $temperature:literal, $top_k:literal, $top_p:literal, $min_p:literal, $help:literal) => {
        Preset {
            name: $name,
            help: $help,
            values: &[("temperature", $temperature), ("top_k", $top_k), ("top_p", $top_p), ("min_p", $min_p)],
        }
    };
}

/// From the surest to the boldest. With a high temperature min-p cuts alone: it follows how sure the
/// model is, where top-k and top-p let through too much or too little (Nguyen et al. 2024, section 3).
pub const PRESETS: &[Preset] = &[
    preset!("greedy", "0", "0", "1", "0", "always the likeliest token"),
    preset!("precise", "0.3", "40", "0.9", "0.05", "facts, code, extraction"),
    preset!("balanced", "0.8", "40", "0.95", "0.05", "glassbox's own values"),
    preset!("creative", "1.2", "0", "1", "0.08", "stories, ideas; only min-p cuts"),
    preset!("wild", "1.8", "0", "1", "0.1", "surprises; min-p holds it together"),
    preset!("untouched", "1", "0", "1", "0", "the model's own distribution, nothing cut"),
];
