#![allow(clippy::unwrap_used)]

use super::*;
use crate::protocol::{LogprobsMode, SamplerOrder, Stage};

/// Everything off: the row's own distribution.
fn plain() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() }
}

static NO_PHRASES: Phrases = Phrases { bad_words: Vec::new(), breakers: BTreeMap::new() };

fn row(params: &SamplingParams) -> SampleRow<'_> {
    SampleRow {
        seq: SeqId::default(),
        params,
        seed: 7,
        tokens: &[],
        prompt_len: 0,
        end_tokens: &[],
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

fn draw(logits: &[f32], row: &SampleRow) -> Result<Sampled, RowError> {
    sample(logits, row, &mut Scratch::default())
}

fn traced(logits: &[f32], params: &SamplingParams) -> SamplingTrace {
    *draw(logits, &SampleRow { trace: 100, ..row(params) }).unwrap().trace.unwrap()
}

/// The glossary's tokens A to E.
fn glossary() -> Vec<f32> {
    [0.40f32, 0.25, 0.15, 0.12, 0.08].iter().map(|p| p.ln()).collect()
}

/// Probabilities drawn from, by id, to two digits.
fn printed(trace: &SamplingTrace) -> Vec<String> {
    let mut candidates = trace.candidates.clone();
    candidates.sort_by_key(|candidate| candidate.id);
    candidates.iter().map(|candidate| format!("{:.2}", candidate.probability)).collect()
}

fn survivors(trace: &SamplingTrace, stage: Stage) -> usize {
    trace.stages.iter().find(|view| view.stage == stage).unwrap().survivors
}

#[test]
fn the_glossarys_examples_to_the_printed_digits() {
    let cases: [(SamplingParams, &[&str]); 5] = [
        (plain(), &["0.40", "0.25", "0.15", "0.12", "0.08"]),
        (SamplingParams { temperature: 0.5, ..plain() }, &["0.60", "0.24", "0.08", "0.05", "0.02"]),
        (SamplingParams { top_k: 3, ..plain() }, &["0.50", "0.31", "0.19", "0.00", "0.00"]),
        (SamplingParams { top_p: 0.75, ..plain() }, &["0.50", "0.31", "0.19", "0.00", "0.00"]),
        (SamplingParams { min_p: 0.25, ..plain() }, &["0.43", "0.27", "0.16", "0.13", "0.00"]),
    ];
    for (params, right) in cases {
        assert_eq!(printed(&traced(&glossary(), &params)), right, "{params:?}");
    }
}

#[test]
fn the_waterfall_says_what_each_stage_cut() {
    let params = SamplingParams { top_k: 4, top_p: 0.8, min_p: 0.5, ..plain() };
    let trace = traced(&glossary(), &params);
    let acted = trace.stages.iter().filter(|v| v.active);
    let stages: Vec<_> = acted.map(|v| (v.stage, v.survivors, v.active)).collect();
    assert_eq!(
        stages,
        [
            (Stage::Raw, 5, true),
            (Stage::TopK, 4, true),
            // Of 0.92 left, 0.80 makes 0.87: A and B are 0.71, with C 0.87.
            (Stage::TopP, 3, true),
            (Stage::MinP, 2, true),
        ]
    );
    let cut: Vec<_> = trace.candidates.iter().map(|c| c.cut_by).collect();
    assert_eq!(cut, [None, None, Some(Stage::MinP), Some(Stage::TopP), Some(Stage::TopK)]);
    let total: f32 = trace.candidates.iter().map(|c| c.probability).sum();
    assert!((total - 1.0).abs() < 1e-6 && trace.final_entropy < trace.entropy);
    let entropies: Vec<f32> = trace.stages.iter().filter_map(|v| v.entropy).collect();
    assert_eq!(entropies.len(), trace.stages.iter().filter(|v| v.active).count());
    assert_eq!((entropies[0], *entropies.last().unwrap()), (trace.entropy, trace.final_entropy));
}

#[test]
fn a_greedy_waterfall_ends_at_the_temperature_and_shows_the_mask() {
    let mask = TokenMask(vec![0b11110]);
    let params = SamplingParams { temperature: 0.0, ..plain() };
    let row = SampleRow { trace: 1, mask: Some(&mask), ..row(&params) };
    let sampled = draw(&glossary(), &row).unwrap();
    let trace = sampled.trace.unwrap();
    assert_eq!((sampled.token, trace.drawn, sampled.rank), (1, 1, 2));
    assert_eq!((survivors(&trace, Stage::Grammar), survivors(&trace, Stage::MinP)), (4, 1));
    // One candidate was asked for; the drawn one is shown wherever it ranks.
    let shown: Vec<_> = trace.candidates.iter().map(|c| (c.id, c.cut_by, c.probability)).collect();
    assert_eq!(shown, [(0, Some(Stage::Grammar), 0.0), (1, None, 1.0)]);
}

/// M02: temperature 0 is the argmax, ties to the lowest id. M01: and so is any tiny temperature,
/// and a tiny top-p.
#[test]
fn m01_m02_cold_is_greedy_and_ties_go_to_the_lowest_id() {
    let mut logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 10.0).collect();
    logits[700] = 60_000.0;
    logits[300] = 60_000.0;
    for temperature in [0.0, 1e-4, 1e-5, 1e-6, 1e-20, 1e-38, 1e-45] {
        let params = SamplingParams { temperature, top_k: 1, ..plain() };
        assert_eq!(draw(&logits, &row(&params)).unwrap().token, 300, "{temperature}");
    }
    logits[300] = 59_999.0;
    for temperature in [0.0, 1e-4, 1e-5, 1e-20, 1e-38] {
        for params in [plain(), SamplingParams { top_p: 0.9, min_p: 0.1, top_k: 5, ..plain() }] {
            let params = SamplingParams { temperature, ..params };
            let sampled = draw(&logits, &row(&params)).unwrap();
            assert_eq!((sampled.token, sampled.rank), (700, 1));
            assert!(sampled.logprob.is_finite() && sampled.entropy.is_finite());
        }
    }
    for top_p in [1e-4, 1e-30, f32::MIN_POSITIVE] {
        let params = SamplingParams { top_p, ..plain() };
        assert_eq!(draw(&glossary(), &row(&params)).unwrap().token, 0);
    }
}

