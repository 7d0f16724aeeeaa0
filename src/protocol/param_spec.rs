use super::{LogprobsMode, OutOfRange, SamplerOrder, SamplingParams, TokenId};
use std::collections::BTreeMap;
use std::fmt;

/// A value as typed: `/set top_k 40`, `--temp 0.2`, a panel's field.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    Real(f32),
    Whole(u64),
    /// One of [`ParamKind::Choice`].
    Choice(&'static str),
    List(Vec<String>),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    Real,
    Whole,
    Choice(&'static [&'static str]),
    /// Typed with spaces between; what has spaces or escapes in double quotes. A flag is repeated.
    List,
}

/// One sampling parameter: what `/set`, the flags, the config file, the environment and the sampling
/// panel all know of it. A new parameter is one row of [`PARAMS`].
#[derive(Debug)]
pub struct ParamSpec {
    pub name: &'static str,
    /// Short names that people type, and other programs' names.
    pub aliases: &'static [&'static str],
    pub help: &'static str,
    pub kind: ParamKind,
    pub min: f64,
    pub max: f64,
    /// One press of an arrow key.
    pub step: f64,
    /// `none` is a value.
    pub optional: bool,
    pub get: fn(&SamplingParams) -> ParamValue,
    /// The error is what would be right.
    set: fn(&mut SamplingParams, ParamValue) -> Result<(), String>,
}

const OFF_ON: &[&str] = &["off", "on"];
const MOST: f64 = u32::MAX as f64;

macro_rules! row {
    ($field:ident, $aliases:expr, $kind:expr, $range:expr, $step:expr, $optional:expr, $help:expr, $get:expr, $set:expr) => {
        ParamSpec {
            name: stringify!($field),
            aliases: &$aliases,
            help: $help,
            kind: $kind,
            min: $range.0,
            max: $range.1,
            step: $step,
            optional: $optional,
            get: $get,
            set: $set,
        }
    };
}
/// The value of the row's own kind; `allows` let nothing else through.
macro_rules! take {
    ($variant:ident($x:ident) = $value:ident => $then:expr) => {{
        if let ParamValue::$variant($x) = $value {
            $then
        }
        Ok(())
    }};
}
macro_rules! real {
    ($field:ident, $range:expr, $step:expr, $help:expr $(, $alias:literal)*) => {
        row!($field, [$($alias),*], ParamKind::Real, $range, $step, false, $help,
            |p| ParamValue::Real(p.$field), |p, v| take!(Real(x) = v => p.$field = x))
    };
}
macro_rules! whole {
    ($field:ident, $range:expr, $help:expr $(, $alias:literal)*) => {
        row!($field, [$($alias),*], ParamKind::Whole, $range, 1.0, false, $help,
            |p| ParamValue::Whole(u64::from(p.$field)), |p, v| take!(Whole(x) = v => p.$field = x as u32))
    };
}
macro_rules! optional {
    ($field:ident, $variant:ident($type:ty as $wide:ty), $range:expr, $step:expr, $help:expr $(, $alias:literal)*) => {
        row!($field, [$($alias),*], ParamKind::$variant, $range, $step, true, $help,
            |p| p.$field.map_or(ParamValue::None, |x| ParamValue::$variant(x as $wide)),
            |p, v| {
                p.$field = if let ParamValue::$variant(x) = v { Some(x as $type) } else { None };
                Ok(())
            })
    };
}
macro_rules! switch {
    ($field:ident, $help:expr $(, $alias:literal)*) => {
        row!($field, [$($alias),*], ParamKind::Choice(OFF_ON), (0.0, 0.0), 0.0, false, $help,
            |p| ParamValue::Choice(OFF_ON[usize::from(p.$field)]),
            |p, v| take!(Choice(x) = v => p.$field = x == "on"))
    };
}
macro_rules! list {
    ($field:ident, $to:expr, $from:expr, $help:expr $(, $alias:literal)*) => {
        row!($field, [$($alias),*], ParamKind::List, (0.0, 0.0), 0.0, false, $help,
            |p| ParamValue::List($to(&p.$field)),
            |p, v| {
                if let ParamValue::List(items) = v {
                    p.$field = $from(&items)?;
                }
                Ok(())
            })
    };
}

