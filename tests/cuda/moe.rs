use crate::activations::{ALL, gated as gate_of};
use crate::blocks::matrix;
use crate::harness::{Numbers, close, get, in_every_order, put, room};
use glassbox::compute::cuda::moe::{self, Experts, Of, Router, Sorted, Up};
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::compute::cuda::weights::Matrix;
use glassbox::compute::cuda::{Gpu, Memory, gemm, gemv, rows};
use glassbox::compute::{Activation, ExpertGroups, Score};
use glassbox::weights::BlockFormat;
use half::{bf16, f16};

/// f32 sums in another order than the twin's; exponentials to 2 ulp.
const SUMS: f32 = 2e-6;

// ---- routing ----

/// The twin: experts and weights of a row, in f64 where the choice does not depend on it.
fn routed(logits: &[f32], bias: Option<&[f32]>, router: &Router) -> (Vec<i32>, Vec<f32>) {
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, x| most.max(*x));
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - most).exp()).collect();
    let scores: Vec<f64> = match router.score {
        Score::Softmax => exps.iter().map(|x| x / exps.iter().sum::<f64>()).collect(),
        Score::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + f64::from(-x).exp())).collect(),
    };
    let keys: Vec<f64> = match bias {
        Some(bias) => scores.iter().zip(bias).map(|(score, bias)| score + f64::from(*bias)).collect(),
        None if router.groups.is_some_and(|groups| groups.by_two) => scores.clone(),
        None => logits.iter().map(|x| f64::from(*x)).collect(),
    };
    // The best first, of equal ones the first.
    let best = |keys: &[f64], from: Vec<usize>, n: usize| {
        let mut order = from;
        order.sort_by(|a, b| keys[*b].total_cmp(&keys[*a]));
        order.truncate(n);
        order
    };
    let all = (0..router.experts).collect();
    let allowed = match router.groups {
        None => all,
        Some(ExpertGroups { all: groups, chosen, by_two }) => {
            let size = router.experts / groups;
            let of_group = |keys: &[f64]| {
                let order = best(keys, (0..size).collect(), if by_two { 2 } else { 1 });
                order.iter().map(|e| keys[*e]).sum::<f64>()
            };
            let of_groups: Vec<f64> = keys.chunks(size).map(of_group).collect();
            let chosen = best(&of_groups, (0..groups).collect(), chosen);
            (0..router.experts).filter(|e| chosen.contains(&(e / size))).collect()
        }
    };
    let ids = best(&keys, allowed, router.top);
    let sum: f64 = ids.iter().map(|e| scores[*e]).sum();
    let scale = f64::from(router.scale) / if router.renormalise { sum } else { 1.0 };
    let weights = ids.iter().map(|e| (scores[*e] * scale) as f32).collect();
    (ids.iter().map(|e| *e as i32).collect(), weights)
}

fn route(
    gpu: &Gpu,
    logits: &[f32],
    step: Option<&Memory>,
    router: &Router,
) -> ((Vec<i32>, Memory), (Vec<f32>, Memory)) {
    let rows = logits.len() / router.experts;
    let pairs = rows * router.top;
    let (ids, weights) = (room::<i32>(gpu, pairs), room::<f32>(gpu, pairs));
    moe::route(gpu, (&ids, &weights), &put(gpu, logits), rows, step, router).unwrap();
    ((get(gpu, &ids, pairs), ids), (get(gpu, &weights, pairs), weights))
}

fn compare_routes(gpu: &Gpu, logits: &[f32], bias: Option<&[f32]>, router: Router) {
    let held = bias.map(|bias| put(gpu, bias));
    let router = Router { bias: held.as_ref(), ..router };
    let ((ids, _), (weights, _)) = route(gpu, logits, None, &router);
    let (mut wanted, mut wanted_weights) = (Vec::new(), Vec::new());
    for row in logits.chunks_exact(router.experts) {
        let (ids, weights) = routed(row, bias, &router);
        wanted.extend(ids);
        wanted_weights.extend(weights);
    }
    let what = format!("{} of {}, {:?}, {:?}", router.top, router.experts, router.score, router.groups);
    assert_eq!(ids, wanted, "{what}");
    close(&what, &weights, &wanted_weights, SUMS);
}

