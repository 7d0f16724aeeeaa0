//! An entry of the conversation as sections: a few lines each, or a document that knows its own.

use super::parallel::Streams;
use super::{calls, diff, paint, tokens, versions};
use crate::protocol::{FinishReason, SequenceState};
use crate::tui::app::App;
use crate::tui::chat::{Answer, Entry, Level, Note, Turn};
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::place::Part;
use crate::tui::theme::Role;
use crate::tui::transcript::{Document, Look};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

pub const CARET: &str = "▍";

/// A stretch of the transcript, and the message that it belongs to.
pub struct Section<'a> {
    pub part: Option<Part>,
    pub content: Content<'a>,
}

pub enum Content<'a> {
    Lines(Vec<Line<'static>>),
    Document {
        document: &'a Document,
        first: Span<'static>,
        rest: Span<'static>,
        style: Style,
        caret: bool,
    },
    /// Answers side by side.
    Streams(Streams<'a>),
    /// The answer token by token.
    Tokens(&'a Answer),
}

/// What the sections of a frame are made for.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    pub app: &'a App,
    pub look: Look<'a>,
    /// Of the transcript, gutters and all.
    pub area: (u16, u16),
}

pub fn sections<'a>(frame: Frame<'a>, entry: &'a Entry) -> Vec<Section<'a>> {
    let mut all = Sections { frame, all: Vec::new() };
    match entry {
        Entry::Note(note) => all.note(note),
        Entry::Turn(turn) => all.turn(turn),
    }
    all.all
}

impl Section<'_> {
    pub fn height(&self, frame: Frame) -> usize {
        match &self.content {
            Content::Lines(lines) => lines.len(),
            Content::Document { document, .. } => document.height(frame.look),
            Content::Tokens(answer) => tokens::height(frame, answer),
            Content::Streams(streams) => streams.height(),
        }
    }

    /// Its lines `from..to` of `height`, in order.
    pub fn visit(
        &self,
        (from, to): (usize, usize),
        height: usize,
        frame: Frame,
        mut show: impl FnMut(&Line<'static>),
    ) {
        match &self.content {
            Content::Lines(lines) => lines[from..to].iter().for_each(show),
            Content::Tokens(answer) => tokens::visit(frame, answer, (from, to), show),
            Content::Streams(streams) => streams.visit((from, to), show),
            Content::Document { document, first, rest, style, caret } => {
                let mut row = from;
                document.visit((from, to), frame.look, |line| {
                    let mut shown = in_gutter(line, if row == 0 { first } else { rest }, *style);
                    if *caret && row + 1 == height {
                        shown.spans.push(Span::styled(CARET, frame.app.theme.style(Role::Accent)));
                    }
                    show(&shown);
                    row += 1;
                });
            }
        }
    }
}

/// A line of a document behind its gutter.
pub fn in_gutter(line: &Line<'static>, gutter: &Span<'static>, style: Style) -> Line<'static> {
    let mut spans = vec![gutter.clone()];
    spans.extend(line.spans.iter().map(|s| Span::styled(s.content.clone(), style.patch(s.style))));
    Line::from(spans)
}

struct Sections<'a> {
    frame: Frame<'a>,
    all: Vec<Section<'a>>,
}

impl<'a> Sections<'a> {
    fn push(&mut self, part: Part, content: Content<'a>) {
        self.all.push(Section { part: Some(part), content });
    }

    fn lines(&mut self, part: Part, lines: Vec<Line<'static>>) {
        self.push(part, Content::Lines(lines));
    }

    fn blank(&mut self) {
        self.all.push(Section { part: None, content: Content::Lines(vec![Line::default()]) });
    }

    fn note(&mut self, note: &'a Note) {
        let theme = &self.frame.app.theme;
        let (sign, role, style) = match note.level {
            Level::Info => ("· ", Role::Faint, Role::Muted),
            Level::Good => ("✓ ", Role::Good, Role::Muted),
            Level::Bad => ("! ", Role::Bad, Role::Bad),
        };
        let content = Content::Document {
            document: &note.shown,
            first: Span::styled(sign, theme.style(role)),
            rest: Span::raw("  "),
            style: theme.style(style),
            caret: false,
        };
        self.all.push(Section { part: None, content });
    }

    fn turn(&mut self, turn: &'a Turn) {
        if turn.calls.is_empty() {
            self.said(turn);
        } else {
            self.calls(turn);
        }
        let versions = versions::line(self.frame.app, turn).into_iter().collect();
        self.lines(Part::Said, versions);
        if !turn.answers.is_empty() {
            self.blank();
            self.answers(turn);
        }
    }

