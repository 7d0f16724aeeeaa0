//! What every layer may lean on: time, memory, small numbers, small words. No policy, and no I/O but
//! a look at what the system says of memory and cores.

mod clock;
mod cores;
mod glob;
mod histogram;
mod memory;
mod nearest;
mod random;
mod ring;
mod texts;
mod visible;
mod wide;

pub use clock::Clock;
pub use cores::Cores;
pub use glob::glob;
pub use histogram::Summary;
pub use memory::Memory;
pub use nearest::nearest;
pub use random::{SplitMix, mix};
pub use ring::Ring;
pub use texts::Texts;
pub use visible::{escape, is_dangerous, visible};
pub(crate) use wide::wide;
