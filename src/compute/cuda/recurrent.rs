//! Layers that keep one state for the whole past: `kernels/recurrent.cu`.

use super::backend::{Buf, Cuda};
use super::gpu::{Arg, Gpu, Shape};
use super::kv::{Cache, Place};
use super::memory::Memory;
use crate::compute::{Columns, Convolution, DeltaRule, DeviceError, Result, Scan};

const MODULE: &str = "recurrent";
const THREADS: usize = 128;
/// Tokens that a convolution sees.
const MOST_WIDTH: usize = 8;
/// Columns of a state that a block of the delta rule has, in shared memory beside a query and a key.
const STRIP: usize = 32;
const MOST_KEYS: usize = 256;
/// Rows of a state that a block of the scan has, and values of a row that its lanes have.
const ROWS: usize = 16;
const MOST_SIZE: usize = 256;

/// Where the states of a step's sequences lie: each in the last block of its table.
#[derive(Clone, Copy)]
pub(super) struct States<'a> {
    pub(super) cache: &'a Cache,
    pub(super) place: Place<'a>,
    /// Values of the block before this part of the state.
    pub(super) first: usize,
}

impl States<'_> {
    fn args(&self) -> [Arg; 5] {
        [
            Arg::Ptr(self.cache.memory.at(0)),
            self.place.step.into(),
            self.place.group.into(),
            self.cache.stride().into(),
            self.first.into(),
        ]
    }

    fn grid(&self, parts: usize) -> Shape {
        Shape::new([parts, self.place.spans, 1], THREADS)
    }

    fn check(&self, len: usize) {
        assert!((self.first + len) * 4 <= self.cache.stride(), "a state fits in its block");
    }
}

pub(super) fn convolve(
    gpu: &Gpu,
    (x, columns): (&Memory, Columns),
    convolution: &Convolution<Cuda>,
    states: States,
) -> Result<()> {
    let Convolution { weight, bias, width, silu } = *convolution;
    if !(1..=MOST_WIDTH).contains(&width) {
        return Err(DeviceError(format!("CUDA: convolutions see 1 to {MOST_WIDTH} tokens, not {width}")));
    }
    states.check((width - 1) * columns.len);
    let x: [Arg; 4] = [x.into(), columns.first.into(), columns.stride.into(), columns.len.into()];
    let weights =
        [weight.memory().into(), bias.map(Buf::memory).into(), width.into(), usize::from(silu).into()];
    let args = [&x[..], &states.args(), &weights].concat();
    gpu.launch(MODULE, "recurrent_convolve", states.grid(columns.len.div_ceil(THREADS)), &args)
}

pub(super) fn delta_rule(
    gpu: &Gpu,
    out: &Memory,
    (x, gates): (&Memory, &Memory),
    rule: &DeltaRule<Cuda>,
    states: States,
) -> Result<()> {
    let (keys, values) = (rule.key_dim, rule.value_dim);
    if keys > MOST_KEYS {
        return Err(DeviceError(format!(
            "CUDA: keys of a delta rule have at most {MOST_KEYS} values, not {keys}"
        )));
    }
    states.check(rule.value_heads * keys * values);
    let sizes = [
        rule.key_heads,
        rule.value_heads,
        keys,
        values,
        rule.query,
        rule.key,
        rule.value,
        rule.stride,
        rule.b,
        rule.a,
        rule.gates_stride,
    ]
    .map(Arg::from);
    let rows: [Arg; 3] = [out.into(), x.into(), gates.into()];
    let weights = [rule.a_log.memory().into(), rule.dt_bias.memory().into()];
    let args = [&rows[..], &states.args(), &sizes, &weights].concat();
    let shape = states.grid(rule.value_heads * values.div_ceil(STRIP));
    gpu.launch(MODULE, "recurrent_delta_rule", shape.shared(4 * keys * (STRIP + 2)), &args)
}

pub(super) fn scan(
    gpu: &Gpu,
    out: &Memory,
    (x, dt): (&Memory, &Memory),
    scan: &Scan<Cuda>,
    states: States,
) -> Result<()> {
    if scan.state > MOST_SIZE {
        let size = scan.state;
        return Err(DeviceError(format!(
            "CUDA: states of a scan have at most {MOST_SIZE} values a row, not {size}"
        )));
    }
    states.check(scan.heads * scan.head_dim * scan.state);
    let sizes = [
        scan.heads,
        scan.head_dim,
        scan.groups,
        scan.state,
        scan.x,
        scan.b,
        scan.c,
        scan.stride,
        scan.dt,
        scan.dt_stride,
    ]
    .map(Arg::from);
    let rows: [Arg; 3] = [out.into(), x.into(), dt.into()];
    let (least, most) = scan.dt_limit;
    let weights = [
        scan.a.memory().into(),
        scan.d.memory().into(),
        scan.dt_bias.memory().into(),
        least.into(),
        most.into(),
    ];
    let args = [&rows[..], &states.args(), &sizes, &weights].concat();
    let shape = states.grid(scan.heads * scan.head_dim.div_ceil(ROWS));
    gpu.launch(MODULE, "recurrent_scan", shape, &args)
}
