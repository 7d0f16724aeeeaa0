//! `tool_choice` required or named: a grammar of the calls, in the family's own format, in llguidance's
//! dialect of Lark. Forcing JSON on a family that writes its calls otherwise makes them worse
//! (vLLM 39870).

use super::families::{BodyKind, ToolFormat};
use super::parameters::XmlSpec;
use super::rules::Families;
use crate::protocol::{Tool, ToolChoice, Tools};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Of one answer that must call: a small model would go on until its context is full.
const MOST_CALLS: usize = 16;

/// Lark for at least one call, and for one only where the tool is named or calls may not be parallel.
pub(in crate::text) fn grammar(families: &Families, tools: &Tools) -> Option<String> {
    let format = families.tools?;
    let named = |tool: &&Tool| match &tools.choice {
        ToolChoice::Named(name) => tool.name == *name,
        _ => true,
    };
    let offered: Vec<&Tool> = tools.tools.iter().filter(named).collect();
    let many = tools.parallel && tools.choice == ToolChoice::Required;
    let mut writer = Writer { families, format, rules: String::new() };
    let calls = writer.calls(&offered, many)?;
    Some(format!("start: {calls}\n{}", writer.rules))
}

struct Writer<'a> {
    families: &'a Families,
    format: &'static ToolFormat,
    rules: String,
}

