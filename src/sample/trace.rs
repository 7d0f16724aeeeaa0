use super::SampleRow;
use super::field::Field;
use super::select::Entry;
use super::softmax::Softmax;
use crate::protocol::{Candidate, SamplingTrace, Stage, StageView};

/// What the stages left over, noted on the way; nothing where nobody looks.
pub struct Trail {
    stages: Vec<StageView>,
    /// The likeliest of the raw row, best first, and who cut each.
    shown: Vec<(Entry, Option<Stage>)>,
}

impl Trail {
    pub fn new(likeliest: &[Entry]) -> Self {
        Self { stages: Vec::new(), shown: likeliest.iter().map(|entry| (*entry, None)).collect() }
    }

    /// Survivors are counted only when somebody looks.
    pub fn note(&mut self, stage: Stage, active: bool, field: &Field) {
        if self.shown.is_empty() {
            return;
        }
        let survivors = match self.stages.last() {
            Some(before) if !active => before.survivors,
            _ => field.survivors(),
        };
        let entropy = active.then(|| field.softmax().entropy);
        self.stages.push(StageView { stage, active, survivors, entropy });
        for (entry, cut_by) in self.shown.iter_mut().filter(|(_, cut_by)| active && cut_by.is_none()) {
            *cut_by = field.entry(entry.id).is_none().then_some(stage);
        }
    }

    /// `drawn` with its raw logit.
    pub fn finish(
        mut self,
        row: &SampleRow,
        raw: &Softmax,
        drawn: Entry,
        field: &Field,
    ) -> Option<Box<SamplingTrace>> {
        if self.shown.is_empty() {
            return None;
        }
        let last = field.softmax();
        if !self.shown.iter().any(|(entry, _)| entry.id == drawn.id) {
            self.shown.push((drawn, None));
        }
        let candidate = |(entry, cut_by): (Entry, Option<Stage>)| Candidate {
            id: entry.id,
            text: String::new(),
            logit: entry.logit,
            raw_probability: raw.probability(entry.logit),
            probability: field.entry(entry.id).map_or(0.0, |now| last.probability(now.logit)),
            cut_by,
        };
        Some(Box::new(SamplingTrace {
            seq: row.seq,
            index: row.tokens.len() - row.prompt_len,
            params: row.params.clone(),
            candidates: self.shown.into_iter().map(candidate).collect(),
            vocab_size: field.vocab(),
            entropy: raw.entropy,
            final_entropy: last.entropy,
            drawn: drawn.id,
            stages: self.stages,
            grammar: None,
        }))
    }
}
