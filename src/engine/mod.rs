//! Intake, scheduler, the step loop, output: requests in, tokens out, one batch a step.
//!
//! | file | what stands there |
//! |---|---|
//! | `step` | [`Engine`] and its loop: schedule, launch, sample, account. Read this first |
//! | `sequence`, `sequences` | one continuation: its tokens, and how many of them are computed; all of them |
//! | `scheduler`, `plan` | who gets how many tokens in a step, and why others do not |
//! | `limits`, `queue` | what holds a sequence back; who is looked at first |
//! | `preempt`, `estimate` | who gives way when blocks run out; SGLang's bet on answers' lengths |
//! | `rounds` | several steps for one plan |
//! | `lifecycle` | sequences come, branch and leave between steps |
//! | `overlap` | the next step planned while one runs |
//! | `offload` | host memory and disk for blocks |
//! | `grammars`, `forced` | grammars compiled while their sequences wait, masks; tokens that need no drawing |
//! | `inspect` | a look inside the KV cache |
//! | `kept` | what traced tokens were drawn from, and what other parameters would have drawn |
//! | `fork` | branches of running and finished sequences; what is kept of those that end |
//! | `account` | what a step's samples mean for its sequences |
//! | `output`, `stream` | tokens to events; the only place that ends a choice |
//! | `borders` | where steps end for models with recurrent layers |
//! | `rope` | sequences that outgrow their rotary factors |
//! | `best_of`, `repetition` | which choices are told of many; whether an answer goes round in circles |
//! | `breakpoints`, `debug` | whether a step met a breakpoint, and why; what is looked at for it |
//! | `control` | commands between steps |
//! | `intake`, `phrases` | a request to a sequence, or a refusal; its texts as tokens |
//! | `stats`, `view` | step records, counters, the snapshot |
//! | `meter` | what the device can do, measured beside an idle engine |
//! | `lost` | a device that failed is opened again |
//! | `host` | the threads, and what happens when a step fails |

mod account;
mod beam;
mod best_of;
mod borders;
mod breakpoints;
mod control;
mod debug;
mod estimate;
mod forced;
mod fork;
mod grammars;
mod host;
mod inspect;
mod intake;
mod kept;
mod lifecycle;
mod limits;
mod lost;
mod meter;
mod offload;
mod output;
mod overlap;
mod phrases;
mod plan;
mod preempt;
mod queue;
mod repetition;
mod rope;
mod rounds;
mod scheduler;
mod sequence;
mod sequences;
mod stats;
mod step;
mod stream;
mod view;

pub use breakpoints::{Breakpoints, Drawn, Seen};
pub use host::{Opened, spawn};
pub use intake::{Accepted, Intake, Lengths, Work};
pub use plan::Plan;
pub use scheduler::{Bounds, Scheduler};
pub use sequence::Sequence;
pub use step::Engine;
