//! What is on disk: GGUF files, quantised blocks, the model catalogue and fetching.

mod decode;
mod format;
mod gguf;
mod writer;

pub use decode::decode;
pub use format::BlockFormat;
pub use gguf::{Array, GgmlType, Gguf, GgufError, Tensor, TensorInfo, UnsupportedTensor, Value, ValueType};
pub use writer::{GgufWriter, MetaValue};
