//! Panel 5: what did the parser decide? Token by token, the channel and what is held back.

use super::paint;
use crate::protocol::{Channel, HeldBack, SeqId, ToolCall};
use crate::tui::app::{App, ParsedToken};
use crate::tui::chat::Answer;
use crate::tui::format;
use crate::tui::history;
use crate::tui::looked;
use crate::tui::sanitize;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// Most lines for calls where the panel is low.
const CALLS: usize = 3;
/// Rows from which totals are shown too.
const TOTALS: usize = 10;
/// Width from which each token says its rank and log-probability.
const RANKS: usize = 84;

/// A token, and what its being a marker kept from being shown.
struct Taken<'a> {
    token: &'a ParsedToken,
    caught: Option<Caught<'a>>,
}

/// A tag or a stop string that came in several tokens.
struct Caught<'a> {
    /// What would have been seen of it.
    leaked: &'a str,
    tokens: usize,
}

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let seq = looked::parsed_sequence(app);
    let answer = seq.and_then(|seq| looked::answer(app, seq));
    let tokens = seq.map_or_else(Vec::new, |seq| so_far(app, seq));
    let mut lines = vec![parsers(app, width)];
    if let Some((seq, answer)) = seq.zip(answer) {
        lines.push(state(app, seq, answer, tokens.last().map(|t| t.token), width));
        lines.extend(thinking(app, answer, tokens.last().map(|t| t.token), width));
        if height >= TOTALS {
            lines.push(totals(app, answer, &tokens, width));
        }
        let most = if height > 24 { height / 3 } else { CALLS };
        lines.extend(calls(app, answer, tokens.last().map(|t| t.token), width, most));
    }
    // However much there is to say, the newest tokens are seen.
    lines.truncate(height.saturating_sub(2).max(1));
    let room = height.saturating_sub(lines.len());
    lines.extend(rows(app, &tokens, (width, room), focused));
    lines
}

/// The tokens drawn up to the step that is shown, oldest first.
fn so_far(app: &App, seq: SeqId) -> Vec<Taken<'_>> {
    let later = history::later_tokens(app).get(&seq).copied().unwrap_or(0);
    let all: Vec<&ParsedToken> = app.parsed.iter().filter(|token| token.seq == seq).collect();
    let shown = &all[..all.len().saturating_sub(later)];
    shown.iter().enumerate().map(|(at, token)| Taken { token, caught: caught(shown, at) }).collect()
}

/// Of a marker: what was held back before it, that is a part of it.
fn caught<'a>(tokens: &[&'a ParsedToken], at: usize) -> Option<Caught<'a>> {
    let held = |token: &&&ParsedToken| {
        !token.held.is_empty()
            && matches!(token.why, Some(HeldBack::Tag | HeldBack::StopString | HeldBack::ToolCall))
    };
    let ends = tokens[at].channel == Channel::Marker && tokens[at].held.is_empty();
    let before = tokens[..at].iter().rev().take_while(held).count();
    let last = at.checked_sub(1).filter(|_| ends && before > 0)?;
    Some(Caught { leaked: &tokens[last].held, tokens: before + 1 })
}

/// Which parsers are at work.
fn parsers(app: &App, width: usize) -> Line<'static> {
    let muted = app.theme.style(Role::Muted);
    let Some(info) = app.ready() else {
        return Line::styled("no model", muted);
    };
    let parser = match (&info.reasoning_parser, app.parse_reasoning) {
        (None, _) => "this model has no thinking tags".to_owned(),
        (Some(_), false) => "parser off (/think fold turns it on)".to_owned(),
        (Some(name), true) => format!("parser {}", sanitize::one_line(name)),
    };
    let calls = info.tool_call_parser.as_ref().map(|name| format!("calls {}", sanitize::one_line(name)));
    paint::fitting(std::iter::once(parser).chain(calls).map(|w| Span::styled(w, muted)), width, &app.theme)
}

/// `A 1 · in content · holds "</th" a tag?`.
fn state(app: &App, seq: SeqId, answer: &Answer, last: Option<&ParsedToken>, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let mut words = vec![Span::styled(format!("{} {seq}", App::letter(seq)), theme.sequence(App::hue(seq)))];
    match (last, &answer.outcome) {
        (_, Some(outcome)) => {
            let text = format!("ended: {}", outcome.reason.name());
            words.push(Span::styled(text, theme.style(Role::Muted)));
        }
        (None, None) => words.push(Span::styled("no token yet", theme.style(Role::Muted))),
        (Some(last), None) => {
            let (name, role) = channel(last.channel);
            words.push(Span::styled(format!("in {name}"), theme.style(role)));
        }
    }
    let held = last.filter(|token| !token.held.is_empty() && answer.outcome.is_none());
    words.extend(held.map(|token| {
        let why = token.why.map_or(String::new(), |why| format!(" {}", why.name()));
        let end = tail(format::quoted(&token.held).trim_matches('"'), 24);
        Span::styled(format!("holds \"{end}\"{why}"), theme.style(Role::Warn))
    }));
    paint::fitting(words, width, theme)
}

