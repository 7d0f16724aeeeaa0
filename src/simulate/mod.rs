//! The engine without a model: the real scheduler, cache and output over a runner that draws tokens
//! from a hash and moves a virtual clock by what a step would cost. Days of traffic in seconds.
//!
//! | file | what stands there |
//! |---|---|
//! | `runner` | [`Simulated`], and the [`Costs`] of a step |

mod runner;

pub use runner::{Costs, Simulated};
