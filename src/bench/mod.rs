//! Speed measurements and their report: what `llama-bench` measures, through the same [`Handle`] that
//! the screen and scripts use, so that scheduling, sampling and detokenizing are in the figures.
//!
//! - `plan`: flags -> the tests, and what they need of the engine
//! - `measure`: a test -> tokens per second, once for each repetition
//! - `timeline`: when which token came -> a rate
//! - `steps`: records of the steps behind it -> bytes and operations
//! - `profile`: the same -> where their time went
//! - `limits`: what the machine can do at most
//! - `peer`: another program's figures for the same tests, in turn with ours
//! - `report`: table and JSON
//! - `load`: requests of mixed lengths
//! - `prefix`: time to first token of a prompt that is computed, found or restored
//! - `gpu`: each kernel of a GPU alone, beside what the device can do
//! - `summary`: the short table of `benches/gpu.sh`
//! - `compare`: the same load under two settings, in turn
//! - `ratio`: the table and JSON of that
//!
//! [`Handle`]: crate::protocol::Handle

mod compare;
mod gpu;
mod limits;
mod load;
mod measure;
mod peer;
mod plan;
mod prefix;
mod profile;
mod ratio;
mod report;
mod steps;
mod summary;
mod timeline;

pub use compare::{Sample, compare};
pub use gpu::{GpuCeilings, GpuKernel, GpuReport, Measured as KernelTime, Work as KernelWork};
pub use limits::{Limits, ModelRead, measured_by_engine};
pub use load::Load;
pub use measure::{Bench, Limit, Measured, PerSecond, wait_until_ready};
pub use peer::{Paired, Peer, Rounds};
pub use plan::{Kind, Needs, Test, needs, tests};
pub use prefix::{Restored, compute_and_find, print_restored, prompts, restore, shut_down};
pub use profile::{Profile, ProfileRow};
pub use ratio::{Ratio, Times};
pub use report::{Report, Row};
pub use steps::Timed;
pub use summary::{File, print_summary};