/// `thought 30 tok, 232 ms · 34 of 64 left · ███····`; nothing where there were no thoughts.
fn thinking(app: &App, answer: &Answer, last: Option<&ParsedToken>, width: usize) -> Option<Line<'static>> {
    if answer.reasoning_tokens == 0 && answer.budget.is_none() {
        return None;
    }
    let theme = &app.theme;
    let thinks = answer.outcome.is_none() && last.is_some_and(|t| t.channel == Channel::Reasoning);
    let spent = answer.thinking.map_or(0.0, |(from, to)| {
        let until = if thinks && !app.paused && history::back(app) == 0 { app.now.max(to) } else { to };
        (until - from).as_secs_f64() * 1e3
    });
    let count = |n: usize| format::count(n as u64);
    let tokens = answer.reasoning_tokens;
    let verb = if thinks { "thinking" } else { "thought" };
    let text = format!("{verb} {} tok, {}", count(tokens), format::millis(spent));
    let mut words = vec![Span::styled(text, theme.style(Role::Thought))];
    if let Some(budget) = answer.budget.map(|budget| budget as usize) {
        let left = format!("{} of {} left", count(budget.saturating_sub(tokens)), count(budget));
        words.push(Span::styled(left, theme.style(Role::Muted)));
        let (filled, rest) = paint::bar_text(tokens as f64 / budget.max(1) as f64, 8);
        words.push(Span::styled(filled + &"·".repeat(rest), theme.style(Role::Muted)));
    }
    Some(paint::fitting(words, width, theme))
}

/// Tokens of each channel, and how many tags were caught over the borders of tokens.
fn totals(app: &App, answer: &Answer, tokens: &[Taken], width: usize) -> Line<'static> {
    let theme = &app.theme;
    let all = [Channel::Content, Channel::Reasoning, Channel::Tool, Channel::Marker];
    let some = all.into_iter().filter(|c| answer.channels[*c as usize] > 0);
    let mut words: Vec<Span> = some
        .map(|c| {
            let (name, role) = channel(c);
            let tokens = format::count(answer.channels[c as usize] as u64);
            Span::styled(format!("{name} {tokens}"), theme.style(role))
        })
        .collect();
    let caught = tokens.iter().filter(|taken| taken.caught.is_some()).count();
    if caught > 0 {
        words.push(Span::styled(format!("caught {caught}"), theme.style(Role::Warn)));
    }
    paint::fitting(words, width, theme)
}

/// The calls of the answer, as they form, and those that were none after all.
fn calls(
    app: &App,
    answer: &Answer,
    last: Option<&ParsedToken>,
    width: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let forming = answer.outcome.is_none() && last.is_some_and(|t| t.channel == Channel::Tool);
    let count = answer.tool_calls.len();
    let skip = count.saturating_sub(most.max(1));
    let all = answer.tool_calls.iter().enumerate().skip(skip);
    let mut lines: Vec<Line> = all.map(|(i, c)| call(app, i, c, forming && i + 1 == count, width)).collect();
    if skip > 0
        && let Some(first) = lines.first_mut()
    {
        let text = format!("calls 1 to {}, and", skip + 1);
        *first = Line::styled(text, app.theme.style(Role::Muted));
    }
    lines.extend(answer.retracted.last().map(|name| {
        let text = format!("retracted: {} was no call, it came as text", sanitize::one_line(name));
        Line::styled(format::fit(&text, width), app.theme.style(Role::Warn))
    }));
    lines
}

/// `call 1 get_weather {"city": "Par…`. Of one that forms the end is seen: there it grows.
fn call(app: &App, index: usize, call: &ToolCall, forming: bool, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let head = format!("call {} {} ", index + 1, sanitize::one_line(&call.name));
    let head = format::fit(&head, width.saturating_sub(12));
    let arguments = sanitize::one_line(&call.arguments);
    let room = width.saturating_sub(format::width(&head) + 1);
    let (arguments, end) = match forming {
        true => (tail(&arguments, room), "…"),
        false => (format::fit(&arguments, room), ""),
    };
    Line::from(vec![
        Span::styled(head, theme.style(Role::Accent)),
        Span::styled(arguments + end, theme.style(Role::Code)),
    ])
}

