//! The fake engine asked what other parameters would have made of a token: a real sampler over a row of
//! logits that the trace's raw probabilities are of.

use super::{FakeEngine, VOCAB};
use glassbox::protocol::*;
use glassbox::sample::{Phrases, SampleRow, SamplerState, Scratch, sample};

/// Logits are kept of so many of the newest steps.
const KEPT: usize = 100;

impl FakeEngine {
    pub(super) fn what_if(&self, asked: WhatIf) -> Vec<Event> {
        let traced = self.steps.iter().rev().take(KEPT).filter_map(|step| step.sampling.as_ref());
        let recorded = traced.into_iter().find(|trace| (trace.seq, trace.index) == (asked.seq, asked.index));
        let trace = match (recorded, asked.params.check()) {
            (None, _) => Err("its logits are not kept any more".to_owned()),
            (_, Err(why)) => Err(why.to_string()),
            (Some(recorded), Ok(())) => Ok(Box::new(again(recorded, &asked.params))),
        };
        vec![Event::WhatIf(Box::new(WhatIfAnswer { asked, trace }))]
    }
}

/// With the first seed that draws what was drawn under the parameters of then.
fn again(recorded: &SamplingTrace, params: &SamplingParams) -> SamplingTrace {
    let drawn = |seed: &u64| draw(recorded, &recorded.params, *seed).drawn == recorded.drawn;
    draw(recorded, params, (0..100).find(drawn).unwrap_or(0))
}

fn draw(recorded: &SamplingTrace, params: &SamplingParams, seed: u64) -> SamplingTrace {
    let known: f32 = recorded.candidates.iter().map(|c| c.raw_probability).sum();
    let rest = ((1.0 - known) / (VOCAB - recorded.candidates.len()) as f32).ln();
    let mut logits = vec![rest; VOCAB];
    for c in &recorded.candidates {
        logits[c.id as usize] = c.raw_probability.ln();
    }
    let tokens: Vec<u32> = vec![0; 1 + recorded.index];
    let row = SampleRow {
        seq: recorded.seq,
        params,
        seed,
        tokens: &tokens,
        prompt_len: 1,
        end_tokens: &[],
        mask: None,
        phrases: &Phrases::default(),
        state: SamplerState::default(),
        draw: true,
        keep: None,
        target: None,
        top: 0,
        beams: 0,
        trace: recorded.candidates.len(),
    };
    let sampled = sample(&logits, &row, &mut Scratch::default()).expect("logits that are numbers");
    let mut trace = *sampled.trace.expect("it was asked for");
    for c in &mut trace.candidates {
        let known = recorded.candidates.iter().find(|one| one.id == c.id);
        c.text = known.map_or_else(|| format!("<{}>", c.id), |known| known.text.clone());
    }
    trace
}
