//! Steps and caches for tests: written and read slowly, by what their layouts say.

use crate::harness::{bytes_of, get, put};
use glassbox::compute::cuda::kv::Cache;
use glassbox::compute::cuda::step::{StepWords, Work};
use glassbox::compute::cuda::{Gpu, Memory};
use glassbox::compute::{CacheDtype, CacheShape};
use half::{bf16, f16};
use std::sync::LazyLock;

pub const ELEMENTS: [CacheDtype; 4] = [CacheDtype::F16, CacheDtype::Bf16, CacheDtype::Int8, CacheDtype::Fp8];

/// A step on the device; what lies behind it is not ours.
pub fn step(gpu: &Gpu, work: &Work) -> Memory {
    put(gpu, &words(work))
}

pub fn words(work: &Work) -> Vec<u32> {
    let mut words = vec![u32::MAX; 1 << 16];
    let used = StepWords::new(&mut words).write(work).unwrap();
    words.truncate(used);
    words
}

/// A cache's bytes on the host.
pub struct Bytes {
    pub shape: CacheShape,
    pub bytes: Vec<u8>,
}

/// One token of one head, and which of its two sides.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub block: usize,
    pub head: usize,
    pub offset: usize,
    pub value: bool,
}

impl Bytes {
    /// Nothing in it is a number.
    pub fn poisoned(shape: CacheShape) -> Self {
        Self { shape, bytes: vec![0xff; shape.blocks * stride(&shape)] }
    }

    pub fn of(gpu: &Gpu, cache: &Cache) -> Self {
        let shape = cache.shape();
        Self { shape, bytes: get(gpu, cache.memory(), shape.blocks * stride(&shape)) }
    }

    /// On the device, and nothing behind it.
    pub fn put(&self, gpu: &Gpu) -> Cache {
        let cache = Cache::new(gpu, self.shape).unwrap();
        gpu.write(cache.memory().at(0), &self.bytes).unwrap();
        cache
    }

    fn part(&self, slot: Slot) -> usize {
        slot.block * stride(&self.shape) + slot.head * self.shape.part_bytes()
    }

    /// Where the elements lie.
    pub fn elements(&self, slot: Slot) -> std::ops::Range<usize> {
        let CacheShape { head_dim, dtype, .. } = self.shape;
        let side = if slot.value { self.shape.side_bytes() } else { 0 };
        let start = self.part(slot) + side + slot.offset * head_dim * dtype.bytes();
        start..start + head_dim * dtype.bytes()
    }

    /// Where the scale lies, if there is one.
    pub fn scale(&self, slot: Slot) -> Option<std::ops::Range<usize>> {
        let index = slot.offset + if slot.value { self.shape.block_size } else { 0 };
        let start = self.part(slot) + 2 * self.shape.side_bytes() + 4 * index;
        self.shape.dtype.is_scaled().then_some(start..start + 4)
    }

    /// The scale of bytes, or 1.
    pub fn scale_of(&self, slot: Slot) -> f32 {
        self.scale(slot).map_or(1.0, |at| f32::from_ne_bytes(self.bytes[at].try_into().unwrap()))
    }

    pub fn read(&self, slot: Slot) -> Vec<f32> {
        let (bytes, scale) = (&self.bytes[self.elements(slot)], self.scale_of(slot));
        let two = |bytes: &[u8]| u16::from_ne_bytes(bytes.try_into().unwrap());
        match self.shape.dtype {
            CacheDtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_bits(two(b)).to_f32()).collect(),
            CacheDtype::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_bits(two(b)).to_f32()).collect(),
            CacheDtype::Int8 => bytes.iter().map(|b| f32::from(*b as i8) * scale).collect(),
            CacheDtype::Fp8 => bytes.iter().map(|b| e4m3(*b) * scale).collect(),
            CacheDtype::F32 => panic!("no cache is of it"),
        }
    }

    pub fn write(&mut self, slot: Slot, x: &[f32]) {
        let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let scale = most / if self.shape.dtype == CacheDtype::Int8 { 127.0 } else { 448.0 };
        let bytes: Vec<u8> = match self.shape.dtype {
            CacheDtype::F16 => x.iter().flat_map(|x| f16::from_f32(*x).to_bits().to_ne_bytes()).collect(),
            CacheDtype::Bf16 => x.iter().flat_map(|x| bf16::from_f32(*x).to_bits().to_ne_bytes()).collect(),
            CacheDtype::Int8 => x.iter().map(|x| (x / scale).round_ties_even() as i8 as u8).collect(),
            CacheDtype::Fp8 => x.iter().map(|x| to_e4m3(x / scale)).collect(),
            CacheDtype::F32 => panic!("no cache is of it"),
        };
        let at = self.elements(slot);
        self.bytes[at].copy_from_slice(&bytes);
        if let Some(at) = self.scale(slot) {
            self.bytes[at].copy_from_slice(bytes_of(&[scale]));
        }
    }
}

/// From one block to the next: longer ones begin at multiples of 16.
pub fn stride(shape: &CacheShape) -> usize {
    match shape.kv_heads * shape.part_bytes() {
        own if own < shape.least_bytes => shape.least_bytes.next_multiple_of(16),
        own => own,
    }
}

/// The formula of the format: (-1)^s 2^(e - 7) (1 + m / 8), without the 1 where e is nothing.
pub fn e4m3(byte: u8) -> f32 {
    let (sign, exponent, mantissa) = (byte >> 7, i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let value = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if sign == 1 { -value } else { value }
}

/// The nearest number there is; of two the one whose code is even.
pub fn to_e4m3(x: f32) -> u8 {
    static NUMBERS: LazyLock<Vec<f32>> = LazyLock::new(|| (0..0x7f).map(e4m3).collect());
    let above = NUMBERS.partition_point(|number| *number < x.abs()).min(0x7e);
    let far = |code: usize| (f64::from(NUMBERS[code]) - f64::from(x.abs())).abs();
    let nearest = [above.saturating_sub(1), above]
        .into_iter()
        .min_by(|a, b| far(*a).total_cmp(&far(*b)).then((a & 1).cmp(&(b & 1))));
    nearest.expect("two of them") as u8 | if x.is_sign_negative() { 0x80 } else { 0 }
}