/// M03: 0 is off, more than the vocabulary is all of it.
#[test]
fn m03_any_top_k_works() {
    let logits = glossary();
    for (k, left) in [(0, 5), (1, 1), (4, 4), (5, 5), (6, 5), (1 << 31, 5), (u32::MAX, 5)] {
        let trace = traced(&logits, &SamplingParams { top_k: k, ..plain() });
        assert_eq!(survivors(&trace, Stage::TopK), left, "top_k {k}");
    }
}

/// M12: hot is flat, not endless.
#[test]
fn m12_a_hot_row_is_drawn_from_evenly() {
    for temperature in [5.0, 100.0] {
        let trace = traced(&glossary(), &SamplingParams { temperature, ..plain() });
        assert!(trace.final_entropy > trace.entropy && trace.final_entropy <= 5f32.ln() + 1e-6);
    }
}

/// M14: such a row is an error of its own, and the next row is drawn as if nothing had been.
#[test]
fn m14_rows_that_are_no_numbers_are_errors_and_leave_no_trace_behind() {
    let mut scratch = Scratch::default();
    let params = SamplingParams { repetition_penalty: 1.3, ..plain() };
    let row = SampleRow { tokens: &[1, 2, 1], prompt_len: 1, ..row(&params) };
    let right = draw(&glossary(), &row);
    for bad in [f32::NAN, f32::INFINITY] {
        let mut logits = glossary();
        logits[3] = bad;
        let error = sample(&logits, &row, &mut scratch).unwrap_err();
        assert_eq!(error, RowError::NotANumber { position: 3 });
        assert_eq!(sample(&glossary(), &row, &mut scratch), right);
    }
    let masked = vec![f32::NEG_INFINITY; 5];
    assert_eq!(sample(&masked, &row, &mut scratch), Err(RowError::AllMasked { position: 3 }));
    let none = TokenMask(vec![0]);
    let row = SampleRow { mask: Some(&none), ..row };
    assert_eq!(sample(&glossary(), &row, &mut scratch), Err(RowError::AllMasked { position: 3 }));
    let row = SampleRow { mask: None, ..row };
    assert_eq!(sample(&glossary(), &row, &mut scratch), right);
}

