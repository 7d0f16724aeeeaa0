//! The metrics panel's last rows: what each kernel of a timed step took, the heaviest first, and how near it
//! came to what the device can do.

use super::metrics::{Most, Row, share};
use crate::protocol::{OperationTime, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use ratatui::text::Span;

/// Of a name; columns that have no room to the right of it are left out.
const NAME: usize = 18;
const COLUMNS: [(&str, usize); 5] = [("us", 8), ("step", 7), ("GB/s", 8), ("limit", 7), ("MFU", 7)];

/// The newest step that was timed, of those seen.
fn timed(app: &App) -> Option<&StepRecord> {
    let seen = app.meter.steps.iter().rev().skip(history::seen(app).back);
    seen.map(|record| &**record).find(|record| !record.operations.is_empty())
}

/// How many rows [`rows`] gives: none where no step was timed.
pub fn count(app: &App) -> usize {
    timed(app).map_or(0, |record| 1 + record.operations.len())
}

pub fn rows(app: &App, width: usize, most: Option<&Most>) -> Vec<Row> {
    let Some(record) = timed(app) else { return Vec::new() };
    let mut operations: Vec<&OperationTime> = record.operations.iter().collect();
    operations.sort_by(|a, b| b.us.total_cmp(&a.us));
    let total: f64 = operations.iter().map(|time| time.us).sum();
    let row = |name: &str, cells: [String; 5], role, help: String| {
        let (mut room, mut text) = (width.saturating_sub(NAME), String::new());
        for (cell, (_, wide)) in cells.iter().zip(COLUMNS) {
            if wide > room {
                break;
            }
            room -= wide;
            text.push_str(&format::pad_left(cell, wide));
        }
        let value = vec![Span::styled(text, app.theme.style(role))];
        Row { label: one_line(name).into(), wide: NAME, value, help: help.into() }
    };
    let head = format!(
        "step {}, timed by its kernels: {} in all; one pass in 64 is, and a pass that is timed is no graph",
        record.step,
        format::millis(total / 1e3)
    );
    let mut rows = vec![row("kernels", COLUMNS.map(|(name, _)| name.to_owned()), Role::Muted, head)];
    rows.extend(operations.into_iter().map(|time| {
        let (cells, help) = (cells(time, total, most), help(time));
        row(&time.name, cells, Role::Text, help)
    }));
    rows
}

fn cells(time: &OperationTime, total: f64, most: Option<&Most>) -> [String; 5] {
    let per_s = |amount: u64| amount as f64 / (time.us / 1e6);
    let of = |amount: u64, limit: fn(&Most) -> f64| match most {
        Some(most) if amount > 0 && time.us > 0.0 => share(per_s(amount), limit(most)),
        _ => "-".to_owned(),
    };
    let read = if time.bytes > 0 { format!("{:.1}", per_s(time.bytes) / 1e9) } else { "-".into() };
    [
        format!("{:.1}", time.us),
        share(time.us, total),
        read,
        of(time.bytes, |most| most.bytes),
        of(time.flops, |most| most.flops),
    ]
}

fn help(time: &OperationTime) -> String {
    let times = if time.calls == 1 { "1 launch".to_owned() } else { format!("{} launches", time.calls) };
    format!(
        "{times}, {} read; its share of all kernels, of the memory limit and (MFU) of the limit of products",
        format::bytes(time.bytes)
    )
}
