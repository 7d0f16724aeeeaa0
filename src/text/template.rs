use super::python::{self, Absent, Raised};
use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

/// Instructions a rendering may take, about a second's worth: no template needs a hundredth of it.
const FUEL: u64 = 20_000_000;

/// A Jinja chat template, rendered as transformers renders it.
pub struct ChatTemplate {
    env: Environment<'static>,
    /// What JSON's null is to the template.
    none: Value,
}

/// Why there is no prompt. Each rendering stands alone: an error spoils none after it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TemplateError {
    /// In the template's own words.
    #[error("the chat template refused the conversation: {0}")]
    Raised(String),
    #[error("the chat template is not valid Jinja: {0}")]
    Syntax(String),
    #[error("the chat template failed: {0}")]
    Failed(String),
    #[error("the chat template does not come to an end")]
    Endless,
    #[error("the input of a chat template must be an object with a list of messages")]
    Input,
    #[error("the model has no chat template; name one with --chat-template FILE, or send plain text")]
    Missing,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        Self::with_clock(source, || chrono::Local::now().naive_local())
    }

    /// `now` is what `strftime_now` sees: some templates write today's date.
    pub fn with_clock(
        source: &str,
        now: impl Fn() -> NaiveDateTime + Send + Sync + 'static,
    ) -> Result<Self, TemplateError> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|error| TemplateError::Syntax(error.to_string()))?);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_fuel(Some(FUEL));
        python::install(&mut env, now);
        env.add_template_owned("template", without_generation_blocks(source))
            .map_err(|error| TemplateError::Syntax(describe(&error)))?;
        let none = if compares_with_none(source) { Value::from(()) } else { Value::from_object(Absent) };
        Ok(Self { env, none })
    }

    /// `input`: an object with `messages`, and whatever else the template may use (`tools`,
    /// `add_generation_prompt`, `bos_token`, ...).
    pub fn render(&self, input: &Json) -> Result<String, TemplateError> {
        let context = self.context(input).ok_or(TemplateError::Input)?;
        let template = self.env.get_template("template").expect("added in with_clock");
        template.render(context).map_err(|error| classify(&error))
    }

    /// As transformers hands a conversation over.
    fn context(&self, input: &Json) -> Option<Value> {
        let input = input.as_object()?;
        let messages = input.get("messages")?.as_array()?;
        let mut pairs: Vec<(String, Value)> =
            ["tools", "documents"].map(|name| (name.to_owned(), self.none.clone())).into();
        pairs.push(("add_generation_prompt".into(), Value::from(false)));
        pairs.extend(input.iter().map(|(name, value)| (name.clone(), self.value(value))));
        pairs.push(("messages".into(), messages.iter().map(|message| self.message(message)).collect()));
        Some(Value::from_pairs(pairs))
    }

    /// Thoughts are also found under the name some templates use.
    fn message(&self, message: &Json) -> Value {
        let mut message = message.clone();
        if let Some(fields) = message.as_object_mut()
            && let Some(reasoning) = fields.get("reasoning_content").cloned()
        {
            fields.entry("thinking").or_insert(reasoning);
        }
        self.value(&message)
    }

    fn value(&self, json: &Json) -> Value {
        match json {
            Json::Null => self.none.clone(),
            Json::Bool(value) => Value::from(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::from(value),
                (None, Some(value)) => Value::from(value),
                (None, None) => Value::from(number.as_f64()),
            },
            Json::String(text) => Value::from(text.as_str()),
            Json::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Json::Object(fields) => {
                Value::from_pairs(fields.iter().map(|(key, value)| (key.clone(), self.value(value))))
            }
        }
    }
}

/// `== none` does not see through [`Absent`]; `is none` does.
fn compares_with_none(source: &str) -> bool {
    let operands = source.match_indices(['=', '!']).map(|(at, _)| &source[at + 1..]);
    operands.filter_map(|rest| rest.strip_prefix('=')).any(|rest| {
        let word = rest.trim_start().get(..4).unwrap_or_default();
        word.eq_ignore_ascii_case("none") || word == "null"
    })
}

/// `{% generation %}` only marks text for training: here it is a block that is always entered.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let tag = &rest[start + 2..start + len];
        let name = tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out.push_str(&rest[..start + 2]);
        out.push_str(&match name {
            "generation" => tag.replace(name, " if true "),
            "endgeneration" => tag.replace(name, " endif "),
            _ => tag.to_owned(),
        });
        rest = &rest[start + len..];
    }
    out + rest
}

fn classify(error: &minijinja::Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        if current.downcast_ref::<minijinja::Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::Endless;
        }
        cause = current.source();
    }
    TemplateError::Failed(describe(error))
}

/// The innermost reason and the line it stands in.
fn describe(error: &minijinja::Error) -> String {
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{reason} (line {line})"),
        None => reason,
    }
}
