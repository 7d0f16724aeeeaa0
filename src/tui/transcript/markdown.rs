//! Markdown without fenced code at its top level, as styled lines that are still to be wrapped.

use super::code::CodeState;
use super::table::Table;
use crate::tui::sanitize::{MARK, MARK_BASE};
use crate::tui::theme::{Role, Theme};
use pulldown_cmark::{
    Alignment, BlockQuoteKind, CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd,
};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Rules are not longer than this.
const RULE: usize = 48;

/// A line, and what stands before those it is continued on when it is wrapped.
pub struct Prose {
    pub line: Line<'static>,
    pub hang: Vec<Span<'static>>,
}

/// The lines of `source`; `marks` are what its mark characters stand for.
pub fn render(source: &str, width: u16, theme: &Theme, marks: &[String]) -> Vec<Prose> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH
        | Options::ENABLE_GFM;
    let mut writer = Writer::new(width.into(), theme, marks);
    Parser::new_ext(source, options).for_each(|event| writer.event(event));
    writer.flush();
    writer.lines
}

struct Writer<'a> {
    width: usize,
    theme: &'a Theme,
    marks: &'a [String],
    lines: Vec<Prose>,
    /// The line being written.
    spans: Vec<Span<'static>>,
    /// From the outermost emphasis, link, heading to the innermost.
    styles: Vec<Style>,
    /// The quotes and list items that the line is in.
    levels: Vec<Level>,
    /// The next number of each list around, none where it has bullets.
    lists: Vec<Option<u64>>,
    /// Where links and images around lead, and how far the line was where they began.
    links: Vec<(String, usize)>,
    table: Option<Table>,
    code: Option<(CodeState, String)>,
    /// A blank line stands before the next block.
    gap: bool,
}

/// What stands before the lines of a quote or an item.
struct Level {
    first: Span<'static>,
    rest: Span<'static>,
    begun: bool,
}