/// Mixtral.
fn plain(experts: usize, top: usize) -> Router<'static> {
    Router { experts, top, score: Score::Softmax, bias: None, groups: None, renormalise: true, scale: 1.0 }
}

/// Fewer experts than lanes, no multiple of 32, as many as there may be.
#[test]
fn rows_go_to_their_best_experts() {
    in_every_order(|gpu| {
        for (experts, top, rows) in [(4, 1, 1), (4, 2, 5), (8, 2, 33), (60, 8, 6), (256, 8, 5), (32, 32, 1)] {
            let mut numbers = Numbers::new((experts + top) as u64);
            let logits: Vec<f32> = numbers.units(rows * experts).iter().map(|x| x * 6.0).collect();
            let bias: Vec<f32> = numbers.units(experts).iter().map(|x| x * 0.3).collect();
            let router = plain(experts, top);
            compare_routes(gpu, &logits, None, router);
            compare_routes(gpu, &logits, None, Router { renormalise: false, ..router });
            let sigmoid = Router { score: Score::Sigmoid, scale: 2.5, ..router };
            compare_routes(gpu, &logits, None, sigmoid);
            compare_routes(gpu, &logits, Some(&bias), sigmoid);
        }
    });
}

/// DeepSeek-V2 (a group is as good as its best expert) and V3 (its best two, with the bias).
#[test]
fn groups_limit_the_choice() {
    in_every_order(|gpu| {
        for (experts, all, chosen, top) in [(8, 4, 2, 2), (60, 5, 2, 8), (256, 8, 4, 8), (32, 32, 9, 8)] {
            let mut numbers = Numbers::new(experts as u64);
            let logits: Vec<f32> = numbers.units(6 * experts).iter().map(|x| x * 6.0).collect();
            let bias: Vec<f32> = numbers.units(experts).iter().map(|x| x * 0.3).collect();
            for by_two in [false, true] {
                let groups = Some(ExpertGroups { all, chosen, by_two });
                let router = Router { groups, ..plain(experts, top) };
                let sigmoid = Router { score: Score::Sigmoid, scale: 2.5, ..router };
                compare_routes(gpu, &logits, None, Router { renormalise: false, scale: 16.0, ..router });
                compare_routes(gpu, &logits, Some(&bias), sigmoid);
                compare_routes(gpu, &logits, None, sigmoid);
            }
        }
    });
}

#[test]
fn of_equal_experts_the_first_is_taken() {
    in_every_order(|gpu| {
        for (experts, top) in [(8, 2), (60, 8), (256, 8)] {
            let mut numbers = Numbers::new(9);
            let logits: Vec<f32> = (0..6 * experts).map(|_| numbers.below(3) as f32).collect();
            compare_routes(gpu, &logits, None, plain(experts, top));
            let groups = Some(ExpertGroups { all: 4, chosen: 2, by_two: false });
            compare_routes(
                gpu,
                &logits,
                None,
                Router { score: Score::Sigmoid, groups, ..plain(experts, top) },
            );
        }
    });
}

#[test]
fn a_router_without_numbers_shows() {
    in_every_order(|gpu| {
        for score in [Score::Softmax, Score::Sigmoid] {
            let mut logits = Numbers::new(2).units(3 * 60);
            logits[7] = f32::NAN;
            logits[60..120].fill(f32::NAN);
            let router = Router { score, ..plain(60, 4) };
            let ((ids, _), (weights, _)) = route(gpu, &logits, None, &router);
            assert_eq!((ids[0], &ids[4..8]), (7, &[0, 1, 2, 3][..]));
            assert!(weights[..8].iter().all(|x| x.is_nan()), "{weights:?}");
            assert!(weights[8..].iter().all(|x| x.is_finite()), "{weights:?}");
        }
    });
}

