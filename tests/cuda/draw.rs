use crate::harness::{Numbers, bytes_of, in_every_order, put};
use glassbox::compute::cuda::Gpu;
use glassbox::compute::cuda::draw::{Draws, Passes};
use glassbox::compute::draw::{DrawRow, Unusable};
use glassbox::model::device_draw::{Places, RowMemory, device_row, sampled};
use glassbox::protocol::{SamplingParams, TokenId};
use glassbox::sample::{Phrases, RowError, SampleRow, Sampled, Scratch, TokenMask, sample};

/// Sums of f32 in another order, of numbers up to a few tens.
const SUMS: f32 = 1e-5;
const MASKED: f32 = f32::NEG_INFINITY;

/// Everything off: the row's own distribution.
fn plain() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() }
}

/// One row with what is drawn from it.
#[derive(Clone)]
struct Case {
    logits: Vec<f32>,
    params: SamplingParams,
    seed: u64,
    tokens: Vec<TokenId>,
    prompt_len: usize,
    mask: Option<TokenMask>,
    score: Option<Option<TokenId>>,
    top: usize,
}

static NO_PHRASES: Phrases = Phrases { bad_words: Vec::new(), breakers: std::collections::BTreeMap::new() };

impl Case {
    fn new(logits: &[f32], params: SamplingParams, seed: u64) -> Self {
        let logits = logits.to_vec();
        Self { logits, params, seed, tokens: vec![], prompt_len: 0, mask: None, score: None, top: 0 }
    }

    fn row(&self) -> SampleRow<'_> {
        SampleRow {
            seq: Default::default(),
            params: &self.params,
            seed: self.seed,
            tokens: &self.tokens,
            prompt_len: self.prompt_len,
            end_tokens: &[2],
            mask: self.mask.as_ref(),
            phrases: &NO_PHRASES,
            state: Default::default(),
            draw: self.score.is_none(),
            target: self.score.flatten(),
            top: self.top,
            beams: 0,
            trace: 0,
            keep: None,
        }
    }

    fn wanted(&self) -> Result<Sampled, RowError> {
        sample(&self.logits, &self.row(), &mut Scratch::default())
    }

    fn told(&self) -> String {
        let Case { params: p, seed, prompt_len, score, top, .. } = self;
        format!(
            "vocab {}, seed {seed}, {} tokens after {prompt_len}, score {score:?}, top {top}, T {} k {} p {} \
             min {} penalties {} {} {}",
            self.logits.len(),
            self.tokens.len(),
            p.temperature,
            p.top_k,
            p.top_p,
            p.min_p,
            p.repetition_penalty,
            p.frequency_penalty,
            p.presence_penalty
        )
    }
}

/// All rows at once on the device, with `surplus` rows behind them.
fn drawn(gpu: &Gpu, draws: &mut Draws, cases: &[Case], surplus: usize) -> Vec<Result<Sampled, RowError>> {
    let vocab = cases[0].logits.len();
    let rows: Vec<SampleRow> = cases.iter().map(Case::row).collect();
    let (mut places, mut memory) = (Places::default(), Vec::new());
    memory.resize_with(rows.len(), RowMemory::default);
    let of = |(row, memory): (_, _)| device_row(row, vocab, &mut places, memory).unwrap();
    let told: Vec<DrawRow> = rows.iter().zip(&mut memory).map(of).collect();
    let mut logits: Vec<f32> = cases.iter().flat_map(|case| case.logits.clone()).collect();
    logits.resize((cases.len() + surplus) * vocab, f32::NAN);
    let logits = put(gpu, &logits);
    let passes = draws.stage(gpu, &told).unwrap();
    draws.launch(gpu, &logits, cases.len() + surplus, passes).unwrap();
    let drawn = draws.results(gpu).unwrap();
    drawn.into_iter().zip(&rows).map(|(drawn, row)| sampled(drawn, row)).collect()
}

