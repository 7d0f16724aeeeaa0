//! What every layer may lean on: time and small numbers. No I/O, no policy.

mod clock;
mod histogram;
mod ring;

pub use clock::Clock;
pub use histogram::Summary;
pub use ring::Ring;