/// Rows of a captured graph that the step does not have.
#[test]
fn rows_beyond_the_step_have_no_expert() {
    in_every_order(|gpu| {
        let step = put(gpu, &[3i32; 29]);
        let logits = Numbers::new(2).units(6 * 8);
        let ((ids, _), (weights, _)) = route(gpu, &logits, Some(&step), &plain(8, 2));
        assert!(ids[..6].iter().all(|e| *e >= 0) && ids[6..].iter().all(|e| *e == -1), "{ids:?}");
        assert!(weights[6..].iter().all(|w| *w == 0.0));
    });
}

// ---- sorting ----

/// Experts of pairs, a few to none, some experts without any, all to one.
fn choices(rows: usize, top: usize, experts: usize) -> Vec<Vec<i32>> {
    let mut numbers = Numbers::new((rows * experts) as u64);
    let pairs = rows * top;
    let spread = (0..pairs).map(|_| numbers.below(experts) as i32).collect::<Vec<_>>();
    let holes = spread.iter().map(|e| if e % 3 == 1 { -1 } else { *e }).collect();
    vec![spread, holes, vec![experts as i32 - 1; pairs], vec![-1; pairs]]
}

#[test]
fn pairs_are_sorted_by_expert() {
    in_every_order(|gpu| {
        for (rows, top, experts) in [(1, 1, 4), (5, 2, 8), (33, 8, 60), (70, 8, 256)] {
            for (tile, ids) in moe::TILES
                .into_iter()
                .flat_map(|t| choices(rows, top, experts).into_iter().map(move |c| (t, c)))
            {
                let sorted = Sorted::new(gpu, rows, (top, experts), tile).unwrap();
                moe::sort(gpu, &sorted, &put(gpu, &ids), rows).unwrap();
                let mut wanted: Vec<i32> = (0..ids.len() as i32).filter(|p| ids[*p as usize] >= 0).collect();
                wanted.sort_by_key(|p| ids[*p as usize]);
                assert_eq!(get::<i32>(gpu, &sorted.pairs, wanted.len()), wanted);
                let of: Vec<i32> = wanted.iter().map(|p| p / top as i32).collect();
                assert_eq!(get::<i32>(gpu, &sorted.rows, wanted.len()), of);
                let mut tiles: Vec<i32> = vec![0];
                let mut first = 0;
                for pairs in wanted.chunk_by(|a, b| ids[*a as usize] == ids[*b as usize]) {
                    for pairs in pairs.chunks(tile as usize) {
                        tiles.extend([ids[pairs[0] as usize], first, pairs.len() as i32]);
                        first += pairs.len() as i32;
                    }
                }
                tiles[0] = tiles.len() as i32 / 3;
                assert!(tiles.len() * 4 <= sorted.tiles.bytes(), "no more tiles than there is room for");
                assert_eq!(get::<i32>(gpu, &sorted.tiles, tiles.len()), tiles);
            }
        }
    });
}

// ---- products ----

/// Tests are not optimised: iterators would take ten times as long.
fn dot(w: &[f32], x: &[f32]) -> f64 {
    let (mut sum, mut i) = (0.0, 0);
    while i < w.len() {
        sum += w[i] as f64 * x[i] as f64;
        i += 1;
    }
    sum
}

/// Weights of all experts of a layer, on the device and as they are.
struct Stack {
    matrix: Matrix,
    weights: Vec<f32>, // [experts, n, k]
    bias: Vec<f32>,    // [experts, n]
    held: Memory,
    /// The bias is added.
    biased: bool,
    n: usize,
    k: usize,
}

fn stack(gpu: &Gpu, format: BlockFormat, experts: usize, n: usize, k: usize) -> Stack {
    let (matrix, weights) = matrix(gpu, format, experts * n, k);
    let bias: Vec<f32> = Numbers::new((n * k) as u64).units(experts * n).iter().map(|x| x * 0.2).collect();
    let held = put(gpu, &bias);
    Stack { matrix, weights, bias, held, biased: true, n, k }
}

