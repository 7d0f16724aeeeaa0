//! An NVIDIA GPU: the same operations as on the CPU, by our own kernels (`kernels/*.cu`).
//!
//! | file | what stands there |
//! |---|---|
//! | `open` | whether there is a device, and why not |
//! | `gpu` | the driver: memory, launches, streams, graphs |
//! | `kernels` | modules of PTX and their entries |
//! | `embed` | token embeddings |
//! | `gemm` | matrices times more rows than a few, on tensor cores |
//! | `gemv` | matrices times one to eight rows |
//! | `load` | from a file to the device |
//! | `rows` | rows of activations made ready, added, gathered |
//! | `weights` | matrices: a file's blocks as planes |
//!
//! Nothing here is linked against CUDA: the driver is opened at run time. Tests run everything on a
//! stand-in for it (`kernels/emulator`).

pub mod embed;
pub mod gemm;
pub mod gemv;
mod gpu;
mod kernels;
mod load;
mod open;
pub mod rows;
pub mod weights;

pub use gpu::{Arg, Event, Facts, Gpu, Graph, Memory, Pinned, Shape, modules};
pub use load::Staging;
pub use open::{devices, open};
