//! The sequence under the batch panel's cursor: looked at, traced, moved in the queue, cancelled.

use super::replay;
use crate::protocol::{Command, Reprioritise, RequestId, SchedulingPolicy, SeqId};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::format;
use crate::tui::history;
use crate::tui::panels::{AskedPriority, Panel};
use crate::tui::roster::roster;
use std::time::Duration;

/// The same key again within this cancels.
const TWICE: Duration = Duration::from_millis(1_500);

/// The next sequence of the list, or the one before.
pub fn choose(app: &mut App, by: isize) {
    let listed: Vec<SeqId> = roster(&history::seen(app)).iter().map(|entry| entry.seq).collect();
    let Some(last) = listed.len().checked_sub(1) else {
        return app.say("no sequence to choose: the engine has none");
    };
    let now = app.panels.batch.chosen.and_then(|seq| listed.iter().position(|listed| *listed == seq));
    let to = match now {
        Some(at) => at.saturating_add_signed(by).min(last),
        None if by < 0 => last,
        None => 0,
    };
    app.panels.batch.chosen = Some(listed[to]);
}

/// A click on its line; on the chosen one, it is shown in full.
pub fn point_at(app: &mut App, seq: SeqId) {
    app.focus = Focus::Panel(Panel::Batch);
    let batch = &mut app.panels.batch;
    batch.inspecting = batch.chosen == Some(seq) && !batch.inspecting;
    batch.chosen = Some(seq);
}

pub fn inspect(app: &mut App) {
    if app.panels.batch.inspecting || chosen(app).is_some() {
        app.panels.batch.inspecting = !app.panels.batch.inspecting;
    }
}

/// Cancels its whole request, when asked twice.
pub fn cancel(app: &mut App, effects: &mut Vec<Effect>) {
    if app.replay.is_some() {
        return app.say("a replay is as it was recorded: nothing is cancelled here");
    }
    let Some(seq) = chosen(app) else { return };
    let id = seq.request;
    if is_over(app, id) {
        return app.say(format!("request {} has ended", id.0));
    }
    let asked = app.panels.batch.cancelling.take();
    if asked.is_some_and(|(asked, until)| asked == id && app.now <= until) {
        app.say(format!("request {} is cancelled", id.0));
        return effects.push(Effect::Send(Command::Abort(id)));
    }
    let until = app.now + TWICE;
    app.panels.batch.cancelling = Some((id, until));
    let choices = app.snapshot.sequences.iter().filter(|s| s.seq.request == id).count();
    let all = if choices > 1 {
        format!(" with its {}", format::plural(choices, "sequence"))
    } else {
        String::new()
    };
    app.flash = Some((format!("x again cancels request {}{all}", id.0), until));
}

/// The number goes up or down by one; the lower is served first.
pub fn reprioritise(app: &mut App, by: i32, effects: &mut Vec<Effect>) {
    if replay::is_as_recorded(app) {
        return;
    }
    let Some(seq) = chosen(app) else { return };
    let id = seq.request;
    let view = app.snapshot.sequences.iter().find(|s| s.seq.request == id);
    let Some(now) = view.map(|view| view.priority) else {
        return app.say(format!("request {} has ended", id.0));
    };
    // What was asked for since the newest picture counts.
    let asked = app.panels.batch.priority.filter(|asked| asked.id == id && asked.step == app.snapshot.step);
    let priority = asked.map_or(now, |asked| asked.priority).saturating_add(by);
    app.panels.batch.priority = Some(AskedPriority { id, priority, step: app.snapshot.step });
    let without = match app.scheduler().scheduling_policy {
        SchedulingPolicy::Priority => "",
        SchedulingPolicy::Fcfs => "; of no matter while the policy is fcfs",
    };
    app.say(format!("request {} has priority {priority}: lower is served first{without}", id.0));
    effects.push(Effect::Send(Command::SetPriority(Reprioritise { id, priority })));
}

/// Traces the chosen sequence, and lets it go if it is traced.
pub fn trace(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(seq) = chosen(app) else { return };
    let on = app.focused_seq != Some(seq);
    app.focused_seq = on.then_some(seq);
    app.say(match on {
        true => format!("tracing sequence {seq}"),
        false => "tracing the first sequence".to_owned(),
    });
    effects.push(Effect::Send(Command::Focus(app.focused_seq)));
}

fn is_over(app: &App, id: RequestId) -> bool {
    !app.snapshot.sequences.iter().any(|s| s.seq.request == id)
}

/// The one under the cursor, or the only one there is; else it says how to choose.
fn chosen(app: &mut App) -> Option<SeqId> {
    let known: Vec<SeqId> = app.snapshot.sequences.iter().map(|s| s.seq).collect();
    match (app.panels.batch.chosen, &known[..]) {
        (Some(seq), _) => Some(seq),
        (None, [only]) => Some(*only),
        (None, []) => {
            app.say("the engine has no sequence");
            None
        }
        (None, _) => {
            app.say("choose a sequence first: J and K move the cursor");
            None
        }
    }
}
