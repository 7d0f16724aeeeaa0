//! Stages that follow the text as it grows: the temperature by entropy, Mirostat, adaptive-p.

use super::SamplerState;
use super::field::Field;
use super::select::Entry;
use crate::protocol::SamplingParams;

/// Divides the logits. With a range the temperature follows the entropy: Zhu et al., "EDT: Improving
/// Large Language Models' Generation by Entropy-based Dynamic Temperature" (2024), in llama.cpp's form:
/// T = lowest + (highest - lowest) * (H / ln n) ^ exponent, over the n tokens that are left.
pub fn temperature(field: &mut Field, params: &SamplingParams) {
    let (mut temperature, range) = (params.temperature, params.dynatemp_range);
    if range > 0.0 {
        let most = (field.survivors().max(2) as f32).ln();
        let (lowest, highest) = ((temperature - range).max(0.0), temperature + range);
        let share = (field.softmax().entropy / most).powf(params.dynatemp_exponent);
        temperature = lowest + (highest - lowest) * share;
    }
    match temperature < SamplingParams::GREEDY_BELOW {
        true => field.top_k(1),
        false => field.scale /= temperature,
    }
}

/// Basu et al., "Mirostat" (2020), algorithm 1; the second version cuts at the surprise itself.
/// `mu` starts at twice the target.
pub fn mirostat(field: &mut Field, params: &SamplingParams, state: &SamplerState) {
    let mu = state.mu(params);
    match params.mirostat {
        1 => {
            let k = field.zipf_k(mu);
            field.top_k(k);
        }
        _ => field.at_most_surprise(mu),
    }
}

/// Prefers tokens of about the target probability, corrected by how likely the tokens were that were
/// drawn before: MrJackSpade, "Adaptive-P" (2025), as in ggml-org/llama.cpp#17927. Gives what stood
/// there before, for [`SamplerState::drew`].
pub fn adaptive_p(field: &mut Field, params: &SamplingParams, state: &SamplerState) -> Vec<(Entry, f32)> {
    const PEAK: f32 = 5.0;
    const SHARPNESS: f32 = 10.0;
    const WIDTH: f32 = 0.3;
    field.list(f32::MIN);
    let softmax = field.softmax();
    let (sum, weight) = state.history(params);
    let target = params.adaptive_target.unwrap_or_default();
    let target = (2.0 * target - sum / weight).clamp(0.0, 1.0);
    let before = field.lists.entries.iter().map(|entry| (*entry, softmax.probability(entry.logit))).collect();
    for entry in &mut field.lists.entries {
        let distance = (softmax.probability(entry.logit) - target).abs() / WIDTH;
        entry.logit = PEAK - SHARPNESS * distance * distance / (1.0 + distance);
    }
    field.scale = 1.0;
    field.settle();
    before
}

impl SamplerState {
    fn mu(&self, params: &SamplingParams) -> f32 {
        self.mu.unwrap_or(2.0 * params.mirostat_tau)
    }

    /// Of the tokens drawn: the decayed sum of their probabilities, and of their weights. At the
    /// beginning as if the target had been met for ever.
    fn history(&self, params: &SamplingParams) -> (f32, f32) {
        let forever = 1.0 / (1.0 - params.adaptive_decay);
        self.drawn.unwrap_or((params.adaptive_target.unwrap_or_default() * forever, forever))
    }

    /// Mirostat's correction: a token of this many bits was drawn.
    pub fn surprised(&mut self, params: &SamplingParams, bits: f32) {
        let error = bits - params.mirostat_tau;
        self.mu = Some(self.mu(params) - params.mirostat_eta * error);
    }

    /// Adaptive-p's memory: a token of this probability was drawn.
    pub fn drew(&mut self, params: &SamplingParams, probability: f32) {
        let (sum, weight) = self.history(params);
        let decay = params.adaptive_decay;
        self.drawn = Some((probability + decay * sum, 1.0 + decay * weight));
    }
}