#[track_caller]
fn same(case: &Case, got: &Result<Sampled, RowError>) {
    let (what, wanted) = (case.told(), case.wanted());
    let (got, wanted) = match (got, &wanted) {
        (Ok(got), Ok(wanted)) => (got, wanted),
        (got, wanted) => return assert_eq!(got, wanted, "{what}"),
    };
    assert_eq!((got.token, got.rank), (wanted.token, wanted.rank), "{what}");
    let close = |got: f32, wanted: f32| got == wanted || (got - wanted).abs() <= SUMS * (1.0 + wanted.abs());
    assert!(close(got.logprob, wanted.logprob), "{what}: {} for {}", got.logprob, wanted.logprob);
    assert!(close(got.entropy, wanted.entropy), "{what}: entropy {} for {}", got.entropy, wanted.entropy);
    let entries = |s: &Sampled| s.top.iter().map(|t| (t.id, t.logit)).collect::<Vec<_>>();
    assert_eq!(entries(got), entries(wanted), "{what}");
    for (got, wanted) in got.top.iter().zip(&wanted.top) {
        assert!(close(got.logprob, wanted.logprob), "{what}: {got:?} for {wanted:?}");
    }
    assert_eq!(got.state, wanted.state);
}

fn check(gpu: &Gpu, cases: &[Case]) {
    let mut draws = Draws::new(gpu, cases[0].logits.len(), cases.len()).unwrap();
    for (case, got) in cases.iter().zip(drawn(gpu, &mut draws, cases, 1)) {
        same(case, &got);
    }
}

/// Rows of every kind: peaked, flat, few different values, some masked, all equal.
fn rows(vocab: usize, numbers: &mut Numbers) -> Vec<Vec<f32>> {
    let bell = |numbers: &mut Numbers| (0..6).map(|_| numbers.unit()).sum::<f32>();
    let spread: Vec<f32> = (0..vocab).map(|_| 3.0 * bell(numbers)).collect();
    let peaked = spread.iter().enumerate().map(|(i, x)| if i % 97 == 3 { x + 9.0 } else { *x }).collect();
    let flat = spread.iter().map(|x| x / 30.0 - 5.0).collect();
    let ties = spread.iter().map(|x| (x * 2.0).round() / 2.0 + 0.0).collect();
    let holes = spread.iter().map(|x| if numbers.below(3) == 0 { MASKED } else { *x }).collect();
    let equal = (0..vocab).map(|i| [-0.0, 0.0][i % 3 % 2]).collect();
    vec![spread, peaked, flat, ties, holes, equal]
}

/// Each cut alone and together, sharp and loose.
fn settings() -> Vec<SamplingParams> {
    let p = plain();
    vec![
        SamplingParams { temperature: 0.0, ..p.clone() },
        p.clone(),
        SamplingParams { temperature: 1.7, ..p.clone() },
        SamplingParams { top_k: 1, ..p.clone() },
        SamplingParams { top_k: 3, temperature: 0.3, ..p.clone() },
        SamplingParams { top_k: 64, top_p: 0.6, ..p.clone() },
        SamplingParams::default(),
        SamplingParams { top_k: 200, ..p.clone() },
        SamplingParams { top_k: 300, top_p: 0.8, min_p: 0.01, temperature: 1.3, ..p.clone() },
        SamplingParams { top_p: 0.95, ..p.clone() },
        SamplingParams { top_p: 0.05, temperature: 2.0, ..p.clone() },
        SamplingParams { min_p: 0.1, ..p.clone() },
        SamplingParams { top_p: 0.9, min_p: 0.02, temperature: 0.7, ..p },
    ]
}

