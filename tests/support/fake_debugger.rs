//! The fake engine under a debugger: preempted by hand, configured, forked, stopped at
//! breakpoints, and asked why.

use super::script::{part, script};
use super::{BLOCK, FakeEngine};
use glassbox::protocol::*;

impl FakeEngine {
    /// Takes a sequence's blocks and place, as if `by` needed them, until it is `let_in` again.
    pub fn preempt(&mut self, seq: SeqId, by: SeqId) {
        let shortage = Shortage { needed: 9, free: 4, cached: 3, reserved: 0 };
        let i = self.sequences.iter().position(|s| s.seq == seq).expect("a sequence of this engine");
        let s = &mut self.sequences[i];
        let blocks = std::mem::take(&mut s.blocks);
        (s.running, s.computed, s.shortage, s.preemptions) = (false, 0, Some(shortage), s.preemptions + 1);
        self.free(&blocks);
        self.counters.preemptions += 1;
        let missing = Shortage { needed: 1, free: 0, cached: 0, reserved: 0 };
        let blocks_freed = blocks.len();
        self.doing.preempted.push(Preemption { seq, blocks_freed, swapped: false, by, shortage: missing });
    }

    pub fn let_in(&mut self, seq: SeqId) {
        self.sequences.iter_mut().filter(|s| s.seq == seq).for_each(|s| s.shortage = None);
    }

    pub(super) fn configure(&mut self, settings: SchedulerSettings) -> Vec<Event> {
        if settings.max_num_seqs > 32 {
            return vec![Event::Note("max_num_seqs stays as it is: this engine was started for 32".into())];
        }
        self.scheduler = settings.clone();
        vec![Event::Configured(Box::new(settings))]
    }

    /// As an engine does after a long time: what has ended cannot be forked any more.
    pub fn forget_all(&mut self) {
        self.finished.clear();
    }

    /// Shares the parent's full blocks, copies the partial one at once, and tells what the branch keeps
    /// of its parent's text.
    pub(super) fn fork(&mut self, request: &ForkRequest) -> Vec<Event> {
        let seq = SeqId { request: request.id, choice: 0 };
        let live = self.sequences.iter().find(|s| s.seq == request.parent);
        let Some(parent) = live.or_else(|| self.finished.iter().find(|s| s.seq == request.parent)) else {
            let message = format!("sequence {} is not known any more", request.parent);
            let reason = FinishReason::Error(Failure::new(FailureKind::BadRequest, message));
            let outcome = Box::new(self.outcome(None, reason, &request.params));
            return vec![Event::Finished { seq, outcome }];
        };
        let (prompt, ids) = (parent.prompt, parent.ids[..request.keep].to_vec());
        let told = parent.told[..request.keep - prompt].to_vec();
        // One that has ended has no blocks; what it was about to say is said now.
        let shared = parent.blocks.get(..request.keep / BLOCK).unwrap_or_default().to_vec();
        let mut left = script(1, false);
        left.reverse();
        if parent.blocks.is_empty() && request.keep == prompt + parent.said {
            left.clone_from(&parent.left);
        }
        self.share(&shared);
        let mut s = self.sequence(seq, &request.params, (prompt, 0), left);
        s.computed = shared.len() * BLOCK;
        s.blocks = shared;
        let missing = request.keep / BLOCK + 1 - s.blocks.len();
        s.blocks.extend(self.take(missing));
        s.running = true;
        (s.said, s.ids) = (told.len(), ids);
        s.reasoning = told.iter().filter(|(channel, _)| *channel == Channel::Reasoning).count();
        let parts =
            told.iter().enumerate().filter_map(|(i, (channel, text))| part(&told[..i], *channel, text));
        let mut events =
            vec![Event::Accepted { id: request.id, prompt_tokens: prompt, rendered: String::new() }];
        events.extend(parts.map(|part| Event::Delta { seq, part }));
        events.push(Event::Started { seq, cached_tokens: s.computed });
        s.told = told;
        self.sequences.push(s);
        self.doing.blocks_copied += 1;
        self.counters.copies_on_write += 1;
        events
    }

    pub(super) fn check_breakpoints(&mut self, events: &mut Vec<Event>) {
        let Some(record) = self.steps.last() else { return };
        for b in &mut self.breakpoints {
            let why = match &b.on {
                Breakpoint::Step(step) if *step == record.step => format!("step {step} was taken"),
                Breakpoint::Preemption if !record.preempted.is_empty() => {
                    format!("sequence {} gave its blocks back", record.preempted[0].seq)
                }
                Breakpoint::CopyOnWrite if record.blocks_copied > 0 => "a shared block was copied".into(),
                _ => continue,
            };
            b.hits += 1;
            self.paused = true;
            self.allowed = 0;
            events.push(Event::Broke { id: b.id, step: record.step, why });
        }
    }

    /// Who got nothing, and why.
    pub(super) fn waiting(&self, running: usize) -> Vec<Waiting> {
        let most = self.scheduler.max_num_seqs;
        let queue = self.sequences.iter().filter(|s| !s.running).enumerate();
        queue
            .map(|(ahead, s)| {
                let reason = match (s.shortage, self.scheduler.batching) {
                    (Some(shortage), _) => Reason::Blocks(shortage),
                    (None, Batching::Static) => Reason::Batch { running },
                    (None, Batching::Continuous) if ahead == 0 => Reason::Slots { running, most },
                    (None, Batching::Continuous) => Reason::Behind { ahead },
                };
                Waiting { seq: s.seq, reason }
            })
            .collect()
    }
}