impl Stack {
    fn times(&self, expert: i32, i: usize, x: &[f32]) -> f64 {
        let row = expert as usize * self.n + i;
        let bias = if self.biased { f64::from(self.bias[row]) } else { 0.0 };
        dot(&self.weights[row * self.k..][..self.k], x) + bias
    }

    fn bias(&self) -> Option<&Memory> {
        self.biased.then_some(&self.held)
    }

    fn as_up(&self, activation: Activation) -> Up<'_> {
        Up { weights: &self.matrix.parts[0], bias: self.bias(), activation }
    }
}

/// The twin: row `x_of(pair)` of x through the pair's expert; pairs without one are left alone.
fn product(
    stack: &Stack,
    gated: Option<(&Stack, Activation)>,
    ids: &[i32],
    x: &[f32],
    per_row: usize,
    out: &mut [f32],
) {
    for (p, (expert, out)) in ids.iter().zip(out.chunks_exact_mut(stack.n)).enumerate() {
        if *expert < 0 {
            continue;
        }
        let x = &x[p / per_row * stack.k..][..stack.k];
        for (i, out) in out.iter_mut().enumerate() {
            let v = stack.times(*expert, i, x);
            *out = match gated {
                None => v,
                Some((up, activation)) => gate_of(v, up.times(*expert, i, x), activation),
            } as f32;
        }
    }
}

/// Activations made ready, and what they are worth then.
struct Ready {
    parts: Vec<Memory>,
    x: Vec<f32>,
}

impl Ready {
    /// For `few`: bytes for blocks, f32 for floats.
    fn few(gpu: &Gpu, format: BlockFormat, x: &[f32], k: usize) -> Self {
        let count = x.len() / k;
        let d = put(gpu, x);
        if format.block_len() == 1 {
            return Self { parts: vec![d], x: x.to_vec() };
        }
        let (q, ds) = (room::<i8>(gpu, x.len()), room::<[f32; 2]>(gpu, x.len() / 32));
        rows::to_bytes(gpu, (&q, &ds), &d, count, k, None).unwrap();
        let (bytes, scales): (Vec<i8>, Vec<[f32; 2]>) = (get(gpu, &q, x.len()), get(gpu, &ds, x.len() / 32));
        let x = bytes.iter().enumerate().map(|(i, q)| f32::from(*q) * scales[i / 32][0]).collect();
        Self { parts: vec![q, ds], x }
    }

    fn as_few(&self) -> gemv::Ready<'_> {
        match &self.parts[..] {
            [q, ds] => gemv::Ready::Bytes { q, ds },
            parts => gemv::Ready::Floats(&parts[0]),
        }
    }

    /// For `many`: f16 with a scale for each row, or bf16.
    fn many(gpu: &Gpu, format: BlockFormat, x: &[f32], k: usize) -> Self {
        let count = x.len() / k;
        let d = put(gpu, x);
        let h = room::<u16>(gpu, x.len());
        if format == BlockFormat::BF16 {
            rows::to_bf16(gpu, &h, &d, count, k, None).unwrap();
            let x = get::<bf16>(gpu, &h, x.len()).iter().map(|h| h.to_f32()).collect();
            return Self { parts: vec![h], x };
        }
        let scale = room::<f32>(gpu, count);
        rows::to_f16(gpu, (&h, &scale), &d, count, k, None).unwrap();
        let (halves, scales): (Vec<f16>, Vec<f32>) = (get(gpu, &h, x.len()), get(gpu, &scale, count));
        let x = halves.iter().enumerate().map(|(i, h)| h.to_f32() * scales[i / k]).collect();
        Self { parts: vec![h, scale], x }
    }

    fn as_many(&self) -> gemm::Ready<'_> {
        match &self.parts[..] {
            [h, scale] => gemm::Ready::F16 { h, scale },
            parts => gemm::Ready::Bf16(&parts[0]),
        }
    }
}