/// M05: what was sampled before with the same scratch, and what else is in the batch, is nothing
/// to a row.
#[test]
fn m05_a_rows_token_depends_on_its_seed_and_position_alone() {
    let params = SamplingParams { frequency_penalty: 0.3, top_p: 0.9, ..plain() };
    let tokens = [0, 1, 2, 3, 4, 4, 4, 3];
    let logits: Vec<f32> = (0..5000).map(|i| ((i * 31) % 977) as f32 / 100.0).collect();
    let at = |len: usize| SampleRow { tokens: &tokens[..len], ..row(&params) };
    let solo: Vec<_> = (0..8).map(|len| draw(&logits, &at(len)).unwrap()).collect();
    let mut scratch = Scratch::default();
    for len in (0..8).rev() {
        let noisy = SampleRow { seed: len as u64, top: 3, ..row(&params) };
        sample(&logits[..777], &noisy, &mut scratch).unwrap();
        assert_eq!(sample(&logits, &at(len), &mut scratch).unwrap(), solo[len]);
    }
    assert!(solo.iter().any(|sampled| sampled.token != solo[0].token));
}

#[test]
fn logprob_rank_entropy_and_alternatives_are_of_the_raw_row() {
    let params =
        SamplingParams { temperature: 0.0, repetition_penalty: 10.0, presence_penalty: 2.0, ..plain() };
    let row = SampleRow { tokens: &[0, 0], prompt_len: 1, top: 2, ..row(&params) };
    let logits = glossary();
    let sampled = sample(&logits, &row, &mut Scratch::default()).unwrap();
    assert_eq!((sampled.token, sampled.rank), (1, 2), "A is penalised, and still ranks first");
    assert!((sampled.logprob - 0.25f32.ln()).abs() < 1e-6);
    let entropy: f32 = [0.40f32, 0.25, 0.15, 0.12, 0.08].iter().map(|p| -p * p.ln()).sum();
    assert!((sampled.entropy - entropy).abs() < 1e-5);
    let top: Vec<_> = sampled.top.iter().map(|top| (top.id, format!("{:.2}", top.logprob.exp()))).collect();
    assert_eq!(top, [(0, "0.40".into()), (1, "0.25".into())]);
}

#[test]
fn a_scored_row_draws_nothing() {
    let params = SamplingParams { repetition_penalty: 10.0, ..plain() };
    let row = SampleRow { tokens: &[0], draw: false, top: 9, ..row(&params) };
    let sampled = draw(&glossary(), &row).unwrap();
    assert_eq!((sampled.token, sampled.rank, sampled.top.len()), (0, 1, 5));
}

/// Draws follow the distribution each combination of stages claims, as its own trace states it.
#[test]
fn drawn_frequencies_follow_the_claimed_distribution() {
    const DRAWS: u64 = 20_000;
    let logits: Vec<f32> = (0..300).map(|i| -((i * 131 % 300) as f32) / 40.0).collect();
    let cases = [
        plain(),
        SamplingParams { temperature: 0.6, ..plain() },
        SamplingParams { temperature: 2.5, ..plain() },
        SamplingParams { top_k: 17, ..plain() },
        SamplingParams { top_p: 0.7, ..plain() },
        SamplingParams { min_p: 0.2, ..plain() },
        SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..plain() },
        SamplingParams { temperature: 1.0, dynatemp_range: 0.5, dynatemp_exponent: 1.3, ..plain() },
        SamplingParams { top_n_sigma: 0.7, ..plain() },
        SamplingParams { typical_p: 0.5, ..plain() },
        SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.015, ..plain() },
        SamplingParams { mirostat: 1, mirostat_tau: 3.0, ..plain() },
        SamplingParams { mirostat: 2, mirostat_tau: 3.0, ..plain() },
        SamplingParams { adaptive_target: Some(0.02), top_k: 30, ..plain() },
        SamplingParams { repetition_penalty: 1.8, ..plain() },
        SamplingParams { frequency_penalty: 0.9, ..plain() },
        SamplingParams { presence_penalty: 1.5, penalty_last_n: Some(3), ..plain() },
        SamplingParams { dry_multiplier: 1.2, dry_allowed_length: 1, ..plain() },
        SamplingParams { logit_bias: [(5, 4.0), (6, -3.0)].into(), ..plain() },
        SamplingParams { banned_token_ids: vec![0, 1, 2], ..plain() },
        SamplingParams { allowed_token_ids: vec![9, 4, 250, 4], ..plain() },
        SamplingParams { sampler_order: order("llama.cpp"), temperature: 1.5, top_p: 0.8, ..plain() },
        SamplingParams { sampler_order: order("vllm"), temperature: 1.5, min_p: 0.3, top_p: 0.8, ..plain() },
    ];
    for params in cases {
        let tokens = [0, 131, 7, 0, 131, 0, 131];
        let row = |params| SampleRow { tokens: &tokens, prompt_len: 2, ..row(params) };
        let trace = *draw(&logits, &SampleRow { trace: 300, ..row(&params) }).unwrap().trace.unwrap();
        let mut counts = vec![0u64; 300];
        let mut scratch = Scratch::default();
        for seed in 0..DRAWS {
            let row = SampleRow { seed, ..row(&params) };
            counts[sample(&logits, &row, &mut scratch).unwrap().token as usize] += 1;
        }
        let (mut chi, mut bins, mut rest) = (0.0, 0, (0.0, 0));
        for candidate in &trace.candidates {
            let expected = f64::from(candidate.probability) * DRAWS as f64;
            let drawn = counts[candidate.id as usize];
            assert!(candidate.cut_by.is_none() || drawn == 0, "a cut token was drawn: {params:?}");
            if expected >= 5.0 {
                chi += (drawn as f64 - expected).powi(2) / expected;
                bins += 1;
            } else {
                rest = (rest.0 + expected, rest.1 + drawn);
            }
        }
        if rest.0 > 1.0 {
            chi += (rest.1 as f64 - rest.0).powi(2) / rest.0;
            bins += 1;
        }
        // Wilson-Hilferty: chi-square with d degrees of freedom passes this about once in 10,000.
        let d = f64::from(bins - 1).max(1.0);
        let bound = d * (1.0 - 2.0 / (9.0 * d) + 3.72 * (2.0 / (9.0 * d)).sqrt()).powi(3);
        assert!(chi < bound, "chi-square {chi:.1} over {d} for {params:?}, bound {bound:.1}");
    }
}

