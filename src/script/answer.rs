use crate::protocol::{
    Channel, Counters, Event, Failure, FinishReason, ModelInfo, Outcome, Part, PlannedCall, Request,
    RequestId, SamplingParams, TokenInfo, ToolCall, ToolResult, Usage,
};
use serde::Serialize;

/// Everything that came back for one request, also when it ended early.
#[derive(Debug)]
pub struct Answer {
    pub info: ModelInfo,
    pub request: RequestId,
    /// As they were asked for.
    pub params: SamplingParams,
    pub prompt_tokens: usize,
    pub choices: Vec<Choice>,
    /// What the engine did meanwhile, where it counts.
    pub work: Option<Work>,
    /// What calls of the answers before gave back.
    pub tool_results: Vec<ToolRun>,
}

/// Of all steps, while they were computed: weights and KV cache read; multiplications and additions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    pub gb_per_s: f64,
    pub gflop_per_s: f64,
}

/// A call that was carried out, or refused for what is wrong with it.
#[derive(Clone, Debug, Serialize)]
pub struct ToolRun {
    /// The how-manieth answer asked for it, from 0.
    pub round: u32,
    #[serde(flatten)]
    pub call: ToolCall,
    #[serde(flatten)]
    pub plan: Option<PlannedCall>,
    #[serde(flatten)]
    pub result: ToolResult,
}

#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub text: String,
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    pub tokens: Vec<TokenInfo>,
    /// `None` while it runs.
    pub outcome: Option<Outcome>,
}

impl Answer {
    pub fn new(info: ModelInfo, request: &Request) -> Self {
        Self {
            info,
            request: request.id,
            params: request.params.clone(),
            prompt_tokens: 0,
            choices: vec![Choice::default(); request.n as usize],
            work: None,
            tool_results: Vec::new(),
        }
    }

    /// What was counted before it began, and after it ended.
    pub fn worked(&mut self, before: Counters, after: Counters) {
        let seconds = (after.busy_ms - before.busy_ms) / 1e3;
        let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        self.work = (seconds > 0.0 && after.flops > before.flops).then(|| Work {
            gb_per_s: per_s(after.bytes_read, before.bytes_read) / 1e9,
            gflop_per_s: per_s(after.flops, before.flops) / 1e9,
        });
    }

    /// Events of other requests pass by.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Accepted { id, prompt_tokens, .. } if *id == self.request => {
                self.prompt_tokens = *prompt_tokens;
            }
            Event::Token { seq, token } if seq.request == self.request => {
                if let Some(choice) = self.choices.get_mut(seq.choice as usize) {
                    choice.tokens.push((**token).clone());
                }
            }
            Event::Delta { seq, part } if seq.request == self.request => {
                if let Some(choice) = self.choices.get_mut(seq.choice as usize) {
                    match part {
                        Part::Text(text) => choice.text.push_str(text),
                        Part::Reasoning(text) => choice.reasoning.push_str(text),
                        Part::ToolCall(call) => call.add_to(&mut choice.tool_calls),
                    }
                }
            }
            Event::Finished { seq, outcome } if seq.request == self.request => {
                if let Some(choice) = self.choices.get_mut(seq.choice as usize) {
                    choice.outcome = Some((**outcome).clone());
                }
            }
            _ => {}
        }
    }

    pub fn is_finished(&self) -> bool {
        self.choices.iter().all(|choice| choice.outcome.is_some())
    }

    /// The first choice that failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.choices.iter().find_map(|choice| match &choice.outcome.as_ref()?.reason {
            FinishReason::Error(failure) => Some(failure),
            _ => None,
        })
    }

    pub fn has_content(&self) -> bool {
        self.choices.iter().any(|c| {
            !c.text.is_empty() || !c.reasoning.is_empty() || !c.tool_calls.is_empty() || !c.tokens.is_empty()
        })
    }

    /// Of all choices together; the one prompt counts once.
    pub fn usage(&self) -> Usage {
        let mut total = self.choices.first().map_or_else(Usage::default, |first| self.usage_of(first));
        for other in self.choices.iter().skip(1).map(|choice| self.usage_of(choice)) {
            total.completion_tokens += other.completion_tokens;
            total.reasoning_tokens += other.reasoning_tokens;
            total.forced_tokens += other.forced_tokens;
        }
        total
    }

    /// Of a choice that was still running at the end: what was seen of it.
    pub fn usage_of(&self, choice: &Choice) -> Usage {
        let seen = || Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: 0,
            completion_tokens: choice.tokens.len(),
            reasoning_tokens: choice.tokens.iter().filter(|t| t.channel == Channel::Reasoning).count(),
            forced_tokens: choice.tokens.iter().filter(|t| t.forced).count(),
        };
        choice.outcome.as_ref().map_or_else(seen, |outcome| outcome.usage)
    }

    pub fn seed_of(&self, index: usize) -> Option<u64> {
        let asked = || self.params.seed.map(|seed| seed.wrapping_add(index as u64));
        self.choices[index].outcome.as_ref().map(|outcome| outcome.seed).or_else(asked)
    }
}

impl Choice {
    /// `abort` for one that was still running when everything ended.
    pub fn finish_reason(&self) -> &'static str {
        self.outcome.as_ref().map_or(FinishReason::Abort.name(), |o| o.reason.name())
    }
}
