//! Bytes, tokens and the parts of a reply.
//!
//! Towards the model: messages -> chat template ([`ChatTemplate`]) -> token ids, where nothing a
//! message contains can become a control token. Back from the model: token ids -> whole characters
//! -> stop strings -> thoughts, answer and calls of tools ([`OutputParser`], `reply/`), piece by piece.
//!
//! [`TextModel`] holds what one model's vocabulary and template know of all that, and is built from
//! plain data ([`VocabSpec`]): the keys of a GGUF file, or what a hub's folder has in `tokenizer.json` and
//! the files beside it (`hub/`). Finding and opening files is not done here.

mod bars;
mod bpe;
mod byte_level;
mod characters;
mod conversation;
mod detokenizer;
mod encoder;
mod fallback;
mod hub;
mod index;
mod json;
mod merge_list;
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
mod stored;
mod template;
mod vocab;
mod words;

pub use hub::{AddedFlags, HubError, HubFiles, Recipe};
pub use model::TextModel;
pub use normalizer::Normalizer;
pub use output::{OutputOptions, OutputParser, Pushed};
pub use pre_tokenizer::{Behaviour, Cut, CutAt};
pub use prompt::BuiltPrompt;
pub use specials::Specials;
pub use template::{ChatTemplate, TemplateError};
pub use vocab::{VocabError, VocabSpec};
