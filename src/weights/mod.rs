//! What is on disk: GGUF files, quantised blocks, the model catalogue and fetching.
//!
//! Not here: what a model's keys and tensors mean (`model`, `text`), and computing with blocks (`compute`).

mod catalogue;
mod decode;
mod digest;
mod dirs;
mod fetch;
mod format;
mod gguf;
mod names;
mod writer;

pub use catalogue::{Catalogue, CatalogueError, CatalogueFile, CatalogueModel, Source, Wheel};
pub use decode::decode;
pub use digest::{BadDigest, Digest};
pub use dirs::ModelDirs;
pub use fetch::{
    FetchError, FetchOptions, Phase, Progress, ProxySettings, SourceError, fetch, part_path, remove,
};
pub use format::BlockFormat;
pub use gguf::{Array, GgmlType, Gguf, GgufError, Tensor, TensorInfo, UnsupportedTensor, Value, ValueType};
pub use names::BadName;
pub use writer::{GgufWriter, MetaValue};
