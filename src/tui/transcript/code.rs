//! Syntax highlighting a line at a time, so that a growing code block costs its new lines only.
//!
//! syntect's own themes name colours; here a theme is built whose "colours" are the numbers of our
//! roles, so that code follows the screen's theme at every colour depth.

use crate::tui::theme::Role;
use std::str::FromStr;
use std::sync::LazyLock;
use syntect::highlighting::{
    Color, HighlightIterator, HighlightState, Highlighter, ScopeSelectors, StyleModifier, Theme, ThemeItem,
    ThemeSettings,
};
use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);
static THEME: LazyLock<Theme> = LazyLock::new(role_theme);
static HIGHLIGHTER: LazyLock<Highlighter<'static>> = LazyLock::new(|| Highlighter::new(&THEME));

/// Scope selectors and the role of what they select; later rows win where both match equally well.
const SCOPES: [(&str, Role); 9] = [
    ("comment", Role::Muted),
    ("string", Role::Good),
    ("constant, variable.parameter.function.language", Role::Code),
    ("keyword, storage", Role::Thought),
    ("keyword.operator, punctuation", Role::Text),
    ("entity.name, support.function, variable.function", Role::User),
    ("storage.type, support.type, support.class, entity.name.type", Role::Accent),
    ("entity.name.tag, markup.heading", Role::User),
    ("invalid", Role::Bad),
];

/// A piece of a line and what it is.
pub type Piece = (Role, String);

/// Loads the syntax definitions (tens of milliseconds), so that the first code block need not.
pub fn warm_up() {
    LazyLock::force(&SYNTAXES);
    LazyLock::force(&HIGHLIGHTER);
}

/// Where the highlighting of a code block stands after its last complete line.
pub struct CodeState(Option<(ParseState, HighlightState)>);

impl CodeState {
    /// By the fence's first word; plain where nobody knows the language.
    pub fn new(language: &str) -> Self {
        Self(
            find(language).map(|syntax| {
                (ParseState::new(syntax), HighlightState::new(&HIGHLIGHTER, ScopeStack::new()))
            }),
        )
    }

    /// A complete line, without its line break.
    pub fn line(&mut self, line: &str) -> Vec<Piece> {
        let Some((parse, highlight)) = &mut self.0 else { return plain(line) };
        let with_break = format!("{line}\n");
        match parse.parse_line(&with_break, &SYNTAXES) {
            Ok(operations) => HighlightIterator::new(highlight, &operations, &with_break, &HIGHLIGHTER)
                .map(|(style, text)| (role(style.foreground), text.trim_end_matches('\n').to_owned()))
                .filter(|(_, text)| !text.is_empty())
                .collect(),
            Err(_) => {
                self.0 = None;
                plain(line)
            }
        }
    }

    /// A line that is still growing: highlighted, but the state stays where it was.
    pub fn peek(&self, line: &str) -> Vec<Piece> {
        CodeState(self.0.clone()).line(line)
    }
}

fn find(language: &str) -> Option<&'static SyntaxReference> {
    let name = language.split([' ', ',', '{']).next()?.trim();
    let name = match name {
        "" | "text" | "plain" => return None,
        "typescript" | "ts" | "tsx" | "jsx" => "js",
        "shell" | "console" | "zsh" => "bash",
        "c++" | "cc" => "cpp",
        "toml" => "ini",
        other => other,
    };
    SYNTAXES.find_syntax_by_token(name)
}

fn plain(line: &str) -> Vec<Piece> {
    if line.is_empty() { Vec::new() } else { vec![(Role::Text, line.to_owned())] }
}

fn role_theme() -> Theme {
    let colour = |index: u8| Color { r: index, g: 0, b: 0, a: 255 };
    let scopes = (1u8..).zip(SCOPES).map(|(index, (selector, _))| ThemeItem {
        scope: ScopeSelectors::from_str(selector).expect("SCOPES are valid selectors"),
        style: StyleModifier { foreground: Some(colour(index)), background: None, font_style: None },
    });
    let settings = ThemeSettings { foreground: Some(colour(0)), ..ThemeSettings::default() };
    Theme { name: None, author: None, settings, scopes: scopes.collect() }
}

fn role(colour: Color) -> Role {
    usize::from(colour.r).checked_sub(1).and_then(|i| SCOPES.get(i)).map_or(Role::Text, |(_, role)| *role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_highlighted_line_by_line_with_the_state_carried_on() {
        let mut state = CodeState::new("rust");
        assert!(state.line("fn main() { /* open").contains(&(Role::Muted, " open".into())));
        assert_eq!(state.peek("still a comment */ let"), state.line("still a comment */ let"));
        assert!(state.line("let x = 1;").iter().any(|(role, text)| *role == Role::Code && text == "1"));
    }

    #[test]
    fn an_unknown_language_is_plain() {
        assert_eq!(CodeState::new("klingon").line("Qapla'"), [(Role::Text, "Qapla'".into())]);
        assert_eq!(CodeState::new("").line(""), []);
    }
}
