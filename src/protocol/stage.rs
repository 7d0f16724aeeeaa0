use crate::base::nearest;
use serde::{Deserialize, Serialize};

/// A step of the sampler: what each does, with its source, stands in `sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The model's own logits; first, and in no order.
    Raw,
    /// Logit bias, banned and allowed ids, bad words, no end before `min_tokens`.
    #[serde(alias = "mask")]
    Bias,
    Grammar,
    #[serde(alias = "penalties")]
    Repetition,
    Frequency,
    Presence,
    Dry,
    /// Plain or dynamic. Below 1e-5 it leaves the likeliest token alone.
    Temperature,
    TopNSigma,
    TopK,
    TypicalP,
    TopP,
    MinP,
    Xtc,
    Mirostat,
    AdaptiveP,
}

use Stage::*;

impl Stage {
    /// Every stage that an order can name, in our own order.
    pub const ALL: &[Stage] = &[
        Bias,
        Grammar,
        Repetition,
        Frequency,
        Presence,
        Dry,
        Temperature,
        TopNSigma,
        TopK,
        TypicalP,
        TopP,
        MinP,
        Xtc,
        Mirostat,
        AdaptiveP,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Raw => "raw",
            Bias => "bias",
            Grammar => "grammar",
            Repetition => "repetition",
            Frequency => "frequency",
            Presence => "presence",
            Dry => "dry",
            Temperature => "temperature",
            TopNSigma => "top-n-sigma",
            TopK => "top-k",
            TypicalP => "typical-p",
            TopP => "top-p",
            MinP => "min-p",
            Xtc => "xtc",
            Mirostat => "mirostat",
            AdaptiveP => "adaptive-p",
        }
    }

    /// Whether it takes tokens away by how likely they are. What masks must come before.
    pub fn cuts(self) -> bool {
        matches!(self, Temperature | TopNSigma | TopK | TypicalP | TopP | MinP | Xtc | Mirostat | AdaptiveP)
    }
}

/// The stages in the order they act. A stage that is not named does not act, but for bias and
/// grammar: they always do, and come first unless named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stage>", into = "Vec<Stage>")]
pub struct SamplerOrder(Vec<Stage>);

/// Where engines disagree. Stages that one does not have stand where ours has them.
///
/// - `vllm`: v1/sample/sampler.py; the grammar's mask first, min-p before top-k and top-p
/// - `hf`: generation/utils.py `_get_logits_processor`; typical-p after min-p
/// - `llama.cpp`: common/common.h; penalties first, temperature last. It masks after a draw and draws
///   again where the token is forbidden; here the mask comes first
/// - `sglang`: sampling_batch_info.py; penalties, then the grammar's mask, then the bias
const PRESETS: [(&str, &[Stage]); 5] = [
    ("default", Stage::ALL),
    (
        "vllm",
        &[
            Grammar,
            Bias,
            Repetition,
            Frequency,
            Presence,
            Dry,
            Temperature,
            MinP,
            TopNSigma,
            TopK,
            TypicalP,
            TopP,
            Xtc,
            Mirostat,
            AdaptiveP,
        ],
    ),
    (
        "hf",
        &[
            Bias,
            Repetition,
            Frequency,
            Presence,
            Dry,
            Grammar,
            Temperature,
            TopNSigma,
            TopK,
            TopP,
            MinP,
            TypicalP,
            Xtc,
            Mirostat,
            AdaptiveP,
        ],
    ),
    (
        "llama.cpp",
        &[
            Bias,
            Grammar,
            Repetition,
            Frequency,
            Presence,
            Dry,
            TopNSigma,
            TopK,
            TypicalP,
            TopP,
            MinP,
            Xtc,
            Temperature,
            Mirostat,
            AdaptiveP,
        ],
    ),
    (
        "sglang",
        &[
            Frequency,
            Presence,
            Repetition,
            Dry,
            Grammar,
            Bias,
            Temperature,
            TopNSigma,
            TopK,
            TypicalP,
            TopP,
            MinP,
            Xtc,
            Mirostat,
            AdaptiveP,
        ],
    ),
];

impl Default for SamplerOrder {
    fn default() -> Self {
        Self(Stage::ALL.to_vec())
    }
}

impl SamplerOrder {
    pub const PRESETS: [&str; 5] = ["default", "vllm", "hf", "llama.cpp", "sglang"];

