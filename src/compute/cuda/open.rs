//! Whether there is a GPU to run on, and if not, why not: one line that says what would help.

use super::gpu::{Gpu, driver_version, said};
use crate::compute::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

/// Tensor-core instructions and asynchronous copies that the kernels use.
const LEAST_CAPABILITY: u32 = 80;
/// The first that reads the kernels' PTX (8.0).
const LEAST_DRIVER: u32 = 12000;

/// How many devices there are.
///
/// # Errors
/// Why none can be used: no driver, no device, no permission, a driver that is too old.
pub fn devices() -> Result<usize, DeviceError> {
    let no = |why: String| Err(DeviceError(why));
    // SAFETY: it only looks for the library. Without this question any other call would panic.
    if !unsafe { sys::is_culib_present() } {
        return no("no NVIDIA driver (libcuda) is installed".into());
    }
    if let Err(error) = result::init() {
        return no(why_not(&error));
    }
    match driver_version() {
        Ok(version) if version < LEAST_DRIVER => {
            return no(format!(
                "the NVIDIA driver is too old: it knows CUDA {}.{}, and 12.0 (driver R525) is needed",
                version / 1000,
                version % 1000 / 10
            ));
        }
        Ok(_) => {}
        Err(error) => return no(why_not(&error)),
    }
    match result::device::get_count() {
        Ok(0) => no("there is no CUDA device".into()),
        Ok(n) => Ok(n as usize),
        Err(error) => no(why_not(&error)),
    }
}

fn why_not(error: &DriverError) -> String {
    match error.0 {
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "there is no CUDA device (or CUDA_VISIBLE_DEVICES hides it)".to_owned()
        }
        CUresult::CUDA_ERROR_NOT_PERMITTED | CUresult::CUDA_ERROR_OPERATING_SYSTEM => {
            format!("no permission to use the NVIDIA device (/dev/nvidia*): {}", said(error))
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => format!(
            "the NVIDIA kernel module and libcuda are of different versions, as after an update: \
             restart the machine: {}",
            said(error)
        ),
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            format!("the CUDA compatibility package does not support this device: {}", said(error))
        }
        _ => format!("the NVIDIA driver does not start: {}", said(error)),
    }
}

/// Opens the device of this number.
///
/// # Errors
/// Why it cannot be used.
pub fn open(ordinal: usize) -> Result<Gpu, DeviceError> {
    let devices = devices()?;
    if ordinal >= devices {
        let there = if devices == 1 { "is 1 device".to_owned() } else { format!("are {devices} devices") };
        return Err(DeviceError(format!("there is no CUDA device {ordinal}: there {there}, counted from 0")));
    }
    let gpu = Gpu::open(ordinal)?;
    let facts = &gpu.facts;
    if facts.capability < LEAST_CAPABILITY {
        return Err(DeviceError(format!(
            "CUDA device {ordinal} ({}) has compute capability {}.{}; 8.0 (Ampere) or later is needed",
            facts.name,
            facts.capability / 10,
            facts.capability % 10
        )));
    }
    Ok(gpu)
}
