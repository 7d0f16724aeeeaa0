#![allow(clippy::unwrap_used)]

use super::*;
use crate::protocol::Stage;

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
    ];
    for params in cases {
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
