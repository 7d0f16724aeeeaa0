use super::error::Wrong;
use crate::protocol::TokenId;
use serde_json::Value as Json;

/// What `tokenizer_config.json` says; nothing of it must be there.
#[derive(Debug, Default)]
pub(super) struct Config {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub pad: Option<String>,
    pub unk: Option<String>,
    pub add_bos: Option<bool>,
    pub templates: Templates,
}

/// Chat templates by name.
#[derive(Debug, Default)]
pub(super) struct Templates(Vec<(String, String)>);

impl Config {
    pub fn read(json: &[u8]) -> Result<Self, Wrong> {
        let json = object(json)?;
        Ok(Self {
            bos: token(&json, "bos_token")?,
            eos: token(&json, "eos_token")?,
            pad: token(&json, "pad_token")?,
            unk: token(&json, "unk_token")?,
            add_bos: flag(&json, "add_bos_token")?,
            templates: Templates::of(&json)?,
        })
    }
}

impl Templates {
    /// `chat_template`: one, or a list of named ones.
    fn of(json: &Json) -> Result<Self, Wrong> {
        let named = |template: &Json| {
            let text = |key: &str| template[key].as_str().map(str::to_owned);
            Some((text("name")?, text("template")?))
        };
        match &json["chat_template"] {
            Json::Null => Ok(Self::default()),
            Json::String(template) => Ok(Self(vec![("default".into(), template.clone())])),
            Json::Array(all) => {
                let all: Option<Vec<_>> = all.iter().map(named).collect();
                let problem = "a list of objects with name and template is expected";
                all.map(Self).ok_or_else(|| Wrong::at("chat_template", problem))
            }
            _ => Err(Wrong::at("chat_template", "neither a text nor a list")),
        }
    }

    pub fn read(json: &[u8]) -> Result<Self, Wrong> {
        Self::of(&object(json)?)
    }

    /// The one for chats; of several without a `default` the first.
    pub fn chat(&self) -> Option<&str> {
        self.named("default").or_else(|| self.0.first().map(|(_, template)| template.as_str()))
    }

    /// The one for chats with tools, where there is one of its own.
    pub fn tools(&self) -> Option<&str> {
        self.named("tool_use")
    }

    fn named(&self, wanted: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == wanted).map(|(_, template)| template.as_str())
    }
}

/// What `generation_config.json` and `config.json` say of the tokens at the ends.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ends {
    pub bos: Option<TokenId>,
    pub eos: Vec<TokenId>,
}

impl Ends {
    pub fn read(json: &[u8]) -> Result<Self, Wrong> {
        let json = object(json)?;
        // Models of pictures and text keep what is about text in a part of its own.
        let text = |key: &str| if json[key].is_null() { &json["text_config"][key] } else { &json[key] };
        Ok(Self {
            bos: ids("bos_token_id", text("bos_token_id"))?.first().copied(),
            eos: ids("eos_token_id", text("eos_token_id"))?,
        })
    }
}

/// How `generation_config.json` says that its model wants to be sampled, by our own names.
pub(super) fn sampling(json: &[u8]) -> Result<Vec<(&'static str, f64)>, Wrong> {
    let json = object(json)?;
    let mut found = Vec::new();
    for name in ["temperature", "top_k", "top_p", "min_p", "repetition_penalty"] {
        match &json[name] {
            Json::Null => {}
            value => {
                let wrong = || Wrong::at(name, format!("{value} is no number"));
                found.push((name, value.as_f64().ok_or_else(wrong)?));
            }
        }
    }
    if flag(&json, "do_sample")? == Some(false) {
        found.retain(|(name, _)| *name == "repetition_penalty");
        found.push(("temperature", 0.0));
    }
    Ok(found)
}

/// One id, a list of them, or none. A negative one stands for none.
fn ids(field: &str, json: &Json) -> Result<Vec<TokenId>, Wrong> {
    let id = |json: &Json| match json.as_i64() {
        Some(id) if id < 0 => Ok(None),
        Some(id) => Ok(Some(TokenId::try_from(id).unwrap_or(TokenId::MAX))),
        None => Err(Wrong::at(field, format!("{json} is no token id"))),
    };
    let all: Result<Vec<Option<TokenId>>, Wrong> = match json {
        Json::Null => Ok(Vec::new()),
        Json::Array(all) => all.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    };
    Ok(all?.into_iter().flatten().collect())
}

pub(super) fn object(json: &[u8]) -> Result<Json, Wrong> {
    match serde_json::from_slice(json) {
        Ok(json @ Json::Object(_)) => Ok(json),
        Ok(_) => Err(Wrong("it is no JSON object".into())),
        Err(error) => Err(Wrong(format!("it is no JSON: {error}"))),
    }
}

/// A token by its text, or an object with it as its content.
fn token(json: &Json, field: &str) -> Result<Option<String>, Wrong> {
    match &json[field] {
        Json::Null => Ok(None),
        Json::String(text) => Ok(Some(text.clone())),
        Json::Object(token) => match token.get("content").and_then(Json::as_str) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Wrong::at(&format!("{field}.content"), "a text is expected")),
        },
        other => Err(Wrong::at(field, format!("{other} is neither a text nor an object"))),
    }
}

fn flag(json: &Json, field: &str) -> Result<Option<bool>, Wrong> {
    match &json[field] {
        Json::Null => Ok(None),
        Json::Bool(flag) => Ok(Some(*flag)),
        other => Err(Wrong::at(field, format!("{other} is neither true nor false"))),
    }
}
