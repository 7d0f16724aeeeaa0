//! Speed measurements and their report: what `llama-bench` measures, through the same [`Handle`] that
//! the screen and scripts use, so that scheduling, sampling and detokenizing are in the figures.
//!
//! - `plan`: flags -> the tests, and what they need of the engine
//! - `measure`: a test -> tokens per second, once for each repetition
//! - `timeline`: when which token came -> a rate
//! - `report`: table and JSON
//!
//! [`Handle`]: crate::protocol::Handle

mod measure;
mod plan;
mod report;
mod timeline;

pub use measure::{measure, wait_until_ready};
pub use plan::{Kind, Needs, Test, needs, tests};
pub use report::{Report, Row};
