//! Breakpoints, and the reasons why sequences wait.

use crate::protocol::{Breakpoint, Command, RequestId, SeqId, SequenceState};
use crate::tui::app::{App, Broke, Effect};
use crate::tui::chat::Level;
use crate::tui::format;

/// `/break CONDITION`, `/break` (lists), `/break clear [N]`.
pub fn set_break(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if let Some(which) =
        arguments.strip_prefix("clear").filter(|rest| rest.is_empty() || rest.starts_with(' '))
    {
        return clear(app, which.trim(), effects);
    }
    if arguments.is_empty() {
        let list = list(app);
        app.chat.note(Level::Info, list);
        return;
    }
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    if super::replay::is_as_recorded(app) {
        return;
    }
    match arguments.parse::<Breakpoint>() {
        Ok(Breakpoint::Step(step)) if step < app.snapshot.step => {
            let (step, now) = (format::count(step), format::count(app.snapshot.step));
            app.chat.note(Level::Bad, format!("step {step} is past: the engine is at {now}"));
        }
        Ok(condition) => {
            app.say(match condition {
                Breakpoint::Step(step) => format!("the engine will hold after step {}", format::count(step)),
                _ => format!("the engine will hold after a step with: {condition}"),
            });
            effects.push(Effect::Send(Command::Break(condition)));
        }
        Err(why) => app.chat.note(Level::Bad, format!("/break: {why}")),
    }
}

/// Takes breakpoint `which` away, or all.
pub fn clear(app: &mut App, which: &str, effects: &mut Vec<Effect>) {
    let set = &app.snapshot.breakpoints;
    match which {
        "" | "all" => {
            app.say("all breakpoints are taken away");
            effects.push(Effect::Send(Command::Clear(None)));
        }
        number => match number.parse::<u32>().ok().filter(|id| set.iter().any(|b| b.id == *id)) {
            Some(id) => {
                app.say(format!("breakpoint {id} is taken away"));
                effects.push(Effect::Send(Command::Clear(Some(id))));
            }
            None => {
                let list = list(app);
                app.chat.note(Level::Bad, format!("no breakpoint {number:?}; {list}"));
            }
        },
    }
}

/// The engine stopped at one.
pub fn broke(app: &mut App, id: u32, step: u64, why: &str) {
    app.paused = true;
    app.panels.batch.step_back = 0;
    app.say(format!("held at breakpoint {id}, step {}", format::count(step)));
    app.chat.note(
        Level::Info,
        format!("held at breakpoint {id}, step {}: {why} · F6 steps, F5 resumes", format::count(step)),
    );
    app.broke.push(Broke { id, step, why: why.to_owned() });
}

fn list(app: &App) -> String {
    let set = &app.snapshot.breakpoints;
    let row = |b: &crate::protocol::SetBreakpoint| {
        let times = if b.hits == 1 { "time" } else { "times" };
        format!("{}  {}, met {} {times}", b.id, b.on, format::count(b.hits))
    };
    match set.is_empty() {
        true => "no breakpoint is set; /break preemption sets one".into(),
        false => format!(
            "breakpoints, /unbreak N takes one away:\n{}",
            set.iter().map(row).collect::<Vec<_>>().join("\n")
        ),
    }
}

/// `/why [SEQ]`: for each sequence that waits or was preempted, the newest reason with its numbers.
pub fn why(app: &mut App, arguments: &str) {
    let wanted = match arguments {
        "" => None,
        typed => match sequence(typed) {
            Some(seq) => Some(seq),
            None => {
                app.chat.note(Level::Bad, format!("/why takes a sequence such as 2 or 2.1, not {typed:?}"));
                return;
            }
        },
    };
    let text = reasons(app, wanted);
    app.chat.note(Level::Info, text);
}

/// `2`, or `2.1` for its second choice.
pub fn sequence(typed: &str) -> Option<SeqId> {
    let (request, choice) = typed.split_once('.').unwrap_or((typed, "0"));
    Some(SeqId { request: RequestId(request.parse().ok()?), choice: choice.parse().ok()? })
}

fn reasons(app: &App, wanted: Option<SeqId>) -> String {
    let asked = |seq: SeqId| wanted.is_none_or(|wanted| wanted == seq);
    let lines: Vec<String> = app
        .snapshot
        .sequences
        .iter()
        .filter(|s| asked(s.seq))
        .filter_map(|s| {
            let waits = waits(app, s.seq);
            let given =
                preempted(app, s.seq).filter(|_| s.state != SequenceState::Running || wanted.is_some());
            let waits = waits.or_else(|| {
                let waiting = s.state != SequenceState::Running;
                waiting.then(|| {
                    format!(
                        "waits for the next step{}",
                        if app.paused { ": the engine is paused" } else { "" }
                    )
                })
            });
            let runs = (waits.is_none() && wanted.is_some()).then(|| {
                let (done, all) = (s.computed_tokens, s.prompt_tokens + s.generated_tokens);
                format!("runs: {} of {} tokens are in the cache", format::count(done), format::count(all))
            });
            let all: Vec<String> = [given, waits, runs].into_iter().flatten().collect();
            (!all.is_empty()).then(|| format!("{} {}", s.seq, all.join("; it ")))
        })
        .collect();
    if !lines.is_empty() {
        return lines.join("\n");
    }
    let known: Vec<String> = app.snapshot.sequences.iter().map(|s| s.seq.to_string()).collect();
    match (wanted, app.meter.steps.last()) {
        (Some(seq), _) if known.is_empty() => format!("no sequence {seq}: the engine has none"),
        (Some(seq), _) => format!("no sequence {seq}; there are {}", known.join(", ")),
        (None, Some(step)) if !known.is_empty() => format!(
            "nothing waits: step {} ran {} of {} sequences with {} of {} tokens",
            format::count(step.step),
            step.rows.len(),
            known.len(),
            step.tokens,
            step.token_budget
        ),
        (None, _) => "nothing waits: the engine has no sequence".into(),
    }
}

/// Of the newest step.
fn waits(app: &App, seq: SeqId) -> Option<String> {
    let step = app.meter.steps.last()?;
    let waiting = step.waiting.iter().find(|w| w.seq == seq)?;
    Some(format!("waits: {} (step {})", waiting.reason, format::count(step.step)))
}

/// The newest time it gave way.
fn preempted(app: &App, seq: SeqId) -> Option<String> {
    app.meter.steps.iter().rev().find_map(|step| {
        let one = step.preempted.iter().find(|p| p.seq == seq)?;
        let freed = format::count(one.blocks_freed as u64);
        Some(format!("gave {freed} blocks back in step {}: {one}", format::count(step.step)))
    })
}
