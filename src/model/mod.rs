//! From a batch of token ids to tokens: model families over the operations of `compute`, and the
//! [`Runner`] that the engine drives.

mod batch;
mod runner;
mod scripted;

pub use batch::{Batch, BlockCopy, Outputs, Row};
pub use runner::{DeviceError, Launched, ModelLimits, Runner, Usage};
pub use scripted::{Fault, Scripted};
