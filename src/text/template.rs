use super::python::{self, Absent, Raised};
use super::stored::{STORABLE, checked, storable};
use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

/// Instructions a rendering may take, and one more for every 64 bytes it makes. Long chats take some
/// ten thousand; a template that wants all of this does not end.
const FUEL: u64 = 5_000_000;

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
        env.add_filter(STORABLE, storable);
        env.add_template_owned("template", prepared(source))
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

/// `{% generation %}` only marks text for training: here it is a block that is always entered. What is
/// stored in a namespace is checked.
fn prepared(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start + 2..].find("%}").map(|len| len + 2) else { break };
        if let Some((inside, len)) = checked(&rest[start + 2..]) {
            out.push_str(&rest[..start + 2]);
            out.push_str(&inside);
            rest = &rest[start + 2 + len..];
            continue;
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn render_with(source: &str, mut input: Json) -> Result<String, TemplateError> {
        let now = chrono::NaiveDate::from_ymd_opt(2025, 1, 2).unwrap().and_hms_opt(3, 4, 5).unwrap();
        let messages =
            json!([{ "role": "user", "content": "one" }, { "role": "assistant", "content": "two" }]);
        input.as_object_mut().unwrap().entry("messages").or_insert(messages);
        ChatTemplate::with_clock(source, move || now)?.render(&input)
    }

    fn render(source: &str) -> String {
        render_with(source, json!({})).unwrap()
    }

    #[test]
    fn blocks_take_their_line_with_them_and_nothing_is_escaped() {
        assert_eq!(render("a\n  {% if true %}\nb <&'\">\n  {% endif %}\nc\n"), "a\nb <&'\">\nc");
        assert_eq!(render("{{ '<b>' }}"), "<b>");
    }

    #[test]
    fn half_a_tag_is_an_error_and_no_panic() {
        for source in ["{%}", "a{%}{% if", "{%%}", "{%", "{%}%}"] {
            assert!(matches!(ChatTemplate::new(source), Err(TemplateError::Syntax(_))), "{source}");
        }
    }

    #[test]
    fn a_namespace_cannot_hold_itself() {
        for stored in ["ns", "[ns]", "{'a': [ns]}", "namespace(b=ns)"] {
            let source = format!("{{% set ns = namespace() %}}{{% set ns.a = {stored} -%}}{{{{ ns.a }}}}");
            let failed = render_with(&source, json!({}));
            assert!(
                matches!(&failed, Err(TemplateError::Failed(why)) if why.contains("namespace")),
                "{failed:?}"
            );
        }
        let deep = "{% set ns = namespace(a=1) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}";
        assert!(render_with(deep, json!({})).is_err());
    }

    // BUGLOG C02.
    #[test]
    fn what_a_loop_sets_in_a_namespace_is_seen_after_it() {
        let source = "{% set ns = namespace(found=false) %}{% for m in messages %}\
            {% if m.role == 'assistant' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}";
        assert_eq!(render(source), "True");
    }

    // BUGLOG C03.
    #[test]
    fn the_date_comes_from_the_clock() {
        assert_eq!(
            render("{{ strftime_now('%Y-%m-%d, %d %b %Y, %-d %B, %H:%M') }}"),
            "2025-01-02, 02 Jan 2025, 2 January, 03:04"
        );
        assert_eq!(render("{{ strftime_now is defined }}"), "True");
        assert!(matches!(render_with("{{ strftime_now('%Q') }}", json!({})), Err(TemplateError::Failed(_))));
    }

    // BUGLOG C04, C06.
    #[test]
    fn tojson_takes_pythons_keywords() {
        let tool = json!({ "tool": { "z": "é < 'x'", "a": [1, 2.5, null, true] } });
        let json = |call: &str| render_with(&format!("{{{{ tool | tojson{call} }}}}"), tool.clone()).unwrap();
        let plain = r#"{"z": "é < 'x'", "a": [1, 2.5, null, true]}"#;
        assert_eq!(json(""), plain);
        assert_eq!(json("(ensure_ascii=False)"), plain);
        assert_eq!(json("(ensure_ascii=true)"), plain.replace('é', "\\u00e9"));
        assert_eq!(json("(separators=(',', ':'))"), r#"{"z":"é < 'x'","a":[1,2.5,null,true]}"#);
        assert_eq!(json("(sort_keys=true)"), r#"{"a": [1, 2.5, null, true], "z": "é < 'x'"}"#);
        assert_eq!(
            json("(indent=2)"),
            "{\n  \"z\": \"é < 'x'\",\n  \"a\": [\n    1,\n    2.5,\n    null,\n    true\n  ]\n}"
        );
        assert!(matches!(render_with("{{ nothing | tojson }}", json!({})), Err(TemplateError::Failed(_))));
    }

    // BUGLOG C05.
    #[test]
    fn generation_blocks_pass_their_content_through() {
        let source =
            "{% for m in messages %}{%- generation -%} {{ m.content }} {%- endgeneration %};{% endfor %}";
        assert_eq!(render(source), "one;two;");
        assert_eq!(render("{% generation %}\na\n{% endgeneration %}\nb"), "a\nb");
    }

    // BUGLOG C12.
    #[test]
    fn python_literals_slices_and_methods() {
        assert_eq!(render("{{ none }} {{ None is none }} {{ True and not False }}"), "None True True");
        assert_eq!(
            render("{{ messages[1:] | length }}{{ messages[::-1][0].role }}{{ 'abc'[-1] }}{{ 'abc'[:2] }}"),
            "1assistantcab"
        );
        assert_eq!(
            render("{{ messages | map(attribute='role') | reject('equalto', 'user') | join('+') }}"),
            "assistant"
        );
        assert_eq!(
            render(
                "{{ ' a '.strip() }}{{ 'a-b'.split('-')[1] }}{{ 'ab'.startswith('a') }}{{ 'xab'.removeprefix('x') }}"
            ),
            "abTrueab"
        );
        assert_eq!(
            render("{{ 'a.b.c'.rsplit('.', 1) }} {{ 'a=b=c'.partition('=') }}"),
            "['a.b', 'c'] ('a', '=', 'b=c')"
        );
        assert_eq!(render("{{ 'abc'.rpartition('=') }}"), "('', '', 'abc')");
        assert_eq!(
            render("{% for k, v in {'b': 1, 'a': [1, 'x']}.items() %}{{ k }}={{ v }} {% endfor %}"),
            "b=1 a=[1, 'x'] "
        );
        assert_eq!(
            render(
                "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
            ),
            "02"
        );
        assert_eq!(
            render(
                "{{ 'a' is sequence }} {{ messages is iterable }} {{ none is iterable }} {{ messages[0] is mapping }}"
            ),
            "True True False True"
        );
    }

    #[test]
    fn tools_that_are_not_there_are_none_and_no_empty_list() {
        assert_eq!(
            render("{{ tools is none }} {{ tools is defined }} {{ 'yes' if tools else 'no' }} {{ tools }}"),
            "True True no None"
        );
        assert_eq!(render("{{ tools == none }}"), "True");
        assert!(render_with("{% for tool in tools %}{% endfor %}", json!({})).is_err());
        assert_eq!(render_with("{{ tools | length }}", json!({ "tools": [1, 2] })).unwrap(), "2");
    }

    #[test]
    fn names_that_are_not_there_print_nothing_but_have_no_parts() {
        assert_eq!(render("[{{ nothing }}{{ messages[0].nothing }}]"), "[]");
        let error = render_with("line\n{{ nothing.more }}", json!({})).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    // BUGLOG C09.
    #[test]
    fn an_exception_keeps_its_text_through_macros() {
        let source = "{% macro fail(x) %}{{ raise_exception('no ' ~ x) }}{% endmacro %}{{ fail('way') }}";
        assert!(
            matches!(render_with(source, json!({})), Err(TemplateError::Raised(text)) if text == "no way")
        );
    }

    #[test]
    fn a_template_without_end_is_ended() {
        let source = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a * b %}{% endfor %}{% endfor %}";
        assert!(matches!(render_with(source, json!({})), Err(TemplateError::Endless)));
        let recursive = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(render_with(recursive, json!({})).is_err());
        let growing = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        assert!(matches!(render_with(growing, json!({})), Err(TemplateError::Endless)));
    }

    #[test]
    fn input_without_messages_is_refused() {
        let template = ChatTemplate::new("x").unwrap();
        for input in [json!({}), json!([]), json!({ "messages": "hi" })] {
            assert!(matches!(template.render(&input), Err(TemplateError::Input)));
        }
    }
}