fn order(name: &str) -> SamplerOrder {
    SamplerOrder::parse([name]).unwrap()
}

/// XTC acts as often as it should, and its coin has nothing to do with the draw.
#[test]
fn xtc_acts_as_often_as_its_probability_says() {
    let params = SamplingParams { xtc_probability: 0.3, xtc_threshold: 0.1, ..plain() };
    let acted = |seed| {
        let trace = draw(&glossary(), &SampleRow { seed, trace: 5, ..row(&params) }).unwrap().trace.unwrap();
        survivors(&trace, Stage::Xtc) == 2
    };
    let times = (0..10_000).filter(|seed| acted(*seed)).count();
    // Five standard deviations of a coin of 0.3 tossed 10,000 times.
    assert!(times.abs_diff(3000) < 230, "{times}");
}

/// The token with A to D above 0.1: only D stays of them, and E below.
#[test]
fn xtc_leaves_the_least_likely_of_the_likely() {
    let params = SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.1, ..plain() };
    assert_eq!(printed(&traced(&glossary(), &params)), ["0.00", "0.00", "0.00", "0.60", "0.40"]);
    let none = SamplingParams { xtc_threshold: 0.5, ..params };
    assert_eq!(printed(&traced(&glossary(), &none))[0], "0.40", "one alone above it stays");
}

/// What was drawn, after the edits: logits as the processed distribution has them.
fn edited(params: &SamplingParams, row: SampleRow) -> Vec<f32> {
    let params = SamplingParams { logprobs_mode: LogprobsMode::Processed, ..params.clone() };
    let row = SampleRow { params: &params, top: 5, ..row };
    let mut logits = vec![f32::NEG_INFINITY; 4];
    for top in draw(&[2.0, -2.0, 4.0, 1.0], &row).unwrap().top {
        logits[top.id as usize] = top.logit;
    }
    logits
}

/// M07: applied once however often the token occurred. M08: a negative logit gets less likely.
#[test]
fn m07_m08_the_repetition_penalty_acts_once_and_always_downwards() {
    let params = SamplingParams { repetition_penalty: 1.5, ..plain() };
    let mut tokens = vec![0; 80];
    tokens.extend([1, 1]);
    for prompt_len in [40, 82] {
        let row = SampleRow { tokens: &tokens, prompt_len, ..row(&params) };
        assert_eq!(edited(&params, row), [2.0 / 1.5, -3.0, 4.0, 1.0], "prompt and answer count");
    }
}