#[test]
fn tokens_are_those_that_the_cpu_draws() {
    in_every_order(|gpu| {
        for vocab in [5, 1000] {
            let mut numbers = Numbers::new(vocab as u64);
            let mut cases = Vec::new();
            for logits in rows(vocab, &mut numbers) {
                for params in settings() {
                    let seed = u64::from(numbers.bits()) << 20;
                    let tokens = vec![0; numbers.below(9)];
                    let top = [0, 0, 1, 5, 32][numbers.below(5)];
                    cases.push(Case { tokens, top, ..Case::new(&logits, params.clone(), seed) });
                }
            }
            check(gpu, &cases);
        }
    });
}

/// Several parts, the last of them not full; a bin that holds more than a block can list.
#[test]
fn rows_of_many_parts_are_put_together() {
    in_every_order(|gpu| {
        let mut numbers = Numbers::new(5);
        let settings = settings();
        let rows = rows(50_257, &mut numbers);
        let pick = |(row, setting): (usize, usize)| {
            let case = Case::new(&rows[row], settings[setting].clone(), 77 * setting as u64);
            Case { top: 20 * (setting % 2), ..case }
        };
        let picked =
            [(0, 6), (0, 8), (1, 9), (2, 10), (2, 7), (3, 5), (3, 8), (4, 12), (5, 9), (5, 7), (1, 0)];
        check(gpu, &picked.map(pick));
    });
}

#[test]
fn bias_penalties_and_masks_act_as_on_the_cpu() {
    in_every_order(|gpu| {
        let vocab = 9000;
        let mut numbers = Numbers::new(9);
        let rows = rows(vocab, &mut numbers);
        let mut cases = Vec::new();
        for (i, params) in settings().into_iter().enumerate() {
            // The large top-k finds all equal: a bin too large for a list, read with its edits.
            let logits = &rows[(i + 3) % rows.len()];
            let tokens: Vec<TokenId> = (0..300).map(|_| numbers.below(vocab.min(40 << i)) as u32).collect();
            let best = tokens[7];
            let penalties = SamplingParams {
                repetition_penalty: 1.3,
                frequency_penalty: 0.2,
                presence_penalty: [0.5, -0.5][i % 2],
                penalty_last_n: [None, Some(64), Some(0)][i % 3],
                logit_bias: [(best, 5.0), (4095, 4.5), (4096, 4.0), (8999, 1.0), (9000, 9.0)].into(),
                banned_token_ids: vec![best, 17],
                min_tokens: 400,
                ..params.clone()
            };
            let case = Case { tokens, prompt_len: 100, top: i, ..Case::new(logits, params, i as u64) };
            cases.push(Case { params: penalties.clone(), ..case.clone() });
            // What a grammar allows: a third of all, or three.
            let mut mask = TokenMask(vec![0; vocab.div_ceil(32)]);
            (0..vocab as u32).step_by([3, 3001][i % 2]).for_each(|id| mask.allow(id));
            cases.push(Case { mask: Some(mask.clone()), ..case.clone() });
            cases.push(Case { params: penalties.clone(), mask: Some(mask.clone()), ..case.clone() });
            let allowed = SamplingParams { allowed_token_ids: vec![0, 3, 4098, 8999, 9100], ..penalties };
            cases.push(Case { params: allowed.clone(), ..case.clone() });
            cases.push(Case { params: allowed, mask: Some(mask), ..case.clone() });
            // Shorter than the vocabulary: the rest is not allowed.
            cases.push(Case { mask: Some(TokenMask(vec![!0; 3])), ..case });
        }
        check(gpu, &cases);
    });
}

/// Each logit in a bin of its own, and as good as equally likely: what is behind the cut would be drawn.
#[test]
fn a_cut_may_take_all_of_a_bin() {
    in_every_order(|gpu| {
        let logits: Vec<f32> = (0..400).map(|i| i as f32 * -0.05).collect();
        let params = SamplingParams { temperature: 100.0, top_k: 70, ..plain() };
        check(gpu, &[1, 2, 3, 4].map(|seed| Case::new(&logits, params.clone(), seed)));
    });
}