impl Writer<'_> {
    /// All calls, with what stands around and between them.
    fn calls(&mut self, tools: &[&Tool], many: bool) -> Option<String> {
        let single = matches!(self.format.body, BodyKind::Either(spec) if self.has(spec.arguments[0]));
        let (begin, between, end) = match (self.format.name, self.format.body, self.format.section) {
            ("gpt-oss", ..) => (String::new(), self.tag("<|start|>"), String::new()),
            ("llama3-json", ..) => (String::new(), text("; "), String::new()),
            ("mistral", ..) if single => Default::default(),
            ("mistral", ..) => {
                (format!("{} {}", self.tag("[TOOL_CALLS]"), text(" [")), text(", "), text("]"))
            }
            ("granite", ..) => {
                (format!("{} {}", self.tag("<|tool_call|>"), text("[")), text(", "), text("]"))
            }
            ("phi-4", ..) => (text("functools["), text(", "), text("]")),
            (_, BodyKind::Pythonic, _) => (text("["), text(", "), text("]")),
            ("qwen3-coder", ..) | (_, BodyKind::Objects | BodyKind::Xml(_), None) => {
                (String::new(), text("\n"), String::new())
            }
            (_, BodyKind::Xml(_), Some((begin, end))) => (
                format!("{} {}", self.tag(begin), text("\n")),
                text("\n"),
                format!("{} {}", text("\n"), self.tag(end)),
            ),
            (_, _, Some((begin, end))) => (self.tag(begin), String::new(), self.tag(end)),
            (_, _, None) => Default::default(),
        };
        let all: Option<Vec<String>> = tools.iter().enumerate().map(|(i, tool)| self.call(i, tool)).collect();
        let _ = writeln!(self.rules, "call: {}", all?.join(" | "));
        let more = if many { format!("({between} call){{0,{}}}", MOST_CALLS - 1) } else { String::new() };
        Some(format!("{begin} call {more} {end}"))
    }

    /// The rule of one tool's call; gives back its name.
    fn call(&mut self, i: usize, tool: &Tool) -> Option<String> {
        let name = &tool.name;
        let json = format!("args{i}");
        let object = |key: &str| {
            let head = format!("{{\"name\": {}, \"{key}\": ", json!(name));
            format!("{} {json} {}", text(&head), text("}"))
        };
        let body = match (self.format.name, self.format.body) {
            ("llama3-json", _) => object("parameters"),
            ("hermes", _) => format!(
                "{} {} {} {} {}",
                self.tag("<tool_call>"),
                text("\n"),
                object("arguments"),
                text("\n"),
                self.tag("</tool_call>")
            ),
            ("gpt-oss", _) => self.harmony(name, &json),
            (_, BodyKind::Objects) => object("arguments"),
            (_, BodyKind::Either(spec)) if self.has(spec.arguments[0]) => {
                format!("{} {} {} {json}", self.tag("[TOOL_CALLS]"), text(name), self.tag(spec.arguments[0]))
            }
            (_, BodyKind::Either(_)) => object("arguments"),
            ("deepseek-v3", BodyKind::Named(spec)) => {
                let (open, kind) = (self.tag(self.format.open[0]), self.tag(spec.kind?));
                let (head, close) = (format!("{name}\n```json\n"), self.tag(self.format.close[0]));
                format!("{open} {} {kind} {} {json} {} {close}", text("function"), text(&head), text("\n```"))
            }
            ("kimi", BodyKind::Named(spec)) => format!(
                "{} {} /[0-9]+/ {} {json} {}",
                self.tag(self.format.open[0]),
                text(format!("functions.{name}:")),
                self.tag(spec.arguments[0]),
                self.tag(self.format.close[0])
            ),
            (_, BodyKind::Named(spec)) => format!(
                "{} {} {} {json} {}",
                self.tag(self.format.open[0]),
                text(name),
                self.tag(spec.arguments.first()?),
                self.tag(self.format.close[0])
            ),
            (_, BodyKind::Xml(spec)) => self.xml(i, tool, spec),
            (_, BodyKind::Pythonic) => self.listed(i, tool, &format!("{name}("), "=", ", ", ")"),
            (_, BodyKind::Gemma(_)) => {
                let inner = self.listed(i, tool, &format!("call:{name}{{"), ":", ",", "}");
                format!("{} {inner} {}", self.tag(self.format.open[0]), self.tag(self.format.close[0]))
            }
        };
        let _ = writeln!(self.rules, "call{i}: {body}");
        if body.contains(&json) {
            let _ = writeln!(self.rules, "{json}: %json {}", tool.parameters);
        }
        Some(format!("call{i}"))
    }

    fn harmony(&self, name: &str, json: &str) -> String {
        format!(
            "({} {})? {} {} {} {} {} {json}",
            self.tag("<|start|>"),
            text("assistant"),
            self.tag("<|channel|>"),
            text(format!("commentary to=functions.{name} ")),
            self.tag("<|constrain|>"),
            text("json"),
            self.tag("<|message|>")
        )
    }

    fn xml(&mut self, i: usize, tool: &Tool, spec: &XmlSpec) -> String {
        let breaks = if spec.trims { text("\n") } else { String::new() };
        let section = self.format.section.filter(|_| self.format.name == "qwen3-coder");
        let (begin, end) = match section {
            Some((begin, end)) => {
                (format!("{} {}", self.tag(begin), text("\n")), format!("{} {}", text("\n"), self.tag(end)))
            }
            None => Default::default(),
        };
        let behind_name =
            if spec.name_end == "\n" { spec.name_end.to_owned() } else { format!("{}\n", spec.name_end) };
        let mut body = format!(
            "{begin} {} {}",
            self.tag(self.format.open[0]),
            text([&tool.name, &*behind_name].concat())
        );
        for (at, (key, schema, required)) in properties(tool).into_iter().enumerate() {
            let value = self.value(&format!("value{i}_{at}"), schema, spec.value.1);
            let before = if spec.value.0.is_empty() {
                String::new()
            } else {
                format!("{} {}", text("\n"), self.tag(spec.value.0))
            };
            let one = format!(
                "{} {} {} {before} {breaks} {value} {}",
                self.tag(spec.key.0),
                text(key),
                self.tag(spec.key.1),
                text("\n")
            );
            let _ = write!(body, " {}", if required { one } else { format!("({one})?") });
        }
        format!("{body} {} {end}", self.tag(spec.end))
    }

    /// `f(` key `=` value, … `)`. Required arguments first: the others follow with their commas.
    fn listed(&mut self, i: usize, tool: &Tool, begin: &str, equals: &str, comma: &str, end: &str) -> String {
        let mut properties = properties(tool);
        properties.sort_by_key(|(.., required)| !required);
        let any_required = properties.first().is_some_and(|(.., required)| *required);
        let mut body = text(begin);
        let mut open = 0;
        for (at, (key, schema, required)) in properties.into_iter().enumerate() {
            let quote = if let BodyKind::Gemma(quote) = self.format.body { quote } else { "" };
            let value = self.value(&format!("value{i}_{at}"), schema, quote);
            let separator = if at > 0 { text(comma) } else { String::new() };
            let one = format!("{separator} {} {value}", text(format!("{key}{equals}")));
            if required || any_required {
                let _ = write!(body, " {}", if required { one } else { format!("({one})?") });
            } else {
                // None is required: each may only follow those before it.
                let _ = write!(body, " ({one}");
                open += 1;
            }
        }
        let _ = write!(body, "{} {}", ")?".repeat(open), text(end));
        body
    }

    /// The rule of a value in formats that do not quote as JSON does, with the tag that closes it; a text
    /// goes up to there.
    fn value(&mut self, rule: &str, schema: &Json, close: &str) -> String {
        let kind = schema.get("type").and_then(Json::as_str).unwrap_or("string");
        let choices = schema.get("enum").and_then(Json::as_array);
        let gemma = matches!(self.format.body, BodyKind::Gemma(_));
        let end = self.tag(close);
        let body = match (self.format.body, kind) {
            (BodyKind::Pythonic, "boolean") => "\"True\" | \"False\"".into(),
            (BodyKind::Pythonic, _) => format!("%json {schema}"),
            (_, "string") => {
                let open = if gemma { end.clone() } else { String::new() };
                let inside = match choices {
                    Some(all) => {
                        let all: Vec<String> = all.iter().filter_map(Json::as_str).map(text).collect();
                        format!("({}) {end}", all.join(" | "))
                    }
                    // One lexeme with what ends it: alone it would swallow the end too.
                    None if self.id(close).is_none() => {
                        format!("/{TEXT}*{}/", close.replace('/', "\\/").replace('|', "\\|"))
                    }
                    None => format!("(/{TEXT}+/)? {end}"),
                };
                format!("{open} {inside}")
            }
            _ if gemma => format!("%json {schema}"),
            _ => {
                let line =
                    if end.is_empty() { String::new() } else { text(if self.trims() { "\n" } else { "" }) };
                format!("json_{rule} {line} {end}\njson_{rule}: %json {schema}")
            }
        };
        let _ = writeln!(self.rules, "{rule}: {body}");
        rule.to_owned()
    }

    fn trims(&self) -> bool {
        matches!(self.format.body, BodyKind::Xml(spec) if spec.trims)
    }

    fn has(&self, tag: &str) -> bool {
        self.id(tag).is_some()
    }

    fn id(&self, tag: &str) -> Option<u32> {
        self.families.marks.iter().find(|(_, mark)| &*mark.text == tag).map(|(id, _)| *id)
    }

    /// A marker: the token, where it is one.
    fn tag(&self, tag: &str) -> String {
        self.id(tag).map_or_else(|| text(tag), |id| format!("<[{id}]>"))
    }
}

