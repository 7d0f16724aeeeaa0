//! What the device can do at most (`kernels/limits.cu`): speeds are held against it.

use super::gpu::{Arg, Gpu, Shape};
use super::memory::Memory;
use crate::compute::{DeviceError, Limits, Result, Units};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MODULE: &str = "limits";
/// Independent products of each warp, as in the kernels.
const CHAINS: usize = 8;
/// Threads of a block that multiplies, and of one that reads.
const MULTIPLIERS: usize = 256;
const READERS: usize = 512;
/// Blocks on each multiprocessor: enough to keep it busy, few enough to stay.
const BLOCKS: usize = 4;
/// Larger than every cache.
const MOST_BYTES: usize = 2 << 30;
/// A measurement takes at least so long, so that queueing is nothing beside it; the best of some counts.
const LEAST: Duration = Duration::from_millis(20);
const TRIES: usize = 5;

/// What was found, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Bytes read, and bytes read and written by a copy, both counted.
    pub read: f64,
    pub copy: f64,
    /// Multiplications and additions, two for each pair: dense tensor-core products, and f32 without.
    pub f16: f64,
    pub bf16: f64,
    pub int8: f64,
    pub f32: f64,
}

/// Kinds of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    F16,
    Bf16,
    Int8,
    F32,
}

impl Product {
    const fn kernel(self) -> &'static str {
        match self {
            Product::F16 => "limits_mma_f16",
            Product::Bf16 => "limits_mma_bf16",
            Product::Int8 => "limits_mma_s8",
            Product::F32 => "limits_f32",
        }
    }

    /// Operations of one thread in one turn.
    fn operations(self) -> usize {
        let product = match self {
            Product::F16 | Product::Bf16 => 2 * 16 * 8 * 16 / 32,
            Product::Int8 => 2 * 16 * 8 * 32 / 32,
            Product::F32 => 2,
        };
        CHAINS * product
    }
}

/// Two buffers and the kernels.
pub struct Bench<'a> {
    gpu: &'a Gpu,
    from: Memory,
    to: Memory,
    bytes: usize,
    blocks: usize,
    /// One launch of few turns is a measurement.
    tiny: bool,
}

impl<'a> Bench<'a> {
    /// With buffers of at most `bytes`, and of a quarter of what is free.
    pub fn new(gpu: &'a Gpu, bytes: usize) -> Result<Self> {
        let (free, _) = gpu.memory()?;
        let bytes = (free / 4).min(bytes) / 16 * 16;
        let blocks = gpu.facts.multiprocessors as usize * BLOCKS;
        let (from, to) = (gpu.alloc(bytes, "a measurement")?, gpu.alloc(bytes, "a measurement")?);
        gpu.zero(&from)?;
        Ok(Self { gpu, from, to, bytes, blocks, tiny: false })
    }

    fn words(&self) -> Arg {
        Arg::U64(self.bytes as u64 / 16)
    }

    pub fn copy_once(&self) -> Result<()> {
        let args = [Arg::from(&self.to), (&self.from).into(), self.words()];
        self.gpu.launch(MODULE, "limits_copy", Shape::new([self.blocks, 1, 1], READERS), &args)
    }

    pub fn read_once(&self) -> Result<()> {
        let args = [Arg::from(&self.to), (&self.from).into(), self.words()];
        self.gpu.launch(MODULE, "limits_read", Shape::new([self.blocks, 1, 1], READERS), &args)
    }

    pub fn multiply_once(&self, product: Product, turns: usize) -> Result<()> {
        let shape = Shape::new([self.blocks, 1, 1], MULTIPLIERS);
        self.gpu.launch(MODULE, product.kernel(), shape, &[Arg::from(&self.to), turns.into()])
    }

    /// Bytes per second of a copy, those read and those written.
    pub fn copy(&self) -> Result<f64> {
        self.rate(2.0 * self.bytes as f64, |_| self.copy_once())
    }

    pub fn read(&self) -> Result<f64> {
        self.rate(self.bytes as f64, |_| self.read_once())
    }

    pub fn multiply(&self, product: Product) -> Result<f64> {
        let turns = if self.tiny { 1 } else { 1 << 10 };
        let operations = (self.blocks * MULTIPLIERS * turns * product.operations()) as f64;
        self.rate(operations, |_| self.multiply_once(product, turns))
    }

    /// Amount per second of the best try.
    fn rate(&self, amount: f64, once: impl Fn(usize) -> Result<()>) -> Result<f64> {
        let run = |times: usize| {
            let start = Instant::now();
            (0..times).try_for_each(&once)?;
            self.gpu.wait()?;
            Ok::<_, DeviceError>(start.elapsed())
        };
        run(1)?;
        let mut times = 1;
        while !self.tiny && run(times)? < LEAST && times < 1 << 16 {
            times *= 2;
        }
        let tries = (0..if self.tiny { 1 } else { TRIES }).map(|_| run(times)).collect::<Result<Vec<_>>>()?;
        let best = tries.into_iter().min().expect("there are some tries").as_secs_f64();
        Ok(amount * times as f64 / best)
    }
}

/// Everything, in about two seconds. `tiny`: only to see that it runs.
pub fn measure(gpu: &Gpu, tiny: bool) -> Result<Found> {
    let bench = Bench { tiny, ..Bench::new(gpu, if tiny { 1 << 16 } else { MOST_BYTES })? };
    Ok(Found {
        read: bench.read()?,
        copy: bench.copy()?,
        f16: bench.multiply(Product::F16)?,
        bf16: bench.multiply(Product::Bf16)?,
        int8: bench.multiply(Product::Int8)?,
        f32: bench.multiply(Product::F32)?,
    })
}

/// What the metrics panel holds rates against, on a stream of its own beside an engine that is idle.
pub(super) fn measure_until(ordinal: usize, stop: &Arc<AtomicBool>) -> Result<Limits> {
    let gpu = Gpu::open(ordinal)?;
    let bench = Bench::new(&gpu, MOST_BYTES)?;
    let stopped = || stop.load(Ordering::Acquire).then(|| DeviceError("the measurement was stopped".into()));
    let step = |measure: &dyn Fn() -> Result<f64>| stopped().map_or_else(measure, Err);
    Ok(Limits {
        units: Units::Multiprocessors(gpu.facts.multiprocessors as usize),
        memory_read: step(&|| bench.read())?,
        matrix: step(&|| bench.multiply(Product::F16))?,
        matrix_name: "f16 tensor cores".into(),
        halves: true,
        f32: step(&|| bench.multiply(Product::F32))?,
    })
}
