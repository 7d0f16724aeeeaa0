//! What lies over everything and takes the keys while it is open.

use super::picker::Picker;
use super::sessions::SessionList;

pub enum Overlay {
    Help {
        /// First line shown.
        scroll: usize,
    },
    Picker(Box<Picker>),
    Sessions(Box<SessionList>),
}
