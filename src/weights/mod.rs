//! What is on disk: GGUF files, quantised blocks, the model catalogue and fetching.

mod decode;
mod format;

pub use decode::decode;
pub use format::BlockFormat;