/// The end of a text that is too long.
fn tail(text: &str, width: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation;
    if format::width(text) <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |g: &&str| {
        used += format::cells(g);
        used <= width
    };
    let end: Vec<&str> = text.graphemes(true).rev().take_while(fits).collect();
    format!("…{}", end.into_iter().rev().collect::<String>())
}

/// The newest tokens at the bottom, or those around the one that is selected.
fn rows(app: &App, tokens: &[Taken], (width, room): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    if tokens.is_empty() {
        return vec![Line::styled("no token yet", app.theme.style(Role::Muted))];
    }
    let is_chosen = |taken: &Taken| app.token == Some((taken.token.seq, taken.token.index));
    let chosen = tokens.iter().position(is_chosen);
    let end =
        chosen.map_or(tokens.len(), |at| (at + 1 + room / 3).min(tokens.len()).max(room.min(tokens.len())));
    let first = end.saturating_sub(room);
    let shown = tokens[first..end].iter();
    shown.map(|taken| row(app, taken, width, is_chosen(taken), focused)).collect()
}

/// `▸ 41 "<th"   → reasoning   held "<th" a tag?`.
fn row(app: &App, taken: &Taken, width: usize, chosen: bool, focused: bool) -> Line<'static> {
    let theme = &app.theme;
    let token = taken.token;
    let (name, role) = channel(token.channel);
    let text = (width / 3).clamp(8, 22);
    let mark = if chosen { "▸" } else { " " };
    let number = format::pad_left(&format::count(token.index as u64 + 1), 6);
    let mut spans = vec![
        Span::styled(mark, theme.style(Role::Accent)),
        Span::styled(format!("{number} "), theme.style(Role::Muted)),
        Span::styled(format::pad(&format::quoted(&token.text), text), theme.style(Role::Text)),
        Span::styled(" → ", theme.style(Role::Faint)),
        Span::styled(format::pad(name, 9), theme.style(role)),
    ];
    if width >= RANKS {
        spans.push(Span::styled(certainty(token), theme.style(Role::Muted)));
    }
    let room = width.saturating_sub(spans.iter().map(Span::width).sum::<usize>() + 1);
    spans.push(Span::raw(" "));
    spans.extend(remark(app, taken, room));
    if chosen && focused {
        let pick = theme.style(Role::Selection);
        spans.iter_mut().for_each(|span| span.style = span.style.patch(pick));
    }
    Line::from(spans)
}

/// `  id 20666  rank    1  logp -0.34`, or that it was not drawn.
fn certainty(token: &ParsedToken) -> String {
    let id = format::pad_left(&token.id.to_string(), 6);
    if token.forced {
        return format!("  id {id}  forced by its grammar");
    }
    let rank = format::pad_left(&format::count(token.rank), 6);
    format!("  id {id}  rank {rank}  logp {}", format::pad_left(&format::decimal(token.logprob), 6))
}

/// What is held back and why; at the end of a tag, what would have been seen of it.
fn remark(app: &App, taken: &Taken, room: usize) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let (warn, muted) = (theme.style(Role::Warn), theme.style(Role::Muted));
    if let Some(Caught { leaked, tokens }) = &taken.caught {
        let leaked = format::quoted(leaked);
        let long = format!("{leaked} would have leaked: it came in {tokens} tokens");
        let text = if format::width(&long) <= room { long } else { format!("! caught {leaked}") };
        return vec![Span::styled(format::fit(&text, room), warn)];
    }
    if taken.token.held.is_empty() {
        return Vec::new();
    }
    let why = taken.token.why.map_or(String::new(), |why| format!(" {}", why.name()));
    let label = if room < 30 { "" } else { "held " };
    let left = room.saturating_sub(label.len() + why.len()).max(4);
    let held = format::fit(&format::quoted(&taken.token.held), left);
    vec![Span::styled(format!("{label}{held}"), warn), Span::styled(why, muted)]
}

fn channel(channel: Channel) -> (&'static str, Role) {
    match channel {
        Channel::Content => ("content", Role::Good),
        Channel::Reasoning => ("reasoning", Role::Thought),
        Channel::Tool => ("tool call", Role::Accent),
        Channel::Marker => ("marker", Role::Warn),
    }
}
