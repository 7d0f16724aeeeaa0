//! One token's waterfall as a list of candidates with who cut each, and the words for what stages did.
//! With room for it `stage_table` draws it instead.

use super::paint;
use crate::protocol::{Candidate, PARAMS, SamplingTrace, Stage, StageView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::looked;
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A percentage, or the short name of a stage behind scissors.
pub(super) const FATE: usize = 8;
/// `12.4%`.
pub(super) const PERCENT: usize = 6;

/// The likeliest candidates, entropy and the chain of stages, in at most `height` rows.
pub fn list(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let mut rest = vec![summary(app, trace, tried, width)];
    rest.extend(verdict(app, trace, tried, width));
    match stage(app, trace) {
        Some(view) => rest.extend(stage_words(app, trace, tried, view, width)),
        None => rest.extend(chain(app, trace, tried, width)),
    }
    rest.extend(grammar(app, trace, width));
    let mut lines: Vec<Line> = tried.map(|_| list_head(app, width)).into_iter().collect();
    let room = height.saturating_sub(rest.len() + lines.len()).max(1);
    lines.extend(chosen(trace, tried, room).into_iter().map(|c| list_row(app, trace, tried, c, width)));
    lines.extend(rest);
    lines.truncate(height);
    lines
}

/// The likeliest, and what was drawn, or would be, wherever it ranks.
pub(super) fn chosen<'a>(
    trace: &'a SamplingTrace,
    tried: Option<&'a SamplingTrace>,
    room: usize,
) -> Vec<&'a Candidate> {
    let mut chosen: Vec<&Candidate> = trace.candidates.iter().take(room).collect();
    let mut last = chosen.len();
    let drawn = trace.candidates.iter().find(|c| c.id == trace.drawn);
    let would = tried.and_then(|tried| tried.candidates.iter().find(|c| c.id == tried.drawn));
    for wanted in drawn.into_iter().chain(would) {
        if last > 0 && !chosen.iter().any(|c| c.id == wanted.id) {
            last -= 1;
            chosen[last] = wanted;
        }
    }
    chosen
}

fn list_head(app: &App, width: usize) -> Line<'static> {
    let at = width.saturating_sub(PERCENT + 2 * FATE + 2);
    let text = format!("{}raw      was      now", " ".repeat((at + 3).min(width)));
    Line::styled(format::fit(&text, width), app.theme.style(Role::Muted))
}

/// `" Paris"  ██████▏ 71.2% ◀ 88.0%`, or `✂ top-p` for what a stage cut; with what is tried beside it.
fn list_row(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    c: &Candidate,
    width: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let drawn = c.id == trace.drawn;
    let text_width = (width / 3).clamp(6, 18);
    let fates = if tried.is_some() { 2 * FATE + 2 } else { FATE };
    let bar_width = width.saturating_sub(text_width + 1 + 1 + PERCENT + 1 + fates).clamp(0, 24);
    let (name, hue) = styles(app, drawn, c.cut_by.is_some());
    let mut spans =
        vec![Span::styled(format::pad(&format::quoted(&c.text), text_width), name), Span::raw(" ")];
    let (filled, rest) = paint::bar_text(f64::from(c.raw_probability), bar_width);
    spans.push(Span::styled(filled, hue));
    spans.push(Span::raw(" ".repeat(rest + 1)));
    let raw = format::pad_left(&format::percent(f64::from(c.raw_probability)), PERCENT);
    spans.push(Span::styled(raw, theme.style(Role::Text)));
    spans.push(Span::raw(" "));
    spans.push(fate(app, trace, c.id));
    if let Some(tried) = tried {
        spans.push(Span::raw(" "));
        spans.push(fate(app, tried, c.id));
    }
    Line::from(spans)
}

/// Of name and bar.
pub(super) fn styles(app: &App, drawn: bool, cut: bool) -> (Style, Style) {
    let (name, hue) = match (drawn, cut) {
        (true, _) => (Role::Heading, Role::Accent),
        (_, true) => (Role::Muted, Role::Faint),
        _ => (Role::Text, Role::Muted),
    };
    (app.theme.style(name), app.theme.style(hue))
}

/// What became of it: how likely it was in the end, marked where it was drawn, or who cut it.
pub(super) fn fate(app: &App, trace: &SamplingTrace, id: u32) -> Span<'static> {
    let theme = &app.theme;
    let drawn = id == trace.drawn;
    let Some(c) = trace.candidates.iter().find(|c| c.id == id) else {
        return Span::styled(format::pad_left("-", FATE), theme.style(Role::Faint));
    };
    match c.cut_by {
        Some(stage) => {
            Span::styled(format::pad(&format!("✂{}", short(stage)), FATE), theme.style(Role::Warn))
        }
        None => {
            let share = format::pad_left(&format::percent(f64::from(c.probability)), FATE - 1);
            let (mark, role) = if drawn { ("◀", Role::Accent) } else { (" ", Role::Muted) };
            Span::styled(format!("{mark}{share}"), theme.style(role))
        }
    }
}