/// Every parameter: those that most people change first, in the order they act; then the others, likewise.
#[rustfmt::skip]
pub const PARAMS: &[ParamSpec] = &[
    real!(repetition_penalty, (0.01, 10.0), 0.05, "divides the logits of tokens already seen; 1 is off", "repeat_penalty", "penalty"),
    real!(frequency_penalty, (-2.0, 2.0), 0.1, "subtracted per occurrence in the answer; 0 is off"),
    real!(presence_penalty, (-2.0, 2.0), 0.1, "subtracted once a token occurs in the answer; 0 is off"),
    real!(temperature, (0.0, 100.0), 0.1, "0 is greedy; 1 the model's own distribution", "temp", "t"),
    whole!(top_k, (0.0, MOST), "keep the k likeliest; 0 is off"),
    real!(top_p, (0.0, 1.0), 0.05, "keep the smallest set that reaches this probability; 1 is off"),
    real!(min_p, (0.0, 1.0), 0.01, "drop tokens below this share of the likeliest; 0 is off"),
    optional!(seed, Whole(u64 as u64), (0.0, u64::MAX as f64), 1.0, "same seed, same tokens; none draws one"),
    optional!(max_tokens, Whole(u32 as u64), (1.0, MOST), 1.0, "longest answer; none is until the context is full", "n", "n_predict", "num_predict"),
    whole!(min_tokens, (0.0, MOST), "no end token before this many"),
    optional!(logprobs, Whole(u32 as u64), (0.0, 1000.0), 1.0, "alternatives returned with every token"),
    row!(logprobs_mode, [], ParamKind::Choice(LogprobsMode::NAMES), (0.0, 0.0), 0.0, false,
        "logprobs and ranks are of the raw or of the processed distribution",
        |p| ParamValue::Choice(p.logprobs_mode.name()),
        |p, v| take!(Choice(x) = v => p.logprobs_mode = x.parse().map_err(str::to_owned)?)),
    list!(stop, |words: &Vec<String>| words.clone(), texts, "texts that end the answer"),
    switch!(include_stop_str_in_output, "the text that ended the answer is part of it", "include_stop"),
    list!(stop_token_ids, id_items, ids, "ids that end the answer, besides the model's own"),
    switch!(ignore_eos, "the model's end tokens end nothing"),
    list!(sampler_order, SamplerOrder::names, order, "the stages in order, or default, vllm, hf, llama.cpp, sglang", "samplers"),
    list!(logit_bias, bias_items, biases, "added to the logits of tokens, as 5=1.5 7=-2"),
    list!(banned_token_ids, id_items, ids, "ids that are never drawn", "banned_ids"),
    list!(allowed_token_ids, id_items, ids, "ids beside which nothing is drawn; none allows all", "allowed_ids"),
    list!(bad_words, |words: &Vec<String>| words.clone(), texts, "texts that the answer must not contain"),
    optional!(penalty_last_n, Whole(u32 as u64), (0.0, MOST), 1.0, "the penalties look at so many last tokens, prompt included; none looks at all", "repeat_last_n"),
    real!(dry_multiplier, (0.0, 100.0), 0.1, "subtracted from what would lengthen a repetition; 0 is off"),
    real!(dry_base, (1.0, 10.0), 0.05, "DRY: the penalty grows by this with every token of the repetition"),
    whole!(dry_allowed_length, (1.0, MOST), "DRY: repetitions of fewer tokens are free"),
    optional!(dry_penalty_last_n, Whole(u32 as u64), (0.0, MOST), 1.0, "DRY: how far back is looked; none is everything"),
    list!(dry_sequence_breakers, |words: &Vec<String>| words.clone(), texts, "DRY: texts that no repetition reaches over", "dry_sequence_breaker"),
    real!(dynatemp_range, (0.0, 100.0), 0.1, "the temperature follows the entropy, so far up and down; 0 is off"),
    real!(dynatemp_exponent, (0.0, 10.0), 0.1, "dynamic temperature: 1 follows in proportion"),
    real!(top_n_sigma, (0.0, 100.0), 0.1, "keep logits so many standard deviations from the largest; 0 is off", "top_nsigma"),
    real!(typical_p, (0.0, 1.0), 0.05, "keep the most typical tokens that reach this probability; 1 is off", "typical", "typ_p"),
    real!(xtc_probability, (0.0, 1.0), 0.1, "how often the likeliest tokens are dropped; 0 is off"),
    real!(xtc_threshold, (0.0, 1.0), 0.05, "XTC: of the tokens from this probability on, one stays; above 0.5 is off"),
    whole!(mirostat, (0.0, 2.0), "steer the surprise, version 1 or 2; other cuts are then idle; 0 is off"),
    real!(mirostat_tau, (0.0, 100.0), 0.1, "Mirostat: the surprise aimed at, in bits", "mirostat_ent"),
    real!(mirostat_eta, (0.0, 1.0), 0.01, "Mirostat: how fast it is approached", "mirostat_lr"),
    optional!(adaptive_target, Real(f32 as f32), (0.0, 1.0), 0.05, "prefer tokens of about this probability; none is off"),
    real!(adaptive_decay, (0.0, 0.99), 0.01, "adaptive-p: how long past draws count"),
    whole!(repetition_max_pattern, (0.0, 4096.0), "end an answer that repeats up to so many tokens again and again; 0 is off"),
    whole!(repetition_min_pattern, (1.0, 4096.0), "repetition: the shortest pattern looked for, in tokens"),
    whole!(repetition_min_count, (2.0, 4096.0), "repetition: how often the pattern stands at the end"),
];