/// Few tokens, nearly equal: every penalty decides what comes out.
#[test]
fn penalties_are_those_of_the_cpu() {
    in_every_order(|gpu| {
        let mut numbers = Numbers::new(11);
        let case = |seed: u64| {
            let below = if seed & 16 == 0 { 0.0 } else { 2.0 };
            let logits: Vec<f32> = numbers.units(12).iter().map(|x| x - below).collect();
            let tokens: Vec<TokenId> = (0..14).map(|_| numbers.below(12) as u32).collect();
            let with = |at: u64, on: f32, off: f32| if seed >> at & 1 == 1 { on } else { off };
            let params = SamplingParams {
                temperature: with(3, 0.5, 0.0),
                repetition_penalty: with(0, 1.5, 1.0),
                frequency_penalty: with(1, 0.3, 0.0),
                presence_penalty: with(2, 0.6, 0.0),
                ..plain()
            };
            Case { tokens, prompt_len: 8, ..Case::new(&logits, params, seed) }
        };
        check(gpu, &(0..64).map(case).collect::<Vec<_>>());
    });
}

#[test]
fn rows_are_scored_without_a_draw() {
    in_every_order(|gpu| {
        let mut numbers = Numbers::new(3);
        let rows = rows(5000, &mut numbers);
        let score = |(i, logits): (usize, &Vec<f32>)| {
            let target = [None, Some(0), Some(numbers.below(5000) as u32)][i % 3];
            Case { score: Some(target), top: i, ..Case::new(logits, plain(), 1) }
        };
        check(gpu, &rows.iter().enumerate().map(score).collect::<Vec<_>>());
    });
}

#[test]
fn what_cannot_be_drawn_from_is_said_and_the_other_rows_are_drawn() {
    in_every_order(|gpu| {
        let vocab = 5000;
        let good = rows(vocab, &mut Numbers::new(4)).swap_remove(0);
        let spoiled = |at: usize, x: f32| {
            let mut row = good.clone();
            row[at] = x;
            row
        };
        let mut cases = Vec::new();
        for (i, params) in settings().into_iter().enumerate() {
            let case = |logits: &[f32]| Case::new(logits, params.clone(), 8);
            let at = [0, 4095, 4096, vocab - 1][i % 4];
            cases.push(case(&spoiled(at, [f32::NAN, -f32::NAN, f32::INFINITY][i % 3])));
            cases.push(case(&good));
            cases.push(case(&vec![MASKED; vocab]));
            cases.push(Case { mask: Some(TokenMask(vec![0; 200])), ..case(&good) });
            cases.push(Case { mask: Some(TokenMask(vec![])), ..case(&good) });
            // Scaled beyond all numbers; a logit that would be is not drawn where it is masked.
            let params = SamplingParams { repetition_penalty: 0.01, ..params.clone() };
            let huge = Case { params, tokens: vec![at as u32], ..case(&spoiled(at, 1e38)) };
            let mut mask = TokenMask(vec![!0; vocab.div_ceil(32)]);
            mask.forbid(at as u32);
            cases.extend([Case { mask: Some(mask), ..huge.clone() }, huge]);
            // One token is left.
            let mut only = vec![MASKED; vocab];
            only[at] = -3.0;
            cases.push(case(&only));
        }
        check(gpu, &cases);
        let unusable = Case::new(&spoiled(7, f32::NAN), plain(), 1).wanted();
        assert_eq!(unusable, Err(RowError::NotANumber { position: 0 }));
    });
}

