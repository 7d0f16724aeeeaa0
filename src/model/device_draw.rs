//! Which rows a device may draw from, and in its words: [`compute::draw`](crate::compute::draw) knows the
//! stages that most requests use; every other row is drawn on the CPU, by [`sample`](crate::sample).

use crate::compute::draw::{DrawRow, Drawn, MOST_EDITS, MOST_TOP, Unusable};
use crate::protocol::{LogprobsMode, SamplingParams, Stage, TokenId, TopToken};
use crate::sample::{RowError, SampleRow, Sampled};

/// What a [`DrawRow`] borrows; used again for every row that stands in the same place of a batch.
#[derive(Debug, Default)]
pub struct RowMemory {
    bias: Vec<(TokenId, f32)>,
    mask: Vec<u32>,
    counts: Vec<(TokenId, u32)>,
}

/// Where a token's count is; one for all rows.
#[derive(Debug, Default)]
pub struct Places(Vec<u32>); // [vocab], 0 for a token not seen, else 1 + where it stands in the counts

/// A bias that cannot make a logit infinite: half a step of the largest number is larger.
const MOST_BIAS: f32 = 1e30;

/// The row as a device draws it; `None` where it would not draw as [`sample`](crate::sample::sample).
pub fn device_row<'a>(
    row: &SampleRow<'a>,
    vocab: usize,
    places: &mut Places,
    memory: &'a mut RowMemory,
) -> Option<DrawRow<'a>> {
    if row.trace > 0 || row.keep.is_some() || row.top > MOST_TOP {
        return None;
    }
    let mut draw = DrawRow {
        seed: row.seed,
        position: row.tokens.len() as u64,
        draw: row.draw,
        target: row.target,
        top: row.top,
        ..DrawRow::SCORED
    };
    if !row.draw {
        return Some(draw);
    }
    let p = row.params;
    if row.beams > 0 || p.logprobs_mode == LogprobsMode::Processed || !row.phrases.bad_words.is_empty() {
        return None;
    }
    stages(&mut draw, p, vocab)?;
    memory.bias.clear();
    memory.counts.clear();
    collect_bias(&mut memory.bias, row)?;
    let masked = collect_mask(&mut memory.mask, row, vocab);
    if draw.repetition != 1.0 || draw.frequency != 0.0 || draw.presence != 0.0 {
        collect_counts(&mut memory.counts, row, vocab, places);
    }
    if memory.bias.len() + memory.counts.len() > MOST_EDITS {
        return None;
    }
    let RowMemory { bias, mask, counts } = memory;
    draw.mask = masked.then_some(mask.as_slice()).or(row.mask.map(|mask| mask.0.as_slice()));
    (draw.bias, draw.counts) = (bias, counts);
    Some(draw)
}

/// The settings of the stages that act. `None` where one is unknown to the device, or they are not in
/// its order. Masks may stand anywhere: what is masked stays so.
fn stages(draw: &mut DrawRow, p: &SamplingParams, vocab: usize) -> Option<()> {
    let order = p.sampler_order.stages();
    let steered = p.mirostat > 0 && order.contains(&Stage::Mirostat);
    let greedy = p.is_greedy() && order.contains(&Stage::Temperature);
    let mut before = 0;
    for stage in order {
        match stage {
            Stage::Raw | Stage::Grammar => continue,
            Stage::Bias if !p.logit_bias.is_empty() => {}
            Stage::Repetition if p.repetition_penalty != 1.0 => draw.repetition = p.repetition_penalty,
            Stage::Frequency if p.frequency_penalty != 0.0 => draw.frequency = p.frequency_penalty,
            Stage::Presence if p.presence_penalty != 0.0 => draw.presence = p.presence_penalty,
            Stage::Dry if p.dry_multiplier > 0.0 => return None,
            // Whatever stands behind it has one token left.
            Stage::Temperature if greedy => {
                draw.greedy = true;
                return Some(());
            }
            Stage::Temperature if p.dynatemp_range > 0.0 => return None,
            Stage::Temperature if p.temperature != 1.0 => draw.temperature = p.temperature,
            Stage::Mirostat if steered => return None,
            Stage::AdaptiveP if p.adaptive_target.is_some() && !steered => return None,
            _ if steered => continue,
            Stage::TopNSigma if p.top_n_sigma > 0.0 => return None,
            Stage::TopK if p.top_k > 0 && (p.top_k as usize) < vocab => draw.top_k = p.top_k,
            Stage::TypicalP if p.typical_p < 1.0 => return None,
            Stage::TopP if p.top_p < 1.0 => draw.top_p = p.top_p,
            Stage::MinP if p.min_p > 0.0 => draw.min_p = p.min_p,
            Stage::Xtc if p.xtc_threshold <= 0.5 && p.xtc_probability > 0.0 => return None,
            _ => continue,
        }
        let place = Stage::ALL.iter().position(|known| known == stage)?;
        if place < before {
            return None;
        }
        before = place;
    }
    Some(())
}