#[test]
fn frequency_and_presence_look_at_the_answer_alone_or_at_the_window() {
    let params = SamplingParams { frequency_penalty: 0.5, presence_penalty: 0.25, ..plain() };
    let edited = |params: &SamplingParams| {
        edited(params, SampleRow { tokens: &[0, 2, 2, 3, 2], prompt_len: 2, ..row(params) })
    };
    assert_eq!(edited(&params), [2.0, -2.0, 4.0 - 1.0 - 0.25, 1.0 - 0.75]);
    let window = SamplingParams { penalty_last_n: Some(4), ..params.clone() };
    assert_eq!(edited(&window), [2.0, -2.0, 4.0 - 1.5 - 0.25, 1.0 - 0.75]);
    let none = SamplingParams { penalty_last_n: Some(0), ..params };
    assert_eq!(edited(&none), [2.0, -2.0, 4.0, 1.0]);
}

#[test]
fn what_a_request_forbids_is_gone_and_the_rest_is_untouched() {
    const NO: f32 = f32::NEG_INFINITY;
    let phrases = Phrases { bad_words: vec![vec![1], vec![3, 2]], breakers: BTreeMap::new() };
    let ends = |params, tokens| SampleRow { tokens, prompt_len: 1, end_tokens: &[3], ..row(params) };
    let min = SamplingParams { min_tokens: 2, stop_token_ids: vec![1], ..plain() };
    assert_eq!(edited(&min, ends(&min, &[0, 0])), [2.0, NO, 4.0, NO]);
    assert_eq!(edited(&min, ends(&min, &[0, 0, 0])), [2.0, -2.0, 4.0, 1.0]);
    let plain = plain();
    let bad = |tokens| SampleRow { phrases: &phrases, ..ends(&plain, tokens) };
    assert_eq!(edited(&plain, bad(&[3, 0])), [2.0, NO, 4.0, 1.0], "the prompt's 3 is not the answer's");
    assert_eq!(edited(&plain, bad(&[0, 3])), [2.0, NO, NO, 1.0]);
    let lists = SamplingParams {
        banned_token_ids: vec![0],
        allowed_token_ids: vec![3, 0, 2],
        logit_bias: [(3, 0.5)].into(),
        ..plain.clone()
    };
    assert_eq!(edited(&lists, row(&lists)), [NO, NO, 4.0, 1.5]);
}

/// A grammar that allows few tokens becomes a list, one that forbids few a masked row: both the same.
#[test]
fn a_mask_of_any_density_forbids_exactly_what_it_says() {
    let logits: Vec<f32> = (0..20_000).map(|i| ((i * 31) % 977) as f32 / 100.0).collect();
    let params = SamplingParams { top_k: 50, ..plain() };
    for every in [1, 2, 3, 500] {
        let mut bits = vec![0u32; 20_000 / 32];
        (0..20_000).step_by(every).for_each(|id| bits[id / 32] |= 1 << (id % 32));
        let mask = TokenMask(bits);
        let row = SampleRow { mask: Some(&mask), trace: 20_000, ..row(&params) };
        let trace = draw(&logits, &row).unwrap().trace.unwrap();
        assert_eq!(survivors(&trace, Stage::Grammar), 20_000usize.div_ceil(every));
        for c in &trace.candidates {
            assert_eq!(c.cut_by == Some(Stage::Grammar), !(c.id as usize).is_multiple_of(every), "{}", c.id);
        }
        assert_eq!(trace.candidates.iter().filter(|c| c.cut_by.is_none()).count(), 50.min(20_000 / every));
    }
}

#[test]
fn processed_logprobs_are_of_what_is_drawn_from() {
    let params = SamplingParams { top_k: 3, logprobs_mode: LogprobsMode::Processed, ..plain() };
    let sampled = draw(&glossary(), &SampleRow { top: 5, ..row(&params) }).unwrap();
    let top: Vec<_> = sampled.top.iter().map(|t| format!("{:.2}", t.logprob.exp())).collect();
    assert_eq!(top, ["0.50", "0.31", "0.19"]);
    assert_eq!(sampled.rank as usize, 1 + sampled.token as usize);
    // Greedy: of the distribution that the likeliest was taken from.
    let greedy = SamplingParams { temperature: 0.0, banned_token_ids: vec![0], ..params };
    let sampled = draw(&glossary(), &SampleRow { top: 2, ..row(&greedy) }).unwrap();
    assert_eq!((sampled.token, sampled.rank, sampled.top.len()), (1, 1, 2));
    assert!((sampled.logprob.exp() - 0.25 / 0.6).abs() < 1e-6);
}

