//! Convolutions and recurrences through the device as a model uses it: spans of several lengths, one after a
//! past and one that begins, and their states in blocks of a cache.

use crate::harness::{Numbers, close, in_every_order};
use glassbox::compute::cuda::{Cuda, kv::Cache, open};
use glassbox::compute::{
    Backend, CacheDtype, CacheShape, Capacity, Columns, Convolution, DeltaRule, Scan, Span, State, Step,
};

/// Sums in f32 and in another order than the twin's; an exponential of a few units in the last place, over as
/// many tokens as there are.
const CLOSE: f32 = 1e-5;

/// A sequence of its own goes before, so that rows are not where spans are.
const BEFORE: usize = 2;
const TOKENS: usize = 7;

/// What a state lies behind in its block.
const FIRST: usize = 6;

struct Bench {
    cuda: Cuda,
    cache: Cache,
}

impl Bench {
    fn new(ordinal: usize, state_len: usize) -> Self {
        let mut cuda = Cuda::new(open(ordinal).unwrap()).unwrap();
        let most = Capacity {
            tokens: 16,
            outputs: 16,
            groups: 2,
            blocks: 4,
            vocab: 8,
            heads: 1,
            kv_heads: 1,
            head_dim: 16,
        };
        cuda.prepare(&most).unwrap();
        let shape = CacheShape {
            blocks: 6,
            block_size: 4,
            kv_heads: 1,
            head_dim: 16,
            latent: None,
            dtype: CacheDtype::F16,
            least_bytes: (FIRST + state_len) * 4,
        };
        let mut cache = cuda.cache(shape).unwrap();
        // What was there before is nothing that a sequence may see.
        let poison = vec![0xff; shape.block_bytes()];
        (1..6).for_each(|block| cuda.write_block(std::slice::from_mut(&mut cache), block, &poison).unwrap());
        Self { cuda, cache }
    }

    /// Runs rows of a step: two tokens of a sequence that begins, and then `spans` of another, one step each.
    /// `run` is given the spans and the state; what it says of the other sequence's rows comes back.
    fn in_steps(
        &mut self,
        lens: &[usize],
        mut run: impl FnMut(&mut Cuda, &mut Cache, &[Span], usize) -> Vec<f32>,
    ) -> Vec<f32> {
        let (mut start, mut all) = (0, Vec::new());
        for len in lens {
            let other = [vec![1, 2], vec![0, 5]];
            let own = [
                Span { first: 0, len: BEFORE, start: 0, table: &other[0] },
                Span { first: BEFORE, len: *len, start, table: &other[1] },
            ];
            // Whoever takes the other group has two sequences in one block.
            let far = [Span { table: &[3], ..own[0] }, Span { table: &[3], ..own[1] }];
            let groups = [far.to_vec(), own.to_vec()];
            let tokens = vec![0; BEFORE + len];
            self.cuda.begin(&Step { tokens: &tokens, groups: &groups, ropes: &[], wanted: &[0] }).unwrap();
            all.extend(run(&mut self.cuda, &mut self.cache, &own, start));
            start += len;
        }
        all
    }

