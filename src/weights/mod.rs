//! What is on disk: models as GGUF files and as folders of hubs, quantised blocks, the catalogue and fetching.
//!
//! Not here: what a model's keys and tensors mean (`model`, `text`), and computing with blocks (`compute`).

mod bytes;
mod catalogue;
mod checkpoint;
mod decode;
mod digest;
mod dirs;
mod encode;
mod fetch;
mod find;
mod format;
mod gguf;
mod hub;
mod list;
mod name_parts;
mod names;
mod quantize;
mod recode;
mod summary;
mod writer;

pub use catalogue::{Catalogue, CatalogueError, CatalogueFile, CatalogueModel, ReasoningHint, Source, Wheel};
pub use checkpoint::{Checkpoint, CheckpointError, Kind, Tensor, TensorInfo, UnsupportedTensor};
pub use decode::decode;
pub use digest::{BadDigest, Digest};
pub use dirs::ModelDirs;
pub use encode::encode;
pub use fetch::{
    FetchError, FetchOptions, Phase, Progress, ProxySettings, Repository, SourceError, fetch,
    fetch_repository, part_path, pip_command, remove,
};
pub use find::{Found, NotFound, Origin, find};
pub use format::BlockFormat;
pub use gguf::{Array, GgmlType, Value, ValueType};
pub use list::{Listed, list};
pub use name_parts::{NamePart, name_parts};
pub use names::BadName;
pub use quantize::{
    FolderFormat, LayerLoss, Losses, QuantizeError, Quantized, TensorLoss, fallback, measure, write_folder,
    write_gguf,
};
pub use recode::Loss;
pub use summary::{FormatShare, Summary};
pub use writer::{GgufWriter, MetaValue};