/// A stage's name in the seven cells that a column has.
pub(super) fn short(stage: Stage) -> &'static str {
    match stage {
        Stage::Temperature => "temp",
        Stage::TopNSigma => "n-sigma",
        Stage::TypicalP => "typical",
        Stage::Mirostat => "miro",
        Stage::Repetition => "repeat",
        Stage::Frequency => "freq",
        Stage::Presence => "pres",
        Stage::AdaptiveP => "adapt",
        stage => stage.name(),
    }
}

/// Entropy before and after the stages; rank and log-probability of the drawn token.
pub(super) fn summary(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    width: usize,
) -> Line<'static> {
    let entropy = (format::decimal(trace.entropy), format::decimal(trace.final_entropy));
    let now = tried.map_or(String::new(), |t| format!(", tried {}", format::decimal(t.final_entropy)));
    let mut words = vec![format!("H {}→{}{now} nat", entropy.0, entropy.1)];
    if let Some(token) = looked::token(app, trace.seq, trace.index) {
        words.push(format!("rank {}", format::count(token.rank)));
        words.push(format!("logp {}", format::decimal(token.logprob)));
    }
    if width >= 56 {
        let kept = trace.stages.last().map_or(trace.vocab_size, |s| s.survivors);
        words.push(format!("kept {}", format::count(kept as u64)));
    }
    let words = words.into_iter().map(|w| Span::styled(w, app.theme.style(Role::Muted)));
    paint::fitting(words, width, &app.theme)
}

/// What would have been drawn instead.
pub(super) fn verdict(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    width: usize,
) -> Option<Line<'static>> {
    let tried = tried?;
    let text = |trace: &SamplingTrace| {
        let drawn = trace.candidates.iter().find(|c| c.id == trace.drawn);
        drawn.map_or_else(|| format!("token {}", trace.drawn), |c| format::quoted(&c.text))
    };
    let (words, role) = match tried.drawn == trace.drawn {
        true => (format!("would have drawn {} all the same", text(tried)), Role::Text),
        false => (format!("would have drawn {} instead of {}", text(tried), text(trace)), Role::Accent),
    };
    Some(Line::styled(format::fit(&words, width), app.theme.style(role)))
}

/// `grammar 3 of 49,152: "{" "{\n" …, may end`, where one held the token.
pub(super) fn grammar(app: &App, trace: &SamplingTrace, width: usize) -> Option<Line<'static>> {
    let view = trace.grammar.as_ref()?;
    let (allowed, of) = (format::count(view.allowed as u64), format::count(trace.vocab_size as u64));
    let end = if view.may_end { ", may end" } else { "" };
    let mut words = format!("grammar {allowed} of {of}:");
    for text in &view.first {
        let word = format!(" {}", format::quoted(text));
        if format::width(&words) + format::width(&word) + 2 + end.len() > width {
            words += " …";
            break;
        }
        words += &word;
    }
    Some(Line::styled(words + end, app.theme.style(Role::Muted)))
}

/// Those that did something, in the order in force.
pub(super) fn acting(trace: &SamplingTrace) -> impl Iterator<Item = &StageView> {
    trace.stages.iter().filter(|view| view.active && view.stage != Stage::Raw)
}

/// The stage that is looked at, where it acted on this token.
pub(super) fn stage<'a>(app: &App, trace: &'a SamplingTrace) -> Option<&'a StageView> {
    acting(trace).find(|view| Some(view.stage) == app.panels.sampling.stage)
}

/// Tokens left before a stage.
pub(super) fn before(trace: &SamplingTrace, stage: Stage) -> usize {
    let at = trace.stages.iter().position(|view| view.stage == stage).unwrap_or(0);
    at.checked_sub(1).map_or(trace.vocab_size, |at| trace.stages[at].survivors)
}

/// Entropy before a stage, where it was counted.
fn entropy_before(trace: &SamplingTrace, stage: Stage) -> Option<f32> {
    let at = trace.stages.iter().position(|view| view.stage == stage)?;
    trace.stages[..at].iter().rev().find(|view| view.active)?.entropy
}

