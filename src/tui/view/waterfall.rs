//! One token's waterfall: as a list of candidates with who cut each or, with room for it, as a table
//! whose columns are the stages.

use super::paint;
use crate::protocol::{Candidate, PARAMS, SamplingTrace, Stage, StageView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::looked;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A percentage, or the short name of a stage behind scissors.
const FATE: usize = 8;
/// `12.4%`.
const PERCENT: usize = 6;

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
fn chosen<'a>(trace: &'a SamplingTrace, tried: Option<&'a SamplingTrace>, room: usize) -> Vec<&'a Candidate> {
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
fn styles(app: &App, drawn: bool, cut: bool) -> (Style, Style) {
    let (name, hue) = match (drawn, cut) {
        (true, _) => (Role::Heading, Role::Accent),
        (_, true) => (Role::Muted, Role::Faint),
        _ => (Role::Text, Role::Muted),
    };
    (app.theme.style(name), app.theme.style(hue))
}

/// What became of it: how likely it was in the end, marked where it was drawn, or who cut it.
fn fate(app: &App, trace: &SamplingTrace, id: u32) -> Span<'static> {
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
fn short(stage: Stage) -> &'static str {
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
fn summary(app: &App, trace: &SamplingTrace, tried: Option<&SamplingTrace>, width: usize) -> Line<'static> {
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
fn verdict(
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
fn grammar(app: &App, trace: &SamplingTrace, width: usize) -> Option<Line<'static>> {
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
fn acting(trace: &SamplingTrace) -> impl Iterator<Item = &StageView> {
    trace.stages.iter().filter(|view| view.active && view.stage != Stage::Raw)
}

/// The stage that is looked at, where it acted on this token.
fn stage<'a>(app: &App, trace: &'a SamplingTrace) -> Option<&'a StageView> {
    acting(trace).find(|view| Some(view.stage) == app.panels.sampling.stage)
}

/// Tokens left before a stage.
fn before(trace: &SamplingTrace, stage: Stage) -> usize {
    let at = trace.stages.iter().position(|view| view.stage == stage).unwrap_or(0);
    at.checked_sub(1).map_or(trace.vocab_size, |at| trace.stages[at].survivors)
}

/// Entropy before a stage, where it was counted.
fn entropy_before(trace: &SamplingTrace, stage: Stage) -> Option<f32> {
    let at = trace.stages.iter().position(|view| view.stage == stage)?;
    trace.stages[..at].iter().rev().find(|view| view.active)?.entropy
}

/// What one stage did: its setting, its survivors before and after, and the candidates that it cut.
fn stage_words(
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
        line.spans.push(Span::styled(order, theme.style(Role::Faint)));
    }
    lines
}

fn order(trace: &SamplingTrace) -> String {
    match &trace.params.sampler_order.names()[..] {
        [preset] => format!("order {preset}"),
        _ => "own order".to_owned(),
    }
}

/// Where the columns of the table stand.
struct Columns {
    name: usize,
    /// Of the bars before and after.
    bar: usize,
    cumulative: bool,
    stage: usize,
    /// Beside what is tried, what was recorded.
    was: bool,
}

impl Columns {
    fn of(stages: usize, width: usize, tried: bool) -> Self {
        let was = if tried { FATE + 2 } else { 0 };
        let name = (width / 7).clamp(8, 20);
        let fixed = |bar: usize, cumulative: bool| {
            let cumulative = if cumulative { PERCENT + 1 } else { 0 };
            name + 1 + 2 * (bar + 1) + PERCENT + 1 + cumulative + FATE + 2 + was
        };
        let each = |bar, cumulative| width.saturating_sub(fixed(bar, cumulative)) / stages.max(1);
        // Bars first give room, then the sums.
        let tries = [(16, true), (10, true), (6, true), (0, true), (0, false)];
        let fits = |(bar, cumulative): &(usize, bool)| each(*bar, *cumulative) >= 8;
        let (bar, cumulative) = tries.into_iter().find(fits).unwrap_or((0, false));
        Self { name, bar, cumulative, stage: each(bar, cumulative).clamp(2, 14), was: tried }
    }

    /// Cells before the first stage.
    fn left(&self) -> usize {
        self.name + 1 + self.bar + 1 + PERCENT + 1 + if self.cumulative { PERCENT + 1 } else { 0 }
    }
}

