use super::field::Field;
use super::select::Entry;
use super::softmax::Softmax;
use super::{SampleRow, select};
use crate::protocol::{Candidate, SamplingTrace, Stage, StageView, TokenId};

/// What the stages left over, noted on the way; nothing where nobody looks.
pub struct Trail {
    on: bool,
    stages: Vec<StageView>,
    /// The last token each cutting stage kept.
    cuts: Vec<(Stage, Entry)>,
}

impl Trail {
    pub fn new(on: bool) -> Self {
        Self { on, stages: Vec::new(), cuts: Vec::new() }
    }

    /// `survivors` is counted only when somebody looks.
    pub fn note(&mut self, stage: Stage, active: bool, survivors: impl FnOnce() -> usize) {
        if self.on {
            self.stages.push(StageView { stage, active, survivors: survivors() });
        }
    }

    pub fn cut(&mut self, stage: Stage, last: Option<Entry>) {
        if let (true, Some(last)) = (self.on, last) {
            self.cuts.push((stage, last));
        }
    }

    /// `likeliest` are raw logits, best first; the field still has the edited ones.
    pub fn finish(
        self,
        row: &SampleRow,
        raw: &Softmax,
        likeliest: &[select::Entry],
        drawn: Entry,
        field: &Field,
    ) -> Option<Box<SamplingTrace>> {
        if !self.on {
            return None;
        }
        let last = field.softmax();
        let shown = &likeliest[..likeliest.len().min(row.trace)];
        let extra = (!shown.iter().any(|entry| entry.id == drawn.id)).then_some(drawn);
        let candidate = |entry: Entry| {
            let now = Entry { logit: field.logits[entry.id as usize], id: entry.id };
            let cut_by = self.cut_by(now);
            let weight = if cut_by.is_none() { field.weight(now.logit) } else { 0.0 };
            Candidate {
                id: entry.id,
                text: String::new(),
                logit: entry.logit,
                raw_probability: raw.probability(entry.logit),
                probability: (weight / last.sum) as f32,
                cut_by,
            }
        };
        Some(Box::new(SamplingTrace {
            seq: row.seq,
            index: row.tokens.len() - row.prompt_len,
            params: row.params.clone(),
            candidates: shown.iter().copied().chain(extra).map(candidate).collect(),
            vocab_size: field.logits.len(),
            entropy: raw.entropy,
            final_entropy: last.entropy,
            drawn: drawn.id as TokenId,
            stages: self.stages,
            grammar: None,
        }))
    }

    fn cut_by(&self, now: Entry) -> Option<Stage> {
        if now.logit == f32::NEG_INFINITY {
            return Some(Stage::Mask);
        }
        self.cuts.iter().find(|(_, last)| now.is_after(last)).map(|(stage, _)| *stage)
    }
}