/// What one stage did: its setting, its survivors before and after, and the candidates that it cut.
pub(super) fn stage_words(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    view: &StageView,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let (text, muted) = (theme.style(Role::Text), theme.style(Role::Muted));
    let count = |n: usize| format::count(n as u64);
    let was = before(trace, view.stage);
    let mut words = vec![
        Span::styled(named(trace, view.stage), theme.style(Role::Heading)),
        Span::styled(format!("{} → {} left", count(was), count(view.survivors)), text),
    ];
    if let Some((from, to)) = entropy_before(trace, view.stage).zip(view.entropy) {
        words.push(Span::styled(format!("H {}→{}", format::decimal(from), format::decimal(to)), text));
    }
    let tried = tried.and_then(|tried| tried.stages.iter().find(|s| s.stage == view.stage));
    words.extend(tried.map(|t| Span::styled(format!("tried {} left", count(t.survivors)), text)));
    let mut lines = paint::flowing(Span::raw(""), words, width, theme);
    let cut: Vec<&Candidate> = trace.candidates.iter().filter(|c| c.cut_by == Some(view.stage)).collect();
    let cut_words = match cut.len() {
        0 => "none of those shown fell here".to_owned(),
        n => {
            let texts: Vec<String> = cut.iter().take(6).map(|c| format::quoted(&c.text)).collect();
            let more = if n > 6 { " …" } else { "" };
            let mass: f32 = cut.iter().map(|c| c.raw_probability).sum();
            let mass = format::percent(f64::from(mass));
            format!("✂ {n} of {} shown, {mass} of raw: {}{more}", trace.candidates.len(), texts.join(" "))
        }
    };
    let role = if cut.is_empty() { muted } else { theme.style(Role::Warn) };
    lines.push(Line::styled(format::fit(&cut_words, width), role));
    lines
}

/// The stage, and the value of its parameter: `top-k 40`.
fn named(trace: &SamplingTrace, stage: Stage) -> String {
    let parameter = match stage {
        Stage::Repetition => "repetition_penalty",
        Stage::Frequency => "frequency_penalty",
        Stage::Presence => "presence_penalty",
        Stage::Dry => "dry_multiplier",
        Stage::Temperature => "temperature",
        Stage::TopNSigma => "top_n_sigma",
        Stage::TopK => "top_k",
        Stage::TypicalP => "typical_p",
        Stage::TopP => "top_p",
        Stage::MinP => "min_p",
        Stage::Xtc => "xtc_threshold",
        Stage::Mirostat => "mirostat",
        Stage::AdaptiveP => "adaptive_target",
        Stage::Raw | Stage::Bias | Stage::Grammar => return stage.name().to_owned(),
    };
    let spec = PARAMS.iter().find(|spec| spec.name == parameter);
    let value = spec.map_or(String::new(), |spec| format!(" {}", (spec.get)(&trace.params)));
    format!("{}{value}", stage.name())
}

/// `raw 49,152 → top-k 40 → top-p 12 → min-p 3 · order default`, in the order in force and without idle
/// stages; with what is tried as `top-k 40/5`. Wrapped to the width.
fn chain(
    app: &App,
    trace: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines = vec![Line::default()];
    let mut left = trace.vocab_size;
    let shown = tried.unwrap_or(trace);
    let acted = shown.stages.iter().filter(|view| view.active || view.stage == Stage::Raw);
    for (i, view) in acted.enumerate() {
        let cut = view.survivors < left;
        left = view.survivors;
        let was = tried.and_then(|_| trace.stages.iter().find(|s| s.stage == view.stage));
        let count = match was.filter(|was| was.survivors != view.survivors) {
            Some(was) => format!(" {}→{}", format::count(was.survivors as u64), format::count(left as u64)),
            None if i == 0 || cut => format!(" {}", format::count(left as u64)),
            None => String::new(),
        };
        let role = if cut { Role::Warn } else { Role::Text };
        let wide = 3 + view.stage.name().len() + format::width(&count);
        if lines.last().is_some_and(|line| line.width() + wide > width) {
            lines.push(Line::default());
        }
        if let Some(line) = lines.last_mut() {
            let arrow = match (i, line.spans.is_empty()) {
                (0, _) => "",
                (_, true) => "→ ",
                (_, false) => " → ",
            };
            line.spans.push(Span::styled(arrow, theme.style(Role::Faint)));
            line.spans.push(Span::styled(format!("{}{count}", view.stage.name()), theme.style(role)));
        }
    }
    let order = format!(" · {}", order(trace));
    if let Some(line) = lines.last_mut().filter(|line| line.width() + format::width(&order) <= width) {
        line.spans.push(Span::styled(order, theme.style(Role::Muted)));
    }
    lines
}

pub(super) fn order(trace: &SamplingTrace) -> String {
    match &trace.params.sampler_order.names()[..] {
        [preset] => format!("order {preset}"),
        _ => "own order".to_owned(),
    }
}