/// A table: a column a stage, a row a candidate, which ends where it fell.
pub fn table(
    app: &App,
    recorded: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let trace = tried.unwrap_or(recorded);
    let stages: Vec<&StageView> = acting(trace).collect();
    let columns = Columns::of(stages.len(), width, tried.is_some());
    let mut rest = vec![Line::default(), summary(app, recorded, tried, width)];
    if let Some(line) = rest.last_mut().filter(|line| line.width() + order(trace).len() + 3 <= width) {
        line.spans.push(Span::styled(format!(" · {}", order(trace)), app.theme.style(Role::Faint)));
    }
    rest.extend(verdict(app, recorded, tried, width));
    rest.extend(grammar(app, trace, width));
    match stage(app, trace) {
        Some(view) => rest.extend(stage_words(app, recorded, tried, view, width)),
        None => rest.extend(wrap(
            &Line::styled(
                "t looks at a stage · w tries other values, P a preset",
                app.theme.style(Role::Faint),
            ),
            width,
            0,
        )),
    }
    let mut lines = table_head(app, recorded, tried, &stages, &columns);
    if height < 14 {
        // The cuts follow from what is left.
        lines.truncate(2);
    }
    let room = height.saturating_sub(lines.len() + rest.len()).max(1);
    let shown = chosen(trace, Some(recorded), room);
    let hidden = trace.candidates.len().saturating_sub(shown.len());
    lines.extend(shown.iter().map(|c| table_row(app, recorded, trace, c, &stages, &columns)));
    if hidden > 0
        && let Some(blank) = rest.first_mut()
    {
        let rest = trace.candidates.iter().filter(|c| !shown.iter().any(|one| one.id == c.id));
        let mass: f32 = rest.map(|c| c.raw_probability).sum();
        let text = format!("+{hidden} more, {} together", format::percent(f64::from(mass)));
        *blank = Line::styled(text, app.theme.style(Role::Faint));
    }
    lines.extend(rest);
    lines.truncate(height);
    lines
}

/// Names of the columns, and under them what each stage left, cut, and made of the entropy.
fn table_head(
    app: &App,
    recorded: &SamplingTrace,
    tried: Option<&SamplingTrace>,
    stages: &[&StageView],
    columns: &Columns,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let trace = tried.unwrap_or(recorded);
    let (text, muted) = (theme.style(Role::Text), theme.style(Role::Muted));
    let name = |view: &StageView| match view.stage.name() {
        name if name.len() < columns.stage => name,
        _ => short(view.stage),
    };
    let cell = |view: &StageView, text: String, style: Style| {
        let chosen = Some(view.stage) == app.panels.sampling.stage;
        let style = if chosen { style.patch(theme.style(Role::Selection)) } else { style };
        Span::styled(format::pad_left(&text, columns.stage - 1) + " ", style)
    };
    let row = |label: &str, raw: String, style: Style, of: &dyn Fn(&StageView) -> String| {
        let mut spans = vec![Span::styled(start(label, &raw, columns), muted)];
        spans.extend(stages.iter().map(|view| cell(view, of(view), style)));
        Line::from(spans)
    };
    let count = |n: usize| format::count(n as u64);
    let mut names = row("candidate", "raw".into(), theme.style(Role::Heading), &|view| name(view).to_owned());
    let ends = if tried.is_some() { "now" } else { "final" };
    names.spans.push(Span::styled(format::pad_left(ends, FATE), muted));
    if columns.was {
        let gap = columns.bar + 1 + FATE;
        names.spans.push(Span::styled(format::pad_left("was", gap), muted));
    }
    let mut lines = vec![
        names,
        row("left", count(trace.vocab_size), text, &|view| count(view.survivors)),
        row("cut", String::new(), muted, &|view| match before(trace, view.stage) - view.survivors {
            0 => "-".into(),
            n => count(n),
        }),
        row("entropy, nat", format::decimal(trace.entropy), muted, &|view| {
            view.entropy.map_or("-".into(), format::decimal)
        }),
    ];
    if tried.is_some() {
        let was = |view: &StageView| recorded.stages.iter().find(|s| s.stage == view.stage);
        let left =
            |view: &StageView| was(view).filter(|s| s.active).map_or("-".into(), |s| count(s.survivors));
        lines.insert(2, row("was left", count(recorded.vocab_size), muted, &left));
    }
    lines
}