/// Each token once, as the stage `Bias` leaves it. `None` where one might become infinite.
fn collect_bias(bias: &mut Vec<(TokenId, f32)>, row: &SampleRow) -> Option<()> {
    let p = row.params;
    if p.logit_bias.values().any(|bias| bias.abs() > MOST_BIAS) {
        return None;
    }
    bias.extend(p.logit_bias.iter().map(|(id, bias)| (*id, *bias)));
    bias.extend(p.banned_token_ids.iter().map(|id| (*id, f32::NEG_INFINITY)));
    if row.tokens.len() - row.prompt_len < p.min_tokens as usize {
        let ends = row.end_tokens.iter().chain(&p.stop_token_ids);
        bias.extend(ends.map(|id| (*id, f32::NEG_INFINITY)));
    }
    // Of a token's several the least stays: what is banned is.
    bias.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    bias.dedup_by_key(|(id, _)| *id);
    Some(())
}

/// What the request allows, of what the grammar does. `false` where the request allows all.
fn collect_mask(mask: &mut Vec<u32>, row: &SampleRow, vocab: usize) -> bool {
    let allowed = &row.params.allowed_token_ids;
    mask.clear();
    if allowed.is_empty() {
        return false;
    }
    mask.resize(vocab.div_ceil(32), 0);
    for id in allowed.iter().filter(|id| row.mask.is_none_or(|mask| mask.allows(**id))) {
        if let Some(bits) = mask.get_mut(*id as usize / 32) {
            *bits |= 1 << (id % 32);
        }
    }
    true
}

/// The window of the penalties, as the CPU's sampler counts it.
fn collect_counts(counts: &mut Vec<(TokenId, u32)>, row: &SampleRow, vocab: usize, places: &mut Places) {
    places.0.resize(places.0.len().max(vocab), 0);
    let mut count = |tokens: &[TokenId], times: u32| {
        for &id in tokens {
            let place = &mut places.0[id as usize];
            if *place == 0 {
                counts.push((id, 0));
                *place = counts.len() as u32;
            }
            counts[*place as usize - 1].1 += times;
        }
    };
    let (prompt, answer) = row.tokens.split_at(row.prompt_len);
    match row.params.penalty_last_n {
        Some(n) => count(&row.tokens[row.tokens.len().saturating_sub(n as usize)..], 1),
        None => {
            if row.params.repetition_penalty != 1.0 {
                count(prompt, 0);
            }
            count(answer, 1);
        }
    }
    counts.iter().for_each(|(id, _)| places.0[*id as usize] = 0);
}

