//! Conversations on disk: saved as they happen, found again, exported and imported.
//!
//! - `keeper`: the thread that saves, behind a [`SessionHandle`](crate::protocol::SessionHandle)
//! - `store`: sessions, turns, answers and search in one SQLite file; `schema`: the tables and the way to
//!   them; `damage`: what becomes of a file that cannot be read
//! - `lock`: which program has a session open
//! - `markdown`, `json`: the two forms outside; `messages`: a plain list of messages -> turns
//!
//! Not here: the chat that is being saved (`tui`), and how the list looks (`tui`, `script`).

mod damage;
mod json;
mod keeper;
mod lock;
mod markdown;
mod messages;
mod schema;
mod store;
mod transfer;

pub use keeper::open;
pub use lock::is_free;
pub use store::{Store, StoreError};
pub use transfer::{TransferError, export, import, text};
