//! An NVIDIA GPU: the same operations as on the CPU, by our own kernels (`kernels/*.cu`).
//!
//! | file | what stands there |
//! |---|---|
//! | `open` | whether there is a device, and why not |
//! | `gpu` | the driver: launches, copies, streams, graphs |
//! | `memory` | what is allocated, on the device and on the host |
//! | `kernels` | modules of PTX and their entries |
//! | `graphs` | passes that are queued as one graph |
//! | `limits` | what the device can do at most |
//! | `alone` | each kernel by itself, at the shapes of a model |
//! | `backend` | [`Cuda`]: the operations of a decoder |
//! | `matmul` | which kernel multiplies |
//! | `attention` | a layer's attention |
//! | `elements` | values one by one, and columns of rows |
//! | `embed` | token embeddings, and those of positions |
//! | `experts` | a layer's mixture of experts |
//! | `gemv` | matrices times one to eight rows |
//! | `gemm` | matrices times more rows than a few, on tensor cores |
//! | `load` | from a file to the device |
//! | `prefill` | attention of several rows of a sequence |
//! | `draw` | tokens drawn from rows of logits |
//! | `lora` | adapters of several ranks in one batch |
//! | `moe` | mixtures of experts: routing, sorting, products, sum |
//! | `rows` | rows of activations made ready, added, gathered |
//! | `recurrent` | layers that keep a state |
//! | `kv` | keys and values: made ready, stored, copied by blocks |
//! | `decode` | attention of single new tokens |
//! | `step` | one step's work as the kernels read it |
//! | `times` | how long kernels ran, of some passes |
//! | `weights` | matrices: a file's blocks as planes |
//!
//! Nothing here is linked against CUDA: the driver is opened at run time. Tests run everything on a
//! stand-in for it (`kernels/emulator`).

mod alone;
mod attention;
mod backend;
pub mod decode;
pub mod draw;
pub mod elements;
pub mod embed;
mod experts;
pub mod gemm;
pub mod gemv;
mod gpu;
mod graphs;
mod kernels;
pub mod kv;
pub mod limits;
mod load;
pub mod lora;
pub mod matmul;
mod memory;
pub mod moe;
mod open;
pub mod prefill;
mod recurrent;
pub mod rows;
pub mod step;
mod times;
pub mod weights;

pub(in crate::compute) use alone::{Sizes, cases, measure as measure_alone};
pub use backend::Cuda;
pub use gpu::{Arg, Event, Facts, Gpu, Graph, Shape, modules};
pub use load::Staging;
pub use memory::{Memory, Pinned};
pub use open::{devices, open};
