use crate::protocol::{Event, FinishReason, RequestId, SeqId};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The choices of a request of which only the best are told: all that is said of them waits until the
/// last one ends.
#[derive(Default)]
pub struct BestOf {
    /// How many are told.
    n: usize,
    choices: BTreeMap<u32, Held>,
}

#[derive(Default)]
struct Held {
    events: Vec<Event>,
    logprobs: f64,
    tokens: usize,
    failed: bool,
}

impl BestOf {
    pub fn new(n: u32) -> Self {
        Self { n: n as usize, choices: BTreeMap::new() }
    }

    pub fn hold(&mut self, choice: u32, event: Event) {
        let held = self.choices.entry(choice).or_default();
        match &event {
            Event::Token { token, .. } => {
                held.logprobs += f64::from(token.logprob);
                held.tokens += 1;
            }
            Event::Finished { outcome, .. } => {
                held.failed = matches!(outcome.reason, FinishReason::Error(_) | FinishReason::Abort);
            }
            _ => {}
        }
        held.events.push(event);
    }

    /// The n of the largest mean log-probability, best first, as choices 0 to n - 1. Of equals the
    /// earlier one; what failed or was aborted comes last.
    pub fn tell(self, request: RequestId) -> impl Iterator<Item = Event> {
        let mut all: Vec<Held> = self.choices.into_values().collect();
        all.sort_by(Held::order);
        all.into_iter().take(self.n).zip(0..).flat_map(move |(held, choice)| {
            held.events.into_iter().map(move |event| of(event, SeqId { request, choice }))
        })
    }
}

impl Held {
    fn mean(&self) -> f64 {
        if self.tokens == 0 { f64::NEG_INFINITY } else { self.logprobs / self.tokens as f64 }
    }

    fn order(&self, other: &Held) -> Ordering {
        self.failed.cmp(&other.failed).then(other.mean().total_cmp(&self.mean()))
    }
}

/// The same event of another choice.
fn of(mut event: Event, choice: SeqId) -> Event {
    if let Event::Started { seq, .. }
    | Event::Token { seq, .. }
    | Event::Delta { seq, .. }
    | Event::ParamsApplied { seq, .. }
    | Event::Finished { seq, .. } = &mut event
    {
        *seq = choice;
    }
    event
}
