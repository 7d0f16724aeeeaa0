//! Recording an engine's conversation with its front end, and playing it again without the engine.
//!
//! Both stand at the [`Handle`](crate::protocol::Handle) line, so that neither knows what kind of engine
//! is behind it: [`record`] passes everything through and writes it down, [`play`] is a `Handle` over a
//! file. The file is JSON, a line at a time; docs/trace.md describes it for other programs.
//!
//! | file | what stands there |
//! |---|---|
//! | `format`, `events`, `waterfall` | the lines, and how they look in JSON |
//! | `mirror` | the engine's state as the lines tell it; both sides keep one, so lines hold changes only |
//! | `recorder` | a `Handle` in front of another, and the thread that writes |
//! | `read` | a file to its lines; damage, and what a later version added |
//! | `timeline` | lines to moments: each step put beside the events that came of it |
//! | `playback` | where the replay is: forwards, backwards, faster. No thread, no clock |
//! | `player` | the thread behind a replay's `Handle` |

mod events;
mod format;
mod mirror;
mod playback;
mod player;
mod read;
mod recorder;
mod timeline;
mod waterfall;

pub use format::VERSION;
pub use player::{ReplayOptions, open, play};
pub use read::TraceError;
pub use recorder::{Recording, create, record};
