//! Bytes, tokens and the parts of a reply.
//!
//! Towards the model: messages -> chat template ([`ChatTemplate`]) -> token ids, where nothing a
//! message contains can become a control token. Back from the model: token ids -> whole characters
//! -> stop strings -> thoughts, answer and calls of tools ([`OutputParser`], `reply/`), piece by piece.
//!
//! [`TextModel`] holds what one model's vocabulary and template know of all that, and is built from
//! plain data ([`VocabSpec`]). Reading that data out of a file is not done here.

mod bpe;
mod byte_level;
mod conversation;
mod detokenizer;
mod index;
mod json;
mod model;
mod normalizer;
mod output;
mod pre_tokenizer;
mod prompt;
mod python;
mod reply;
mod sentence_piece;
mod specials;
mod stop;
mod template;
mod vocab;

pub use model::TextModel;
pub use output::{OutputOptions, OutputParser, Pushed};
pub use prompt::BuiltPrompt;
pub use specials::Specials;
pub use template::{ChatTemplate, TemplateError};
pub use vocab::{VocabError, VocabSpec};
