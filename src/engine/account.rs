use super::forced::Teller;
use super::output::Output;
use super::plan::Plan;
use super::sequence::Sequence;
use super::sequences::Key;
use super::step::Engine;
use crate::kv::BlockTable;
use crate::model::{DeviceError, Outputs};
use crate::protocol::{Event, Failure, FailureKind, FinishReason, GrammarView, SamplingTrace, ScoredToken};
use crate::sample::{RowError, Sampled, TokenMask};
use crate::text::TextModel;
use std::sync::Arc;

pub(super) type Drawn = Result<Sampled, RowError>;

impl Engine {
    /// What the samples of a step mean for its sequences: each grows by its token or ends; a prompt
    /// with several continuations forks. `sampled` has one entry for each output of the batch.
    /// Sequences that are gone, because the step before was their last, get nothing.
    pub(super) fn account(
        &mut self,
        plan: &mut Plan,
        sampled: Vec<Drawn>,
        events: &mut Vec<Event>,
    ) -> Result<(), DeviceError> {
        let mut sampled = sampled.into_iter();
        let mut born = Vec::new();
        for (row, planned) in plan.batch.rows.iter().zip(&mut plan.rows) {
            let drawn: Vec<Drawn> = sampled.by_ref().take(row.num_outputs()).collect();
            if self.scheduler.sequences.get(planned.key).is_none() {
                continue;
            }
            match row.outputs {
                Outputs::None => {}
                _ if self.scheduler.sequences[planned.key].is_past(row) => {}
                Outputs::All => self.score(planned.key, row.start, drawn, events),
                Outputs::Last | Outputs::Draws(_) if self.scheduler.sequences[planned.key].beam.is_some() => {
                    self.report(planned.key, drawn.into_iter().next(), events);
                }
                Outputs::Last | Outputs::Draws(_) => {
                    planned.drawn = drawn[0].as_ref().ok().map(|sampled| sampled.token);
                    self.grow(planned.key, drawn, &mut born, events);
                }
            }
        }
        self.advance_beams(&mut born, events);
        self.keep_finished()?;
        self.scheduler.settle(&mut born, &mut self.kv);
        self.show_beams();
        Ok(())
    }

    /// A row that reached the end of its sequence: a token for it, and for each choice that starts
    /// here.
    fn grow(
        &mut self,
        key: Key,
        drawn: Vec<Drawn>,
        born: &mut Vec<(Key, Sequence)>,
        events: &mut Vec<Event>,
    ) {
        let parent = &mut self.scheduler.sequences[key];
        (parent.in_flight, parent.held) = (parent.in_flight - 1, false);
        let choices = std::mem::replace(&mut parent.choices, 1);
        let mut children: Vec<Sequence> = (1..choices)
            .map(|choice| {
                let id = crate::protocol::SeqId { choice, ..parent.id };
                let mut child = match (choice as usize) < drawn.len() {
                    true => {
                        let table = self.kv.fork(id, &parent.table, parent.num_computed);
                        parent.fork(choice, table, parent.num_computed)
                    }
                    // No output row was left for it: it starts from the prompt, as a request would.
                    false => parent.fork(choice, BlockTable::default(), 0),
                };
                child.guide = parent.guide.as_ref().map(|guide| Box::new(guide.fork()));
                child
            })
            .collect();
        score_last(parent, &drawn[0], &self.output, events);
        let mut mask = parent.mask.take();
        for (seq, drawn) in std::iter::once(&mut *parent).chain(&mut children).zip(drawn) {
            if !std::mem::replace(&mut seq.started, true) {
                // It shares the whole prompt with its parent, and computed none of it.
                seq.cached_tokens = seq.prompt_len;
                self.output.start(seq, events);
            }
            seq.ended = match drawn {
                Ok(mut sampled) => {
                    if let Some(trace) = traced(&self.text, &mut sampled, mask.as_ref()) {
                        self.kept.push(seq, mask.take(), self.focus.candidates);
                        (self.trace, self.new_trace) = (Some(trace.clone()), Some(trace));
                    }
                    let mut teller = Teller {
                        output: &mut self.output,
                        stats: &mut self.stats,
                        watched: (!self.breakpoints.is_empty()).then_some(&mut self.watched),
                        text: &self.text,
                    };
                    seq.sampler = sampled.state;
                    teller.tell(seq, sampled, false, events)
                        || teller.close_thoughts(seq, events)
                        || (self.fast_forward && teller.fast_forward(seq, events))
                }
                Err(why) => {
                    // Keys and values of the same past are as wrong as the logits.
                    self.kv.forget(&seq.table);
                    let failure = seq.failure_of_row(&why);
                    self.output.close(seq.id, FinishReason::Error(failure), events);
                    true
                }
            };
        }
        born.extend(children.into_iter().map(|child| (key, child)));
    }

    /// A chunk of a prompt, from position `first` on, whose every position is scored.
    fn score(&mut self, key: Key, first: usize, scored: Vec<Drawn>, events: &mut Vec<Event>) {
        let seq = &mut self.scheduler.sequences[key];
        seq.held = false;
        let rows: Result<Vec<Sampled>, RowError> = scored.into_iter().collect();
        match rows {
            Ok(rows) => {
                seq.scoring.iter_mut().for_each(|scoring| scoring.done = first + rows.len());
                let next = rows.iter().map(scored_token).collect();
                let rows = rows.into_iter().map(|sampled| sampled.top);
                self.output.scored(seq.id.request, first, rows, next, events);
            }
            Err(why) => {
                self.kv.forget(&seq.table);
                seq.ended = true;
                let failure = Failure::new(FailureKind::Internal, why.to_string());
                self.output.close_request(seq.id.request, &FinishReason::Error(failure), events);
            }
        }
    }
}

/// The last position of a scored prompt is the one that draws the first token.
fn score_last(seq: &mut Sequence, drawn: &Drawn, output: &Output, events: &mut Vec<Event>) {
    let last = seq.prompt_len - 1;
    let Some(scoring) = seq.scoring.as_mut().filter(|scoring| scoring.done == last) else { return };
    let Ok(sampled) = drawn else { return };
    scoring.done = seq.prompt_len;
    let mut top = sampled.top.clone();
    top.truncate(scoring.top);
    output.scored(seq.id.request, last, std::iter::once(top), Vec::new(), events);
}

/// A row that was scored has the next token of the prompt.
fn scored_token(sampled: &Sampled) -> ScoredToken {
    ScoredToken { id: sampled.token, logprob: sampled.logprob, rank: sampled.rank }
}

fn traced(text: &TextModel, sampled: &mut Sampled, mask: Option<&TokenMask>) -> Option<Arc<SamplingTrace>> {
    sampled.trace.take().map(|trace| Arc::from(told(text, trace, mask)))
}

/// The trace with what the sampler does not know.
pub(super) fn told(
    text: &TextModel,
    mut trace: Box<SamplingTrace>,
    mask: Option<&TokenMask>,
) -> Box<SamplingTrace> {
    trace.grammar = mask.map(|mask| allowed_by(mask, text));
    trace.candidates.iter_mut().for_each(|candidate| candidate.text = text.piece_text(candidate.id));
    trace
}

/// Enough to see what kind of thing must follow.
const FIRST_ALLOWED: usize = 8;

fn allowed_by(mask: &TokenMask, text: &TextModel) -> GrammarView {
    GrammarView {
        allowed: mask.count(),
        may_end: text.end_tokens().iter().any(|id| mask.allows(*id)),
        first: mask.ids().take(FIRST_ALLOWED).map(|id| text.piece_text(id)).collect(),
    }
}
