use super::error::Wrong;
use super::recipe::{self, Recipe};
use super::vocab::{Merges, Vocab};
use crate::base::Texts;
use crate::protocol::TokenId;
use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What a `tokenizer.json` says, checked.
pub(super) struct Tokenizer {
    /// By id.
    pub tokens: Texts,
    /// By id, as GGUF numbers them.
    pub types: Vec<i32>,
    /// With [`super::BETWEEN`] between their two tokens.
    pub merges: Texts,
    pub added: Vec<Added>,
    pub recipe: Recipe,
    pub unknown: Option<TokenId>,
    /// What the post-processor puts before all text.
    pub bos: Option<TokenId>,
}

/// A token that is found in text as it is written, and how.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Added {
    pub id: TokenId,
    pub content: String,
    #[serde(default)]
    pub special: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub normalized: bool,
}

#[derive(Deserialize)]
struct File<'j> {
    #[serde(borrow)]
    model: Option<&'j RawValue>,
    #[serde(borrow)]
    added_tokens: Option<&'j RawValue>,
    #[serde(borrow)]
    normalizer: Option<&'j RawValue>,
    #[serde(borrow)]
    pre_tokenizer: Option<&'j RawValue>,
    #[serde(borrow)]
    post_processor: Option<&'j RawValue>,
    #[serde(borrow)]
    decoder: Option<&'j RawValue>,
}

#[derive(Deserialize)]
struct Model<'j> {
    /// Files from before 2020 have none; they are BPE if they have merges.
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'j, str>>,
    #[serde(borrow)]
    vocab: Option<&'j RawValue>,
    #[serde(borrow)]
    merges: Option<&'j RawValue>,
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// Of a description of steps, in bytes: they are read into a tree.
const LONGEST_STEPS: usize = 1 << 20;
/// Ids that may be missing, beyond one for each token.
const HOLES: usize = 1 << 16;

impl Tokenizer {
    pub fn read(json: &[u8]) -> Result<Self, Wrong> {
        let text = std::str::from_utf8(json).map_err(|error| Wrong(format!("it is no UTF-8: {error}")))?;
        let file: File =
            serde_json::from_str(text).map_err(|error| Wrong(format!("it is no tokenizer: {error}")))?;
        let model = file.model.ok_or_else(|| Wrong::at("model", "it is missing"))?;
        let model: Model = parse("model", model)?;
        model.check()?;
        let added: Vec<Added> = file.added_tokens.map_or(Ok(Vec::new()), |raw| parse("added_tokens", raw))?;
        let mut recipe = Recipe::default();
        recipe::normalizer(&steps("normalizer", file.normalizer)?, &mut recipe)?;
        recipe::pre_tokenizer(&steps("pre_tokenizer", file.pre_tokenizer)?, &mut recipe)?;
        recipe::decoder(&steps("decoder", file.decoder)?, &mut recipe)?;
        recipe.ignore_merges = model.ignore_merges;
        recipe.fuse_unknown = model.fuse_unk;
        let (tokens, mut types) = vocabulary(&model, &added)?;
        let unknown = match &model.unk_token {
            None => None,
            Some(text) => find(&tokens, text),
        };
        if !recipe.spelt {
            mark_bytes(&tokens, &mut types, model.byte_fallback);
        }
        if let Some(id) = unknown.filter(|id| types[*id as usize] == 1) {
            types[id as usize] = 2;
        }
        let mut merges = Merges::default();
        if let Some(raw) = model.merges {
            read("model.merges", raw, &mut merges)?;
        }
        let bos = recipe::bos(&steps("post_processor", file.post_processor)?);
        let bos = bos.filter(|id| (*id as usize) < tokens.len());
        Ok(Self { tokens, types, merges: merges.0.into_texts(), added, recipe, unknown, bos })
    }
}

