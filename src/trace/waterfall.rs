//! The sampler's waterfall as one array: `[seq, index, [[stage, survivors, active, entropy], ...], [[id, text,
//! logit, raw probability, probability, cut by], ...], vocabulary, entropy, final entropy, drawn]`,
//! and at the end the parameters, where they changed since the one before, and what a grammar allowed.

use super::events::Real;
use super::format::Seq;
use crate::protocol::{Candidate, GrammarView, SamplingParams, SamplingTrace, Stage, StageView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The likeliest that are kept of each, beside the one that was drawn.
const CANDIDATES: usize = 12;

#[derive(Serialize, Deserialize)]
struct StageForm(Stage, usize, u8, #[serde(default, skip_serializing_if = "Option::is_none")] Option<Real>);

#[derive(Serialize, Deserialize)]
struct Form(
    Seq,
    usize,
    Vec<StageForm>,
    Vec<(u32, String, Real, Real, Real, Option<Stage>)>,
    usize,
    Real,
    Real,
    u32,
    Option<SamplingParams>,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<GrammarView>,
);

/// `params` are those of the waterfall before, and of this one afterwards.
pub fn write(trace: &SamplingTrace, params: &mut Option<SamplingParams>) -> Option<Value> {
    let shown = |(i, c): &(usize, &Candidate)| *i < CANDIDATES || c.id == trace.drawn;
    let candidates = trace.candidates.iter().enumerate().filter(shown).map(|(_, c)| {
        (c.id, c.text.clone(), Real(c.logit), Real(c.raw_probability), Real(c.probability), c.cut_by)
    });
    let changed = params.as_ref() != Some(&trace.params);
    let form = Form(
        trace.seq.into(),
        trace.index,
        trace.stages.iter().map(stage_form).collect(),
        candidates.collect(),
        trace.vocab_size,
        Real(trace.entropy),
        Real(trace.final_entropy),
        trace.drawn,
        changed.then(|| trace.params.clone()),
        trace.grammar.clone(),
    );
    *params = Some(trace.params.clone());
    // By way of text: a number keeps the few digits that tell it from its neighbours.
    serde_json::from_str(&serde_json::to_string(&form).ok()?).ok()
}

pub fn read(value: &Value, params: &mut Option<SamplingParams>) -> Option<SamplingTrace> {
    let Form(seq, index, stages, candidates, vocab_size, entropy, final_entropy, drawn, changed, grammar) =
        Form::deserialize(value).ok()?;
    *params = changed.or_else(|| params.take());
    let stages = stages.into_iter().map(|StageForm(stage, survivors, active, entropy)| StageView {
        stage,
        survivors,
        active: active != 0,
        entropy: entropy.map(|x| x.0),
    });
    let candidates = candidates.into_iter().map(|(id, text, logit, raw, probability, cut_by)| Candidate {
        id,
        text,
        logit: logit.0,
        raw_probability: raw.0,
        probability: probability.0,
        cut_by,
    });
    Some(SamplingTrace {
        seq: seq.into(),
        index,
        params: params.clone().unwrap_or_default(),
        stages: stages.collect(),
        candidates: candidates.collect(),
        vocab_size,
        entropy: entropy.0,
        final_entropy: final_entropy.0,
        drawn,
        grammar,
    })
}

fn stage_form(view: &StageView) -> StageForm {
    StageForm(view.stage, view.survivors, view.active.into(), view.entropy.map(Real))
}
