//! An NVIDIA GPU: the same operations as on the CPU, by our own kernels (`kernels/*.cu`).
//!
//! | file | what stands there |
//! |---|---|
//! | `open` | whether there is a device, and why not |
//! | `gpu` | the driver: memory, launches, streams, graphs |
//! | `kernels` | modules of PTX and their entries |
//! | `rows` | rows of activations made ready, added, gathered |
//! | `kv` | keys and values: made ready, stored, copied by blocks |
//! | `decode` | attention of single new tokens |
//! | `prefill` | attention of several rows of a sequence |
//! | `step` | one step's work as the kernels read it |
//!
//! Nothing here is linked against CUDA: the driver is opened at run time. Tests run everything on a
//! stand-in for it (`kernels/emulator`).

pub mod decode;
mod gpu;
mod kernels;
pub mod kv;
mod open;
pub mod prefill;
pub mod rows;
pub mod step;

pub use gpu::{Arg, Facts, Gpu, Graph, Memory, Pinned, Shape, modules};
pub use open::{devices, open};