/// A label, and a number over the raw percentages.
fn start(label: &str, raw: &str, columns: &Columns) -> String {
    let room = columns.name + 1 + columns.bar + 1 + PERCENT;
    let label = format::pad(label, room.saturating_sub(format::width(raw)));
    let sums = if columns.cumulative && raw == "raw" { "    sum" } else { "" };
    format::pad(&format!("{label}{raw}{sums}"), columns.left())
}

/// Raw share and sum, a line through the stages to where it fell, and the share that it was drawn with.
fn table_row(
    app: &App,
    recorded: &SamplingTrace,
    trace: &SamplingTrace,
    c: &Candidate,
    stages: &[&StageView],
    columns: &Columns,
) -> Line<'static> {
    let theme = &app.theme;
    let drawn = c.id == trace.drawn;
    let now = trace.candidates.iter().find(|one| one.id == c.id).unwrap_or(c);
    let (name, hue) = styles(app, drawn, now.cut_by.is_some());
    let mut spans =
        vec![Span::styled(format::pad(&format::quoted(&c.text), columns.name), name), Span::raw(" ")];
    spans.extend(bar(c.raw_probability, columns.bar, hue));
    let raw = format::pad_left(&format::percent(f64::from(c.raw_probability)), PERCENT);
    spans.push(Span::styled(raw + " ", theme.style(Role::Text)));
    if columns.cumulative {
        let sum = cumulative(app, trace, c.id).map_or("-".into(), |sum| format::percent(f64::from(sum)));
        spans.push(Span::styled(format::pad_left(&sum, PERCENT) + " ", theme.style(Role::Muted)));
    }
    spans.extend(fall(app, now, stages, columns.stage, drawn));
    if now.cut_by.is_some() {
        spans.push(Span::raw(" ".repeat(FATE)));
    } else {
        spans.push(fate(app, trace, c.id));
    }
    spans.push(Span::raw(" "));
    spans.extend(bar(if now.cut_by.is_some() { 0.0 } else { now.probability }, columns.bar, hue));
    if columns.was {
        spans.push(fate(app, recorded, c.id));
    }
    Line::from(spans)
}

fn bar(share: f32, width: usize, style: Style) -> [Span<'static>; 2] {
    let (filled, rest) = match width {
        0 => (String::new(), 0),
        _ => paint::bar_text(f64::from(share), width),
    };
    [Span::styled(filled, style), Span::raw(" ".repeat(rest + 1))]
}

/// Of the raw distribution: this one and all that are likelier. Unknown of one that is shown only because
/// it was drawn.
fn cumulative(app: &App, trace: &SamplingTrace, id: u32) -> Option<f32> {
    let at = trace.candidates.iter().position(|c| c.id == id)?;
    let rank = looked::token(app, trace.seq, trace.index).filter(|t| t.id == id).map(|t| t.rank as usize);
    let sum = trace.candidates[..=at].iter().map(|c| c.raw_probability).sum();
    rank.is_none_or(|rank| rank <= at + 1).then_some(sum)
}

/// `━━━━━━━━━━━━━✂`: through the stages that it survived, to the one that cut it.
fn fall(app: &App, c: &Candidate, stages: &[&StageView], width: usize, drawn: bool) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let line = theme.style(if drawn { Role::Accent } else { Role::Faint });
    let at = c.cut_by.and_then(|cut| stages.iter().position(|view| view.stage == cut));
    match (c.cut_by, at) {
        (None, _) => vec![Span::styled("━".repeat(width * stages.len()), line)],
        (Some(_), Some(at)) => {
            let before = (at + 1) * width - 2;
            let rest = " ".repeat(width * stages.len() - before - 1);
            vec![
                Span::styled("━".repeat(before), line),
                Span::styled("✂", theme.style(Role::Warn)),
                Span::raw(rest),
            ]
        }
        (Some(cut), None) => {
            let text = format::pad(&format!("✂{}", cut.name()), width * stages.len());
            vec![Span::styled(text, theme.style(Role::Warn))]
        }
    }
}
