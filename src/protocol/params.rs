use serde::{Deserialize, Serialize};

/// How the next token is chosen. The defaults are the built-in ones, used where neither flag,
/// session, preset nor the model's generation config says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// 0 is greedy: the likeliest token, ties to the lowest id.
    pub temperature: f32,
    /// Keep the k likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set whose probability reaches this.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the answer.
    pub frequency_penalty: f32,
    /// Subtracted once for a token that occurs in the answer.
    pub presence_penalty: f32,
    pub seed: Option<u64>,
    /// `None`: until the context is full.
    pub max_tokens: Option<u32>,
    /// End tokens cannot be drawn before this many.
    pub min_tokens: u32,
    pub stop: Vec<String>,
    pub include_stop_str_in_output: bool,
    pub stop_token_ids: Vec<u32>,
    pub ignore_eos: bool,
    /// Return this many alternatives with every token.
    pub logprobs: Option<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            include_stop_str_in_output: false,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
        }
    }
}

/// A value as typed: `/set top_k 40`, `--temp 0.2`, a panel's field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ParamValue {
    Real(f32),
    Whole(u64),
    None,
}

/// One numeric sampling parameter: what `/set`, the flags, the config file and the sampling panel
/// all know of it. A new parameter is one row of [`PARAMS`].
pub struct ParamSpec {
    pub name: &'static str,
    pub help: &'static str,
    pub min: f64,
    pub max: f64,
    /// One press of an arrow key.
    pub step: f64,
    pub whole: bool,
    /// `none` is a value.
    pub optional: bool,
    pub get: fn(&SamplingParams) -> ParamValue,
    set: fn(&mut SamplingParams, ParamValue),
}

/// The flag, setting or field, what was given, and what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} must be {expected}, not {given}")]
pub struct OutOfRange {
    pub name: String,
    pub given: String,
    pub expected: String,
}

macro_rules! real {
    ($field:ident, $min:expr, $max:expr, $step:expr, $help:expr) => {
        ParamSpec {
            name: stringify!($field),
            help: $help,
            min: $min,
            max: $max,
            step: $step,
            whole: false,
            optional: false,
            get: |p| ParamValue::Real(p.$field),
            set: |p, v| {
                if let ParamValue::Real(x) = v {
                    p.$field = x
                }
            },
        }
    };
}
macro_rules! whole {
    ($field:ident, $min:expr, $max:expr, $help:expr) => {
        ParamSpec {
            name: stringify!($field),
            help: $help,
            min: $min,
            max: $max,
            step: 1.0,
            whole: true,
            optional: false,
            get: |p| ParamValue::Whole(u64::from(p.$field)),
            set: |p, v| {
                if let ParamValue::Whole(x) = v {
                    p.$field = x as u32
                }
            },
        }
    };
}
macro_rules! optional {
    ($field:ident, $type:ty, $min:expr, $max:expr, $help:expr) => {
        ParamSpec {
            name: stringify!($field),
            help: $help,
            min: $min,
            max: $max,
            step: 1.0,
            whole: true,
            optional: true,
            get: |p| p.$field.map_or(ParamValue::None, |x| ParamValue::Whole(x as u64)),
            set: |p, v| p.$field = if let ParamValue::Whole(x) = v { Some(x as $type) } else { None },
        }
    };
}

/// Every numeric parameter, in the order they act.
pub const PARAMS: &[ParamSpec] = &[
    real!(repetition_penalty, 0.01, 10.0, 0.05, "divides the logits of tokens already seen; 1 is off"),
    real!(frequency_penalty, -2.0, 2.0, 0.1, "subtracted per occurrence in the answer; 0 is off"),
    real!(presence_penalty, -2.0, 2.0, 0.1, "subtracted once a token occurs in the answer; 0 is off"),
    real!(temperature, 0.0, 100.0, 0.1, "0 is greedy; 1 the model's own distribution"),
    whole!(top_k, 0.0, u32::MAX as f64, "keep the k likeliest; 0 is off"),
    real!(top_p, 0.0, 1.0, 0.05, "keep the smallest set that reaches this probability; 1 is off"),
    real!(min_p, 0.0, 1.0, 0.01, "drop tokens below this share of the likeliest; 0 is off"),
    optional!(seed, u64, 0.0, u64::MAX as f64, "same seed, same tokens; none draws one"),
    optional!(max_tokens, u32, 1.0, u32::MAX as f64, "longest answer; none is until the context is full"),
    whole!(min_tokens, 0.0, u32::MAX as f64, "no end token before this many"),
    optional!(logprobs, u32, 0.0, 1000.0, "alternatives returned with every token"),
];

