//! The screen: what is typed becomes commands, what the engine reports becomes a picture.
//!
//! One way round: `terminal` reads a key, `keymap` names the [`Action`], `update` changes [`App`]
//! and returns [`Effect`]s, `run` carries those out, `view` draws `App`. Neither `update` nor `view`
//! does any I/O, so tests drive the screen with keys and events and look at the picture.
//!
//! Not here: models, files, devices. What the screen needs of those comes through [`Models`].

mod app;
mod bindings;
mod branches;
mod calls;
mod changes;
mod chat;
mod chips;
mod completion;
mod composer;
mod counting;
mod drawn;
mod editor;
mod errands;
mod files;
mod find;
mod format;
mod history;
mod hits;
mod inline;
mod kept;
mod keyfile;
mod keymap;
mod kv_panel;
mod layout;
mod looked;
mod meter;
mod outlet;
mod overlay;
mod own;
mod panels;
mod picker;
mod place;
mod pointer;
mod port;
mod presets;
mod reading;
mod recall;
mod replies;
mod roster;
mod run;
mod sanitize;
mod saved;
mod selection;
mod sessions;
mod signals;
mod slash;
mod stored;
mod tabs;
mod terminal;
mod theme;
mod traces;
mod transcript;
mod tree;
mod trial;
mod update;
mod view;

pub use app::{App, Effect, Focus, Message, ModelState};
pub use files::{FileEntry, Unread};
pub use keymap::{Action, Keymap};
pub use kv_panel::BlockColours;
pub use layout::{Arrangement, Layout, Side};
pub use overlay::Overlay;
pub use panels::{Panel, SizeClass};
pub use picker::{Choice, Picker};
pub use port::{
    Ended, FetchEvent, MemoryNeed, ModelChoice, Models, PresetChoice, ScreenOptions, StartSettings,
};
pub use run::run;
pub use sessions::{SessionList, SessionOptions};
pub use slash::Slash;
pub use theme::{Depth, Role, Theme};
pub use update::{resume, update};
pub use view::draw;