/// Relative to the largest: sums of hundreds of products cancel.
#[track_caller]
fn near(what: &str, got: &[f32], wanted: &[f32], tolerance: f32) {
    let most = wanted.iter().filter(|x| x.is_finite()).fold(1e-30f32, |most, x| most.max(x.abs()));
    let relative = |values: &[f32]| values.iter().map(|x| x / most).collect::<Vec<_>>();
    close(what, &relative(got), &relative(wanted), tolerance);
}

/// The pairs of a few rows: some without an expert, several with the same.
const IDS: [i32; 6] = [2, 0, -1, 3, 3, 3];

/// Outputs that are no multiple of a block's; k of one sub for each of some lanes, and of more than a warp has.
#[test]
fn few_rows_read_their_experts() {
    in_every_order(|gpu| {
        for (i, format) in FORMATS.into_iter().enumerate() {
            let (n, k) = (11, if i % 2 == 0 { 512 } else { 1280 });
            let biased = i % 3 > 0;
            let gate = Stack { biased, ..stack(gpu, format, 4, n, k) };
            let up = Stack { biased, ..stack(gpu, format, 4, n, k) };
            let ids = put(gpu, &IDS);
            let activation = ALL[i % 4];
            for (gated, of) in [(None, Of::Pairs), (Some((&up, activation)), Of::Rows(2))] {
                let (count, per_row) = if matches!(of, Of::Pairs) { (6, 1) } else { (3, 2) };
                let x: Vec<f32> = Numbers::new(7).units(count * k).iter().map(|x| x * 0.1).collect();
                let ready = Ready::few(gpu, format, &x, k);
                let experts = Experts {
                    weights: &gate.matrix.parts[0],
                    bias: gate.bias(),
                    gated: gated.map(|(up, activation)| up.as_up(activation)),
                    n,
                };
                let out = put(gpu, &vec![0.5f32; 6 * n]);
                moe::few(gpu, &out, &ids, 6, (ready.as_few(), of), &experts).unwrap();
                let mut wanted = vec![0.5; 6 * n];
                product(&gate, gated, &IDS, &ready.x, per_row, &mut wanted);
                near(format.name(), &get(gpu, &out, 6 * n), &wanted, SUMS);
            }
        }
    });
}

/// Weights in blocks are f16 when they are multiplied: 2^-11 of scale and of minimum, at random; a gate's is
/// off times what it opens, and what it opens is off.
const HALVES: f32 = 2e-3;

/// Experts with no rows, with one, with more than a tile; outputs that are no multiple of a tile's; pairs
/// without an expert; more tiles launched than there are.
#[test]
fn many_rows_share_their_experts() {
    in_every_order(|gpu| {
        for (i, format) in FORMATS.into_iter().skip(1).enumerate() {
            let (n, k, top, rows, experts) = (70, 256, 2, 12, 4);
            let biased = i % 2 > 0;
            let gate = Stack { biased, ..stack(gpu, format, experts, n, k) };
            let up = Stack { biased, ..stack(gpu, format, experts, n, k) };
            let ids: Vec<i32> =
                (0..rows * top).map(|p| if p == 5 { 1 } else { [3, 0, 3, -1, 3][p % 5] }).collect();
            let tile = moe::TILES[i % 2];
            let sorted = Sorted::new(gpu, rows + 3, (top, experts), tile).unwrap();
            let d = put(gpu, &ids);
            moe::sort(gpu, &sorted, &d, rows).unwrap();
            let activation = ALL[i % 4];
            for (gated, of) in [(None, Of::Pairs), (Some((&up, activation)), Of::Rows(top))] {
                let (count, per_row) = if matches!(of, Of::Pairs) { (rows * top, 1) } else { (rows, top) };
                let x: Vec<f32> = Numbers::new(7).units(count * k).iter().map(|x| x * 0.1).collect();
                let ready = Ready::many(gpu, format, &x, k);
                let experts = Experts {
                    weights: &gate.matrix.parts[0],
                    bias: gate.bias(),
                    gated: gated.map(|(up, activation)| up.as_up(activation)),
                    n,
                };
                let out = put(gpu, &vec![0.5f32; rows * top * n]);
                moe::many(gpu, &out, (&sorted, rows), (ready.as_many(), of), &experts).unwrap();
                let mut wanted = vec![0.5; rows * top * n];
                product(&gate, gated, &ids, &ready.x, per_row, &mut wanted);
                let tolerance = if format.block_len() == 1 { SUMS } else { HALVES };
                near(format.name(), &get(gpu, &out, wanted.len()), &wanted, tolerance);
            }
        }
    });
}

