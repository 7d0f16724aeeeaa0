//! The scheduler's settings, in the batch panel: changed in place, in force from the next step.

use super::paint;
use crate::protocol::{SCHEDULING, SchedulerSettings, SchedulingSpec};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::text::{Line, Span};

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let chosen = app.panels.batch.setting.min(SCHEDULING.len() - 1);
    let head = paint::fitting(
        ["scheduler settings", "e back to the step"].map(|w| Span::styled(w, muted)),
        width,
        &app.theme,
    );
    let mut lines = vec![head];
    let mut help = wrap(&Line::styled(SCHEDULING[chosen].help, muted), width, 0);
    help.truncate(height.saturating_sub(2));
    let room = height.saturating_sub(lines.len() + help.len()).max(1);
    let first = (chosen + 1).saturating_sub(room);
    let rows = SCHEDULING.iter().enumerate().skip(first).take(room);
    lines.extend(rows.map(|(i, spec)| row(app, spec, width, focused && i == chosen)));
    lines.extend(help);
    lines
}

fn row(app: &App, spec: &SchedulingSpec, width: usize, selected: bool) -> Line<'static> {
    let theme = &app.theme;
    let value = shown((spec.get)(app.scheduler()));
    let changed = value != shown((spec.get)(&SchedulerSettings::default()));
    let typed = app.panels.typing.as_ref().filter(|_| selected).map(|t| format!("{t}▍"));
    let value = typed.unwrap_or(value);
    let value = format::fit(&value, width.saturating_sub(8));
    let name = format::pad(spec.name, width.saturating_sub(format::width(&value) + 1).min(60));
    let mut name_style = theme.style(if selected { Role::Heading } else { Role::Muted });
    let mut value_style = theme.style(if changed { Role::Accent } else { Role::Text });
    if selected {
        name_style = name_style.patch(theme.style(Role::Selection));
        value_style = value_style.patch(theme.style(Role::Selection));
    }
    Line::from(vec![Span::styled(name + " ", name_style), Span::styled(value, value_style)])
}

/// Shorter, so that the longest name fits beside it.
fn shown(value: String) -> String {
    match value.as_str() {
        "true" => "on".into(),
        "false" => "off".into(),
        _ => value,
    }
}

/// How steps are shared out: the first word always, the others where they are not the default or
/// there is room.
pub fn policy(app: &App, width: usize) -> Line<'static> {
    let s = app.scheduler();
    let usual = SchedulerSettings::default();
    // What it says, whether it is unusual, and whether it is worth room when it is not.
    let mut words = vec![
        (s.scheduling_policy.to_string(), s.scheduling_policy != usual.scheduling_policy, true),
        (format!("order {}", s.schedule_policy), s.schedule_policy != usual.schedule_policy, false),
        (s.batching.to_string(), s.batching != usual.batching, true),
        (s.preemption_mode.to_string(), s.preemption_mode != usual.preemption_mode, true),
        ("async".into(), s.async_scheduling, false),
        (format!("steps {}", s.num_scheduler_steps), s.num_scheduler_steps > 1, false),
    ];
    words.retain(|(_, unusual, always)| *unusual || *always);
    let wide = |words: &[(String, bool, bool)]| words.iter().map(|(w, ..)| w.len() + 3).sum::<usize>() + 4;
    while wide(&words) > width {
        let Some(usual) = words.iter().skip(1).rposition(|(_, unusual, _)| !unusual) else { break };
        words.remove(usual + 1);
    }
    let (text, muted) = (app.theme.style(Role::Text), app.theme.style(Role::Muted));
    let spans = words.into_iter().map(|(w, unusual, _)| Span::styled(w, if unusual { text } else { muted }));
    let mut line = paint::fitting(spans, width.saturating_sub(7), &app.theme);
    line.spans.insert(0, Span::styled("policy ", muted));
    line
}
