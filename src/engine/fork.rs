//! Branches: a new request that goes on from a point inside another one, running or finished.

use super::intake::Accepted;
use super::sequence::Sequence;
use super::step::Engine;
use crate::kv::BlockTable;
use crate::model::DeviceError;
use crate::protocol::{
    Event, Failure, FailureKind, ForkRequest, Prompt, Request, RequestId, SeqId, SequenceState,
};
use crate::sample::{Phrases, SamplerState};
use std::sync::Arc;

impl Engine {
    /// Remembers the sequences that have ended, before the scheduler drops them.
    pub(super) fn keep_finished(&mut self) -> Result<(), DeviceError> {
        let Self { scheduler, offload, kv, runner, finished, watched, breakpoints, .. } = self;
        for seq in scheduler.all().filter(|seq| seq.ended) {
            if !breakpoints.is_empty() {
                watched.finished(seq.id);
            }
            if seq.started && seq.beam.is_none() {
                finished.push(seq.fork(seq.id.choice, BlockTable::default(), 0));
                offload.keep(seq, kv, &mut **runner)?;
            }
        }
        Ok(())
    }

    /// Takes a request out, wherever it is; its blocks are free at once.
    pub(super) fn take_out(&mut self, request: RequestId, events: &mut Vec<Event>) {
        self.scheduler.end(request);
        self.keep_aborted(events);
        self.scheduler.settle(&mut Vec::new(), &mut self.kv);
    }

    /// What was said before the end came from outside is worth as much as a finished answer.
    pub(super) fn keep_aborted(&mut self, events: &mut Vec<Event>) {
        if let Err(error) = self.keep_finished() {
            events.push(Event::Note(format!("what was computed is not kept on disk: {error}")));
        }
    }

    pub(super) fn fork(&mut self, request: ForkRequest, phrases: Arc<Phrases>, events: &mut Vec<Event>) {
        let mut accepted = accepted(&request, self.clock.now());
        match self.branch(&request) {
            Err(why) => self.output.refuse(&accepted, &why, events),
            Ok(mut seq) => {
                seq.phrases = phrases;
                accepted.prompt_tokens = seq.prompt_len;
                accepted.seed = seq.seed;
                accepted.opens_reasoning = seq.reading.opens_reasoning;
                accepted.tools = seq.reading.tools.clone();
                accepted.request.parse_reasoning = seq.reading.parse_reasoning;
                self.output.open(&accepted);
                self.stats.accepted(0);
                let (id, prompt_tokens) = (request.id, seq.prompt_len);
                events.push(Event::Accepted { id, prompt_tokens, rendered: String::new() });
                self.output.retell(&seq, events);
                // What has to wait for its grammar cannot run on at once.
                let waits = seq.table.is_empty() || seq.guided.is_some();
                let key = match waits {
                    true => self.scheduler.push(seq),
                    false => self.scheduler.push_running(seq, &mut self.kv),
                };
                self.offload.begin(key, &mut self.scheduler, &mut self.kv);
                self.begin_grammar(key, events);
                self.round = 0;
            }
        }
    }

    /// The new sequence: it shares the blocks of a running parent, and finds those of a finished one
    /// in the prefix cache.
    fn branch(&mut self, request: &ForkRequest) -> Result<Sequence, Failure> {
        let bad = |message: String| Failure::new(FailureKind::BadRequest, message);
        let parent = self.scheduler.all().find(|seq| seq.id == request.parent);
        let live = parent.is_some();
        let parent = parent
            .or_else(|| self.finished.iter().rev().find(|seq| seq.id == request.parent))
            .ok_or_else(|| bad(format!("sequence {} is not known any more", request.parent)))?;
        let (keep, len) = (request.keep, parent.tokens.len());
        if keep == 0 || keep > len {
            return Err(bad(format!("the fork keeps {keep} tokens; sequence {} has {len}", parent.id)));
        }
        let tokens = [&parent.tokens[..keep], &request.then].concat();
        if tokens.len() >= self.lengths.longest() {
            let message =
                format!("the branch starts with {} tokens; {} fit", tokens.len(), self.lengths.longest());
            return Err(Failure::new(FailureKind::TooLong, message));
        }
        let id = SeqId { request: request.id, choice: 0 };
        // The last token must run, or there would be no logits to go on with.
        let wanted = keep.min(tokens.len() - 1);
        // Where its blocks are gone, or a window has slid on, it is computed again, from what the cache
        // has.
        let rope = self.scheduler.rope;
        let shares = rope.kind(parent.rope_len) == rope.kind(tokens.len())
            && live
            && !parent.table.is_empty()
            && self.kv.can_fork(&parent.table, parent.num_computed, wanted);
        let computed = if shares { wanted } else { 0 };
        let table = match computed {
            0 => BlockTable::default(),
            _ => self.kv.fork(id, &parent.table, computed),
        };
        let mut seq = parent.fork(parent.id.choice, table, computed);
        seq.id = id;
        seq.prompt_len = parent.prompt_len.min(tokens.len());
        seq.chain.truncate(keep);
        seq.chain.extend(&tokens);
        seq.tokens = tokens;
        if computed == 0 {
            seq.begin(rope);
        }
        seq.params = request.params.clone();
        if keep < len || !request.then.is_empty() {
            // What the sampler remembers is of another end.
            seq.sampler = SamplerState::default();
        }
        seq.seed = request.params.seed.unwrap_or(parent.seed);
        seq.state = SequenceState::Waiting;
        seq.cached_tokens = computed;
        Ok(seq)
    }
}

/// A fork as output knows requests.
pub fn accepted(fork: &ForkRequest, arrival: std::time::Duration) -> Accepted {
    let request = Request::new(RequestId(fork.id.0), Prompt::Tokens(Vec::new()), fork.params.clone());
    Accepted::new(request, arrival)
}
