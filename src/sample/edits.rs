use super::SampleRow;
use crate::protocol::TokenId;

/// Changes to single logits, with what stood there before, so that the raw row can be had back.
#[derive(Debug, Default)]
pub struct Edits(Vec<(TokenId, f32)>);

impl Edits {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.0.iter().map(|(id, _)| *id)
    }

    /// The raw logit of a token that was changed.
    pub fn before(&self, id: TokenId) -> Option<f32> {
        self.0.iter().find(|(edited, _)| *edited == id).map(|(_, before)| *before)
    }

    /// Undoes all of them, the last one first.
    pub fn undo(&self, logits: &mut [f32]) {
        for (id, before) in self.0.iter().rev() {
            logits[*id as usize] = *before;
        }
    }

    fn set(&mut self, logits: &mut [f32], id: TokenId, logit: f32) {
        self.0.push((id, logits[id as usize]));
        logits[id as usize] = logit;
    }

    /// Guided decoding's mask, and no end token before `min_tokens`. Says whether it did anything.
    pub fn mask(&mut self, logits: &mut [f32], row: &SampleRow) -> bool {
        let before = self.0.len();
        if let Some(mask) = row.mask {
            let allowed = |id: usize| mask.0.get(id / 32).is_some_and(|bits| bits >> (id % 32) & 1 == 1);
            for id in (0..logits.len()).filter(|id| !allowed(*id)) {
                self.set(logits, id as TokenId, f32::NEG_INFINITY);
            }
        }
        if row.tokens.len() - row.prompt_len < row.params.min_tokens as usize {
            for id in row.end_tokens.iter().chain(&row.params.stop_token_ids) {
                self.set(logits, *id, f32::NEG_INFINITY);
            }
        }
        self.0.len() > before
    }

    /// Repetition penalty over prompt and answer, once for each distinct token; then frequency and
    /// presence penalties over the answer (scopes and order as in vLLM). Says whether any is on.
    pub fn penalize(&mut self, logits: &mut [f32], row: &SampleRow, seen: &mut Occurrences) -> bool {
        let p = row.params;
        let repetition = p.repetition_penalty != 1.0;
        if !repetition && p.frequency_penalty == 0.0 && p.presence_penalty == 0.0 {
            return false;
        }
        let (prompt, answer) = row.tokens.split_at(row.prompt_len);
        seen.count(if repetition { prompt } else { &[] }, answer, logits.len());
        for (id, times) in seen.drain() {
            let raw = logits[id as usize];
            let scaled = if raw > 0.0 { raw / p.repetition_penalty } else { raw * p.repetition_penalty };
            let presence = if times > 0 { p.presence_penalty } else { 0.0 };
            self.set(logits, id, scaled - p.frequency_penalty * times as f32 - presence);
        }
        true
    }
}

/// How often each token occurs. A dense table, so that counting a long answer hashes nothing.
#[derive(Debug, Default)]
pub struct Occurrences {
    /// [vocab], 0 for a token not seen, else 1 + its occurrences in the answer.
    counts: Vec<u32>,
    seen: Vec<TokenId>,
}

impl Occurrences {
    fn count(&mut self, prompt: &[TokenId], answer: &[TokenId], vocab: usize) {
        self.counts.resize(self.counts.len().max(vocab), 0);
        for (tokens, times) in [(prompt, 0), (answer, 1)] {
            for &id in tokens {
                let count = &mut self.counts[id as usize];
                if *count == 0 {
                    *count = 1;
                    self.seen.push(id);
                }
                *count += times;
            }
        }
    }

    /// Every distinct token with its occurrences in the answer; the table is empty afterwards.
    fn drain(&mut self) -> impl Iterator<Item = (TokenId, u32)> + '_ {
        self.seen.drain(..).map(|id| (id, std::mem::take(&mut self.counts[id as usize]) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{SamplingParams, SeqId};
    use crate::sample::TokenMask;

    fn row<'a>(params: &'a SamplingParams, tokens: &'a [TokenId], prompt_len: usize) -> SampleRow<'a> {
        SampleRow {
            seq: SeqId::default(),
            params,
            seed: 0,
            tokens,
            prompt_len,
            end_tokens: &[3],
            mask: None,
            draw: true,
            top: 0,
            beams: 0,
            trace: 0,
        }
    }

    fn penalized(params: &SamplingParams, tokens: &[TokenId], prompt_len: usize) -> Vec<f32> {
        let mut logits = vec![2.0, -2.0, 4.0, 1.0];
        let (mut edits, mut seen) = (Edits::default(), Occurrences::default());
        edits.penalize(&mut logits, &row(params, tokens, prompt_len), &mut seen);
        let changed = logits.clone();
        edits.undo(&mut logits);
        assert_eq!(logits, [2.0, -2.0, 4.0, 1.0], "the raw row comes back");
        changed
    }

    /// M07: applied once however often the token occurred. M08: a negative logit gets less likely.
    #[test]
    fn m07_m08_the_repetition_penalty_acts_once_and_always_downwards() {
        let params = SamplingParams { repetition_penalty: 1.5, ..Default::default() };
        let mut tokens = vec![0; 80];
        tokens.extend([1, 1]);
        assert_eq!(penalized(&params, &tokens, 40), [2.0 / 1.5, -3.0, 4.0, 1.0]);
        assert_eq!(penalized(&params, &tokens, 82), [2.0 / 1.5, -3.0, 4.0, 1.0], "the prompt counts");
    }

    #[test]
    fn frequency_and_presence_look_at_the_answer_alone() {
        let params = SamplingParams { frequency_penalty: 0.5, presence_penalty: 0.25, ..Default::default() };
        assert_eq!(penalized(&params, &[0, 2, 2, 3, 2], 2), [2.0, -2.0, 4.0 - 1.0 - 0.25, 1.0 - 0.75]);
    }

    #[test]
    fn end_tokens_are_masked_until_min_tokens() {
        let params = SamplingParams { min_tokens: 2, stop_token_ids: vec![1], ..Default::default() };
        let masked = |tokens: &[TokenId]| {
            let mut logits = vec![0.0; 4];
            Edits::default().mask(&mut logits, &row(&params, tokens, 1));
            logits
        };
        assert_eq!(masked(&[0, 0]), [0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]);
        assert_eq!(masked(&[0, 0, 0]), [0.0; 4]);
    }

    #[test]
    fn a_mask_and_a_penalty_on_one_token_are_both_undone() {
        let params = SamplingParams { repetition_penalty: 2.0, ..Default::default() };
        let mask = TokenMask(vec![0b0101]);
        let row = SampleRow { mask: Some(&mask), ..row(&params, &[1, 2], 2) };
        let mut logits = vec![2.0, -2.0, 4.0, 1.0];
        let mut edits = Edits::default();
        assert!(edits.mask(&mut logits, &row));
        assert!(edits.penalize(&mut logits, &row, &mut Occurrences::default()));
        assert_eq!(logits, [2.0, f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY]);
        edits.undo(&mut logits);
        assert_eq!(logits, [2.0, -2.0, 4.0, 1.0]);
    }
}
