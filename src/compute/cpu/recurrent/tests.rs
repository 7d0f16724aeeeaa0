#![allow(clippy::unwrap_used)]

use crate::compute::cpu::{Cpu, Isa};
use crate::compute::{Backend, CacheDtype, CacheShape, Columns, Convolution, DeltaRule, Scan, Span, State};

type Values = Vec<f32>;

fn wave(n: usize, seed: usize) -> Values {
    (0..n).map(|i| ((i * 7 + seed * 31) as f32 * 0.37).sin()).collect()
}

/// Blocks 1 to 8 hold states of so many values.
fn shape(state: usize) -> CacheShape {
    let dtype = CacheDtype::F16;
    let least_bytes = state * size_of::<f32>();
    CacheShape { blocks: 9, block_size: 4, kv_heads: 0, head_dim: 16, latent: None, dtype, least_bytes }
}

/// Sequences in the order of their rows: block, position of the first token, tokens.
type Rows = Vec<(u32, usize, usize)>;

/// The operation, over these spans of tokens that are told apart by a number each.
type Run<'a> = dyn Fn(&mut Cpu, &[Span], &[usize], &mut <Cpu as Backend>::Cache) -> Values + 'a;

/// Runs an operation over batches one after the other on one cache; gives back what it said of each, the
/// rows of one sequence together, so that what does not depend on batches compares equal.
struct Drive<'a> {
    state: usize,
    columns: usize,
    run: &'a Run<'a>,
}

impl Drive<'_> {
    fn run(&self, isa: Isa, threads: usize, batches: &[Rows]) -> Vec<Values> {
        let mut cpu = Cpu::with_isa(Some(threads), isa);
        let mut cache = cpu.cache(shape(self.state)).unwrap();
        // What was there before must not be read.
        (1..9).for_each(|block| cache.block_mut(block).fill(0x41));
        let mut said = vec![Values::new(); 9];
        for rows in batches {
            let tables: Vec<[u32; 3]> = rows.iter().map(|(block, ..)| [0, 0, *block]).collect();
            let mut first = 0;
            let spans: Vec<Span> = (rows.iter().zip(&tables))
                .map(|((_, start, len), table)| {
                    first += len;
                    Span { first: first - len, len: *len, start: *start, table }
                })
                .collect();
            // Which token of which sequence a row is: what goes in depends on that alone.
            let ids = rows.iter().flat_map(|(block, start, len)| {
                (*start..start + len).map(move |position| *block as usize * 1000 + position)
            });
            let out = (self.run)(&mut cpu, &spans, &ids.collect::<Vec<_>>(), &mut cache);
            for ((block, ..), span) in rows.iter().zip(&spans) {
                let part = span.first * self.columns..(span.first + span.len) * self.columns;
                said[*block as usize].extend(&out[part]);
            }
        }
        said
    }

    /// Whole, in chunks, together with others, and on more threads: to the bit; and close to the twin.
    fn check(&self, twin: &dyn Fn(&[usize]) -> Vec<f64>, tolerance: f64) {
        let lens = [(1, 37), (2, 1), (5, 16), (7, 20)];
        let solo: Vec<Rows> = lens.map(|(block, len)| vec![(block, 0, len)]).into();
        let together = vec![lens.map(|(block, len)| (block, 0, len)).to_vec()];
        let mut chunks: Vec<Rows> = vec![Vec::new(); 37];
        for (block, len) in lens {
            let size = [1, 5, 17, 3, 40, 2, 16, 9][block as usize];
            for (i, start) in (0..len).step_by(size).enumerate() {
                chunks[i].push((block, start, size.min(len - start)));
            }
        }
        for isa in Isa::available() {
            let expected = self.run(isa, 1, &solo);
            for (batches, threads) in [(&together, 1), (&together, 3), (&chunks, 2), (&solo, 4)] {
                assert!(self.run(isa, threads, batches) == expected, "{}", isa.name());
            }
            let mut worst = (0.0, 0);
            for (block, len) in lens {
                let ids: Vec<usize> = (0..len).map(|position| block as usize * 1000 + position).collect();
                let said = &expected[block as usize];
                for (i, (a, b)) in said.iter().zip(twin(&ids)).enumerate() {
                    let error = (f64::from(*a) - b).abs();
                    if error > worst.0 || error.is_nan() {
                        worst = (error, i);
                    }
                }
            }
            println!("{}: worst {} at {}", isa.name(), worst.0, worst.1);
            assert!(worst.0 < tolerance, "{}: {} off at {}", isa.name(), worst.0, worst.1);
        }
    }
}

