//! What the files of a hub's folder say of text: `tokenizer.json`, `tokenizer_config.json`,
//! `chat_template.jinja`, `generation_config.json`, `config.json`.

mod config;
mod error;
mod recipe;
mod tokenizer;
mod vocab;

pub use error::HubError;
pub use recipe::Recipe;
pub(super) use vocab::BETWEEN;

use super::vocab::VocabSpec;
use config::{Config, Ends, Templates};
use error::Wrong;
use tokenizer::{Tokenizer, find};

/// The bytes of those files that there are.
#[derive(Clone, Debug, Default)]
pub struct HubFiles {
    pub tokenizer: Vec<u8>,
    pub tokenizer_config: Option<Vec<u8>>,
    /// `chat_template.jinja`; it goes before all others.
    pub chat_template: Option<Vec<u8>>,
    /// `chat_template.json`: `{"chat_template": ...}`, where processors of pictures keep it.
    pub chat_template_json: Option<Vec<u8>>,
    pub generation_config: Option<Vec<u8>>,
    pub config: Option<Vec<u8>>,
}

/// How a token is found in text, beyond what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedFlags {
    /// White space before it goes with it.
    pub lstrip: bool,
    /// White space behind it goes with it.
    pub rstrip: bool,
    /// Not inside a word.
    pub single_word: bool,
    /// Found in normalized text, as it is itself once normalized.
    pub normalized: bool,
}

impl HubFiles {
    /// The model's own sampling parameters: names as the settings have them, and values.
    ///
    /// # Errors
    /// Names the file and the field.
    pub fn sampling(&self) -> Result<Vec<(&'static str, f64)>, HubError> {
        read("generation_config.json", &self.generation_config, config::sampling)
    }
}

impl VocabSpec {
    /// # Errors
    /// Names the file and the field.
    pub fn from_hub(files: &HubFiles) -> Result<VocabSpec, HubError> {
        let tokenizer = Tokenizer::read(&files.tokenizer).map_err(|wrong| wrong.in_file("tokenizer.json"))?;
        let config = read("tokenizer_config.json", &files.tokenizer_config, Config::read)?;
        let generation = read("generation_config.json", &files.generation_config, Ends::read)?;
        let model = read("config.json", &files.config, Ends::read)?;
        let template = read("chat_template.json", &files.chat_template_json, Templates::read)?;
        let own =
            match &files.chat_template {
                None => None,
                Some(bytes) => Some(String::from_utf8(bytes.clone()).map_err(|error| {
                    Wrong(format!("it is no UTF-8: {error}")).in_file("chat_template.jinja")
                })?),
            };
        let templates = [&template, &config.templates];
        let chat = own.or_else(|| templates.iter().find_map(|all| all.chat()).map(str::to_owned));
        Ok(VocabSpec {
            chat_template: chat,
            tool_template: templates.iter().find_map(|all| all.tools()).map(str::to_owned),
            ..spec(tokenizer, &config, &generation, &model)
        })
    }
}

fn spec(tokenizer: Tokenizer, config: &Config, generation: &Ends, model: &Ends) -> VocabSpec {
    let tokens = &tokenizer.tokens;
    let id = |text: &Option<String>| find(tokens, text.as_deref()?);
    // Models pad their output: an id beyond the tokens is none of them.
    let known = |id: &u32| (*id as usize) < tokens.len();
    let given = [generation.bos, model.bos].into_iter().flatten().find(known);
    let bos = id(&config.bos).or(tokenizer.bos).or(given);
    let added = tokenizer.added.iter().map(|token| {
        let flags = AddedFlags {
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
            normalized: token.normalized,
        };
        (token.id, flags)
    });
    VocabSpec {
        model: (if tokenizer.recipe.spelt { "gpt2" } else { "bpe" }).into(),
        bos,
        eos: id(&config.eos),
        pad: id(&config.pad),
        unk: id(&config.unk).or(tokenizer.unknown),
        extra_end: [&generation.eos[..], &model.eos[..]].concat().into_iter().filter(known).collect(),
        add_bos: Some(config.add_bos.unwrap_or(tokenizer.bos.is_some())),
        added_flags: added.filter(|(_, flags)| *flags != AddedFlags::default()).collect(),
        tokens: tokenizer.tokens,
        types: tokenizer.types,
        merges: tokenizer.merges,
        recipe: Some(tokenizer.recipe),
        ..VocabSpec::default()
    }
}

fn read<T: Default>(
    file: &'static str,
    bytes: &Option<Vec<u8>>,
    read: impl FnOnce(&[u8]) -> Result<T, Wrong>,
) -> Result<T, HubError> {
    match bytes {
        None => Ok(T::default()),
        Some(bytes) => read(bytes).map_err(|wrong| wrong.in_file(file)),
    }
}
