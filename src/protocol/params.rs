use super::{PARAMS, SamplerOrder, TokenId, named::named};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the next token is chosen. The defaults are the built-in ones, used where neither flag,
/// session, preset nor the model's generation config says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// Added to these tokens' logits.
    pub logit_bias: BTreeMap<TokenId, f32>,
    /// Never drawn.
    pub banned_token_ids: Vec<TokenId>,
    /// Nothing else is drawn; empty allows all.
    pub allowed_token_ids: Vec<TokenId>,
    /// Their last token is not drawn where the answer ends with the ones before it.
    pub bad_words: Vec<String>,
    /// End tokens cannot be drawn before this many.
    pub min_tokens: u32,
    pub ignore_eos: bool,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the answer.
    pub frequency_penalty: f32,
    /// Subtracted once for a token that occurs in the answer.
    pub presence_penalty: f32,
    /// All three penalties look at the last so many tokens of prompt and answer, as in llama.cpp.
    /// `None`: at all of them, the latter two at the answer alone, as in vLLM.
    pub penalty_last_n: Option<u32>,
    /// Times `dry_base` ^ (length - `dry_allowed_length`), subtracted from what would lengthen a repetition.
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    /// `None`: the whole past.
    pub dry_penalty_last_n: Option<u32>,
    /// No repetition reaches over these texts.
    pub dry_sequence_breakers: Vec<String>,
    /// 0 is greedy: the likeliest token, ties to the lowest id.
    pub temperature: f32,
    /// The temperature is from `temperature` less this to `temperature` plus this, by entropy.
    pub dynatemp_range: f32,
    pub dynatemp_exponent: f32,
    /// Keep logits within so many standard deviations of the largest; 0 keeps all.
    pub top_n_sigma: f32,
    /// Keep the k likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep those whose surprise is nearest the entropy, until their probability reaches this.
    pub typical_p: f32,
    /// Keep the smallest set whose probability reaches this.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest.
    pub min_p: f32,
    /// How often all tokens of at least `xtc_threshold` but the least likely of them are dropped.
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    /// 0 is off, else the version; the other stages that cut are then idle.
    pub mirostat: u32,
    /// The surprise aimed at, in bits.
    pub mirostat_tau: f32,
    /// How fast it is approached.
    pub mirostat_eta: f32,
    /// Prefer tokens of about this probability.
    pub adaptive_target: Option<f32>,
    pub adaptive_decay: f32,
    pub sampler_order: SamplerOrder,
    pub seed: Option<u64>,
    /// `None`: until the context is full.
    pub max_tokens: Option<u32>,
    pub stop: Vec<String>,
    pub include_stop_str_in_output: bool,
    pub stop_token_ids: Vec<TokenId>,
    /// The answer ends where a pattern of at most so many tokens stands `repetition_min_count` times
    /// at its end; 0 is off (vLLM: `repetition_detection`).
    pub repetition_max_pattern: u32,
    pub repetition_min_pattern: u32,
    pub repetition_min_count: u32,
    /// Return this many alternatives with every token.
    pub logprobs: Option<u32>,
    pub logprobs_mode: LogprobsMode,
}

named! {
    /// Of which distribution log-probability, rank and alternatives of a token are.
    LogprobsMode {
        /// The model's own.
        #[default]
        Raw = "raw",
        /// The one drawn from: after every stage. Of a greedy draw, the one before the temperature.
        Processed = "processed",
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            logit_bias: BTreeMap::new(),
            banned_token_ids: Vec::new(),
            allowed_token_ids: Vec::new(),
            bad_words: Vec::new(),
            min_tokens: 0,
            ignore_eos: false,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_last_n: None,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: None,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).into(),
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_n_sigma: 0.0,
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: None,
            adaptive_decay: 0.9,
            sampler_order: SamplerOrder::default(),
            seed: None,
            max_tokens: None,
            stop: Vec::new(),
            include_stop_str_in_output: false,
            stop_token_ids: Vec::new(),
            repetition_max_pattern: 0,
            repetition_min_pattern: 1,
            repetition_min_count: 3,
            logprobs: None,
            logprobs_mode: LogprobsMode::Raw,
        }
    }
}

/// The flag, setting or field, what was given, and what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} must be {expected}, not {given}")]
pub struct OutOfRange {
    pub name: String,
    pub given: String,
    pub expected: String,
}

impl SamplingParams {
    /// What an engine demands before it takes a request; `top_p` 0 is refused here, as in vLLM.
    ///
    /// # Errors
    /// The first field that is out of range. Ids are checked against the vocabulary at intake.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let mut copy = self.clone();
        for spec in PARAMS {
            spec.set(&mut copy, (spec.get)(self))?;
        }
        let wrong = |name: &str, given: String, expected: &str| {
            Err(OutOfRange { name: name.into(), given, expected: expected.into() })
        };
        for (name, p) in [("top_p", self.top_p), ("typical_p", self.typical_p)] {
            if p == 0.0 {
                return wrong(name, "0".into(), "above 0 and at most 1");
            }
        }
        match self.repetition_max_pattern {
            0 => Ok(()),
            most if self.repetition_min_pattern > most => wrong(
                "repetition_min_pattern",
                self.repetition_min_pattern.to_string(),
                "at most repetition_max_pattern",
            ),
            _ => Ok(()),
        }
    }

    /// A lower temperature only rounds (vLLM: `_SAMPLING_EPS`).
    pub const GREEDY_BELOW: f32 = 1e-5;

    /// Whether the likeliest token is drawn always.
    pub fn is_greedy(&self) -> bool {
        self.temperature < Self::GREEDY_BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_range_and_every_bad_value_is_found() {
        assert_eq!(SamplingParams::default().check(), Ok(()));
        for bad in [
            SamplingParams { temperature: f32::NAN, ..Default::default() },
            SamplingParams { top_p: 0.0, ..Default::default() },
            SamplingParams { typical_p: 0.0, ..Default::default() },
            SamplingParams { min_p: 1.5, ..Default::default() },
            SamplingParams { max_tokens: Some(0), ..Default::default() },
            SamplingParams { stop: vec![String::new()], ..Default::default() },
            SamplingParams { bad_words: vec![String::new()], ..Default::default() },
            SamplingParams { logit_bias: [(3, f32::NAN)].into(), ..Default::default() },
            SamplingParams { logit_bias: [(3, f32::INFINITY)].into(), ..Default::default() },
            SamplingParams { adaptive_target: Some(2.0), ..Default::default() },
            SamplingParams { mirostat: 3, ..Default::default() },
            SamplingParams { repetition_max_pattern: 2, repetition_min_pattern: 3, ..Default::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn params_survive_json_and_old_ones_are_read() {
        let params = SamplingParams {
            logit_bias: [(5, 1.5), (7, -2.0)].into(),
            stop: vec!["\n".into()],
            logprobs_mode: LogprobsMode::Processed,
            ..Default::default()
        };
        let json = serde_json::to_value(&params).expect("plain data");
        assert_eq!(serde_json::from_value::<SamplingParams>(json).ok(), Some(params));
        let old = serde_json::from_str::<SamplingParams>("{\"temperature\":0.5}").expect("fields may lack");
        assert_eq!(old, SamplingParams { temperature: 0.5, ..Default::default() });
    }
}
