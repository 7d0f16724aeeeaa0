//! What this machine can do at most: read, and multiply. Speeds are held against it.
//!
//! Every figure is that of the fastest way found: how a processor likes to be asked differs from one
//! to the next. Work is spread over the pool as an operation's is.

use super::arena::{Arena, Region};
use super::pool::Pool;
use super::shared::Slots;
use super::simd::{Isa, Simd, simd_fn};
use crate::base::{Memory, Summary};
use crate::compute::{self, DeviceError, Result, Units};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// On the threads that were asked for.
pub struct Limits {
    bench: Bench,
    model: Region,
    way: Way,
    int8: Int8,
    found: Found,
}

/// Medians, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub memory_bytes: usize,
    /// Bytes read from a buffer larger than every cache.
    pub memory_read: f64,
    /// Bytes read, again and again, from a buffer as large as the model's weights.
    pub model_read: f64,
    /// Operations in dot products of bytes; a multiplication and an addition are two.
    pub int8: f64,
    /// The instruction that was fastest.
    pub int8_instruction: &'static str,
    /// Of f32, counted the same way.
    pub f32: f64,
}

impl Limits {
    /// Takes some seconds, and a quarter of the free memory at most.
    ///
    /// # Errors
    /// There is no memory for the buffers.
    pub fn measure(threads: usize, model_bytes: usize) -> Result<Self> {
        let bench = Bench::new(threads, Arc::default());
        let memory_bytes = beyond_caches();
        let (_, memory_read) = bench.best_read(bench.buffer(memory_bytes)?.bytes());
        let model = bench.buffer(model_bytes)?;
        let (way, model_read) = bench.best_read(model.bytes());
        let (int8, int8_rate) = bench.best_int8();
        let found = Found {
            memory_bytes,
            memory_read,
            model_read,
            int8: int8_rate,
            int8_instruction: int8.name,
            f32: bench.f32(),
        };
        Ok(Self { bench, model, way, int8, found })
    }

    pub fn found(&self) -> Found {
        self.found
    }

    /// Reads of the model's size at this moment, GB/s.
    pub fn model_read_now(&self) -> f64 {
        rate(|| self.bench.read(self.model.bytes(), self.way))
    }

    /// Int8 dot products at this moment, GOPS.
    pub fn int8_now(&self) -> f64 {
        rate(|| self.bench.compute(self.int8.operations, self.int8.run))
    }
}

/// What does not depend on a model, until it is stopped: then within the time of one repetition.
pub(super) fn measure_until(threads: usize, stop: Arc<AtomicBool>) -> Result<compute::Limits> {
    let bench = Bench::new(threads, stop);
    let (_, memory_read) = bench.best_read(bench.buffer(beyond_caches())?.bytes());
    let (int8, int8_rate) = bench.best_int8();
    let f32 = bench.f32();
    if bench.is_stopped() {
        return Err(DeviceError("the measurement was stopped".into()));
    }
    Ok(compute::Limits {
        units: Units::Threads(threads),
        memory_read,
        matrix: int8_rate,
        matrix_name: format!("bytes, {}", int8.name),
        halves: false,
        f32,
    })
}

const TIMES_THE_CACHE: usize = 4;
const LEAST_BUFFER: usize = 256 << 20;

fn beyond_caches() -> usize {
    let wanted = (last_level_cache() * TIMES_THE_CACHE).max(LEAST_BUFFER);
    Memory::now().available.map_or(wanted, |bytes| wanted.min(bytes as usize / 4))
}

/// In bytes; a guess where the system does not say.
fn last_level_cache() -> usize {
    let size = |index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()
    };
    (0..8).filter_map(size).max().map_or(LEAST_BUFFER / TIMES_THE_CACHE, |kib| kib << 10)
}

struct Bench {
    pool: Pool,
    isa: Isa,
    stop: Arc<AtomicBool>,
}

const REPETITIONS: usize = 5;
/// Of a repetition.
const LEAST_TIME: Duration = Duration::from_millis(40);

/// What a task reads or does: small enough to be spread evenly, large enough not to be felt.
const TASK_BYTES: usize = 2 << 20;
const TASKS_PER_THREAD: usize = 16;
const TASK_ROUNDS: usize = 20_000;

/// How a stretch of memory is read: in how many streams at once, asking how many bytes ahead.
#[derive(Clone, Copy)]
struct Way {
    streams: usize,
    ahead: usize,
}

const WAYS: [Way; 8] = [
    Way { streams: 1, ahead: 0 },
    Way { streams: 1, ahead: 512 },
    Way { streams: 1, ahead: 1024 },
    Way { streams: 1, ahead: 2048 },
    Way { streams: 1, ahead: 4096 },
    Way { streams: 4, ahead: 0 },
    Way { streams: 4, ahead: 1024 },
    Way { streams: 8, ahead: 0 },
];