/// A whole layer as the module's table has it, both ways, against the twin that goes row by row. Rows beyond
/// the step's stay as they are.
#[test]
fn a_layer_is_routed_multiplied_and_added_up() {
    in_every_order(|gpu| {
        for (format, router) in [
            (BlockFormat::Q4_K, plain(4, 2)),
            (BlockFormat::Q8_0, Router { score: Score::Sigmoid, scale: 2.5, ..plain(8, 1) }),
            (BlockFormat::F16, Router { renormalise: false, ..plain(8, 2) }),
        ] {
            let (rows, there, wide, narrow) = (5, 4, 256, 256);
            let Router { experts, top, .. } = router;
            let (gate, up) =
                (stack(gpu, format, experts, narrow, wide), stack(gpu, format, experts, narrow, wide));
            let down = stack(gpu, format, experts, wide, narrow);
            let mut numbers = Numbers::new(experts as u64);
            let x: Vec<f32> = numbers.units(rows * wide).iter().map(|x| x * 0.1).collect();
            let logits: Vec<f32> = numbers.units(rows * experts).iter().map(|x| x * 3.0).collect();
            let before = numbers.units(rows * wide);

            let mut wanted = before.clone();
            for row in 0..there {
                let (ids, weights) = routed(&logits[row * experts..][..experts], None, &router);
                for (expert, weight) in ids.iter().zip(weights) {
                    let mut inner = vec![0.0; narrow];
                    let x = &x[row * wide..][..wide];
                    product(&gate, Some((&up, Activation::Silu)), &[*expert], x, 1, &mut inner);
                    let mut y = vec![0.0; wide];
                    product(&down, None, &[*expert], &inner, 1, &mut y);
                    wanted[row * wide..][..wide].iter_mut().zip(y).for_each(|(out, y)| *out += weight * y);
                }
            }

            let mut words = vec![0i32; 29];
            words[0] = there as i32;
            let step = put(gpu, &words);
            let ((_, ids), (_, weights)) = route(gpu, &logits, Some(&step), &router);
            let pairs = rows * top;
            let (inner, y) = (room::<f32>(gpu, pairs * narrow), room::<f32>(gpu, pairs * wide));
            let gated = Experts {
                weights: &gate.matrix.parts[0],
                bias: gate.bias(),
                gated: Some(up.as_up(Activation::Silu)),
                n: narrow,
            };
            let last = Experts { weights: &down.matrix.parts[0], bias: down.bias(), gated: None, n: wide };

            let out = put(gpu, &before);
            let ready = Ready::few(gpu, format, &x, wide);
            moe::few(gpu, &inner, &ids, pairs, (ready.as_few(), Of::Rows(top)), &gated).unwrap();
            let ready = Ready::few(gpu, format, &get::<f32>(gpu, &inner, pairs * narrow), narrow);
            moe::few(gpu, &y, &ids, pairs, (ready.as_few(), Of::Pairs), &last).unwrap();
            moe::combine(gpu, &out, &y, (&ids, &weights), (rows, top, wide)).unwrap();
            let got = get::<f32>(gpu, &out, rows * wide);
            // Activations as bytes: half a step of 1 / 127 of the largest of 32, at random.
            near("few", &got, &wanted, if format == BlockFormat::F16 { SUMS } else { 1e-2 });
            assert_eq!(got[there * wide..], before[there * wide..]);

            let out = put(gpu, &before);
            let sorted = Sorted::new(gpu, rows, (top, experts), moe::tile_for(rows, (top, experts))).unwrap();
            moe::sort(gpu, &sorted, &ids, rows).unwrap();
            let ready = Ready::many(gpu, format, &x, wide);
            moe::many(gpu, &inner, (&sorted, rows), (ready.as_many(), Of::Rows(top)), &gated).unwrap();
            let ready = Ready::many(gpu, format, &get::<f32>(gpu, &inner, pairs * narrow), narrow);
            moe::many(gpu, &y, (&sorted, rows), (ready.as_many(), Of::Pairs), &last).unwrap();
            moe::combine(gpu, &out, &y, (&ids, &weights), (rows, top, wide)).unwrap();
            let got = get::<f32>(gpu, &out, rows * wide);
            near("many", &got, &wanted, HALVES);
            assert_eq!(got[there * wide..], before[there * wide..]);
        }
    });
}