fn input(ids: &[usize], columns: usize) -> Values {
    ids.iter().flat_map(|id| wave(columns, *id)).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn a_convolution_equals_its_formula() {
    // Channels that fill vectors and that do not, in rows that hold more.
    for (channels, width, silu_of, bias) in [
        (32, 4, true, true),
        (300, 3, false, false),
        (23, 8, true, false),
        (16, 1, false, true),
        (1, 2, false, true),
    ] {
        let (first, stride) = (3, channels + 5);
        let (weight, biases) = (wave(channels * width, 1), wave(channels, 2));
        let run = |cpu: &mut Cpu, spans: &[Span], ids: &[usize], cache: &mut _| {
            let mut x = input(ids, stride);
            let before = x.clone();
            let convolution =
                Convolution { weight: &weight, bias: bias.then_some(&biases), width, silu: silu_of };
            let columns = Columns { first, len: channels, stride };
            let state = State { cache, group: 0, first: 2 };
            cpu.convolve((&mut x, columns), spans, &convolution, state).unwrap();
            for (x, before) in x.chunks(stride).zip(before.chunks(stride)) {
                assert!(x[..first] == before[..first] && x[first + channels..] == before[first + channels..]);
            }
            x.chunks(stride).flat_map(|row| row[first..first + channels].to_vec()).collect()
        };
        let twin = |ids: &[usize]| {
            let x = input(ids, stride);
            let at = |t: isize, c: usize| match usize::try_from(t) {
                Ok(t) => f64::from(x[t * stride + first + c]),
                Err(_) => 0.0,
            };
            let y = |t: usize, c: usize| {
                let past = (0..width)
                    .map(|j| f64::from(weight[c * width + j]) * at((t + j + 1) as isize - width as isize, c));
                let sum = past.sum::<f64>() + if bias { f64::from(biases[c]) } else { 0.0 };
                if silu_of { silu(sum) } else { sum }
            };
            (0..ids.len()).flat_map(|t| (0..channels).map(move |c| (t, c))).map(|(t, c)| y(t, c)).collect()
        };
        let drive = Drive { state: 2 + (width - 1) * channels, columns: channels, run: &run };
        // Eight products of numbers below 1, summed.
        drive.check(&twin, 2e-6);
    }
}

#[test]
fn the_delta_rule_equals_its_formula() {
    for (key_heads, value_heads, key_dim, value_dim) in [(2, 4, 16, 16), (1, 3, 32, 80), (2, 2, 48, 64)] {
        let (query, key) = (1, 1 + key_heads * key_dim);
        let value = key + key_heads * key_dim;
        let stride = value + value_heads * value_dim + 2;
        let (b, a, gates_stride) = (1, 1 + value_heads, 2 + 2 * value_heads);
        let a_log: Values = wave(value_heads, 4).iter().map(|x| -x.exp()).collect();
        let dt_bias = wave(value_heads, 5);
        let run = |cpu: &mut Cpu, spans: &[Span], ids: &[usize], cache: &mut _| {
            let (x, gates) = (input(ids, stride), input(ids, gates_stride));
            let mut out = vec![0.0; ids.len() * value_heads * value_dim];
            let rule = DeltaRule {
                key_heads,
                value_heads,
                key_dim,
                value_dim,
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
            let state = State { cache, group: 0, first: 5 };
            cpu.delta_rule(&mut out, &x, &gates, spans, &rule, state).unwrap();
            out
        };
        let head = |ids: &[usize], head: usize| -> Vec<Vec<f64>> {
            let mut state = vec![vec![0.0; value_dim]; key_dim];
            let token = |id: &usize| {
                let row = wave(stride, *id);
                let gates = wave(gates_stride, *id);
                let part = |first: usize, head: usize, dim: usize| -> Vec<f64> {
                    row[first + head * dim..][..dim].iter().map(|x| f64::from(*x)).collect()
                };
                let unit = |x: Vec<f64>| -> Vec<f64> {
                    let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| x / length).collect()
                };
                let key_head = head / (value_heads / key_heads);
                let q = unit(part(query, key_head, key_dim));
                let k = unit(part(key, key_head, key_dim));
                let v = part(value, head, value_dim);
                let step = (f64::from(gates[a + head]) + f64::from(dt_bias[head])).exp().ln_1p();
                let decay = (f64::from(a_log[head]) * step).exp();
                let beta = 1.0 / (1.0 + (-f64::from(gates[b + head])).exp());
                state.iter_mut().flatten().for_each(|s| *s *= decay);
                (0..value_dim)
                    .map(|j| {
                        let found: f64 = (0..key_dim).map(|i| state[i][j] * k[i]).sum();
                        (0..key_dim).for_each(|i| state[i][j] += k[i] * beta * (v[j] - found));
                        (0..key_dim).map(|i| state[i][j] * q[i]).sum::<f64>() / (key_dim as f64).sqrt()
                    })
                    .collect()
            };
            ids.iter().map(token).collect()
        };
        let twin = |ids: &[usize]| {
            let heads: Vec<_> = (0..value_heads).map(|h| head(ids, h)).collect();
            (0..ids.len()).flat_map(|t| heads.iter().flat_map(move |h| h[t].clone())).collect()
        };
        let state = 5 + value_heads * key_dim * value_dim;
        let drive = Drive { state, columns: value_heads * value_dim, run: &run };
        // Sums of up to 48 products of numbers below 1, over 37 tokens that the state remembers.
        drive.check(&twin, 5e-6);
    }
}

#[test]
fn the_scan_equals_its_formula() {
    for (heads, head_dim, groups, size) in [(4, 16, 2, 16), (3, 7, 1, 48), (2, 64, 2, 32)] {
        let (x_at, b) = (2, 2 + heads * head_dim);
        let (c, stride) = (b + groups * size, b + 2 * groups * size + 1);
        let (dt_at, dt_stride, dt_limit) = (1, heads + 2, (0.3, 0.9));
        let a: Values = wave(heads, 1).iter().map(|x| -x.exp()).collect();
        let (d, dt_bias) = (wave(heads, 2), wave(heads, 3));
        let run = |cpu: &mut Cpu, spans: &[Span], ids: &[usize], cache: &mut _| {
            let (x, dt) = (input(ids, stride), input(ids, dt_stride));
            let mut out = vec![0.0; ids.len() * heads * head_dim];
            let scan = Scan {
                heads,
                head_dim,
                groups,
                state: size,
                x: x_at,
                b,
                c,
                stride,
                dt: dt_at,
                dt_stride,
                a: &a,
                d: &d,
                dt_bias: &dt_bias,
                dt_limit,
            };
            let state = State { cache, group: 0, first: 1 };
            cpu.scan(&mut out, &x, &dt, spans, &scan, state).unwrap();
            out
        };
        let twin = |ids: &[usize]| {
            let mut states = vec![0.0; heads * head_dim * size];
            let mut out = Vec::new();
            for id in ids {
                let (row, steps) = (wave(stride, *id), wave(dt_stride, *id));
                for head in 0..heads {
                    let group = head / (heads / groups);
                    let step = (f64::from(steps[dt_at + head]) + f64::from(dt_bias[head])).exp().ln_1p();
                    let step = step.clamp(f64::from(dt_limit.0), f64::from(dt_limit.1));
                    let decay = (step * f64::from(a[head])).exp();
                    for i in 0..head_dim {
                        let x = f64::from(row[x_at + head * head_dim + i]);
                        let state = &mut states[(head * head_dim + i) * size..][..size];
                        let mut sum = f64::from(d[head]) * x;
                        for (n, h) in state.iter_mut().enumerate() {
                            *h = *h * decay + step * x * f64::from(row[b + group * size + n]);
                            sum += *h * f64::from(row[c + group * size + n]);
                        }
                        out.push(sum);
                    }
                }
            }
            out
        };
        let drive = Drive { state: 1 + heads * head_dim * size, columns: heads * head_dim, run: &run };
        // Sums of 48 products, of states that are sums over the past themselves: values up to 10.
        drive.check(&twin, 3e-5);
    }
}

/// Rows that are no whole vectors are refused, not cut short.
#[test]
fn shapes_that_kernels_do_not_know_are_refused() {
    let mut cpu = Cpu::new(Some(1));
    let mut cache = cpu.cache(shape(4096)).unwrap();
    let (mut out, x, one) = (vec![0.0; 64], vec![0.0; 256], vec![0.0; 64]);
    let span = [Span { first: 0, len: 1, start: 0, table: &[1] }];
    let convolution = Convolution { weight: &one, bias: None, width: 9, silu: false };
    let refused = cpu.convolve(
        (&mut out, Columns::all(7)),
        &span,
        &convolution,
        State { cache: &mut cache, group: 0, first: 0 },
    );
    assert_eq!(refused.unwrap_err().to_string(), "the CPU convolves over 1 to 8 tokens, not 9");
    let scan = Scan {
        heads: 1,
        head_dim: 4,
        groups: 1,
        state: 8,
        x: 0,
        b: 4,
        c: 12,
        stride: 20,
        dt: 0,
        dt_stride: 1,
        a: &one,
        d: &one,
        dt_bias: &one,
        dt_limit: (0.0, 1.0),
    };
    let refused = cpu.scan(&mut out, &x, &one, &span, &scan, State { cache: &mut cache, group: 0, first: 0 });
    assert_eq!(refused.unwrap_err().to_string(), "the CPU needs states of a multiple of 16, not 8");
}