/// What the device says of a row, as the CPU's sampler would. Nothing that it draws from is remembered.
///
/// # Errors
/// Where no token can be drawn.
pub fn sampled(drawn: Result<Drawn, Unusable>, row: &SampleRow) -> Result<Sampled, RowError> {
    let position = row.tokens.len();
    let drawn = drawn.map_err(|why| match why {
        Unusable::NotANumber => RowError::NotANumber { position },
        Unusable::AllMasked => RowError::AllMasked { position },
    })?;
    let Drawn { token, logprob, rank, entropy, top } = drawn;
    let top = top.into_iter();
    let top = top.map(|t| TopToken { id: t.token, text: String::new(), logit: t.logit, logprob: t.logprob });
    Ok(Sampled { token, logprob, rank, entropy, top: top.collect(), state: row.state, trace: None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::SamplerOrder;
    use crate::sample::{Phrases, SamplerState, TokenMask};
    use std::cell::Cell;

    const VOCAB: usize = 100;
    static NO_PHRASES: Phrases =
        Phrases { bad_words: Vec::new(), breakers: std::collections::BTreeMap::new() };

    fn row(params: &SamplingParams) -> SampleRow<'_> {
        SampleRow {
            seq: Default::default(),
            params,
            seed: 7,
            tokens: &[5, 6, 5, 8, 6, 6],
            prompt_len: 2,
            end_tokens: &[2],
            mask: None,
            phrases: &NO_PHRASES,
            state: SamplerState::default(),
            draw: true,
            target: None,
            top: 0,
            beams: 0,
            trace: 0,
            keep: None,
        }
    }

    /// With what it borrows written out.
    struct Taken {
        bias: Vec<(u32, f32)>,
        counts: Vec<(u32, u32)>,
        mask: Option<Vec<u32>>,
        greedy: bool,
        penalties: [f32; 3],
        cuts: (f32, u32, f32, f32),
    }

    fn taken(row: &SampleRow) -> Option<Taken> {
        let (mut places, mut memory) = (Places::default(), RowMemory::default());
        let draw = device_row(row, VOCAB, &mut places, &mut memory)?;
        let taken = Taken {
            bias: draw.bias.to_vec(),
            counts: draw.counts.to_vec(),
            mask: draw.mask.map(<[u32]>::to_vec),
            greedy: draw.greedy,
            penalties: [draw.repetition, draw.frequency, draw.presence],
            cuts: (draw.temperature, draw.top_k, draw.top_p, draw.min_p),
        };
        assert!(places.0.iter().all(|place| *place == 0), "the table is clean for the next row");
        Some(taken)
    }

    fn ordered(names: &[&str]) -> SamplerOrder {
        SamplerOrder::parse(names.iter().copied()).unwrap()
    }

    #[test]
    fn what_the_device_does_is_handed_to_it() {
        let params = SamplingParams {
            temperature: 0.5,
            top_k: 20,
            top_p: 0.9,
            min_p: 0.1,
            repetition_penalty: 1.2,
            frequency_penalty: 0.3,
            presence_penalty: 0.4,
            ..Default::default()
        };
        let got = taken(&row(&params)).unwrap();
        assert_eq!(got.penalties, [1.2, 0.3, 0.4]);
        assert_eq!(got.cuts, (0.5, 20, 0.9, 0.1));
        assert!(!got.greedy && got.mask.is_none() && got.bias.is_empty());
        // A stage that the order leaves out does nothing, and a top-k of everything neither.
        let fewer = SamplingParams {
            sampler_order: ordered(&["temperature", "top-p"]),
            repetition_penalty: 1.0,
            top_k: 100,
            ..params
        };
        let got = taken(&row(&fewer)).unwrap();
        assert_eq!((got.penalties, got.cuts), ([1.0, 0.0, 0.0], (0.5, 0, 0.9, 0.0)));
    }

    #[test]
    fn the_window_of_the_penalties_is_the_cpus() {
        let windows = |params: SamplingParams| taken(&row(&params)).unwrap().counts;
        let repeated = SamplingParams { repetition_penalty: 1.1, ..Default::default() };
        assert_eq!(windows(repeated.clone()), [(5, 1), (6, 2), (8, 1)]);
        let frequent = SamplingParams { frequency_penalty: 0.1, ..Default::default() };
        assert_eq!(windows(frequent), [(5, 1), (8, 1), (6, 2)], "the prompt does not count");
        let first = SampleRow { tokens: &[5, 6, 6], prompt_len: 2, ..row(&repeated) };
        assert_eq!(taken(&first).unwrap().counts, [(5, 0), (6, 1)]);
        let last = SamplingParams { penalty_last_n: Some(4), ..repeated.clone() };
        assert_eq!(windows(last), [(5, 1), (8, 1), (6, 2)]);
        assert_eq!(windows(SamplingParams { penalty_last_n: Some(0), ..repeated }), []);
        assert_eq!(windows(SamplingParams::default()), []);
    }

    #[test]
    fn what_is_forbidden_is_a_bias_and_what_is_allowed_a_mask() {
        let params = SamplingParams {
            logit_bias: [(3, 1.5), (4, -2.0)].into(),
            banned_token_ids: vec![4, 9, 9],
            min_tokens: 5,
            stop_token_ids: vec![11],
            allowed_token_ids: vec![3, 40, 41, 1000],
            ..Default::default()
        };
        let got = taken(&row(&params)).unwrap();
        let never = f32::NEG_INFINITY;
        assert_eq!(got.bias, [(2, never), (3, 1.5), (4, never), (9, never), (11, never)]);
        assert_eq!(got.mask, Some(vec![1 << 3, 1 << 8 | 1 << 9, 0, 0]));
        let mask = TokenMask(vec![!0, 1 << 9]);
        let both = SampleRow { mask: Some(&mask), ..row(&params) };
        assert_eq!(taken(&both).unwrap().mask, Some(vec![1 << 3, 1 << 9, 0, 0]));
        let enough = SamplingParams { min_tokens: 4, allowed_token_ids: vec![], ..params };
        let got = taken(&SampleRow { mask: Some(&mask), ..row(&enough) }).unwrap();
        assert_eq!((got.bias.len(), got.mask), (3, Some(mask.0)));
    }

    #[test]
    fn rows_that_need_the_cpu_are_refused() {
        let plain = SamplingParams::default;
        let keep = Cell::new(Vec::new());
        let words = Phrases { bad_words: vec![vec![1]], ..Default::default() };
        let params = plain();
        for refused in [
            SampleRow { trace: 1, ..row(&params) },
            SampleRow { keep: Some(&keep), ..row(&params) },
            SampleRow { beams: 2, ..row(&params) },
            SampleRow { top: MOST_TOP + 1, ..row(&params) },
            SampleRow { phrases: &words, ..row(&params) },
        ] {
            assert!(taken(&refused).is_none());
        }
        for refused in [
            SamplingParams { logprobs_mode: LogprobsMode::Processed, ..plain() },
            SamplingParams { dry_multiplier: 0.8, ..plain() },
            SamplingParams { dynatemp_range: 0.5, ..plain() },
            SamplingParams { top_n_sigma: 1.0, ..plain() },
            SamplingParams { typical_p: 0.9, ..plain() },
            SamplingParams { xtc_probability: 0.5, ..plain() },
            SamplingParams { mirostat: 2, ..plain() },
            SamplingParams { adaptive_target: Some(0.5), ..plain() },
            SamplingParams { logit_bias: [(1, 1e38)].into(), ..plain() },
            SamplingParams { sampler_order: ordered(&["llama.cpp"]), ..plain() },
            SamplingParams { sampler_order: ordered(&["vllm"]), ..plain() },
            SamplingParams {
                sampler_order: ordered(&["sglang"]),
                presence_penalty: 0.5,
                logit_bias: [(1, 1.0)].into(),
                ..plain()
            },
        ] {
            assert!(taken(&row(&refused)).is_none(), "{refused:?}");
        }
        let many: Vec<TokenId> = (0..5000).collect();
        let params = SamplingParams { presence_penalty: 0.5, ..plain() };
        let long = SampleRow { tokens: &many, ..row(&params) };
        let (mut places, mut memory) = (Places::default(), RowMemory::default());
        assert!(device_row(&long, 5000, &mut places, &mut memory).is_none());
    }

    /// Orders differ only in stages that act.
    #[test]
    fn an_order_counts_only_where_it_matters() {
        let plain = || SamplingParams { min_p: 0.0, ..Default::default() };
        for taken_all_the_same in [
            SamplingParams { sampler_order: ordered(&["vllm"]), ..plain() },
            SamplingParams { sampler_order: ordered(&["hf"]), min_p: 0.1, ..plain() },
            SamplingParams { sampler_order: ordered(&["sglang"]), banned_token_ids: vec![1], ..plain() },
            SamplingParams { sampler_order: ordered(&["llama.cpp"]), temperature: 1.0, ..plain() },
            // Greedy: what comes after the temperature does nothing, and cuts before it leave the likeliest.
            SamplingParams { temperature: 0.0, mirostat: 2, xtc_probability: 0.5, ..plain() },
            SamplingParams { sampler_order: ordered(&["llama.cpp"]), temperature: 0.0, ..plain() },
            // Mirostat does alone what the other cuts would, but only where it is in the order.
            SamplingParams {
                sampler_order: ordered(&["top-k", "temperature"]),
                mirostat: 2,
                top_p: 1.0,
                temperature: 1.0,
                ..plain()
            },
            SamplingParams { xtc_probability: 0.5, xtc_threshold: 0.6, ..plain() },
        ] {
            assert!(taken(&row(&taken_all_the_same)).is_some(), "{taken_all_the_same:?}");
        }
    }

    /// Scored rows have no stages.
    #[test]
    fn rows_that_are_only_scored_are_always_taken() {
        let params = SamplingParams {
            mirostat: 1,
            logprobs_mode: LogprobsMode::Processed,
            repetition_penalty: 2.0,
            ..Default::default()
        };
        let scored = SampleRow { draw: false, target: Some(3), ..row(&params) };
        assert!(taken(&scored).unwrap().counts.is_empty());
    }
}