impl ParamSpec {
    /// By full name, or by one of its aliases: `temp`, `n`, `penalty`.
    pub fn find(name: &str) -> Option<&'static ParamSpec> {
        let name = name.trim_start_matches('-').replace('-', "_");
        PARAMS.iter().find(|spec| spec.name == name || spec.aliases.contains(&name.as_str()))
    }

    /// Sets the value from what was typed, or says what would be right.
    ///
    /// # Errors
    /// The parameter, what was given and what it can be.
    pub fn parse(&self, params: &mut SamplingParams, typed: &str) -> Result<(), OutOfRange> {
        let typed = typed.trim();
        let value = match (typed, self.kind) {
            ("none" | "off", _) if self.optional => Some(ParamValue::None),
            (_, ParamKind::Whole) => typed.parse().ok().map(ParamValue::Whole),
            (_, ParamKind::Real) => typed.parse().ok().map(ParamValue::Real),
            (_, ParamKind::Choice(names)) => choice(names, typed).map(ParamValue::Choice),
            (_, ParamKind::List) => words(typed).map(ParamValue::List),
        };
        self.set(params, value.ok_or_else(|| self.out_of_range(typed))?)
    }

    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn set(&self, params: &mut SamplingParams, value: ParamValue) -> Result<(), OutOfRange> {
        let given = value.to_string();
        if !self.allows(&value) {
            return Err(self.out_of_range(&given));
        }
        (self.set)(params, value).map_err(|expected| OutOfRange { name: self.name.into(), given, expected })
    }

    /// The choice after this one, or before it; at the end, the same.
    pub fn choice_beside(&self, name: &'static str, up: bool) -> &'static str {
        let ParamKind::Choice(names) = self.kind else { return name };
        let at = names.iter().position(|one| *one == name).unwrap_or(0);
        let to = if up { at + 1 } else { at.saturating_sub(1) };
        names.get(to).copied().unwrap_or(name)
    }

    fn allows(&self, value: &ParamValue) -> bool {
        match (value, self.kind) {
            (ParamValue::None, _) => self.optional,
            (ParamValue::Whole(x), ParamKind::Whole) => (self.min..=self.max).contains(&(*x as f64)),
            // An f32 bound such as 0.01 is compared as f32, so that the bound itself is allowed.
            (ParamValue::Real(x), ParamKind::Real) => *x >= self.min as f32 && *x <= self.max as f32,
            (ParamValue::Choice(x), ParamKind::Choice(names)) => names.contains(x),
            (ParamValue::List(_), ParamKind::List) => true,
            _ => false,
        }
    }

    fn out_of_range(&self, given: &str) -> OutOfRange {
        let range = |kind: &str| match (self.min, self.max) {
            (min, max) if max >= MOST => format!("{kind} from {min}"),
            (min, max) => format!("{kind} from {min} to {max}"),
        };
        let expected = match self.kind {
            ParamKind::Whole => range("a whole number"),
            ParamKind::Real => range("a number"),
            ParamKind::Choice(names) => format!("one of {}", names.join(" ")),
            ParamKind::List => "words with spaces between, or texts in double quotes".into(),
        };
        let none = if self.optional { ", or none" } else { "" };
        OutOfRange { name: self.name.into(), given: given.into(), expected: expected + none }
    }
}

