//! One token's waterfall as a table: a column a stage, a row a candidate, which ends where it fell.

use super::paint;
use super::waterfall::{
    FATE, PERCENT, acting, before, chosen, fate, grammar, order, short, stage, stage_words, styles, summary,
    verdict,
};
use crate::protocol::{Candidate, SamplingTrace, StageView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::looked;
use crate::tui::panels::Panel;
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

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
        line.spans.push(Span::styled(format!(" · {}", order(trace)), app.theme.style(Role::Muted)));
    }
    rest.extend(verdict(app, recorded, tried, width));
    rest.extend(grammar(app, trace, width));
    match stage(app, trace) {
        Some(view) => rest.extend(stage_words(app, recorded, tried, view, width)),
        None => {
            let hints: &[_] = match tried {
                Some(_) => &[
                    ("next_stage", "looks at a stage"),
                    ("earlier_token", "and"),
                    ("later_token", "at other tokens"),
                ],
                None => &[
                    ("next_stage", "looks at a stage"),
                    ("try", "tries other values"),
                    ("sampling_presets", "takes a preset's"),
                ],
            };
            let hint = |(row, does): &(&str, &str)| app.keymap.hint(Place::In(Panel::Sampling), row, does);
            let hints: Vec<String> = hints.iter().filter_map(hint).collect();
            let hints = hints.join(" · ").replace(" and · ", " and ");
            rest.push(Line::styled(format::fit(&hints, width), app.theme.style(Role::Muted)));
        }
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
        *blank = Line::styled(text, app.theme.style(Role::Muted));
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
        let gap = 1 + columns.bar + 1 + FATE;
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
