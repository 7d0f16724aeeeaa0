//! What the families of models write around their thoughts and calls: tables, and no code but the
//! choice among them. Formats as their chat templates and vLLM's and SGLang's parsers have them.

use super::named::NamedSpec;
use super::parameters::XmlSpec;
use std::borrow::Cow;

type Text = Cow<'static, str>;

/// How one family marks its thoughts.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::text) struct Reasoning {
    pub name: Text,
    /// Any of these, at the very start of a reply, opens thoughts.
    pub open: Vec<Text>,
    /// Behind the opening tag, and no thought (Gemma's `thought`).
    pub label: &'static str,
    /// Any of these closes them.
    pub close: Vec<Text>,
    /// Around the answer; dropped.
    pub answer: Option<(&'static str, &'static str)>,
    /// A reply begins inside the thoughts whatever the prompt says.
    pub implicit: bool,
    /// Thoughts stay in the text, with the tag that the prompt has opened.
    pub kept: bool,
    /// Messages with headers (gpt-oss), instead of tags.
    pub harmony: bool,
    /// What closes thoughts that have used up their budget.
    pub forced: Text,
}

/// How one family asks for tools.
#[derive(Debug)]
pub(in crate::text) struct ToolFormat {
    pub name: &'static str,
    /// Around all calls of a reply.
    pub section: Option<(&'static str, &'static str)>,
    /// What begins a call.
    pub open: &'static [&'static str],
    /// A call without a tag: this, at the start of the answer only.
    pub bare: Option<char>,
    pub close: &'static [&'static str],
    /// Dropped behind a call, beside white space.
    pub between: &'static str,
    pub body: BodyKind,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::text) enum BodyKind {
    /// `{"name": .., "arguments": {..}}`, or a list of such.
    Objects,
    /// A name, then an object.
    Named(&'static NamedSpec),
    /// The one or the other: Mistral's, before and since version 11.
    Either(&'static NamedSpec),
    Xml(&'static XmlSpec),
    /// `[f(a=1), g()]`.
    Pythonic,
    /// `call:f{k:<escape>text<escape>,n:1}`, with this around strings.
    Gemma(&'static str),
}

/// Name, opening tags, closing tags, what a budget forces. Every row of plain tags.
const TAGS: &[(&str, &[&str], &[&str], &str)] = &[
    ("think", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("deepseek-r1", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("qwen3", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("glm", &["<think>"], &["</think>"], "</think>"),
    ("kimi", &["<think>", "◁think▷"], &["</think>", "◁/think▷"], "</think>"),
    ("minimax", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("minimax-append-think", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("nemotron", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("step3", &["<think>"], &["</think>"], "\n</think>\n\n"),
    ("hunyuan", &["<think>"], &["</think>"], "\n</think>\n<answer>\n"),
    ("seed-oss", &["<seed:think>"], &["</seed:think>"], "</seed:think>"),
    ("mistral", &["[THINK]"], &["[/THINK]"], "[/THINK]"),
    ("gemma", &["<|channel>"], &["<channel|>"], "\n<channel|>"),
    (
        "granite",
        &["Here is my thought process:", "Here's my thought process:"],
        &["Here is my response:", "Here's my response:"],
        "\nHere is my response:",
    ),
    ("gpt-oss", &[], &["<|end|>"], "<|end|><|start|>assistant<|channel|>final<|message|>"),
];

impl Reasoning {
    /// A row of the table, or `tags:<a>,</a>`.
    pub fn named(name: &str) -> Option<Self> {
        if let Some((open, close)) = name.strip_prefix("tags:").and_then(|pair| pair.split_once(',')) {
            let plain = !open.is_empty() && !close.is_empty() && open != close;
            return plain.then(|| {
                Self::tags(name.to_owned(), [open.to_owned()], [close.to_owned()], close.to_owned())
            });
        }
        let &(name, open, close, forced) = TAGS.iter().find(|row| row.0 == name)?;
        let mut family = Self::tags(name, open.iter().copied(), close.iter().copied(), forced);
        match name {
            "hunyuan" => family.answer = Some(("<answer>", "</answer>")),
            "gemma" => family.label = "thought",
            "step3" => family.implicit = true,
            "minimax-append-think" => family.kept = true,
            "gpt-oss" => family.harmony = true,
            _ => {}
        }
        Some(family)
    }

    fn tags<T: Into<Text>>(
        name: impl Into<Text>,
        open: impl IntoIterator<Item = T>,
        close: impl IntoIterator<Item = T>,
        forced: impl Into<Text>,
    ) -> Self {
        Self {
            name: name.into(),
            open: open.into_iter().map(Into::into).collect(),
            label: "",
            close: close.into_iter().map(Into::into).collect(),
            answer: None,
            implicit: false,
            kept: false,
            harmony: false,
            forced: forced.into(),
        }
    }

    /// Whether a reply to a prompt that ends like this begins inside the thoughts.
    pub fn is_open_after(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        if self.harmony {
            return prompt.ends_with("<|channel|>analysis<|message|>");
        }
        let bare = prompt.strip_suffix(self.label).filter(|_| !self.label.is_empty()).unwrap_or(prompt);
        self.implicit || self.open.iter().any(|open| bare.ends_with(&**open))
    }

    /// Every text that may be a token with a meaning.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        let harmony = if self.harmony { HARMONY } else { &[] };
        let answer = self.answer.into_iter().flat_map(|(open, close)| [open, close]);
        self.open.iter().chain(&self.close).map(|text| &**text).chain(answer).chain(harmony.iter().copied())
    }
}

pub(super) const HARMONY: &[&str] =
    &["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"];
pub(super) const HARMONY_ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>"];

const NONE: NamedSpec = NamedSpec { kind: None, id: None, arguments: &[] };
const DEEPSEEK_V3: NamedSpec =
    NamedSpec { kind: Some("<｜tool▁sep｜>"), arguments: &["\n```json\n"], ..NONE };
const DEEPSEEK_V31: NamedSpec = NamedSpec { arguments: &["<｜tool▁sep｜>"], ..NONE };
const KIMI: NamedSpec = NamedSpec { arguments: &["<|tool_call_argument_begin|>"], ..NONE };
const MISTRAL: NamedSpec = NamedSpec { id: Some("[CALL_ID]"), arguments: &["[ARGS]"], ..NONE };
pub(super) const HARMONY_BODY: NamedSpec = NONE;

const QWEN_XML: XmlSpec = XmlSpec {
    name_end: ">",
    key: ("<parameter=", ">"),
    value: ("", "</parameter>"),
    end: "</function>",
    trims: true,
};
const MINIMAX_XML: XmlSpec = XmlSpec {
    name_end: "\">",
    key: ("<parameter name=\"", "\">"),
    value: ("", "</parameter>"),
    end: "</invoke>",
    trims: true,
};
const GLM_XML: XmlSpec = XmlSpec {
    name_end: "\n",
    key: ("<arg_key>", "</arg_key>"),
    value: ("<arg_value>", "</arg_value>"),
    end: "</tool_call>",
    trims: false,
};

const PLAIN: ToolFormat = ToolFormat {
    name: "",
    section: None,
    open: &[],
    bare: None,
    close: &[],
    between: "",
    body: BodyKind::Objects,
};

/// Every format of calls.
pub(in crate::text) static FORMATS: &[ToolFormat] = &[
    ToolFormat { name: "hermes", open: &["<tool_call>"], close: &["</tool_call>"], ..PLAIN },
    ToolFormat { name: "llama3-json", open: &["<|python_tag|>"], bare: Some('{'), between: ";", ..PLAIN },
    ToolFormat {
        name: "pythonic",
        open: &["<|python_start|>", "<|tool_call_start|>"],
        bare: Some('['),
        close: &["<|python_end|>", "<|tool_call_end|>"],
        body: BodyKind::Pythonic,
        ..PLAIN
    },
    ToolFormat { name: "mistral", open: &["[TOOL_CALLS]"], body: BodyKind::Either(&MISTRAL), ..PLAIN },
    ToolFormat {
        name: "qwen3-coder",
        section: Some(("<tool_call>", "</tool_call>")),
        open: &["<function="],
        body: BodyKind::Xml(&QWEN_XML),
        ..PLAIN
    },
    ToolFormat {
        name: "seed-oss",
        section: Some(("<seed:tool_call>", "</seed:tool_call>")),
        open: &["<function="],
        body: BodyKind::Xml(&QWEN_XML),
        ..PLAIN
    },
    ToolFormat {
        name: "deepseek-v3",
        section: Some(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
        open: &["<｜tool▁call▁begin｜>"],
        close: &["<｜tool▁call▁end｜>"],
        between: "`",
        body: BodyKind::Named(&DEEPSEEK_V3),
        ..PLAIN
    },
    ToolFormat {
        name: "deepseek-v3.1",
        section: Some(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
        open: &["<｜tool▁call▁begin｜>"],
        close: &["<｜tool▁call▁end｜>"],
        body: BodyKind::Named(&DEEPSEEK_V31),
        ..PLAIN
    },
    ToolFormat {
        name: "glm",
        open: &["<tool_call>"],
        close: &["</tool_call>"],
        body: BodyKind::Xml(&GLM_XML),
        ..PLAIN
    },
    ToolFormat {
        name: "kimi",
        section: Some(("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
        open: &["<|tool_call_begin|>"],
        close: &["<|tool_call_end|>"],
        body: BodyKind::Named(&KIMI),
        ..PLAIN
    },
    ToolFormat {
        name: "granite",
        open: &["<|tool_call|>", "<tool_call>"],
        close: &["</tool_call>"],
        ..PLAIN
    },
    // Its calls are messages: the reasoning family reads their headers.
    ToolFormat { name: "gpt-oss", close: HARMONY_ENDS, body: BodyKind::Named(&HARMONY_BODY), ..PLAIN },
    ToolFormat { name: "phi-4", open: &["functools"], ..PLAIN },
    ToolFormat {
        name: "functiongemma",
        open: &["<start_function_call>"],
        close: &["<end_function_call>"],
        body: BodyKind::Gemma("<escape>"),
        ..PLAIN
    },
    ToolFormat {
        name: "gemma4",
        open: &["<|tool_call>"],
        close: &["<tool_call|>"],
        body: BodyKind::Gemma("<|\"|>"),
        ..PLAIN
    },
    ToolFormat {
        name: "minimax",
        section: Some(("<minimax:tool_call>", "</minimax:tool_call>")),
        open: &["<invoke name=\""],
        body: BodyKind::Xml(&MINIMAX_XML),
        ..PLAIN
    },
];

impl ToolFormat {
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let section = self.section.into_iter().flat_map(|(begin, end)| [begin, end]);
        let inside: Vec<&'static str> = match self.body {
            BodyKind::Named(spec) | BodyKind::Either(spec) => {
                spec.kind.iter().chain(&spec.id).chain(spec.arguments).copied().collect()
            }
            BodyKind::Xml(spec) => vec![spec.key.0, spec.key.1, spec.value.0, spec.value.1, spec.end],
            BodyKind::Gemma(quote) => vec![quote],
            BodyKind::Objects | BodyKind::Pythonic => vec![],
        };
        section.chain(self.open.iter().copied()).chain(self.close.iter().copied()).chain(inside)
    }
}

/// What a template or a vocabulary says, and the family it gives away; the first row that fits.
const THOUGHTS_BY_TEXT: &[(&str, &str)] = &[
    ("<seed:think>", "seed-oss"),
    ("<|channel|>", "gpt-oss"),
    ("<|channel>", "gemma"),
    ("[THINK]", "mistral"),
    ("Here is my thought process:", "granite"),
    ("◁think▷", "kimi"),
];

/// Of the families that all write `<think>`, by what else their files say.
const THOUGHTS_BY_HINT: &[(&str, &str)] = &[
    ("hunyuan", "hunyuan"),
    ("minimax", "minimax"),
    ("<minimax:tool_call>", "minimax"),
    ("step3", "step3"),
    ("nemotron", "nemotron"),
    ("kimi", "kimi"),
    ("<|tool_calls_section_begin|>", "kimi"),
    ("<arg_key>", "glm"),
    ("glm4", "glm"),
    ("deepseek", "deepseek-r1"),
    ("<｜Assistant｜>", "deepseek-r1"),
    ("qwen3", "qwen3"),
    ("enable_thinking", "qwen3"),
];

const CALLS_BY_TEXT: &[(&str, &str)] = &[
    ("<|tool_calls_section_begin|>", "kimi"),
    ("<minimax:tool_call>", "minimax"),
    ("<seed:tool_call>", "seed-oss"),
    ("<start_function_call>", "functiongemma"),
    ("<|tool_call>", "gemma4"),
    ("<arg_key>", "glm"),
    ("<function=", "qwen3-coder"),
    ("<|constrain|>", "gpt-oss"),
    ("functools", "phi-4"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call|>", "granite"),
    ("<tool_call>", "hermes"),
    ("<|python_start|>", "pythonic"),
    ("<|tool_call_start|>", "pythonic"),
    ("<|python_tag|>", "llama3-json"),
];

/// The family of a model's thoughts, from its template, what its vocabulary has, and its architecture.
pub(in crate::text) fn guess_reasoning(
    template: &str,
    has_token: impl Fn(&str) -> bool,
    architecture: &str,
) -> Option<Reasoning> {
    let says = |text: &str| template.contains(text) || has_token(text);
    let named = |table: &[(&str, &'static str)], fits: &dyn Fn(&str) -> bool| {
        table.iter().find(|(hint, _)| fits(hint)).map(|(_, name)| *name)
    };
    let hint = |hint: &str| says(hint) || architecture.starts_with(hint);
    let thinks = says("<think>") || template.contains("</think>") || architecture.starts_with("step3");
    let name = named(THOUGHTS_BY_TEXT, &says)
        .or_else(|| thinks.then(|| named(THOUGHTS_BY_HINT, &hint).unwrap_or("think")))?;
    Reasoning::named(name)
}

/// The format of a model's calls; hermes where nothing says another.
pub(in crate::text) fn guess_tools(template: &str, has_token: impl Fn(&str) -> bool) -> &'static ToolFormat {
    let deepseek = "<｜tool▁calls▁begin｜>";
    let by = |fits: &dyn Fn(&str) -> bool| {
        if fits(deepseek) {
            return Some(if template.contains("```json") { "deepseek-v3" } else { "deepseek-v3.1" });
        }
        CALLS_BY_TEXT.iter().find(|(text, _)| fits(text)).map(|(_, name)| *name)
    };
    let name = by(&|text| template.contains(text)).or_else(|| by(&has_token)).unwrap_or("hermes");
    ToolFormat::named(name).unwrap_or(&FORMATS[0])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::{REASONING_PARSERS, TOOL_CALL_PARSERS};

    #[test]
    fn the_names_a_person_may_write_are_those_of_the_tables() {
        let names: Vec<&str> = TAGS.iter().map(|row| row.0).collect();
        assert_eq!(names, REASONING_PARSERS);
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        assert_eq!(names, TOOL_CALL_PARSERS);
        assert!(names.iter().all(|name| ToolFormat::named(name).is_some()));
        for table in [THOUGHTS_BY_TEXT, THOUGHTS_BY_HINT] {
            assert!(table.iter().all(|(_, name)| Reasoning::named(name).is_some()));
        }
        assert!(CALLS_BY_TEXT.iter().all(|(_, name)| ToolFormat::named(name).is_some()));
    }

    #[test]
    fn a_pair_of_tags_can_be_given() {
        let family = Reasoning::named("tags:<a>,</a>").unwrap();
        assert_eq!((&*family.open[0], &*family.close[0]), ("<a>", "</a>"));
        for bad in ["tags:", "tags:<a>", "tags:,x", "tags:x,x", "nobody"] {
            assert!(Reasoning::named(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn templates_vocabularies_and_architectures_give_families_away() {
        let thoughts = |template: &str, tokens: &[&str], architecture: &str| {
            guess_reasoning(template, |t| tokens.contains(&t), architecture)
                .map(|family| family.name.into_owned())
        };
        assert_eq!(thoughts("", &[], "llama"), None);
        assert_eq!(thoughts("{{ '<think>' }}", &[], "llama").as_deref(), Some("think"));
        assert_eq!(thoughts("", &["<think>"], "qwen3moe").as_deref(), Some("qwen3"));
        assert_eq!(thoughts("<think>", &["<｜Assistant｜>"], "qwen2").as_deref(), Some("deepseek-r1"));
        assert_eq!(thoughts("", &["<|channel|>"], "gpt-oss").as_deref(), Some("gpt-oss"));
        assert_eq!(thoughts("", &["[THINK]"], "llama").as_deref(), Some("mistral"));
        let calls = |template: &str, tokens: &[&str]| guess_tools(template, |t| tokens.contains(&t)).name;
        assert_eq!(calls("", &[]), "hermes");
        assert_eq!(calls("<tool_call>\\n<function=", &["<tool_call>"]), "qwen3-coder");
        assert_eq!(calls("", &["<tool_call>", "[TOOL_CALLS]"]), "mistral");
        assert_eq!(calls("<｜tool▁calls▁begin｜>```json", &[]), "deepseek-v3");
        assert_eq!(calls("", &["<｜tool▁calls▁begin｜>"]), "deepseek-v3.1");
    }

    #[test]
    fn what_a_prompt_ends_in_decides() {
        let open = |name: &str, prompt: &str| Reasoning::named(name).unwrap().is_open_after(prompt);
        assert!(open("qwen3", "<|im_start|>assistant\n<think>\n"));
        assert!(!open("qwen3", "<think>\n\n</think>\n\n"));
        assert!(open("gemma", "<|turn>model\n<|channel>thought\n") && open("gemma", "<|channel>"));
        assert!(!open("gemma", "a thought"));
        assert!(open("gpt-oss", "<|channel|>analysis<|message|>") && !open("gpt-oss", "<|start|>assistant"));
        assert!(open("step3", "anything"));
    }
}
