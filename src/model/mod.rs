//! From a batch of token ids to tokens: model families over the operations of `compute`, and the
//! [`Runner`] that the engine drives.
//!
//! A family is one small file in `families` that reads its settings from the checkpoint and builds a stack of
//! `layers`; [`load()`] chooses it by name. [`ModelRunner`] turns batches into
//! passes over that stack; `memory` plans what it may take before it is built. [`Runner`] is the seam:
//! tests and simulations stand behind it too, and [`Threaded`] puts any of them on another thread.

mod batch;
mod closed;
mod config;
pub mod device_draw;
mod facts;
mod families;
mod groups;
mod identity;
mod layers;
mod load;
mod loader;
mod memory;
mod model_runner;
mod quantize;
mod rope;
mod runner;
mod scripted;
mod threaded;

pub use batch::{Batch, BlockCopy, Outputs, Row};
pub use closed::Closed;
pub use facts::{Facts, facts};
pub use families::SUPPORTED;
pub use load::{BLOCK_SIZE, LoadError, LoadOptions, Loaded, Needs, encoded_for, load, needs, plan};
pub use memory::{DoesNotFit, KvPlan};
pub use model_runner::ModelRunner;
pub use quantize::block_format;
pub use rope::RopeLengths;
pub use runner::{DeviceError, Launched, Meter, ModelLimits, Runner, Usage};
pub use scripted::{Fault, Scripted};
pub use threaded::Threaded;
