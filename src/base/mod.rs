//! What every layer may lean on: time, small numbers, small words. No I/O, no policy.

mod clock;
mod histogram;
mod nearest;
mod ring;
mod visible;

pub use clock::Clock;
pub use histogram::Summary;
pub use nearest::nearest;
pub use ring::Ring;
pub use visible::{escape, is_dangerous, visible};
