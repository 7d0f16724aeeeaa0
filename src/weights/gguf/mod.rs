//! The GGUF reader. A file is mapped, its header is walked once with every count, length, offset and
//! type checked against the bytes that are there, and after that nothing can go out of bounds.
//!
//! Not here: what the keys mean (`model` and `text`), and writing beyond what tests need
//! ([`GgufWriter`](super::GgufWriter)).
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod cursor;
mod described;
mod ggml;
mod join;
mod parse;
mod read;
mod split;
mod value;

pub use ggml::GgmlType;
pub(super) use read::read;
pub use value::{Array, Value, ValueType};
