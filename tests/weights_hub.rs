//! Hub folders: opened, named, and equal to what lies in their files; damaged ones refused.
#![allow(clippy::unwrap_used)]

#[path = "hub/golden.rs"]
mod golden;
#[path = "hub/packings.rs"]
mod packings;
#[path = "hub/quantised.rs"]
mod quantised;
#[path = "hub/refused.rs"]
mod refused;
#[allow(dead_code)]
#[path = "hub/small.rs"]
mod small;