impl Bench {
    fn new(threads: usize, stop: Arc<AtomicBool>) -> Self {
        Self { pool: Pool::new(threads), isa: Isa::detect(), stop }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Every page is first written by a thread that will read it.
    fn buffer(&self, len: usize) -> Result<Region> {
        let mut region = Arena::default().take(len)?;
        let slots = Slots::new(region.bytes_mut());
        self.pool.run(len.div_ceil(TASK_BYTES), |task, _| {
            if self.is_stopped() {
                return;
            }
            let part = task * TASK_BYTES..len.min((task + 1) * TASK_BYTES);
            // SAFETY: each task has its own part.
            unsafe { slots.take(part) }.fill(1);
        });
        Ok(region)
    }

    /// Once, in bytes.
    fn read(&self, buffer: &[u8], way: Way) -> f64 {
        if self.is_stopped() {
            return 0.0;
        }
        let part = |task| &buffer[task * TASK_BYTES..buffer.len().min((task + 1) * TASK_BYTES)];
        let tasks = buffer.len().div_ceil(TASK_BYTES);
        self.pool.run(tasks, |task, _| _ = black_box(read(self.isa, part(task), way)));
        buffer.len() as f64
    }

    /// The fastest way, and its bytes per second.
    fn best_read(&self, buffer: &[u8]) -> (Way, f64) {
        let (way, _) = fastest(WAYS, |way| rate(|| self.read(buffer, *way)));
        (way, median(|| self.read(buffer, way)))
    }

    /// In operations, of which a round has so many.
    fn compute(&self, operations: usize, run: impl Fn(usize) + Sync) -> f64 {
        if self.is_stopped() {
            return 0.0;
        }
        let tasks = self.pool.threads() * TASKS_PER_THREAD;
        self.pool.run(tasks, |_, _| run(TASK_ROUNDS));
        (tasks * TASK_ROUNDS * operations) as f64
    }

    fn best_int8(&self) -> (Int8, f64) {
        fastest(int8_ways(), |way| median(|| self.compute(way.operations, way.run)))
    }

    /// Operations per second.
    fn f32(&self) -> f64 {
        let few = median(|| self.compute(2 * 16 * FEW, |rounds| few_fmas(self.isa, rounds)));
        few.max(median(|| self.compute(2 * 16 * MANY, |rounds| many_fmas(self.isa, rounds))))
    }
}

/// Of at least one way.
fn fastest<W>(ways: impl IntoIterator<Item = W>, rate: impl Fn(&W) -> f64) -> (W, f64) {
    let rated = ways.into_iter().map(|way| {
        let rate = rate(&way);
        (way, rate)
    });
    rated.max_by(|a, b| a.1.total_cmp(&b.1)).expect("there is a way")
}

/// Per second, of what `run` says it did; for as long as makes a measurement, or it does nothing.
fn rate(mut run: impl FnMut() -> f64) -> f64 {
    let (start, mut done) = (Instant::now(), 0.0);
    loop {
        let more = run();
        done += more;
        let elapsed = start.elapsed();
        if elapsed >= LEAST_TIME || more == 0.0 {
            return done / elapsed.as_secs_f64();
        }
    }
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    Summary::of((0..REPETITIONS).map(|_| rate(&mut run))).p50
}

simd_fn! {
    /// Reads all but what is left over of whole steps; what it gives back depends on every byte read.
    fn read(bytes: &[u8], way: Way) -> f32 = read_kernel;
}

const LINE: usize = 64;
const STEP: usize = 4 * LINE;

unsafe fn read_kernel<S: Simd>(bytes: &[u8], way: Way) -> f32 {
    let stream = bytes.len() / way.streams / STEP * STEP;
    if stream == 0 {
        return 0.0;
    }
    let start = bytes.as_ptr();
    // SAFETY: every line read is inside `bytes`; prefetching may go past the end, and touches nothing.
    unsafe {
        let mut seen = [S::load_bytes(start); 4];
        for at in (0..stream).step_by(STEP) {
            for first in 0..way.streams {
                let from = start.add(first * stream + at);
                if way.ahead > 0 {
                    for line in 0..4 {
                        S::prefetch(from.wrapping_add(way.ahead + line * LINE));
                    }
                }
                for (line, seen) in seen.iter_mut().enumerate() {
                    *seen = S::or(*seen, S::load_bytes(from.add(line * LINE)));
                }
            }
        }
        let all = S::or(S::or(seen[0], seen[1]), S::or(seen[2], seen[3]));
        let all = S::and(all, 127);
        S::sum(S::to_f32(S::dot::<1, 1>(S::splat_i32(0), &[all], [1i8; 4].as_ptr())))
    }
}

/// Independent chains of one instruction, so that none waits for another's result.
#[inline(always)]
fn chains<T: Copy, const N: usize>(rounds: usize, start: T, next: impl Fn(T) -> T) {
    // Nobody may know that they are all the same.
    let mut all = black_box([start; N]);
    for _ in 0..rounds {
        for one in &mut all {
            *one = next(*one);
        }
    }
    black_box(all);
}

/// As many as hide the latency of two units, and as many as 16 registers of half the width hold.
const MANY: usize = 12;
const FEW: usize = 6;

unsafe fn fma_kernel<S: Simd, const N: usize>(rounds: usize) {
    // SAFETY: the caller has the instruction set; no memory is touched.
    unsafe {
        let (factor, term) = (S::splat(black_box(0.999)), S::splat(black_box(1e-3)));
        chains::<S::F, N>(rounds, S::splat(1.0), |x| S::fma(x, factor, term));
    }
}

unsafe fn many_fmas_kernel<S: Simd>(rounds: usize) {
    // SAFETY: the caller's.
    unsafe { fma_kernel::<S, MANY>(rounds) }
}

unsafe fn few_fmas_kernel<S: Simd>(rounds: usize) {
    // SAFETY: the caller's.
    unsafe { fma_kernel::<S, FEW>(rounds) }
}

simd_fn! { fn many_fmas(rounds: usize) = many_fmas_kernel; }
simd_fn! { fn few_fmas(rounds: usize) = few_fmas_kernel; }

/// A way to multiply bytes and add up the products.
struct Int8 {
    name: &'static str,
    /// Of a round.
    operations: usize,
    run: fn(usize),
}

/// All that can run here.
fn int8_ways() -> Vec<Int8> {
    let of = |name, bytes: usize, run| Int8 { name, operations: 2 * bytes * MANY, run };
    #[allow(unused_mut)]
    let mut ways = vec![of("portable", 64, portable_dots)];
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        // SAFETY, of all three: the processor has the instructions.
        #[allow(clippy::undocumented_unsafe_blocks)]
        if has!("avx2") {
            ways.push(of("AVX2", 32, |rounds| unsafe { x86::avx2_dots(rounds) }));
        }
        #[allow(clippy::undocumented_unsafe_blocks)]
        if has!("avxvnni") {
            ways.push(of("AVX-VNNI", 32, |rounds| unsafe { x86::avx_vnni_dots(rounds) }));
        }
        #[allow(clippy::undocumented_unsafe_blocks)]
        if has!("avx512f") && has!("avx512vnni") {
            ways.push(of("AVX-512 VNNI", 64, |rounds| unsafe { x86::avx512_vnni_dots(rounds) }));
        }
    }
    ways
}

