//! The operations a decoder needs, on a device.
//!
//! A model is written in about a dozen fused operations over buffers that are allocated once; what
//! an operation reads and writes is in its signature, and shapes are `[rows, columns]`, a row a
//! token. [`cpu::Cpu`] is one device, `cuda::Cuda` the other; [`Profiled`] is any device with a clock.
//! Operations are queued in order; only [`Backend::download`] promises that they are done.
//!
//! A pass is told as a whole before its first operation ([`Backend::begin`]) and ended after its last
//! ([`Backend::end`]): a device with memory of its own gets all numbers of it in one copy, and may have
//! recorded the same operations before.

mod attention;
mod backend;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod draw;
mod experts;
pub mod gpu;
mod need;
mod operations;
mod profiled;
mod recurrent;
mod rope;
mod step;

pub use attention::{AttentionSpec, CacheDtype, CacheShape, HeadNorm, Over};
pub use backend::Backend;
pub use experts::{ExpertGroups, Experts, Routing, Score};
pub use need::{MixtureShape, Need};
pub use operations::{Activation, By, Columns, Gate, HeadColumns, Norm, NormKind, Write};
pub use profiled::{Amount, Profiled, Spent};
pub use recurrent::{Convolution, DeltaRule, Scan, State};
pub use rope::{RopeStyle, RopeTable};
pub use step::{Capacity, Span, Step};

use crate::weights::BlockFormat;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The device failed: what was tried and what it said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

pub type Result<T> = std::result::Result<T, DeviceError>;

/// Where a model runs, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// `CPU (2 threads, AVX2)`
    pub name: String,
}

/// What a device can do at most, per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// What it was measured on.
    pub units: Units,
    /// Bytes read from memory.
    pub memory_read: f64,
    /// Operations in the products that most weights are multiplied with, and what makes them.
    pub matrix: f64,
    pub matrix_name: String,
    /// Weights in f16 and bf16 are multiplied so as well, not as f32.
    pub halves: bool,
    pub f32: f64,
}

/// Of what a device has many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    Threads(usize),
    Multiprocessors(usize),
}

impl std::fmt::Display for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (n, name) = match self {
            Units::Threads(n) => (n, "thread"),
            Units::Multiprocessors(n) => (n, "multiprocessor"),
        };
        write!(f, "{n} {name}{}", if *n == 1 { "" } else { "s" })
    }
}

/// Measures them on threads of its own, until that is done or it is told to stop.
pub type Meter = Box<dyn FnOnce(Arc<AtomicBool>) -> Result<Limits> + Send>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixSize {
    pub bytes: usize,
    pub weights: usize,
}

impl std::ops::AddAssign for MatrixSize {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.weights += other.weights;
    }
}

/// Loaders ask [`Backend::takes`] first.
fn not_taken(format: BlockFormat) -> ! {
    unreachable!("{} is not a format that this device takes", format.name())
}
