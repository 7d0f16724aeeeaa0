//! Intake, scheduler, the step loop, output: requests in, tokens out, one batch a step.
//!
//! | file | what stands there |
//! |---|---|
//! | `step` | [`Engine`] and its loop: schedule, launch, sample, account. Read this first |
//! | `sequence` | one continuation: its tokens, and how many of them are computed |
//! | `scheduler`, `plan` | who gets how many tokens in a step, and why others do not |
//! | `account` | what a step's samples mean for its sequences; forks |
//! | `output`, `stream` | tokens to events; the only place that ends a choice |
//! | `control` | commands between steps |
//! | `breakpoints` | whether a step met one, and why |
//! | `intake` | a request to a sequence, or a refusal |
//! | `stats`, `view` | step records, counters, the snapshot |
//! | `host` | the threads, and what happens when a step fails |

mod account;
mod breakpoints;
mod control;
mod host;
mod intake;
mod output;
mod plan;
mod scheduler;
mod sequence;
mod stats;
mod step;
mod stream;
mod view;

pub use breakpoints::{Breakpoints, Drawn, Seen};
pub use host::{Opened, spawn};
pub use intake::{Accepted, Intake, Work};
pub use step::Engine;