fn portable_dots(rounds: usize) {
    let x = black_box([1i8, 2, 3, 4]);
    chains::<[i32; 16], MANY>(rounds, [1; 16], |sums| {
        sums.map(|sum| (0..4).fold(sum, |sum, i| sum.wrapping_add(i32::from(sum as i8) * i32::from(x[i]))))
    });
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{MANY, chains};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Products of pairs, their sums, the sums of those: three instructions. The chain goes through
    /// the bytes too, or the products would be made once.
    #[target_feature(enable = "avx2")]
    pub fn avx2_dots(rounds: usize) {
        let (x, ones) = (black_box(_mm256_set1_epi8(1)), _mm256_set1_epi16(1));
        chains::<_, MANY>(rounds, _mm256_set1_epi8(3), |sum| {
            _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(sum, x), ones))
        });
    }

    #[target_feature(enable = "avxvnni")]
    pub fn avx_vnni_dots(rounds: usize) {
        let (w, x) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(1)));
        chains::<_, MANY>(rounds, _mm256_setzero_si256(), |sum| _mm256_dpbusd_avx_epi32(sum, w, x));
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn avx512_vnni_dots(rounds: usize) {
        let (w, x) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(1)));
        chains::<_, MANY>(rounds, _mm512_setzero_si512(), |sum| _mm512_dpbusd_epi32(sum, w, x));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_in_every_way() {
        let mut bytes = vec![0u8; 8 * STEP * 3];
        for isa in Isa::available() {
            for way in WAYS {
                let none = read(isa, &bytes, way);
                for at in [0, 1, STEP - 1, 5 * STEP + 77, bytes.len() - 1] {
                    bytes[at] = 1;
                    assert_eq!(
                        read(isa, &bytes, way),
                        none + 1.0,
                        "{} at {at}, {} streams",
                        isa.name(),
                        way.streams
                    );
                    bytes[at] = 0;
                }
            }
        }
        assert_eq!(read(Isa::Portable, &bytes[..100], WAYS[0]), 0.0, "less than a step");
    }

    #[test]
    fn a_measurement_that_is_stopped_ends_at_once() {
        let bench = Bench::new(1, Arc::new(AtomicBool::new(true)));
        let start = Instant::now();
        let buffer = bench.buffer(1 << 20).unwrap();
        assert_eq!(bench.best_read(buffer.bytes()).1 + bench.best_int8().1 + bench.f32(), 0.0);
        assert!(start.elapsed() < 20 * LEAST_TIME, "{:?}", start.elapsed());
        assert!(measure_until(1, Arc::new(AtomicBool::new(true))).is_err());
    }

    #[test]
    fn every_limit_is_a_rate() {
        let bench = Bench::new(2, Arc::default());
        let buffer = bench.buffer((8 << 20) + 12_345).unwrap();
        assert!(buffer.bytes().iter().all(|byte| *byte == 1));
        for rate in [bench.best_read(buffer.bytes()).1, bench.best_int8().1, bench.f32()] {
            assert!(rate.is_finite() && rate > 1e6, "{rate}");
        }
        assert!((LEAST_BUFFER / 64..1 << 40).contains(&beyond_caches()));
    }
}