    fn said(&mut self, turn: &'a Turn) {
        let app = self.frame.app;
        let user = app.theme.style(if turn.queued { Role::Muted } else { Role::User });
        let content = Content::Document {
            document: &turn.shown,
            first: Span::styled("› ", user),
            rest: Span::raw("  "),
            style: user.add_modifier(Modifier::BOLD),
            caret: false,
        };
        self.push(Part::Said, content);
        if turn.queued {
            let ready = app.ready().is_some();
            let sent = if ready { "  sent after this answer" } else { "  sent when the model is ready" };
            self.lines(Part::Said, vec![Line::styled(sent, app.theme.style(Role::Muted))]);
        }
    }

    /// What tools were asked and gave back: a card each, folded to its head and the result's first line.
    fn calls(&mut self, turn: &'a Turn) {
        let app = self.frame.app;
        let width = usize::from(self.frame.look.width);
        for call in &turn.calls {
            self.lines(Part::Said, vec![calls::head(app, call, width)]);
            if !call.is_done() {
                continue;
            }
            if !call.is_open(app.chat.thoughts_open) {
                self.lines(Part::Said, vec![calls::beginning(app, call, width)]);
                continue;
            }
            self.lines(Part::Said, calls::arguments(app, call, width));
            let border = app.theme.style(Role::Border);
            let (first, rest) = (Span::styled("├ ", border), Span::styled("│ ", border));
            let style = app.theme.style(Role::Text);
            if !call.shown.is_empty() {
                self.push(
                    Part::Said,
                    Content::Document { document: &call.shown, first, rest, style, caret: false },
                );
            }
            self.lines(Part::Said, vec![Line::styled("╰", border)]);
        }
    }

    fn answers(&mut self, turn: &'a Turn) {
        let frame = self.frame;
        let read = frame.app.reading.as_ref();
        let read = turn.answers.iter().position(|answer| read.is_some_and(|read| read.seq == answer.seq));
        if let Some(nth) = read {
            self.lines(Part::Answer(nth), vec![tokens::head(frame.app, &turn.answers[nth])]);
            self.push(Part::Answer(nth), Content::Tokens(&turn.answers[nth]));
            self.blank();
        } else if let Some((a, b)) = diff::here(frame.app, turn) {
            let lines = diff::lines(frame.app, a, b, frame.area);
            self.all.push(Section { part: None, content: Content::Lines(lines) });
        } else if turn.side || turn.answers.len() > 1 {
            let streams = Streams::new(frame.app, turn, frame.area, frame.look);
            self.all.push(Section { part: None, content: Content::Streams(streams) });
        } else {
            turn.answers.iter().enumerate().for_each(|(nth, answer)| self.answer(nth, answer));
        }
    }

    fn answer(&mut self, nth: usize, answer: &'a Answer) {
        let part = Part::Answer(nth);
        let app = self.frame.app;
        let live = answer.outcome.is_none();
        let mut started = false;
        if !answer.thoughts.is_empty() {
            self.thoughts(part, answer);
            self.blank();
            started = true;
        }
        let has_body = answer.body.height(self.frame.look) > 0;
        if has_body {
            let (first, rest) = (Span::raw("  "), Span::raw("  "));
            let style = app.theme.style(Role::Text);
            self.push(part, Content::Document { document: &answer.body, first, rest, style, caret: live });
            started = true;
        }
        if !answer.tool_calls.is_empty() {
            if has_body {
                self.blank();
            }
            let width = self.frame.look.width.into();
            self.lines(part, answer.tool_calls.iter().map(|c| calls::asked(app, c, width)).collect());
            started = true;
        }
        match &answer.outcome {
            None if !started => self.lines(part, vec![waiting(app, answer)]),
            None => {}
            Some(_) => {
                if started {
                    self.blank();
                }
                self.lines(part, ending(app, answer).into_iter().collect());
            }
        }
    }

    fn thoughts(&mut self, part: Part, answer: &'a Answer) {
        let app = self.frame.app;
        self.lines(part, vec![thoughts_head(app, answer)]);
        if answer.is_open(app.chat.thoughts_open) {
            let bar = Span::styled("│ ", app.theme.style(Role::Border));
            let content = Content::Document {
                document: &answer.thoughts,
                first: bar.clone(),
                rest: bar,
                style: app.theme.style(Role::Thought),
                caret: answer.outcome.is_none() && answer.body.is_empty(),
            };
            self.push(part, content);
        }
    }
}