impl<'a> Writer<'a> {
    fn new(width: usize, theme: &'a Theme, marks: &'a [String]) -> Self {
        Self {
            width,
            theme,
            marks,
            lines: Vec::new(),
            spans: Vec::new(),
            styles: Vec::new(),
            levels: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            table: None,
            code: None,
            gap: false,
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) => self.inline_code(&text),
            Event::InlineMath(text) => self.styled(&format!("${text}$"), self.theme.style(Role::Code)),
            Event::DisplayMath(text) => self.display_math(&text),
            Event::InlineHtml(text) => self.styled(&text, self.theme.style(Role::Muted)),
            Event::Html(text) => self.html(&text),
            Event::FootnoteReference(name) => self.styled(&format!("[^{name}]"), self.style()),
            Event::SoftBreak | Event::HardBreak if self.table.is_some() => self.text(" "),
            // People and models break lines where they mean it.
            Event::SoftBreak | Event::HardBreak => self.flush(),
            Event::Rule => self.rule(),
            Event::TaskListMarker(done) => self.task(done),
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.styles.push(heading(self.theme, level));
            }
            Tag::BlockQuote(kind) => self.begin_quote(kind),
            Tag::CodeBlock(kind) => self.begin_code(&kind),
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(first);
            }
            Tag::Item => self.begin_item(),
            Tag::Table(alignments) => self.begin_table(alignments),
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } => self.begin_link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.styled("image: ", self.theme.style(Role::Muted));
                self.begin_link(&dest_url);
            }
            Tag::HtmlBlock => self.begin_block(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.levels.pop();
                self.gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.gap |= self.lists.is_empty();
            }
            TagEnd::Item => {
                // An empty item has its bullet too.
                if self.levels.last().is_some_and(|level| !level.begun) || !self.spans.is_empty() {
                    self.push_line();
                }
                self.levels.pop();
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableHead | TagEnd::TableRow => self.with_table(Table::end_row),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                self.with_table(|table| table.cell(cell));
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => _ = self.styles.pop(),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(Style::new(), |under, style| under.patch(*style))
    }

    fn text(&mut self, text: &str) {
        if let Some((_, code)) = &mut self.code {
            return code.push_str(text);
        }
        self.styled(text, self.style());
    }

    /// Text in a style, the marks in it replaced by their notes.
    fn styled(&mut self, text: &str, style: Style) {
        for (nth, piece) in text.split(MARK).enumerate() {
            let mut rest = piece;
            if let Some(number) = piece.chars().next().filter(|_| nth > 0) {
                let index = (number as u32).wrapping_sub(MARK_BASE) as usize;
                let note = self.marks.get(index).map_or("", String::as_str);
                self.spans.push(Span::styled(format!("‹{note}›"), self.theme.style(Role::Warn)));
                rest = &piece[number.len_utf8()..];
            }
            if !rest.is_empty() {
                self.spans.push(Span::styled(rest.to_owned(), style));
            }
        }
    }

    fn inline_code(&mut self, text: &str) {
        let code = self.theme.style(Role::Code);
        // Where code has no look of its own, its signs stay.
        let text = if code == Style::new() { format!("`{text}`") } else { text.to_owned() };
        self.styled(&text, self.style().patch(code));
    }

    fn display_math(&mut self, text: &str) {
        let style = self.theme.style(Role::Code);
        for (nth, line) in text.trim().lines().enumerate() {
            if nth > 0 {
                self.flush();
            }
            self.styled(if nth == 0 { "$$ " } else { "   " }, style);
            self.styled(line.trim_end(), style);
        }
        self.styled(" $$", style);
    }

    fn html(&mut self, text: &str) {
        for line in text.trim_end_matches('\n').split('\n') {
            self.styled(line, self.theme.style(Role::Muted));
            self.flush();
        }
    }

    fn begin_block(&mut self) {
        self.flush();
        if std::mem::take(&mut self.gap) && !self.lines.is_empty() {
            let begun = self.levels.iter().filter(|level| level.begun);
            let spans: Vec<Span> = begun.map(|level| level.rest.clone()).collect();
            self.lines.push(Prose { line: Line::from(spans), hang: Vec::new() });
        }
    }

    fn end_block(&mut self) {
        self.flush();
        self.gap = true;
    }

    /// Ends the line, if something is in it.
    fn flush(&mut self) {
        if !self.spans.is_empty() {
            self.push_line();
        }
    }

    fn push_line(&mut self) {
        let mut spans: Vec<Span> = Vec::new();
        let mut hang = Vec::new();
        for level in &mut self.levels {
            spans.push(if level.begun { level.rest.clone() } else { level.first.clone() });
            level.begun = true;
            hang.push(level.rest.clone());
        }
        spans.append(&mut self.spans);
        self.lines.push(Prose { line: Line::from(spans), hang });
    }

    /// Cells that quotes and items leave.
    fn room(&self) -> usize {
        let taken: usize = self.levels.iter().map(|level| level.rest.width()).sum();
        self.width.saturating_sub(taken).max(1)
    }

    fn begin_quote(&mut self, kind: Option<BlockQuoteKind>) {
        self.begin_block();
        let bar = Span::styled("▎ ", self.theme.style(Role::Border));
        self.levels.push(Level { first: bar.clone(), rest: bar, begun: false });
        if let Some(kind) = kind {
            self.styled(name(kind), self.theme.style(Role::Heading));
            self.flush();
        }
    }

    fn begin_item(&mut self) {
        self.flush();
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => ["• ", "◦ ", "▪ "][self.lists.len().saturating_sub(1).min(2)].to_owned(),
        };
        self.push_level(marker);
    }

    fn push_level(&mut self, marker: String) {
        let rest = Span::raw(" ".repeat(Span::raw(marker.as_str()).width()));
        self.levels.push(Level {
            first: Span::styled(marker, self.theme.style(Role::Accent)),
            rest,
            begun: false,
        });
    }

    fn task(&mut self, done: bool) {
        if let Some(level) = self.levels.last_mut() {
            let role = if done { Role::Good } else { Role::Accent };
            level.first = Span::styled(if done { "☑ " } else { "☐ " }, self.theme.style(role));
            level.rest = Span::raw("  ");
        }
    }

    fn begin_link(&mut self, to: &str) {
        self.links.push((to.to_owned(), self.spans.len()));
        self.styles.push(self.theme.style(Role::Link));
    }

    /// Where it leads, unless the text says that.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((to, from)) = self.links.pop() else { return };
        let text: String =
            self.spans.get(from..).unwrap_or_default().iter().map(|span| span.content.as_ref()).collect();
        if text != to && format!("mailto:{text}") != to && !to.is_empty() {
            self.styled(&format!(" ({to})"), self.theme.style(Role::Muted));
        }
    }

    fn rule(&mut self) {
        self.begin_block();
        let rule = "─".repeat(self.room().min(RULE));
        self.styled(&rule, self.theme.style(Role::Border));
        self.end_block();
    }

    fn begin_code(&mut self, kind: &CodeBlockKind) {
        self.begin_block();
        let language: CowStr = match kind {
            CodeBlockKind::Fenced(language) => language.clone(),
            CodeBlockKind::Indented => "".into(),
        };
        if matches!(kind, CodeBlockKind::Fenced(_)) {
            let name = if language.is_empty() { "code" } else { &language };
            self.styled(&format!("╭ {name}"), self.theme.style(Role::Border));
            self.flush();
        }
        self.code = Some((CodeState::new(&language), String::new()));
    }

    fn end_code(&mut self) {
        let Some((mut state, code)) = self.code.take() else { return };
        let bar = Span::styled("│ ", self.theme.style(Role::Border));
        self.levels.push(Level { first: bar.clone(), rest: bar, begun: true });
        for line in code.trim_end_matches('\n').split('\n') {
            for (role, text) in state.line(line) {
                self.styled(&text, self.theme.style(role));
            }
            self.push_line();
        }
        self.levels.pop();
        self.end_block();
    }

    fn begin_table(&mut self, alignments: Vec<Alignment>) {
        self.begin_block();
        self.table = Some(Table::new(alignments));
    }

    fn with_table(&mut self, then: impl FnOnce(&mut Table)) {
        if let Some(table) = &mut self.table {
            then(table);
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        for line in table.lines(self.room(), self.theme) {
            self.spans = line.spans;
            self.push_line();
        }
        self.gap = true;
    }
}

fn heading(theme: &Theme, level: HeadingLevel) -> Style {
    let style = theme.style(Role::Heading).add_modifier(Modifier::BOLD);
    match level {
        HeadingLevel::H1 => style.add_modifier(Modifier::UNDERLINED),
        HeadingLevel::H2 => style,
        _ => style.add_modifier(Modifier::ITALIC),
    }
}

fn name(kind: BlockQuoteKind) -> &'static str {
    match kind {
        BlockQuoteKind::Note => "Note",
        BlockQuoteKind::Tip => "Tip",
        BlockQuoteKind::Important => "Important",
        BlockQuoteKind::Warning => "Warning",
        BlockQuoteKind::Caution => "Caution",
    }
}
