//! glassbox: chat with a language model in the terminal, and see the engine at work.
//!
//! The map, in reading order, which is also the order of imports: a folder uses only folders above
//! it here (tests/layers.rs holds the exact table). ARCHITECTURE.md follows a token through them.
//!
//! | folder | what stands there |
//! |---|---|
//! | [`base`] | time and small numbers |
//! | [`config`] | flags and config file -> settings, read once |
//! | [`protocol`] | commands, events, snapshots: the line between a front end and an engine |
//! | [`trace`] | an engine's conversation, recorded and replayed |
//! | [`text`] | tokenizer, detokenizer, chat template, stop strings, reasoning parser |
//! | [`grammar`] | grammars and schemas -> which tokens may follow |
//! | [`sample`] | a row of logits -> a token |
//! | [`weights`] | GGUF, quantised blocks, the model catalogue and fetching |
//! | [`kv`] | who owns which block of the KV cache |
//! | [`compute`] | the operations a decoder needs, on a device |
//! | [`parallel`] | shards and collectives |
//! | [`model`] | model families over those operations; the `Runner` |
//! | [`engine`] | intake, scheduler, the step loop, output |
//! | [`tools`] | declared commands and MCP servers that a model may ask to have called |
//! | [`sessions`] | conversations on disk, searched, exported and imported |
//! | [`bench`](mod@bench) | speed measurements and their report |
//! | [`tui`] | the screen |
//! | [`script`] | everything without a screen |
//! | [`launch`], [`measure`], [`archive`], [`open`], [`shrink`], [`store`], [`card`] | the wiring: the only places that name all of them |

pub mod archive;
pub mod base;
pub mod bench;
pub mod card;
pub mod compute;
pub mod config;
pub mod engine;
pub mod grammar;
pub mod kv;
pub mod launch;
pub mod measure;
pub mod model;
pub mod open;
pub mod parallel;
pub mod protocol;
pub mod sample;
pub mod script;
pub mod sessions;
pub mod shrink;
pub mod simulate;
pub mod store;
pub mod text;
pub mod tools;
pub mod trace;
pub mod tui;
pub mod weights;
