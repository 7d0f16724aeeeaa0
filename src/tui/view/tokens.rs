//! Token mode as it is drawn: the answer's tokens, and beside the one looked at its alternatives.

use super::entry::Frame;
use super::paint;
use super::transcript::GUTTER;
use crate::protocol::{Candidate, Channel};
use crate::tui::app::App;
use crate::tui::chat::Answer;
use crate::tui::drawn::Drawn;
use crate::tui::format;
use crate::tui::hits::Target;
use crate::tui::keymap::Place;
use crate::tui::reading::{self, Alternatives, Reading};
use crate::tui::theme::{Role, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// Columns of the popup where there is room, and most alternatives in it.
const POPUP: u16 = 48;
const SHOWN: usize = 9;

/// Which answer is read, and where the token stands in it.
pub fn head(app: &App, answer: &Answer) -> Line<'static> {
    let Some(reading) = &app.reading else { return Line::default() };
    let (at, all) = (format::count(reading.at as u64 + 1), format::count(answer.drawn.len() as u64));
    let mut words = vec![
        Span::styled(format!("tokens of {}", answer.seq), app.theme.style(Role::Focus)),
        Span::styled(format!("{at} of {all}"), app.theme.style(Role::Text)),
    ];
    let colours = app.keymap.hint(Place::Tokens, "colour_tokens", "colours");
    let back = app.keymap.hint(Place::Anywhere, "escape", "back");
    words
        .extend(colours.into_iter().chain(back).map(|hint| Span::styled(hint, app.theme.style(Role::Muted))));
    let mut line = paint::dotted(words, &app.theme);
    line.spans.insert(0, Span::raw("  "));
    line
}

pub fn height(frame: Frame, answer: &Answer) -> usize {
    with_rows(frame, answer, |_, rows| rows.len())
}

/// The line of the token that is looked at.
pub fn row(frame: Frame, answer: &Answer) -> usize {
    with_rows(frame, answer, |reading, rows| rows.row_of(reading.at))
}