    pub fn stages(&self) -> &[Stage] {
        &self.0
    }

    /// The preset's name, or every stage's.
    pub fn names(&self) -> Vec<String> {
        match PRESETS.iter().find(|(_, stages)| **stages == self.0) {
            Some((name, _)) => vec![(*name).to_owned()],
            None => self.0.iter().map(|stage| stage.name().to_owned()).collect(),
        }
    }

    /// From a preset's name or the names of stages; `top_k` is `top-k`, `penalties` all three.
    ///
    /// # Errors
    /// A name that is none, with the nearest; one named twice; a mask after what cuts, which could
    /// leave no token at all.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut stages = Vec::new();
        for name in names {
            match PRESETS.iter().find(|(preset, _)| *preset == name) {
                Some((_, preset)) => stages.extend(*preset),
                None => stages.extend(named(name)?),
            }
        }
        Self::of(stages)
    }

    /// # Errors
    /// As [`parse`](Self::parse).
    fn of(mut stages: Vec<Stage>) -> Result<Self, String> {
        if let Some(at) = (1..stages.len()).find(|at| stages[..*at].contains(&stages[*at])) {
            return Err(format!("every stage at most once: {} is named twice", stages[at].name()));
        }
        for stage in [Grammar, Bias].into_iter().filter(|stage| !stages.contains(stage)).collect::<Vec<_>>() {
            stages.insert(0, stage);
        }
        let first_cut = stages.iter().position(|stage| stage.cuts()).unwrap_or(stages.len());
        match stages[first_cut..].iter().find(|stage| matches!(stage, Bias | Grammar)) {
            Some(late) => Err(format!("{} before {}", late.name(), stages[first_cut].name())),
            None if stages.contains(&Raw) => Err("stages that act: raw is none".into()),
            None => Ok(Self(stages)),
        }
    }
}

impl TryFrom<Vec<Stage>> for SamplerOrder {
    type Error = String;

    fn try_from(stages: Vec<Stage>) -> Result<Self, String> {
        Self::of(stages)
    }
}

impl From<SamplerOrder> for Vec<Stage> {
    fn from(order: SamplerOrder) -> Self {
        order.0
    }
}

fn named(typed: &str) -> Result<Vec<Stage>, String> {
    let name = typed.to_lowercase().replace('_', "-");
    let name = match name.as_str() {
        "penalties" => return Ok(vec![Repetition, Frequency, Presence]),
        "temp" => "temperature",
        "typical" | "typ-p" => "typical-p",
        other => other,
    };
    if let Some(stage) = Stage::ALL.iter().find(|stage| stage.name() == name) {
        return Ok(vec![*stage]);
    }
    let known = || Stage::ALL.iter().map(|stage| stage.name()).chain(SamplerOrder::PRESETS);
    Err(match nearest(name, known()) {
        Some(near) => format!("stages or a preset: did you mean {near} by {typed:?}?"),
        None => format!("stages or a preset, of {}", known().collect::<Vec<_>>().join(" ")),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_names_every_stage_once_and_is_known_by_its_name() {
        for (name, stages) in PRESETS {
            assert!(Stage::ALL.iter().all(|stage| stages.contains(stage)), "{name}");
            let order = SamplerOrder::parse([name]).unwrap();
            assert_eq!((order.stages(), order.names()), (stages, vec![name.to_owned()]));
        }
        assert_eq!(PRESETS.map(|preset| preset.0), SamplerOrder::PRESETS);
    }

    #[test]
    fn a_list_may_leave_stages_out_but_never_the_masks() {
        let order = SamplerOrder::parse(["top_k", "penalties", "temp"]).unwrap();
        assert_eq!(order.stages(), [Bias, Grammar, TopK, Repetition, Frequency, Presence, Temperature]);
        let again: Vec<String> = order.names();
        assert_eq!(SamplerOrder::parse(again.iter().map(String::as_str)).unwrap(), order);
    }

    #[test]
    fn a_wrong_order_says_what_is_wrong() {
        for (names, wanted) in [
            (&["top-k", "tempreture"][..], "did you mean temperature"),
            (&["lama.cpp"], "did you mean llama.cpp"),
            (&["top-k", "top_k"], "top-k is named twice"),
            (&["top-k", "grammar"], "grammar before top-k"),
            (&["zzz"], "of bias grammar"),
        ] {
            let said = SamplerOrder::parse(names.iter().copied()).unwrap_err();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