/// NaN and infinity must reach the logits of their own row, and of no other.
#[test]
fn what_is_no_number_stays_with_its_row() {
    in_every_order(|gpu| {
        let (n, k, rows) = (11, 256, 3);
        let stack = stack(gpu, BlockFormat::Q4_K, 2, n, k);
        let experts = Experts { weights: &stack.matrix.parts[0], bias: None, gated: None, n };
        let mut x = Numbers::new(7).units(rows * k);
        x[k + 40] = f32::NAN;
        let ids = put(gpu, &[1, 1, 1]);
        let sorted = Sorted::new(gpu, rows, (1, 2), moe::TILES[0]).unwrap();
        moe::sort(gpu, &sorted, &ids, rows).unwrap();
        let (few, many) =
            (Ready::few(gpu, BlockFormat::Q4_K, &x, k), Ready::many(gpu, BlockFormat::Q4_K, &x, k));
        for by_tiles in [false, true] {
            let out = room::<f32>(gpu, rows * n);
            match by_tiles {
                false => moe::few(gpu, &out, &ids, rows, (few.as_few(), Of::Pairs), &experts).unwrap(),
                true => moe::many(gpu, &out, (&sorted, rows), (many.as_many(), Of::Pairs), &experts).unwrap(),
            }
            let got: Vec<f32> = get(gpu, &out, rows * n);
            assert!(got[n..2 * n].iter().all(|x| x.is_nan()), "{got:?}");
            assert!(got[..n].iter().chain(&got[2 * n..]).all(|x| x.is_finite()), "{got:?}");
        }
    });
}

/// One column group short, and more than a block has; pairs without an expert.
#[test]
fn experts_are_added_in_the_order_of_slots() {
    in_every_order(|gpu| {
        for (rows, top, n) in [(1, 1, 32), (3, 2, 516), (2, 8, 64)] {
            let mut numbers = Numbers::new(n as u64);
            let (y, weights) = (numbers.units(rows * top * n), numbers.units(rows * top));
            let out = numbers.units(rows * n);
            let ids: Vec<i32> = (0..rows * top).map(|p| if p % 5 == 3 { -1 } else { 0 }).collect();
            let mut wanted = out.clone();
            for (i, wanted) in wanted.iter_mut().enumerate() {
                let (row, column) = (i / n, i % n);
                let of_row = (row * top..(row + 1) * top).filter(|p| ids[*p] >= 0);
                *wanted += of_row.fold(0.0, |sum, p| sum + weights[p] * y[p * n + column]);
            }
            let d = put(gpu, &out);
            let (ids, weights) = (put(gpu, &ids), put(gpu, &weights));
            moe::combine(gpu, &d, &put(gpu, &y), (&ids, &weights), (rows, top, n)).unwrap();
            close("combine", &get(gpu, &d, rows * n), &wanted, SUMS);
        }
    });
}