/// A scored row tells of the token that is asked for.
#[test]
fn a_target_is_scored_with_its_rank() {
    let params = plain();
    let sampled = draw(&glossary(), &SampleRow { draw: false, target: Some(2), ..row(&params) }).unwrap();
    assert_eq!((sampled.token, sampled.rank), (2, 3));
    assert!((sampled.logprob - 0.15f32.ln()).abs() < 1e-6);
}

/// Mirostat comes to the surprise it aims at, from either side.
#[test]
fn mirostat_reaches_its_target() {
    let logits: Vec<f32> = (1..2000).map(|i| -1.1 * (i as f32).ln()).collect();
    for (version, tau) in [(1, 3.0), (2, 3.0), (2, 5.0)] {
        let params = SamplingParams { mirostat: version, mirostat_tau: tau, ..plain() };
        let params = SamplingParams { logprobs_mode: LogprobsMode::Processed, ..params };
        let (mut state, mut bits) = (SamplerState::default(), 0.0);
        for seed in 0..2000 {
            let sampled = draw(&logits, &SampleRow { seed, state, ..row(&params) }).unwrap();
            state = sampled.state;
            bits -= sampled.logprob / std::f32::consts::LN_2 / 2000.0;
        }
        assert!((bits - tau).abs() < 0.15, "version {version}: {bits} bits for {tau}");
    }
}

/// Adaptive-p draws tokens of about the target's probability, and makes up for those before.
#[test]
fn adaptive_p_aims_at_its_probability() {
    let params = SamplingParams { adaptive_target: Some(0.15), ..plain() };
    let sampled = draw(&glossary(), &row(&params)).unwrap();
    let trace = traced(&glossary(), &params);
    let likeliest = trace.candidates.iter().max_by(|a, b| a.probability.total_cmp(&b.probability)).unwrap();
    assert_eq!(likeliest.id, 2, "C has 0.15");
    let (sum, weight) = sampled.state.drawn.unwrap();
    let drawn = [0.40, 0.25, 0.15, 0.12, 0.08][sampled.token as usize];
    assert!((weight - 10.0).abs() < 1e-4 && (sum - (drawn + 0.9 * 1.5)).abs() < 1e-4);
    // After many sure tokens an unlikely one is wanted.
    let row = SampleRow { state: SamplerState { mu: None, drawn: Some((10.0, 10.0)) }, ..row(&params) };
    let trace = draw(&glossary(), &SampleRow { trace: 5, ..row }).unwrap().trace.unwrap();
    let likeliest = trace.candidates.iter().max_by(|a, b| a.probability.total_cmp(&b.probability)).unwrap();
    assert_eq!(likeliest.id, 4);
}

/// A row as wide as Qwen's vocabulary through every path.
#[test]
fn a_wide_row_agrees_with_a_plain_implementation() {
    let vocab = 151_936;
    let logits: Vec<f32> =
        (0..vocab).map(|i| ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f32 / 1.5e6).collect();
    let mut order: Vec<usize> = (0..vocab).collect();
    order.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap().then(a.cmp(b)));
    for params in [
        SamplingParams { top_k: 40, ..plain() },
        SamplingParams { top_p: 0.3, ..plain() },
        SamplingParams { min_p: 0.9, ..plain() },
    ] {
        let trace = traced(&logits, &params);
        let weight = |id: &usize| f64::from(logits[*id] - logits[order[0]]).exp();
        let total: f64 = order.iter().map(weight).sum();
        let summed = order.iter().scan(0.0, |mass, id| {
            let before = *mass;
            *mass += weight(id);
            Some(before)
        });
        let right = match (params.top_k, params.min_p) {
            (40, _) => 40,
            (_, share) if share > 0.0 => order.iter().filter(|id| weight(id) >= f64::from(share)).count(),
            _ => summed.take_while(|before| *before < 0.3 * total).count(),
        };
        let got = survivors(&trace, Stage::MinP);
        // Single-precision sums over 151,936 weights move the border by a few tokens at most.
        assert!(got.abs_diff(right) <= right / 10_000, "{got} for {right}: {params:?}");
        assert!((f64::from(trace.candidates[0].raw_probability) - 1.0 / total).abs() < 1e-6 / total * 10.0);
    }
}
