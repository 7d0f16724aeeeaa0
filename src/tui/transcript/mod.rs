//! Text on its way to the transcript: growing markdown documents, wrapped and cached.
//!
//! Here: [`Document`] (an answer as it streams), [`wrap`](wrap::wrap), code highlighting. Not here:
//! which answers there are (`chat`) and where they are drawn (`view`).

mod code;
mod document;
mod fence;
mod look;
mod markdown;
mod table;
pub mod wrap;

pub use code::warm_up;
pub use document::Document;
#[cfg(test)]
pub use document::RENDERED;
pub use fence::code_blocks;
pub use look::Look;
