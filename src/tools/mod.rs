//! What a model may ask to have called: commands declared in a TOML file, and the tools of MCP servers.
//!
//! [`open`] starts the keeper on a thread of its own; a front end talks to it through a
//! [`ToolHandle`](crate::protocol::ToolHandle). The keeper decides nothing: it says what a call would
//! do, and does it when it is told to. Asking the person is the front end's part.
//!
//! - `declare`: the TOML file, strictly
//! - `schema`: the arguments' JSON Schema, short and long, and values against it
//! - `command`: placeholders -> the arguments of a program, never through a shell
//! - `process`: a process group that ends with its call; bounded output
//! - `mcp`: a server over stdio, through the official SDK
//! - `prepared`: a call that can be run, and what it is shown as
//! - `keeper`: the loop that holds them together

mod command;
mod declare;
mod keeper;
mod mcp;
mod prepared;
mod process;
mod schema;

pub use declare::{Declared, LocalTool, McpServer, ToolsError, declared};
pub use keeper::open;
