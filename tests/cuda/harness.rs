//! A device for a test, in every order that threads may take turns in.

use cuda_emulator::Order;
use glassbox::compute::cuda::{Gpu, Memory, open};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Threads first to last, last to first, at random; and once with everything queued until it is waited
/// for.
const ORDERS: [(Order, bool); 4] =
    [(Order::Forward, false), (Order::Reverse, false), (Order::Random(7), false), (Order::Forward, true)];

/// One test at a time has the device: its orders are the process's.
pub struct Device {
    _alone: MutexGuard<'static, ()>,
}

/// `None` where there is nothing to run on, which is said.
pub fn device() -> Option<Device> {
    static ONE: Mutex<()> = Mutex::new(());
    static THERE: OnceLock<bool> = OnceLock::new();
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let there = THERE.get_or_init(|| on_gpu() || cuda_emulator::install());
    if !there {
        eprintln!("skipped: no C++ compiler, and so no emulator for the kernels");
    }
    there.then_some(Device { _alone: guard })
}

pub fn on_gpu() -> bool {
    std::env::var_os("TEST_ON_GPU").is_some()
}

impl Device {
    pub fn gpu(&self) -> Gpu {
        open(0).unwrap()
    }
}

/// Runs a test on a fresh device in every order; on a GPU once.
pub fn in_every_order(test: impl Fn(&Gpu)) {
    let Some(device) = device() else { return };
    if on_gpu() {
        return test(&device.gpu());
    }
    for (order, lazy) in ORDERS {
        cuda_emulator::order(order);
        cuda_emulator::lazy(lazy);
        test(&device.gpu());
    }
    cuda_emulator::order(Order::Forward);
    cuda_emulator::lazy(false);
}

/// The same numbers every time.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// In [0, n).
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.bits()) * n as u64) >> 32) as usize
    }

    /// In [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

pub fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: plain numbers, read as their bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// On the device, as many bytes and no more: the page behind is not ours.
pub fn put<T: Copy>(gpu: &Gpu, values: &[T]) -> Memory {
    let memory = gpu.alloc(size_of_val(values), "a test").unwrap();
    gpu.write(memory.at(0), bytes_of(values)).unwrap();
    memory
}

/// Room for `len` values; the emulator fills it with NaN.
pub fn room<T>(gpu: &Gpu, len: usize) -> Memory {
    gpu.alloc(len * size_of::<T>(), "a test").unwrap()
}

pub fn get<T: Copy + Default>(gpu: &Gpu, memory: &Memory, len: usize) -> Vec<T> {
    let mut values = vec![T::default(); len];
    // SAFETY: plain numbers, written as their bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), len * size_of::<T>()) };
    gpu.read(bytes, memory.at(0)).unwrap();
    values
}

/// Every value within `tolerance` of 1 + |wanted|; what is no number never is. Says the worst.
#[track_caller]
pub fn close(what: &str, got: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let off = |(got, wanted): (&f32, &f32)| match (got - wanted).abs() / (1.0 + wanted.abs()) {
        off if off.is_nan() && got.to_bits() != wanted.to_bits() => f32::INFINITY,
        off if off.is_nan() => 0.0,
        off => off,
    };
    let worst = got.iter().zip(wanted).map(off).enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((at, off)) = worst {
        assert!(off <= tolerance, "{what}: {off} at {at}: {} for {}", got[at], wanted[at]);
    }
}