/// As typed; `true` and `false` are TOML's words.
fn choice(names: &'static [&'static str], typed: &str) -> Option<&'static str> {
    let typed = match typed {
        "true" | "yes" | "1" => "on",
        "false" | "no" | "0" => "off",
        other => other,
    };
    names.iter().copied().find(|name| *name == typed)
}

/// `END "\n\n"`: words, and texts in double quotes with JSON's escapes. `none` is none of them.
fn words(typed: &str) -> Option<Vec<String>> {
    if typed == "none" || typed == "off" {
        return Some(Vec::new());
    }
    let mut items = Vec::new();
    let mut rest = typed.trim_start();
    while !rest.is_empty() {
        let length = if rest.starts_with('"') {
            let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            items.push(texts.next()?.ok()?);
            texts.byte_offset()
        } else {
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            items.push(rest[..length].to_owned());
            length
        };
        rest = rest[length..].trim_start();
    }
    Some(items)
}

fn id_items(ids: &[TokenId]) -> Vec<String> {
    ids.iter().map(TokenId::to_string).collect()
}

fn bias_items(biases: &BTreeMap<TokenId, f32>) -> Vec<String> {
    biases.iter().map(|(id, bias)| format!("{id}={bias}")).collect()
}

/// Items may hold several, with commas between.
fn split(items: &[String]) -> impl Iterator<Item = &str> {
    items.iter().flat_map(|item| item.split(',')).map(str::trim).filter(|item| !item.is_empty())
}

fn ids(items: &[String]) -> Result<Vec<TokenId>, String> {
    split(items).map(|item| item.parse().map_err(|_| "token ids, as 5,7".to_owned())).collect()
}

fn biases(items: &[String]) -> Result<BTreeMap<TokenId, f32>, String> {
    let one = |item: &str| {
        let (id, bias) = item.split_once(['=', ':'])?;
        let bias: f32 = bias.trim().parse().ok()?;
        Some((id.trim().parse().ok()?, bias)).filter(|_| (-1000.0..=1000.0).contains(&bias))
    };
    let expected = "ID=BIAS with a bias from -1000 to 1000, as 5=1.5";
    split(items).map(|item| one(item).ok_or_else(|| expected.to_owned())).collect()
}

fn texts(items: &[String]) -> Result<Vec<String>, String> {
    match items.iter().any(String::is_empty) {
        true => Err("a non-empty text".into()),
        false => Ok(items.to_vec()),
    }
}

