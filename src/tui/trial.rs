//! What other parameters would have made of a token: what is tried, and what the engine says.

use crate::protocol::{PARAMS, ParamSpec, SamplingParams, SamplingTrace, SeqId, WhatIf, WhatIfAnswer};
use std::sync::Arc;

pub struct Trial {
    /// What the engine was asked last.
    pub asked: WhatIf,
    /// In force when the token was drawn.
    pub recorded: SamplingParams,
    /// Of the question, or of the one before while the engine computes.
    pub answer: Option<Result<Arc<SamplingTrace>, String>>,
    /// The question has no answer yet.
    pub waits: bool,
    /// The newest token was followed before, and will be again.
    pub followed: bool,
}

impl Trial {
    pub fn new(trace: &SamplingTrace, followed: bool) -> Self {
        let params = trace.params.clone();
        let asked = WhatIf { seq: trace.seq, index: trace.index, params: params.clone() };
        Self { asked, recorded: params, answer: None, waits: true, followed }
    }

    /// Whose token it is about.
    pub fn place(&self) -> (SeqId, usize) {
        (self.asked.seq, self.asked.index)
    }

    /// To another token, with the values that are tried over the parameters in force there.
    pub fn move_to(&mut self, (seq, index): (SeqId, usize), recorded: Option<SamplingParams>) {
        if let Some(recorded) = recorded {
            let mut params = recorded.clone();
            for spec in self.tried() {
                // Each was a value of its parameter; beside the others it is checked when asked.
                spec.set(&mut params, (spec.get)(&self.asked.params)).unwrap_or_default();
            }
            (self.recorded, self.asked.params) = (recorded, params);
        }
        (self.asked.seq, self.asked.index, self.answer) = (seq, index, None);
    }

    /// Takes an answer; one to an older question is no answer.
    pub fn take(&mut self, answer: WhatIfAnswer) {
        if answer.asked == self.asked {
            self.answer = Some(answer.trace.map(|trace| Arc::new(*trace)));
            self.waits = false;
        }
    }

    /// The parameters that are not what they were.
    pub fn tried(&self) -> impl Iterator<Item = &'static ParamSpec> {
        PARAMS.iter().filter(|spec| (spec.get)(&self.asked.params) != (spec.get)(&self.recorded))
    }
}