fn thoughts_head(app: &App, answer: &Answer) -> Line<'static> {
    let open = answer.is_open(app.chat.thoughts_open);
    let thinks = answer.outcome.is_none() && answer.body.is_empty();
    let spent = answer.thinking.map_or(0.0, |(from, to)| (to - from).as_secs_f64() * 1e3);
    let verb = if thinks { "thinking" } else { "thought" };
    let facts =
        format!("{verb} {} · {} tok", format::millis(spent), format::count(answer.reasoning_tokens as u64));
    let mut line = Line::from(vec![
        Span::styled(if open { "▾ " } else { "▸ " }, app.theme.style(Role::Thought)),
        Span::styled(facts, app.theme.style(Role::Thought)),
    ]);
    let hint = folds(app, open).map(|hint| Span::styled(format!("  {hint}"), app.theme.style(Role::Muted)));
    line.spans.extend(hint);
    line
}

/// `Ctrl+O shows`: of thoughts and of results.
pub fn folds(app: &App, open: bool) -> Option<String> {
    app.keymap.hint(Place::Anywhere, "toggle_thoughts", if open { "folds" } else { "shows" })
}

/// Before the first token: what the engine is doing about it.
fn waiting(app: &App, answer: &Answer) -> Line<'static> {
    let view = app.snapshot.sequences.iter().find(|s| s.seq == answer.seq);
    let text = match view {
        Some(s) if s.state != SequenceState::Running && !app.paused => {
            let step = app.meter.steps.last();
            let waiting = step.and_then(|step| step.waiting.iter().find(|w| w.seq == answer.seq));
            waiting.map_or("waits for the next step".into(), |w| format!("waits: {}", w.reason))
        }
        Some(s) if s.computed_tokens < s.prompt_tokens && !app.paused => {
            let (done, all) =
                (format::count(s.computed_tokens as u64), format::count(s.prompt_tokens as u64));
            format!("reading the prompt {done}/{all}")
        }
        _ if app.paused => paused(app, ("step", "steps"), ("toggle_pause", "resumes")),
        _ => "…".into(),
    };
    Line::from(vec![
        Span::raw("  "),
        Span::styled(text, app.theme.style(Role::Muted)),
        Span::styled(CARET, app.theme.style(Role::Accent)),
    ])
}

/// `paused: F6 steps, F5 resumes`
pub fn paused(app: &App, first: (&str, &str), second: (&str, &str)) -> String {
    let hint = |(row, does)| app.keymap.hint(Place::Anywhere, row, does);
    let hints: Vec<String> = [first, second].into_iter().filter_map(hint).collect();
    if hints.is_empty() { "paused".into() } else { format!("paused: {}", hints.join(", ")) }
}

/// How the answer ended and what it took.
fn ending(app: &App, answer: &Answer) -> Option<Line<'static>> {
    let outcome = answer.outcome.as_ref()?;
    let (why, role) = match &outcome.reason {
        // The note that follows says why.
        FinishReason::Error(_) if answer.text.is_empty() => {
            return Some(Line::styled("  not answered", app.theme.style(Role::Muted)));
        }
        FinishReason::Error(_) => ("ended by an error", Role::Bad),
        FinishReason::Abort => ("stopped", Role::Warn),
        FinishReason::Length => ("cut at the length limit", Role::Warn),
        FinishReason::Repetition => ("ended: it repeats itself", Role::Warn),
        FinishReason::StopString(_) => ("stop string", Role::Muted),
        FinishReason::ToolCalls => ("asks for tools", Role::Accent),
        FinishReason::Stop => ("", Role::Faint),
    };
    let faint = app.theme.style(Role::Muted).add_modifier(Modifier::DIM);
    let mut words = Vec::new();
    if !why.is_empty() {
        words.push(Span::styled(why, app.theme.style(role)));
    }
    words.push(Span::styled(format!("{} tok", format::count(answer.tokens as u64)), faint));
    if outcome.timings.tokens_per_second > 0.0 {
        words.push(Span::styled(format!("{} tok/s", format::rate(outcome.timings.tokens_per_second)), faint));
    }
    if let Some(ttft) = answer.ttft_ms() {
        words.push(Span::styled(format!("TTFT {}", format::millis(ttft)), faint));
    }
    let usage = &outcome.usage;
    if usage.cached_tokens > 0 {
        let count = |n: usize| format::count(n as u64);
        let cached = format!("{}/{} cached", count(usage.cached_tokens), count(usage.prompt_tokens));
        words.push(Span::styled(cached, faint));
    }
    let mut line = paint::dotted(words, &app.theme);
    line.spans.insert(0, Span::raw("  "));
    Some(line)
}