pub fn visit(
    frame: Frame,
    answer: &Answer,
    (from, to): (usize, usize),
    mut show: impl FnMut(&Line<'static>),
) {
    let ranges =
        with_rows(frame, answer, |_, rows| (from..to).map(|row| rows.range(row)).collect::<Vec<_>>());
    let Some(reading) = &frame.app.reading else { return };
    for (first, end) in ranges {
        let mut line = Line::from(" ".repeat(GUTTER.into()));
        for index in first..end {
            let Some(token) = answer.drawn.get(index) else { break };
            let mut style = style(&frame.app.theme, &token, reading.coloured);
            if index == reading.at {
                style = style.add_modifier(Modifier::REVERSED | Modifier::BOLD);
            }
            let text = format::fit(&reading::piece(&token, reading.coloured), frame.look.width.into());
            line.spans.push(Span::styled(text, style));
        }
        show(&line);
    }
}

/// Makes the tokens in view places to point at, and remembers where the one looked at is.
pub fn note_hits(frame: Frame, answer: &Answer, from: usize, rows: Rect) {
    let Some(reading) = &frame.app.reading else { return };
    reading.drawn_at.set(None);
    for (nth, place) in rows.rows().enumerate() {
        let (first, end) = with_rows(frame, answer, |_, rows| rows.range(from + nth));
        let mut x = place.x + GUTTER;
        for index in first..end {
            let Some(token) = answer.drawn.get(index) else { break };
            let width = format::width(&reading::piece(&token, reading.coloured)) as u16;
            let cells = Rect { x, width, ..place }.intersection(place);
            frame.app.hits.note(cells, Target::Token(index));
            if index == reading.at {
                reading.drawn_at.set(Some(Position::new(x, place.y)));
            }
            x += width;
        }
    }
}

fn with_rows<R: Default>(
    frame: Frame,
    answer: &Answer,
    then: impl FnOnce(&Reading, &reading::Rows) -> R,
) -> R {
    let Some(reading) = &frame.app.reading else { return R::default() };
    let mut rows = reading.rows.borrow_mut();
    rows.lay(&answer.drawn, frame.look.width.into(), reading.coloured);
    then(reading, &rows)
}

/// By channel; or by how likely the token was, the least likely underlined too.
fn style(theme: &Theme, token: &Drawn, coloured: bool) -> Style {
    if !coloured {
        return theme.style(match token.channel {
            Channel::Content => Role::Text,
            Channel::Reasoning => Role::Thought,
            Channel::Tool => Role::Code,
            Channel::Marker => Role::Muted,
        });
    }
    match token.probability() {
        None => theme.style(Role::Accent).add_modifier(Modifier::ITALIC),
        Some(p) if p >= 0.8 => theme.style(Role::Text),
        Some(p) if p >= 0.5 => theme.style(Role::Good),
        Some(p) if p >= 0.2 => theme.style(Role::Warn),
        Some(p) if p >= 0.05 => theme.style(Role::Bad),
        Some(_) => theme.style(Role::Bad).add_modifier(Modifier::UNDERLINED),
    }
}

/// What might have stood in the token's place, beside it.
pub fn popup(app: &App, area: Rect, buf: &mut Buffer) {
    let Some(reading) = &app.reading else { return };
    let (Some(at), Some(answer)) = (reading.drawn_at.get(), app.chat.answer(reading.seq)) else { return };
    let Some(token) = answer.drawn.get(reading.at).filter(|_| area.width >= 24 && area.height >= 6) else {
        return;
    };
    let alternatives = reading::alternatives(app, answer, reading.at);
    let width = POPUP.min(area.width);
    // It leaves the text around the token in view.
    let shown = SHOWN.min(usize::from(area.height / 2).saturating_sub(3)).max(3);
    let lines = content(app, reading, &token, (&alternatives, shown), usize::from(width) - 2);
    let (below, above) = (area.bottom().saturating_sub(at.y + 1), at.y.saturating_sub(area.y));
    let height = (lines.len() as u16 + 2).min(below.max(above));
    let y = if height <= below { at.y + 1 } else { at.y - height };
    let x = at.x.saturating_sub(2).min(area.right() - width).max(area.x);
    frame(app, reading, &token, Rect { x, y, width, height }, buf);
    let inside = Rect { x: x + 1, y: y + 1, width: width - 2, height: height.saturating_sub(2) };
    paint::lines(&lines, inside, buf);
    let first = first(&alternatives, reading, shown);
    let rows = inside.rows().take(alternatives.candidates.len().min(shown));
    rows.enumerate().for_each(|(nth, row)| app.hits.note(row, Target::Alternative(first + nth)));
}

/// The first alternative shown: the chosen one, or the token itself, is among them.
fn first(alternatives: &Alternatives, reading: &Reading, shown: usize) -> usize {
    let chosen = reading.choice.unwrap_or(0);
    (chosen + 1).saturating_sub(shown).min(alternatives.candidates.len().saturating_sub(shown))
}

fn frame(app: &App, reading: &Reading, token: &Drawn, area: Rect, buf: &mut Buffer) {
    Clear.render(area, buf);
    let style = app.theme.style(Role::Focus);
    let wide = usize::from(area.width.saturating_sub(2));
    let title = format!(" token {} · id {} ", format::count(reading.at as u64 + 1), token.id);
    let keys = " j k choose · Enter forks ";
    let ruled = |text: &str| {
        let text = format::fit(text, wide);
        format!("{text}{}", "─".repeat(wide.saturating_sub(format::width(&text))))
    };
    for (row, place) in area.rows().enumerate() {
        let line = match row {
            0 => format!("╭{}╮", ruled(&title)),
            row if row + 1 == usize::from(area.height) => format!("╰{}╯", ruled(keys)),
            _ => format!("│{}│", " ".repeat(wide)),
        };
        buf.set_string(place.x, place.y, line, style);
    }
}

fn content(
    app: &App,
    reading: &Reading,
    token: &Drawn,
    (alternatives, shown): (&Alternatives, usize),
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines: Vec<Line> = (0..alternatives.candidates.len())
        .skip(first(alternatives, reading, shown))
        .take(shown)
        .map(|nth| alternative(theme, alternatives, nth, (reading.choice, token.id), width))
        .collect();
    let mut facts = Vec::new();
    if let Some(score) = token.score {
        facts.push(format!("{} raw", format::percent(f64::from(score.logprob).exp())));
        facts.push(format!("rank {}", format::count(u64::from(score.rank))));
        facts.push(format!("logprob {}", format::decimal(score.logprob)));
        facts.push(format!("entropy {} nat", format::decimal(score.entropy)));
    }
    if let Some((_, last)) = alternatives.entropies {
        facts.push(format!("{} after", format::decimal(last)));
    }
    let facts = facts.into_iter().map(|fact| Span::styled(fact, theme.style(Role::Muted)));
    lines.extend(paint::flowing(Span::raw(" "), facts, width, theme));
    if let Some(why) = &alternatives.why {
        let why = Line::styled(why.clone(), theme.style(Role::Muted));
        let wrapped = crate::tui::transcript::wrap::wrap(&why, width.saturating_sub(1), 0);
        lines.extend(wrapped.into_iter().map(|mut line| {
            line.spans.insert(0, Span::raw(" "));
            line
        }));
    }
    lines
}

/// `▸" the"   12.4% → 13.2%`, with ◀ at the drawn one and ✂ at what was cut.
fn alternative(
    theme: &Theme,
    alternatives: &Alternatives,
    nth: usize,
    (choice, drawn): (Option<usize>, u32),
    width: usize,
) -> Line<'static> {
    let Candidate { id, text, raw_probability, probability, cut_by, .. } = &alternatives.candidates[nth];
    let is_drawn = *id == drawn;
    let is_chosen = choice.map_or(is_drawn, |choice| choice == nth);
    let role = match (is_drawn, cut_by) {
        (true, _) => Role::Heading,
        (false, Some(_)) => Role::Muted,
        (false, None) => Role::Text,
    };
    let mut style = theme.style(role);
    if is_chosen {
        style = style.patch(theme.style(Role::Selection));
    }
    let raw = format::pad_left(&format::percent(f64::from(*raw_probability)), 6);
    let after = match cut_by {
        Some(stage) => format!("✂ {}", stage.name()),
        None => format!("→ {}", format::pad_left(&format::percent(f64::from(*probability)), 6)),
    };
    let name = format::pad(&format::quoted(text), width.saturating_sub(2 + 7 + 16));
    let sign = if is_chosen { "▸ " } else { "  " };
    let drawn = if is_drawn { " ◀" } else { "  " };
    Line::styled(format::pad(&format!("{sign}{name} {raw} {}{drawn}", format::pad(&after, 13)), width), style)
}
