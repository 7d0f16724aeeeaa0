//! The door to a GPU, the same in every build: which there are, and why none is used.

use super::{Amount, Result};
use std::time::{Duration, Instant};

/// What [`open`] opens.
#[cfg(feature = "cuda")]
pub type Gpu = super::cuda::Cuda;
/// What [`open`] would open: nobody has one in a build without CUDA, and any device's type will do.
#[cfg(not(feature = "cuda"))]
pub type Gpu = super::cpu::Cpu;

/// A GPU as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub ordinal: usize,
    pub name: String,
    /// 8.0 is 80.
    pub capability: u32,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// The newest CUDA that its driver knows: 12.4 is 12040.
    pub driver: u32,
}

/// What a GPU can do at most, per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// As people know it.
    pub device: String,
    pub multiprocessors: usize,
    /// Bytes read; and read and written by a copy, both counted.
    pub read: f64,
    pub copy: f64,
    /// Multiplications and additions.
    pub f16: f64,
    pub bf16: f64,
    pub int8: f64,
    pub f32: f64,
}

/// Of the [`Ceilings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    F16,
    Bf16,
    Int8,
    F32,
}

/// A kernel, or the few that do one thing, with nothing else on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    pub kernel: String,
    pub shape: String,
    /// What has to be read, and computed at this rate.
    pub work: Amount,
    pub rate: Rate,
    /// Or what went wrong.
    pub time: Result<Duration>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Small shapes, once each: to see that everything runs.
    pub tiny: bool,
    /// What is not begun by then is left out, and said to be.
    pub most: Duration,
}

/// Measures the ceilings, then every kernel alone; `on` hears of each.
///
/// # Errors
/// The GPU cannot be used, or its ceilings not be measured. What goes wrong with one kernel is told with it.
pub fn measure(ordinal: usize, extent: Extent, on: &mut dyn FnMut(&Ceilings, Option<Alone>)) -> Result<()> {
    doors::measure(ordinal, extent, Instant::now(), on)
}

/// Opens the GPU of this number.
///
/// # Errors
/// Why it cannot be used.
pub fn open(ordinal: usize) -> Result<Gpu> {
    doors::open(ordinal)
}

/// Every GPU, or why one cannot be used.
///
/// # Errors
/// Why there is none.
pub fn all() -> Result<Vec<Result<Found>>> {
    doors::all()
}

#[cfg(feature = "cuda")]
mod doors {
    use super::{Alone, Ceilings, Extent, Found, Gpu, Result};
    use crate::compute::{DeviceError, cuda};
    use std::time::{Duration, Instant};

    pub fn open(ordinal: usize) -> Result<Gpu> {
        cuda::Cuda::new(cuda::open(ordinal)?)
    }

    pub fn all() -> Result<Vec<Result<Found>>> {
        Ok((0..cuda::devices()?).map(found).collect())
    }

    pub fn measure(
        ordinal: usize,
        extent: Extent,
        begun: Instant,
        on: &mut dyn FnMut(&Ceilings, Option<Alone>),
    ) -> Result<()> {
        let gpu = cuda::open(ordinal)?;
        let cuda::limits::Found { read, copy, f16, bf16, int8, f32 } =
            cuda::limits::measure(&gpu, extent.tiny)?;
        let facts = gpu.facts();
        let (device, multiprocessors) = (facts.name.clone(), facts.multiprocessors as usize);
        let ceilings = Ceilings { device, multiprocessors, read, copy, f16, bf16, int8, f32 };
        on(&ceilings, None);
        let sizes = if extent.tiny { cuda::Sizes::TINY } else { cuda::Sizes::LLAMA_8B };
        let cases = cuda::cases(&sizes);
        let mut left = cases.len() as u32;
        for case in cases {
            // Most of a case is making its memory ready.
            let share = extent.most.saturating_sub(begun.elapsed()) / left / 2;
            let budget = if extent.tiny { Duration::ZERO } else { share.min(Duration::from_millis(500)) };
            left -= 1;
            let alone = match begun.elapsed() < extent.most {
                true => cuda::measure_alone(&gpu, &sizes, case, budget),
                false => case.left_out(&sizes, DeviceError("no time was left for it".into())),
            };
            on(&ceilings, Some(alone));
        }
        Ok(())
    }

    fn found(ordinal: usize) -> Result<Found> {
        let gpu = cuda::open(ordinal)?;
        let (free, total) = gpu.memory()?;
        let cuda::Facts { name, capability, driver, .. } = gpu.facts().clone();
        Ok(Found { ordinal, name, capability, free_bytes: free as u64, total_bytes: total as u64, driver })
    }
}

#[cfg(not(feature = "cuda"))]
mod doors {
    use super::{Alone, Ceilings, Extent, Found, Gpu, Result};
    use crate::compute::DeviceError;
    use std::time::Instant;

    pub fn open(_: usize) -> Result<Gpu> {
        Err(DeviceError("built without CUDA".into()))
    }

    pub fn all() -> Result<Vec<Result<Found>>> {
        Err(DeviceError("built without CUDA".into()))
    }

    pub fn measure(
        _: usize,
        _: Extent,
        _: Instant,
        _: &mut dyn FnMut(&Ceilings, Option<Alone>),
    ) -> Result<()> {
        Err(DeviceError("built without CUDA".into()))
    }
}