impl ParamSpec {
    /// By full name, or by the short names people type: `temp`, `n`, `penalty`.
    pub fn find(name: &str) -> Option<&'static ParamSpec> {
        let name = name.trim_start_matches('-').replace('-', "_");
        let full = match name.as_str() {
            "temp" | "t" => "temperature",
            "n" | "n_predict" | "num_predict" => "max_tokens",
            "repeat_penalty" | "penalty" => "repetition_penalty",
            other => other,
        };
        PARAMS.iter().find(|spec| spec.name == full)
    }

    /// Sets the value from what was typed, or says what would be right.
    pub fn parse(&self, params: &mut SamplingParams, typed: &str) -> Result<(), OutOfRange> {
        let typed = typed.trim();
        let value = match typed {
            "none" | "off" if self.optional => Some(ParamValue::None),
            _ if self.whole => typed.parse().ok().map(ParamValue::Whole),
            _ => typed.parse().ok().map(ParamValue::Real),
        };
        self.set(params, value.ok_or_else(|| self.out_of_range(typed))?)
    }

    pub fn set(&self, params: &mut SamplingParams, value: ParamValue) -> Result<(), OutOfRange> {
        if !self.allows(value) {
            return Err(self.out_of_range(&value.to_string()));
        }
        (self.set)(params, value);
        Ok(())
    }

    fn allows(&self, value: ParamValue) -> bool {
        match value {
            ParamValue::None => self.optional,
            ParamValue::Whole(x) => self.whole && (self.min..=self.max).contains(&(x as f64)),
            // An f32 bound such as 0.01 is compared as f32, so that the bound itself is allowed.
            ParamValue::Real(x) => !self.whole && x >= self.min as f32 && x <= self.max as f32,
        }
    }

    fn out_of_range(&self, given: &str) -> OutOfRange {
        let kind = if self.whole { "a whole number" } else { "a number" };
        let range = match (self.min, self.max) {
            (min, max) if max >= f64::from(u32::MAX) => format!("{kind} from {min}"),
            (min, max) => format!("{kind} from {min} to {max}"),
        };
        let none = if self.optional { ", or none" } else { "" };
        OutOfRange { name: self.name.into(), given: given.into(), expected: range + none }
    }
}

impl SamplingParams {
    /// What an engine demands before it takes a request; `top_p` 0 is refused here, as in vLLM.
    pub fn check(&self) -> Result<(), OutOfRange> {
        for spec in PARAMS {
            let value = (spec.get)(self);
            if !spec.allows(value) {
                return Err(spec.out_of_range(&value.to_string()));
            }
        }
        if self.top_p == 0.0 {
            return Err(OutOfRange {
                name: "top_p".into(),
                given: "0".into(),
                expected: "above 0 and at most 1".into(),
            });
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(OutOfRange {
                name: "stop".into(),
                given: "\"\"".into(),
                expected: "a non-empty text".into(),
            });
        }
        Ok(())
    }

    pub fn is_greedy(&self) -> bool {
        self.temperature < 1e-5
    }
}

impl std::fmt::Display for ParamValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParamValue::Real(x) => write!(f, "{x}"),
            ParamValue::Whole(x) => write!(f, "{x}"),
            ParamValue::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_checked_and_named() {
        let mut p = SamplingParams::default();
        let temperature = ParamSpec::find("--temp").expect("known");
        temperature.parse(&mut p, "0.2").expect("in range");
        assert_eq!(p.temperature, 0.2);
        let refused = temperature.parse(&mut p, "-1").expect_err("out of range");
        assert_eq!(refused.to_string(), "temperature must be a number from 0 to 100, not -1");
        assert!(ParamSpec::find("top-p").expect("known").parse(&mut p, "2").is_err());
        assert!(temperature.parse(&mut p, "NaN").is_err() && temperature.parse(&mut p, "inf").is_err());
        assert_eq!(p.temperature, 0.2);
        ParamSpec::find("seed").expect("known").parse(&mut p, "none").expect("optional");
        assert!(ParamSpec::find("top_k").expect("known").parse(&mut p, "-1").is_err());
    }

    #[test]
    fn every_default_is_in_range_and_every_bad_value_is_found() {
        assert!(SamplingParams::default().check().is_ok());
        for bad in [
            SamplingParams { temperature: f32::NAN, ..Default::default() },
            SamplingParams { top_p: 0.0, ..Default::default() },
            SamplingParams { min_p: 1.5, ..Default::default() },
            SamplingParams { max_tokens: Some(0), ..Default::default() },
            SamplingParams { stop: vec![String::new()], ..Default::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