/// A character of a text value: anything but the beginning of a tag.
const TEXT: &str = r"([^<]|<[^\/|eE])";

/// Name, schema, and whether it must be there.
fn properties(tool: &Tool) -> Vec<(&String, &Json, bool)> {
    let required = tool.parameters.get("required").and_then(Json::as_array);
    let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|name| name == key));
    let properties = tool.parameters.get("properties").and_then(Json::as_object).into_iter().flatten();
    properties.map(|(key, schema)| (key, schema, is_required(key))).collect()
}

/// A Lark string.
fn text(text: impl AsRef<str>) -> String {
    match text.as_ref() {
        "" => String::new(),
        text => Json::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Mark, Reader, Reading};
    use super::*;
    use crate::protocol::{Part, TOOL_CALL_PARSERS};
    use llguidance::api::TopLevelGrammar;
    use llguidance::toktrie::ApproximateTokEnv;
    use llguidance::{Matcher, ParserFactory};

    fn tools(choice: ToolChoice, parallel: bool) -> Tools {
        let weather = json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
            "required": ["city"],
        });
        let tool =
            |name: &str, parameters| Tool { name: name.into(), description: String::new(), parameters };
        let tools =
            vec![tool("weather", weather), tool("time", json!({ "type": "object", "properties": {} }))];
        Tools { tools, choice, parallel }
    }

    fn families(name: &str) -> Families {
        Families { tools: ToolFormat::named(name), ..Families::default() }
    }

    /// How many bytes of `text` the grammar takes, and whether the reply may end there.
    fn accepts(lark: &str, text: &str) -> (usize, bool) {
        let env = ApproximateTokEnv::single_byte_env();
        let factory = ParserFactory::new_simple(&env).unwrap();
        let mut matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(lark.into())));
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let taken = matcher.try_consume_tokens(&tokens).unwrap_or_else(|e| panic!("{e}\n{lark}"));
        (taken, matcher.is_accepting().unwrap() || matcher.is_stopped())
    }

    /// What each family writes when it calls `weather` and then `time`.
    const WRITTEN: [(&str, &str); 16] = [
        (
            "hermes",
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
        ),
        (
            "llama3-json",
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"x\"}}; {\"name\": \"time\", \"parameters\": {}}",
        ),
        ("pythonic", "[weather(city=\"x\"), time()]"),
        (
            "mistral",
            "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}, {\"name\": \"time\", \"arguments\": {}}]",
        ),
        (
            "qwen3-coder",
            "<tool_call>\n<function=weather>\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</tool_call>",
        ),
        (
            "seed-oss",
            "<seed:tool_call>\n<function=weather>\n<parameter=city>\nx\n</parameter>\n</function>\n<function=time>\n</function>\n</seed:tool_call>",
        ),
        (
            "deepseek-v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"x\"}\n```<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            "deepseek-v3.1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"x\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            "glm",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>\n<tool_call>time\n</tool_call>",
        ),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"x\"}<|tool_call_end|><|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            "granite",
            "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}, {\"name\": \"time\", \"arguments\": {}}]",
        ),
        (
            "gpt-oss",
            "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"x\"}",
        ),
        (
            "phi-4",
            "functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"x\"}}, {\"name\": \"time\", \"arguments\": {}}]",
        ),
        (
            "functiongemma",
            "<start_function_call>call:weather{city:<escape>x<escape>}<end_function_call><start_function_call>call:time{}<end_function_call>",
        ),
        (
            "gemma4",
            "<|tool_call>call:weather{city:<|\"|>x<|\"|>}<tool_call|><|tool_call>call:time{}<tool_call|>",
        ),
        (
            "minimax",
            "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">\nx\n</parameter>\n</invoke>\n<invoke name=\"time\">\n</invoke>\n</minimax:tool_call>",
        ),
    ];

    #[test]
    fn a_familys_grammar_takes_what_the_family_writes_and_its_parser_reads() {
        assert_eq!(WRITTEN.map(|(name, _)| name), TOOL_CALL_PARSERS);
        for (name, written) in WRITTEN {
            let families = families(name);
            let lark = grammar(&families, &tools(ToolChoice::Required, true)).unwrap();
            assert_eq!(accepts(&lark, written), (written.len(), true), "{name}\n{lark}");
            assert!(accepts(&lark, "I cannot").0 < 8, "{name}");
            if name == "gpt-oss" {
                continue;
            }
            let offered = tools(ToolChoice::Required, true).tools.into();
            let mut reader = Reader::new(&families, Reading { tools: offered, ..Reading::default() });
            let (mut parts, mut calls) = (Vec::new(), Vec::new());
            reader.push(written, &mut parts);
            reader.finish(&mut parts);
            for part in parts {
                match part {
                    Part::ToolCall(piece) => piece.add_to(&mut calls),
                    other => panic!("{name}: {other:?}"),
                }
            }
            let read: Vec<_> =
                calls.iter().map(|call| (&*call.name, call.arguments.replace(' ', ""))).collect();
            assert_eq!(
                read,
                [("weather", r#"{"city":"x"}"#.to_owned()), ("time", "{}".to_owned())],
                "{name}"
            );
        }
    }

    #[test]
    fn a_named_tool_and_no_parallel_calls_are_one_call() {
        let (_, two) = WRITTEN[0];
        let one = &two[..two.find("\n<tool_call>\n{\"name\": \"time").unwrap()];
        for wanted in [tools(ToolChoice::Required, false), tools(ToolChoice::Named("weather".into()), true)] {
            let lark = grammar(&families("hermes"), &wanted).unwrap();
            assert_eq!(accepts(&lark, one), (one.len(), true));
            assert_eq!(accepts(&lark, two).0, one.len());
        }
        let time = grammar(&families("hermes"), &tools(ToolChoice::Named("time".into()), true)).unwrap();
        assert!(accepts(&time, one).0 < one.len());
    }

    #[test]
    fn arguments_obey_their_schema_and_markers_are_tokens() {
        let lark = grammar(&families("hermes"), &tools(ToolChoice::Required, true)).unwrap();
        let missing = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}";
        assert!(accepts(&lark, missing).0 < missing.len());
        let marks = [(300, Mark { text: "<tool_call>".into(), silent: false })].into();
        let lark =
            grammar(&Families { marks, ..families("hermes") }, &tools(ToolChoice::Required, true)).unwrap();
        assert!(
            lark.contains("<[300]>")
                && !lark.contains("\"<tool_call>\"")
                && lark.contains("\"</tool_call>\"")
        );
    }
}
