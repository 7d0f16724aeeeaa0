//! Speed measurements and their report: what `llama-bench` measures, through the same [`Handle`] that
//! the screen and scripts use, so that scheduling, sampling and detokenizing are in the figures.
//!
//! - `plan`: flags -> the tests, and what they need of the engine
//! - `measure`: a test -> tokens per second, once for each repetition
//! - `timeline`: when which token came -> a rate
//! - `report`: table and JSON
//! - `load`: requests of mixed lengths
//! - `prefix`: time to first token of a prompt that is computed, found or restored
//! - `compare`: the same load under two settings, in turn
//! - `ratio`: the table and JSON of that
//!
//! [`Handle`]: crate::protocol::Handle

mod compare;
mod load;
mod measure;
mod plan;
mod prefix;
mod ratio;
mod report;
mod timeline;

pub use compare::{Sample, compare};
pub use load::Load;
pub use measure::{measure, wait_until_ready};
pub use plan::{Kind, Needs, Test, needs, tests};
pub use prefix::{Restored, compute_and_find, print_restored, prompts, restore, shut_down};
pub use ratio::Ratio;
pub use report::{Report, Row};
