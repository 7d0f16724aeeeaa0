//! The engine's behaviour, step by step, on the Scripted runner and a virtual clock.
//!
//! The runner checks every step that every row attends to exactly its own past; the harness checks
//! after every step that no block was lost or owned twice. Test names that begin with a letter and
//! a number name a row of the public bug log.

#![allow(clippy::unwrap_used)]

mod answers;
mod batching;
mod beams;
mod branches;
mod breakpoints;
mod cache;
mod calls;
mod comparing;
mod control;
#[path = "../support/cpu.rs"]
mod cpu;
mod endings;
mod groups;
mod guided;
mod harness;
mod lost;
mod overlap;
mod policies;
mod priority;
mod questions;
mod real;
mod records;
mod rope;
mod sampling;
mod scheduling;
mod states;
mod threads;
mod tiers;
mod traces;
