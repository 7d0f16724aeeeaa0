//! What is on disk: GGUF files, quantised blocks, the model catalogue and fetching.

mod format;

pub use format::BlockFormat;
