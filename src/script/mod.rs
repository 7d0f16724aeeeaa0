//! Everything without a screen: one answer on stdout, what a model is made of, what the machine has.
//!
//! stdout carries the answer and nothing else; every other word goes to stderr. No escape sequence is
//! ever written by this folder. What the model wrote is passed on byte for byte, except to a terminal,
//! which gets control characters as visible escapes ([`visible`](crate::base::visible)).
//!
//! - `run`: a request from submission to its end, under interruption and closed pipes
//! - `input`: stdin, files and words -> the prompt; `offer`: functions -> what the model is offered
//! - `answer`, `output`, `json`: what came back, and its three forms
//! - `calls`: the calls of an answer carried out, and what they give back
//! - `models`, `inspect`, `score`, `quantize`, `doctor`, `settings`, `sessions`: reports
//! - `signals`: Ctrl-C and its like, as messages
//! - `status`: how a command ends

mod answer;
mod calls;
mod counted;
mod doctor;
#[cfg(test)]
mod fake;
mod input;
mod inspect;
mod json;
mod memory;
mod models;
mod offer;
mod output;
mod progress;
mod quantize;
mod run;
mod score;
mod sessions;
mod settings;
mod signals;
mod status;
#[cfg(test)]
mod tests;

pub use calls::{ToolRunner, answer_with_tools};
pub use doctor::{DeviceRow, Doctor, GpuFacts, ModelDir, Tool, doctor, physical_cores};
pub use input::{Stdin, assemble, decode, read_file, split_words};
pub use inspect::{
    GrammarReport, Piece, TensorRow, logits, print_grammar, print_logits, print_tensors, print_tokens,
};
pub use memory::MemoryRow;
pub use models::{
    FileCard, FormatRow, ModelCard, ModelRow, NamedPart, Placement, TensorGroup, print_card, print_list,
    print_outcome,
};
pub use offer::{offer, read_functions};
pub use output::{Printer, View};
pub use progress::Progress;
pub use quantize::{LayerRow, LossRow, QuantizeReport, print_quantized};
pub use run::{answer, wait_until_ready};
pub use score::{Score, Text, Windows, print_score, score};
pub use sessions::{print_exported, print_removed, print_session, print_sessions};
pub use settings::{print_exactly, print_paths, print_settings};
pub use signals::{Signal, signals, unless_signalled};
pub use status::{Quit, Status, written};
