//! What is on disk: GGUF files, quantised blocks, the model catalogue and fetching.

mod catalogue;
mod decode;
mod digest;
mod format;
mod gguf;
mod names;
mod writer;

pub use catalogue::{Catalogue, CatalogueError, CatalogueFile, CatalogueModel, Source, Wheel};
pub use decode::decode;
pub use digest::{BadDigest, Digest};
pub use format::BlockFormat;
pub use gguf::{Array, GgmlType, Gguf, GgufError, Tensor, TensorInfo, UnsupportedTensor, Value, ValueType};
pub use names::BadName;
pub use writer::{GgufWriter, MetaValue};