fn order(items: &[String]) -> Result<SamplerOrder, String> {
    let names: Vec<&str> = items.iter().flat_map(|item| item.split([',', ';', ' '])).collect();
    let names = names.into_iter().map(str::trim).filter(|name| !name.is_empty());
    SamplerOrder::parse(names)
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Real(x) => write!(f, "{x}"),
            ParamValue::Whole(x) => write!(f, "{x}"),
            ParamValue::Choice(name) => f.write_str(name),
            ParamValue::None => f.write_str("none"),
            ParamValue::List(items) if items.is_empty() => f.write_str("none"),
            ParamValue::List(items) => {
                f.write_str(&items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// As [`words`] reads it back.
fn quoted(item: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_.-=+".contains(c);
    let is_word = !item.is_empty() && item.chars().all(plain) && item != "none" && item != "off";
    if is_word { item.to_owned() } else { serde_json::Value::from(item).to_string() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn typed(name: &str, text: &str) -> Result<SamplingParams, String> {
        let mut params = SamplingParams::default();
        ParamSpec::find(name).unwrap().parse(&mut params, text).map_err(|e| e.to_string())?;
        Ok(params)
    }

    #[test]
    fn what_is_typed_is_checked_and_named() {
        assert_eq!(typed("--temp", "0.2").unwrap().temperature, 0.2);
        let refused = typed("temp", "-1").unwrap_err();
        assert_eq!(refused, "temperature must be a number from 0 to 100, not -1");
        for (name, text) in [
            ("top-p", "2"),
            ("temp", "NaN"),
            ("temp", "inf"),
            ("top_k", "-1"),
            ("mirostat", "3"),
            ("ignore_eos", "maybe"),
            ("adaptive_target", "1.5"),
        ] {
            assert!(typed(name, text).unwrap_err().starts_with(ParamSpec::find(name).unwrap().name));
        }
        assert_eq!(typed("seed", "none").unwrap().seed, None);
        assert_eq!(typed("adaptive-target", "0.5").unwrap().adaptive_target, Some(0.5));
        assert!(typed("ignore_eos", "true").unwrap().ignore_eos);
    }

    #[test]
    fn lists_are_typed_as_words_texts_and_pairs() {
        assert_eq!(typed("stop", "END \"\\n\\n\"").unwrap().stop, ["END", "\n\n"]);
        assert_eq!(typed("logit_bias", "5=1.5, 7=-2").unwrap().logit_bias, [(5, 1.5), (7, -2.0)].into());
        assert_eq!(typed("banned_ids", "1,2 3").unwrap().banned_token_ids, [1, 2, 3]);
        assert_eq!(typed("stop", "none").unwrap().stop, [""; 0]);
        let names = typed("samplers", "top_k;temperature").unwrap().sampler_order.names();
        assert_eq!(names, ["bias", "grammar", "top-k", "temperature"]);
        for (name, text, wanted) in [
            ("logit_bias", "5", "ID=BIAS"),
            ("logit_bias", "5=x", "ID=BIAS"),
            ("logit_bias", "-1=2", "ID=BIAS"),
            ("logit_bias", "5=inf", "from -1000 to 1000"),
            ("stop_token_ids", "five", "token ids"),
            ("bad_words", "\"\"", "a non-empty text"),
            ("stop", "\"open", "in double quotes"),
            ("sampler_order", "tip-p", "did you mean top-p"),
        ] {
            let said = typed(name, text).unwrap_err();
            assert!(said.starts_with(name) && said.contains(wanted), "{said}");
        }
    }

    /// What is shown can be typed again, for every row and kind.
    #[test]
    fn every_value_is_read_back_as_it_is_shown() {
        let params = SamplingParams {
            logit_bias: [(5, 1.5)].into(),
            bad_words: vec!["none".into(), "two words".into(), "\"".into()],
            stop_token_ids: vec![1, 2],
            sampler_order: SamplerOrder::parse(["vllm"]).unwrap(),
            seed: Some(7),
            ..Default::default()
        };
        let mut back = SamplingParams::default();
        for spec in PARAMS {
            spec.parse(&mut back, &(spec.get)(&params).to_string()).unwrap();
        }
        assert_eq!(back, params);
        let mut names: Vec<&str> =
            PARAMS.iter().flat_map(|s| s.aliases.iter().copied().chain([s.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name is used twice");
    }
}
