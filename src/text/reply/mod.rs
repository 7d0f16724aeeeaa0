//! What a reply is made of: thoughts, the answer, and calls of tools.
//!
//! A family is a row of a table ([`families`]): its markers and the format of its calls. One state
//! machine ([`reader`], [`states`]) reads them all; the inside of a call is read by one of five small readers
//! ([`body`]). Here is no token, no stop string and no prompt: those are `text/output` and
//! `text/prompt`.

mod body;
mod families;
mod gemma;
mod grammar;
mod harmony;
mod json;
mod named;
mod objects;
mod parameters;
mod pythonic;
mod reader;
mod rules;
mod sink;
mod states;
mod typed;

#[cfg(test)]
mod tests;

pub(super) use families::{Reasoning, ToolFormat, guess_reasoning, guess_tools};
pub(super) use grammar::grammar;
pub(super) use reader::{Reader, Reading};
pub(super) use rules::{Families, Mark};
