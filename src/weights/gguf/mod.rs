//! The GGUF reader. A file is mapped, its header is walked once with every count, length, offset and
//! type checked against the bytes that are there, and after that nothing can go out of bounds.
//!
//! Not here: what the keys mean (`model` and `text`), and writing beyond what tests need
//! ([`GgufWriter`](super::GgufWriter)).
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod bytes;
mod cursor;
mod error;
mod file;
mod fingerprint;
mod getters;
mod ggml;
mod parse;
mod split;
mod tensor;
mod value;

pub use error::GgufError;
pub use file::Gguf;
pub use ggml::GgmlType;
pub use tensor::{Tensor, TensorInfo, UnsupportedTensor};
pub use value::{Array, Value, ValueType};
