//! What the newest traced tokens were drawn from, and what other parameters would have made of them.

use super::account::told;
use super::sequence::Sequence;
use super::step::Engine;
use crate::protocol::{SamplingTrace, SeqId, WhatIf, WhatIfAnswer};
use crate::sample::{Phrases, SampleRow, SamplerState, Scratch, TokenMask, sample};
use std::cell::Cell;
use std::collections::VecDeque;

/// Some 300 tokens of a vocabulary of 50,000, 60 of one of 260,000.
const MOST_BYTES: usize = 64 << 20;

/// The newest traced tokens, as many as [`MOST_BYTES`] hold.
pub struct KeptLogits {
    ring: VecDeque<Kept>,
    bytes: usize,
    most_bytes: usize,
    /// Where the next row is copied to: memory of one that fell out.
    next: Cell<Vec<f32>>,
    /// The token that was asked about last; its row stays when it falls out, for the next question.
    asked: Cell<Option<(SeqId, usize)>>,
    fallen: Option<Kept>,
}

/// All that drawing a token anew takes, but for the tokens before it: those are its sequence's.
struct Kept {
    seq: SeqId,
    /// The how-manieth generated token, from 0.
    index: usize,
    logits: Vec<f32>, // [vocab_size]
    mask: Option<TokenMask>,
    seed: u64,
    /// Before the draw.
    state: SamplerState,
    candidates: usize,
}

impl Default for KeptLogits {
    fn default() -> Self {
        Self::of(MOST_BYTES)
    }
}

impl KeptLogits {
    fn of(most_bytes: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            bytes: 0,
            most_bytes,
            next: Cell::default(),
            asked: Cell::default(),
            fallen: None,
        }
    }

    /// For a row of logits that is about to be drawn from.
    pub fn next(&self) -> &Cell<Vec<f32>> {
        &self.next
    }

    /// A token was drawn from [`next`](Self::next), for a sequence that does not have it yet.
    pub fn push(&mut self, seq: &Sequence, mask: Option<TokenMask>, candidates: usize) {
        let logits = self.next.take();
        if logits.is_empty() {
            return;
        }
        self.keep(Kept {
            seq: seq.id,
            index: seq.num_generated(),
            logits,
            mask,
            seed: seq.seed,
            state: seq.sampler,
            candidates,
        });
    }

    fn keep(&mut self, kept: Kept) {
        self.bytes += kept.bytes();
        self.ring.push_back(kept);
        while self.bytes > self.most_bytes {
            let Some(oldest) = self.ring.pop_front() else { return };
            self.bytes -= oldest.bytes();
            if self.asked.get() == Some(oldest.key()) {
                self.fallen = Some(oldest);
            } else {
                self.next.set(oldest.logits);
            }
        }
    }

    fn find(&self, seq: SeqId, index: usize) -> Option<&Kept> {
        let found = self.ring.iter().rev().chain(&self.fallen).find(|kept| kept.key() == (seq, index))?;
        self.asked.set(Some(found.key()));
        Some(found)
    }

    pub fn clear(&mut self) {
        self.ring.clear();
        (self.bytes, self.fallen) = (0, None);
    }
}

impl Kept {
    fn key(&self) -> (SeqId, usize) {
        (self.seq, self.index)
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.logits[..]) + self.mask.as_ref().map_or(0, |mask| size_of_val(&mask.0[..]))
    }
}

impl Engine {
    pub(super) fn answer_what_if(&self, asked: WhatIf, phrases: &Phrases) -> WhatIfAnswer {
        let trace = self.what_if(&asked, phrases);
        WhatIfAnswer { asked, trace }
    }

    fn what_if(&self, asked: &WhatIf, phrases: &Phrases) -> Result<Box<SamplingTrace>, String> {
        let WhatIf { seq: id, index, params } = asked;
        let known = |seq: &&Sequence| seq.id == *id;
        let seq = self.scheduler.all().find(known).or_else(|| self.finished.iter().rev().find(known));
        let seq = seq.ok_or_else(|| format!("sequence {id} is not known any more, or is a beam"))?;
        if seq.beam.is_some() {
            return Err("a beam search draws nothing".into());
        }
        let kept = self.kept.find(*id, *index).ok_or_else(|| {
            format!(
                "the logits of token {} are not kept: only those of the newest tokens drawn while \
                 sequence {id} was looked at",
                index + 1
            )
        })?;
        let row = SampleRow {
            seq: *id,
            params,
            seed: kept.seed,
            tokens: &seq.tokens[..seq.prompt_len + index],
            prompt_len: seq.prompt_len,
            end_tokens: if params.ignore_eos { &[] } else { self.text.end_tokens() },
            mask: kept.mask.as_ref(),
            phrases,
            state: kept.state,
            draw: true,
            target: None,
            top: 0,
            beams: 0,
            trace: kept.candidates,
            keep: None,
        };
        let sampled = sample(&kept.logits, &row, &mut Scratch::default()).map_err(|why| why.to_string())?;
        let trace = sampled.trace.ok_or("nobody looked at this token")?;
        Ok(told(&self.text, trace, row.mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(logits: &KeptLogits) -> Vec<usize> {
        logits.ring.iter().map(|kept| kept.index).collect()
    }

    fn push(logits: &mut KeptLogits, index: usize) {
        let mut row = logits.next.take();
        row.clear();
        row.extend([0.0; 8]);
        let (seq, state) = (SeqId::default(), SamplerState::default());
        let kept = Kept { seq, index, logits: row, mask: None, seed: 0, state, candidates: 1 };
        logits.keep(kept);
    }

    #[test]
    fn the_newest_are_kept_and_the_memory_of_the_oldest_is_used_again() {
        let mut logits = KeptLogits::of(3 * 32);
        (0..3).for_each(|index| push(&mut logits, index));
        assert_eq!((kept(&logits), logits.bytes), (vec![0, 1, 2], 96));
        let first = logits.ring[0].logits.as_ptr();
        push(&mut logits, 3);
        push(&mut logits, 4);
        assert_eq!((kept(&logits), logits.bytes), (vec![2, 3, 4], 96));
        assert_eq!(logits.ring[2].logits.as_ptr(), first);
        assert!(logits.find(SeqId::default(), 1).is_none() && logits.find(SeqId::default(), 4).is_some());
        // What was just asked about stays, until another is.
        (5..9).for_each(|index| push(&mut logits, index));
        assert!(logits.find(SeqId::default(), 4).is_some());
        assert!(logits.find(SeqId::default(), 8).is_some());
        (9..14).for_each(|index| push(&mut logits, index));
        assert!(logits.find(SeqId::default(), 4).is_none() && logits.find(SeqId::default(), 8).is_some());
        logits.clear();
        assert_eq!((kept(&logits), logits.bytes), (vec![], 0));
    }
}
