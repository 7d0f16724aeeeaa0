//! The door to a GPU, the same in every build: which there are, and why none is used.

use super::Result;

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
    use super::{Found, Gpu, Result};
    use crate::compute::cuda;

    pub fn open(ordinal: usize) -> Result<Gpu> {
        cuda::Cuda::new(cuda::open(ordinal)?)
    }

    pub fn all() -> Result<Vec<Result<Found>>> {
        Ok((0..cuda::devices()?).map(found).collect())
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
    use super::{Found, Gpu, Result};
    use crate::compute::DeviceError;

    pub fn open(_: usize) -> Result<Gpu> {
        Err(DeviceError("built without CUDA".into()))
    }

    pub fn all() -> Result<Vec<Result<Found>>> {
        Err(DeviceError("built without CUDA".into()))
    }
}