/// As the launches of a step are: in a graph that is run again with other rows, and fewer.
#[test]
fn a_graph_draws_what_was_staged_last() {
    in_every_order(|gpu| {
        let vocab = 4500;
        let rows = rows(vocab, &mut Numbers::new(6));
        let mut draws = Draws::new(gpu, vocab, 4).unwrap();
        let logits = gpu.alloc(4 * vocab * 4, "a test").unwrap();
        // What a kernel needs before its first launch is not for a graph.
        let first = Case::new(&rows[0], plain(), 1);
        same(&first, &drawn(gpu, &mut draws, std::slice::from_ref(&first), 0)[0]);
        gpu.record().unwrap();
        draws.launch(gpu, &logits, 4, Passes::Whole).unwrap();
        let graph = gpu.recorded().unwrap();
        let settings = settings();
        for step in 0..6 {
            let case = |i: usize| Case::new(&rows[(step + i) % 6], settings[(2 * step + i) % 13].clone(), 9);
            let cases: Vec<Case> = (0..4 - step % 3).map(case).collect();
            let values: Vec<f32> = cases.iter().flat_map(|case| case.logits.clone()).collect();
            gpu.write(logits.at(0), bytes_of(&values)).unwrap();
            let (mut places, mut memory) = (Places::default(), [(); 4].map(|()| RowMemory::default()));
            let sample_rows: Vec<SampleRow> = cases.iter().map(Case::row).collect();
            let of = |(row, memory): (_, _)| device_row(row, vocab, &mut places, memory).unwrap();
            let told: Vec<DrawRow> = sample_rows.iter().zip(&mut memory).map(of).collect();
            draws.stage(gpu, &told).unwrap();
            gpu.replay();
            draws.launch(gpu, &logits, 4, Passes::Whole).unwrap();
            assert!(gpu.is(&graph));
            gpu.start(&graph).unwrap();
            let got = draws.results(gpu).unwrap();
            assert_eq!(got.len(), cases.len());
            for ((case, row), got) in cases.iter().zip(&sample_rows).zip(got) {
                same(case, &sampled(got, row));
            }
        }
    });
}

/// How often each token is drawn is its probability.
#[test]
fn draws_follow_the_distribution() {
    in_every_order(|gpu| {
        let logits: Vec<f32> = [0.4f32, 0.25, 0.15, 0.12, 0.08].iter().map(|p| p.ln()).collect();
        let cases: Vec<Case> = (0..200).map(|seed| Case::new(&logits, plain(), seed)).collect();
        let mut draws = Draws::new(gpu, 5, 200).unwrap();
        let mut times = [0.0f32; 5];
        for got in drawn(gpu, &mut draws, &cases, 0) {
            times[got.unwrap().token as usize] += 1.0;
        }
        let off = times.iter().zip(&logits).map(|(n, x)| (n - 200.0 * x.exp()).powi(2) / (200.0 * x.exp()));
        // 4 degrees of freedom: chi-square passes 18.5 once in a thousand.
        assert!(off.sum::<f32>() < 18.5, "{times:?}");
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    in_every_order(|gpu| {
        let mut draws = Draws::new(gpu, 1000, 1).unwrap();
        let case = Case::new(&[0.0; 1000], plain(), 1);
        let (mut places, mut memory) = (Places::default(), RowMemory::default());
        let row = case.row();
        let row = device_row(&row, 1000, &mut places, &mut memory).unwrap();
        assert!(draws.stage(gpu, &[row, row]).is_err());
        assert!(draws.stage(gpu, &[DrawRow { top: 33, ..row }]).is_err());
        let counts = vec![(1, 1); 5000];
        assert!(draws.stage(gpu, &[DrawRow { counts: &counts, ..row }]).is_err());
        assert!(Draws::new(gpu, 1 << 20, 1).is_err());
        // The row before is drawn after that.
        assert_eq!(draws.stage(gpu, &[row]).unwrap(), Passes::Whole);
        let short = DrawRow { top_k: 40, ..row };
        assert_eq!(draws.stage(gpu, &[short]).unwrap(), Passes::Short);
        let logits = put(gpu, &[f32::NAN; 1000]);
        draws.launch(gpu, &logits, 1, Passes::Short).unwrap();
        assert_eq!(draws.results(gpu).unwrap(), [Err(Unusable::NotANumber)]);
    });
}
