//! One closed piece of markdown (no fenced code at its top level) as styled lines.

use crate::tui::theme::{Role, Theme};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use tui_markdown::{AlertKind, Options, StyleSheet};

/// The lines of `source`, unwrapped but for its tables, each with the hang of its continuation.
pub fn render(source: &str, width: u16, theme: &Theme) -> Vec<(Line<'static>, usize)> {
    let options = Options::new(Sheet::new(theme)).table_width(width);
    let text = tui_markdown::from_str_with_options(source, &options);
    text.lines.into_iter().map(|line| finish(own(line), width, theme)).collect()
}

/// Bullets, quote bars and rules in place of the markdown characters, and where text hangs.
fn finish(mut line: Line<'static>, width: u16, theme: &Theme) -> (Line<'static>, usize) {
    if line.spans.len() == 1 && line.spans[0].content == "---" {
        return (Line::styled("─".repeat(width.min(48).into()), theme.style(Role::Border)), 0);
    }
    let mut hang = 0;
    for span in &mut line.spans {
        let text = span.content.trim_start();
        let indent = span.content.len() - text.len();
        if text == ">" {
            *span = Span::styled("▎", theme.style(Role::Border));
            hang += 1;
        } else if text == "- " || text.starts_with("- [") {
            let bullet = text.replacen('-', "•", 1).replace("• [x]", "☑").replace("• [ ]", "☐");
            *span = Span::styled(" ".repeat(indent) + &bullet, theme.style(Role::Accent));
            hang += span.width();
            break;
        } else if is_number_marker(text) {
            span.style = theme.style(Role::Accent);
            hang += span.width();
            break;
        } else if span.content.as_ref() == " " && hang > 0 {
            hang += 1;
        } else {
            break;
        }
    }
    (line, hang)
}

fn is_number_marker(text: &str) -> bool {
    text.strip_suffix(". ")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit() || b == b' '))
}

fn own(line: Line<'_>) -> Line<'static> {
    let style = line.style;
    let spans = line.spans.into_iter().map(|s| Span::styled(s.content.into_owned(), s.style));
    Line::from(spans.collect::<Vec<_>>()).style(style)
}

#[derive(Clone)]
struct Sheet {
    heading: Style,
    code: Style,
    link: Style,
    muted: Style,
    border: Style,
    warn: Style,
    accent: Style,
}

impl Sheet {
    fn new(theme: &Theme) -> Self {
        Self {
            heading: theme.style(Role::Heading),
            code: theme.style(Role::Code),
            link: theme.style(Role::Link),
            muted: theme.style(Role::Muted),
            border: theme.style(Role::Border),
            warn: theme.style(Role::Warn),
            accent: theme.style(Role::Accent),
        }
    }
}

impl StyleSheet for Sheet {
    fn heading(&self, level: u8) -> Style {
        if level == 1 { self.heading.add_modifier(Modifier::UNDERLINED) } else { self.heading }
    }
    fn heading_marker(&self, _level: u8) -> &str {
        ""
    }
    fn code(&self) -> Style {
        self.code
    }
    fn code_block_fence(&self) -> &str {
        ""
    }
    fn link(&self) -> Style {
        self.link
    }
    fn blockquote(&self) -> Style {
        self.muted
    }
    fn heading_meta(&self) -> Style {
        self.muted
    }
    fn metadata_block(&self) -> Style {
        self.muted
    }
    fn html(&self) -> Style {
        self.muted
    }
    fn math_inline(&self) -> Style {
        self.code
    }
    fn math_display(&self) -> Style {
        self.code
    }
    fn footnote_ref(&self) -> Style {
        self.accent
    }
    fn footnote_def(&self) -> Style {
        self.muted
    }
    fn definition_term(&self) -> Style {
        self.heading
    }
    fn definition_description(&self) -> Style {
        Style::new()
    }
    fn alert(&self, kind: AlertKind) -> Style {
        match kind {
            AlertKind::Warning | AlertKind::Caution => self.warn,
            AlertKind::Note | AlertKind::Tip | AlertKind::Important => self.accent,
        }
    }
    fn table_header(&self) -> Style {
        self.heading
    }
    fn table_cell(&self) -> Style {
        Style::new()
    }
    fn table_border(&self) -> Style {
        self.border
    }
    fn list_marker(&self) -> Style {
        self.accent
    }
    fn image_alt(&self) -> Style {
        self.muted
    }
}
