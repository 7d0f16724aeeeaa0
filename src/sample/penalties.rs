use super::SampleRow;
use super::field::Field;
use crate::protocol::{SamplingParams, Stage, TokenId};

/// How often each token occurs. A dense table, so that counting a long answer hashes nothing.
#[derive(Debug, Default)]
pub struct Occurrences {
    /// [vocab], 0 for a token not seen, else 1 + its occurrences where they count.
    counts: Vec<u32>,
    seen: Vec<TokenId>,
    counted: bool,
}

/// Whether the penalty of this stage is on.
pub fn penalizes(stage: Stage, params: &SamplingParams) -> bool {
    match stage {
        Stage::Repetition => params.repetition_penalty != 1.0,
        Stage::Frequency => params.frequency_penalty != 0.0,
        _ => params.presence_penalty != 0.0,
    }
}

/// Repetition: Keskar et al., "CTRL" (2019), section 4.1, once for each distinct token of prompt and
/// answer; a negative logit is multiplied, so that it gets less likely too. Frequency and presence: as
/// in the OpenAI API, of the answer alone. With `penalty_last_n` all look at the same window over both.
pub fn penalize(stage: Stage, field: &mut Field, row: &SampleRow, seen: &mut Occurrences) {
    seen.count_once(row, field.vocab());
    let p = row.params;
    for (id, times) in seen.each() {
        match stage {
            Stage::Repetition => {
                let penalty = p.repetition_penalty;
                field.edit(id, |x| if x > 0.0 { x / penalty } else { x * penalty });
            }
            Stage::Frequency => field.edit(id, |x| x - p.frequency_penalty * times as f32),
            _ if times > 0 => field.edit(id, |x| x - p.presence_penalty),
            _ => {}
        }
    }
    field.settle();
}

impl Occurrences {
    /// Forgets the row before.
    pub fn begin(&mut self) {
        self.seen.drain(..).for_each(|id| self.counts[id as usize] = 0);
        self.counted = false;
    }

    /// For the first penalty of a row; the others find it done.
    fn count_once(&mut self, row: &SampleRow, vocab: usize) {
        if std::mem::replace(&mut self.counted, true) {
            return;
        }
        self.counts.resize(self.counts.len().max(vocab), 0);
        let (prompt, answer) = row.tokens.split_at(row.prompt_len);
        match row.params.penalty_last_n {
            Some(n) => self.count(&row.tokens[row.tokens.len().saturating_sub(n as usize)..], 1),
            None => {
                let of_prompt = if row.params.repetition_penalty != 1.0 { prompt } else { &[] };
                self.count(of_prompt, 0);
                self.count(answer, 1);
            }
        }
    }

    fn count(&mut self, tokens: &[TokenId], times: u32) {
        for &id in tokens {
            let count = &mut self.counts[id as usize];
            if *count == 0 {
                *count = 1;
                self.seen.push(id);
            }
            *count += times;
        }
    }

    /// Every distinct token with its occurrences where they count.
    fn each(&self) -> impl Iterator<Item = (TokenId, u32)> + '_ {
        self.seen.iter().map(|id| (*id, self.counts[*id as usize] - 1))
    }
}