    /// One go, and the same in three: the same bits. Then what they are.
    fn check(
        ordinal: usize,
        state_len: usize,
        what: &str,
        wanted: &[f32],
        mut run: impl FnMut(&mut Cuda, &mut Cache, &[Span], usize) -> Vec<f32>,
    ) {
        let whole = Self::new(ordinal, state_len).in_steps(&[TOKENS], &mut run);
        let parts = Self::new(ordinal, state_len).in_steps(&[3, 1, TOKENS - 4], &mut run);
        close(what, &whole, wanted, CLOSE);
        assert!(whole.iter().zip(&parts).all(|(a, b)| a.to_bits() == b.to_bits()), "{what}: in parts");
    }
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Rows of `stride` values: those of the other sequence, then those from `start` on.
fn rows_of(x: &[f32], stride: usize, start: usize, len: usize) -> Vec<f32> {
    [&vec![0.5; BEFORE * stride], &x[start * stride..][..len * stride]].concat()
}

/// Ends a pass whose results are `width` values of each row, and takes those of the sequence.
fn results(cuda: &mut Cuda, out: &mut <Cuda as Backend>::Buf, stride: usize, len: usize) -> Vec<f32> {
    cuda.end(true).unwrap();
    cuda.download(out, BEFORE * stride..(BEFORE + len) * stride).unwrap().to_vec()
}

#[test]
fn convolutions_go_on_where_they_were() {
    in_every_order(|gpu| {
        for (channels, width, silu, with) in
            [(130, 4, true, true), (40, 3, false, false), (5, 8, true, false), (5, 1, false, true)]
        {
            let columns = Columns { first: 3, len: channels, stride: channels + 5 };
            let mut numbers = Numbers::new((channels * width) as u64);
            let (x, weight, bias) = (
                numbers.units(TOKENS * columns.stride),
                numbers.units(channels * width),
                numbers.units(channels),
            );
            let mut wanted = x.clone();
            for (t, c) in (0..TOKENS).flat_map(|t| (0..channels).map(move |c| (t, c))) {
                let mut sum = if with { f64::from(bias[c]) } else { 0.0 };
                for j in 0..width {
                    if let Some(t) = (t + j + 1).checked_sub(width) {
                        sum += f64::from(weight[c * width + j])
                            * f64::from(x[t * columns.stride + columns.first + c]);
                    }
                }
                wanted[t * columns.stride + columns.first + c] =
                    if silu { sum * sigmoid(sum) } else { sum } as f32;
            }
            Bench::check(
                gpu.facts().ordinal,
                (width - 1) * channels,
                "convolution",
                &wanted,
                |cuda, cache, spans, start| {
                    let len = spans[1].len;
                    let [weight, bias] = [&weight, &bias].map(|values| cuda.upload(values).unwrap());
                    let mut d = cuda.upload(&rows_of(&x, columns.stride, start, len)).unwrap();
                    let convolution =
                        Convolution { weight: &weight, bias: with.then_some(&bias), width, silu };
                    let state = State { cache, group: 1, first: FIRST };
                    cuda.convolve((&mut d, columns), spans, &convolution, state).unwrap();
                    results(cuda, &mut d, columns.stride, len)
                },
            );
        }
    });
}

#[test]
fn delta_rules_go_on_where_they_were() {
    in_every_order(|gpu| {
        for (key_heads, value_heads, keys, values) in [(2, 4, 16, 24), (1, 1, 20, 40)] {
            let (query, key, value) = (2, 2 + key_heads * keys, 3 + 2 * key_heads * keys);
            let (stride, gates_stride) = (value + value_heads * values + 1, 2 * value_heads + 3);
            let mut numbers = Numbers::new((keys * values) as u64);
            let (x, gates) = (numbers.units(TOKENS * stride), numbers.units(TOKENS * gates_stride));
            let a_log: Vec<f32> = numbers.units(value_heads).iter().map(|x| -0.6 + 0.5 * x).collect();
            let dt_bias = numbers.units(value_heads);
            let (b, a) = (1, 2 + value_heads);

            let mut wanted = vec![0.0; TOKENS * value_heads * values];
            for head in 0..value_heads {
                let mut s = vec![0.0f64; keys * values];
                for t in 0..TOKENS {
                    let part = |first: usize, head: usize| {
                        x[t * stride + first + head * keys..][..keys]
                            .iter()
                            .map(|x| f64::from(*x))
                            .collect::<Vec<_>>()
                    };
                    let of_key = head / (value_heads / key_heads);
                    let (mut q, mut k) = (part(query, of_key), part(key, of_key));
                    for (v, scale) in [(&mut q, (keys as f64).sqrt().recip()), (&mut k, 1.0)] {
                        let length = (v.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                        v.iter_mut().for_each(|x| *x *= scale / length);
                    }
                    let gate = |at: usize| f64::from(gates[t * gates_stride + at + head]);
                    let decay = (f64::from(a_log[head]) * softplus(gate(a) + f64::from(dt_bias[head]))).exp();
                    s.iter_mut().for_each(|s| *s *= decay);
                    for j in 0..values {
                        let v = f64::from(x[t * stride + value + head * values + j]);
                        let found: f64 = (0..keys).map(|i| s[i * values + j] * k[i]).sum();
                        (0..keys).for_each(|i| s[i * values + j] += k[i] * sigmoid(gate(b)) * (v - found));
                        let sum: f64 = (0..keys).map(|i| s[i * values + j] * q[i]).sum();
                        wanted[(t * value_heads + head) * values + j] = sum as f32;
                    }
                }
            }
            let state_len = value_heads * keys * values;
            Bench::check(
                gpu.facts().ordinal,
                state_len,
                "delta rule",
                &wanted,
                |cuda, cache, spans, start| {
                    let len = spans[1].len;
                    let [a_log, dt_bias] = [&a_log, &dt_bias].map(|values| cuda.upload(values).unwrap());
                    let d = cuda.upload(&rows_of(&x, stride, start, len)).unwrap();
                    let g = cuda.upload(&rows_of(&gates, gates_stride, start, len)).unwrap();
                    let mut out = cuda.alloc((BEFORE + len) * value_heads * values).unwrap();
                    let rule = DeltaRule {
                        key_heads,
                        value_heads,
                        key_dim: keys,
                        value_dim: values,
                        query,
                        key,
                        value,
                        stride,
                        b,
                        a,
                        gates_stride,
                        a_log: &a_log,
                        dt_bias: &dt_bias,
                    };
                    let state = State { cache, group: 1, first: FIRST };
                    cuda.delta_rule(&mut out, &d, &g, spans, &rule, state).unwrap();
                    results(cuda, &mut out, value_heads * values, len)
                },
            );
        }
    });
}

#[test]
fn scans_go_on_where_they_were() {
    in_every_order(|gpu| {
        for (heads, dim, groups, size) in [(4, 18, 2, 16), (1, 5, 1, 72)] {
            let (at_x, at_b, at_c) = (1, 2 + heads * dim, 3 + heads * dim + groups * size);
            let (stride, dt_stride, at_dt) = (at_c + groups * size + 2, heads + 3, 2);
            let mut numbers = Numbers::new((dim * size) as u64);
            let (x, dt) = (numbers.units(TOKENS * stride), numbers.units(TOKENS * dt_stride));
            let a: Vec<f32> = numbers.units(heads).iter().map(|x| -0.7 + 0.5 * x).collect();
            let (d, dt_bias, limit) = (numbers.units(heads), numbers.units(heads), (0.4, 1.1));

            let mut wanted = vec![0.0; TOKENS * heads * dim];
            for head in 0..heads {
                let mut h = vec![0.0f64; dim * size];
                for t in 0..TOKENS {
                    let row = |at: usize| f64::from(x[t * stride + at]);
                    let wide =
                        softplus(f64::from(dt[t * dt_stride + at_dt + head]) + f64::from(dt_bias[head]));
                    let wide = wide.clamp(f64::from(limit.0), f64::from(limit.1));
                    let of_group = head / (heads / groups) * size;
                    for p in 0..dim {
                        let x = row(at_x + head * dim + p);
                        let mut sum = f64::from(d[head]) * x;
                        for n in 0..size {
                            let h = &mut h[p * size + n];
                            *h = (wide * f64::from(a[head])).exp() * *h + wide * x * row(at_b + of_group + n);
                            sum += *h * row(at_c + of_group + n);
                        }
                        wanted[(t * heads + head) * dim + p] = sum as f32;
                    }
                }
            }
            Bench::check(
                gpu.facts().ordinal,
                heads * dim * size,
                "scan",
                &wanted,
                |cuda, cache, spans, start| {
                    let len = spans[1].len;
                    let [a, of_x, dt_bias] = [&a, &d, &dt_bias].map(|values| cuda.upload(values).unwrap());
                    let rows = cuda.upload(&rows_of(&x, stride, start, len)).unwrap();
                    let steps = cuda.upload(&rows_of(&dt, dt_stride, start, len)).unwrap();
                    let mut out = cuda.alloc((BEFORE + len) * heads * dim).unwrap();
                    let scan = Scan {
                        heads,
                        head_dim: dim,
                        groups,
                        state: size,
                        x: at_x,
                        b: at_b,
                        c: at_c,
                        stride,
                        dt: at_dt,
                        dt_stride,
                        a: &a,
                        d: &of_x,
                        dt_bias: &dt_bias,
                        dt_limit: limit,
                    };
                    let state = State { cache, group: 1, first: FIRST };
                    cuda.scan(&mut out, &rows, &steps, spans, &scan, state).unwrap();
                    results(cuda, &mut out, heads * dim, len)
                },
            );
        }
    });
}
