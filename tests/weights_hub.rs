//! Hub folders: opened, named, and equal to what lies in their files; damaged ones refused.
#![allow(clippy::unwrap_used)]

#[path = "hub/golden.rs"]
mod golden;
#[path = "hub/quantised.rs"]
mod quantised;
#[path = "hub/refused.rs"]
mod refused;
#[path = "hub/small.rs"]
mod small;