impl Model<'_> {
    fn check(&self) -> Result<(), Wrong> {
        let kind = self.kind.as_deref().unwrap_or("BPE");
        if kind != "BPE" {
            return Err(Wrong::at("model.type", format!("{kind:?} is not supported; BPE is")));
        }
        let affixes = [
            ("model.continuing_subword_prefix", &self.continuing_subword_prefix),
            ("model.end_of_word_suffix", &self.end_of_word_suffix),
        ];
        for (field, affix) in affixes {
            if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
                return Err(Wrong::at(field, format!("{affix:?} is not supported")));
            }
        }
        Ok(())
    }
}

/// Texts and types by id. An id that nothing has is unused.
fn vocabulary(model: &Model, added: &[Added]) -> Result<(Texts, Vec<i32>), Wrong> {
    let mut vocab = Vocab::default();
    let raw = model.vocab.ok_or_else(|| Wrong::at("model.vocab", "it is missing"))?;
    read("model.vocab", raw, &mut vocab)?;
    let count = vocab.ids.len() + added.len();
    let all = vocab.ids.iter().copied().chain(added.iter().map(|token| token.id));
    let size = all.max().map_or(0, |id| id as usize + 1);
    if count == 0 {
        return Err(Wrong::at("model.vocab", "it is empty"));
    }
    if size > 2 * count + HOLES {
        return Err(Wrong::at("model.vocab", format!("the id {} is too high for {count} tokens", size - 1)));
    }
    let mut places: Vec<Option<u32>> = vec![None; size];
    for (place, id) in vocab.ids.iter().enumerate() {
        let text = |place: u32| String::from_utf8_lossy(vocab.texts.get(place as usize)).into_owned();
        if let Some(other) = places[*id as usize].replace(place as u32) {
            let problem = format!("{:?} and {:?} both have the id {id}", text(other), text(place as u32));
            return Err(Wrong::at("model.vocab", problem));
        }
    }
    let mut types: Vec<i32> = places.iter().map(|place| if place.is_some() { 1 } else { 5 }).collect();
    let mut contents: Vec<Option<&str>> = vec![None; size];
    for token in added {
        types[token.id as usize] = if token.special { 3 } else { 4 };
        contents[token.id as usize] = Some(&token.content);
    }
    let text = |id: usize| match (contents[id], places[id]) {
        (Some(content), _) => content.as_bytes(),
        (None, Some(place)) => vocab.texts.get(place as usize),
        (None, None) => b"",
    };
    let texts = (0..size).map(|id| std::str::from_utf8(text(id)).expect("read from a str"));
    Ok((texts.collect(), types))
}

/// `<0x00>` to `<0xFF>` are bytes where the model says that it falls back to them.
fn mark_bytes(tokens: &Texts, types: &mut [i32], byte_fallback: bool) {
    for (text, kind) in tokens.iter().zip(types) {
        let is_byte = text.len() == 6 && text.starts_with(b"<0x") && text.ends_with(b">");
        if byte_fallback && is_byte && text[3..5].iter().all(u8::is_ascii_hexdigit) {
            *kind = 6;
        }
    }
}

pub(super) fn find(tokens: &Texts, text: &str) -> Option<TokenId> {
    tokens.iter().position(|token| token == text.as_bytes()).map(|id| id as TokenId)
}

fn parse<'j, T: Deserialize<'j>>(field: &str, raw: &'j RawValue) -> Result<T, Wrong> {
    serde_json::from_str(raw.get()).map_err(|error| Wrong::at(field, error))
}

fn read<'j, S: DeserializeSeed<'j>>(field: &str, raw: &'j RawValue, seed: S) -> Result<S::Value, Wrong> {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    seed.deserialize(&mut json).map_err(|error| Wrong::at(field, error))
}

fn steps(field: &str, raw: Option<&RawValue>) -> Result<Json, Wrong> {
    match raw {
        None => Ok(Json::Null),
        Some(raw) if raw.get().len() > LONGEST_STEPS => {
            Err(Wrong::at(field, format!("it is longer than {LONGEST_STEPS} bytes")))
        }
        Some(raw) => parse(field, raw),
    }
}
