//! The session's sampling parameters: changed from many places, undone and done again in one.

use super::keys;
use crate::protocol::{Command, PARAMS, SamplingParams};
use crate::tui::app::{App, Effect};
use crate::tui::changes::State;

/// New parameters, set by hand, in force from the next token on.
pub fn put(app: &mut App, to: SamplingParams, names: &[&'static str], effects: &mut Vec<Effect>) {
    let before = state(app);
    app.panels.sampling.changes.before(before);
    app.params = to;
    names.iter().for_each(|name| keys::remember_set(app, name));
    tell(app, effects);
}

/// The same, of a preset.
pub fn put_preset(
    app: &mut App,
    to: SamplingParams,
    preset: &str,
    names: &[&'static str],
    effects: &mut Vec<Effect>,
) {
    put(app, to, names, effects);
    let origin = format!("preset {preset}");
    app.set_by_preset.extend(names.iter().map(|name| (*name, origin.clone())));
}

/// A parameter as it was when the program started, with the origin that it had then.
pub fn put_back(app: &mut App, index: usize, effects: &mut Vec<Effect>) {
    let Some(spec) = PARAMS.get(index) else { return };
    let (mut to, start) = (app.params.clone(), (spec.get)(&app.options.params));
    if spec.set(&mut to, start.clone()).is_err() {
        return;
    }
    put(app, to, &[], effects);
    app.set_here.retain(|name| *name != spec.name);
    app.set_by_preset.remove(spec.name);
    app.say(format!("{} {start} again", spec.name));
}

pub fn undo(app: &mut App, effects: &mut Vec<Effect>) {
    let now = state(app);
    match app.panels.sampling.changes.undo(now) {
        Some(before) => restore(app, before, "undone", effects),
        None => app.say("no change of a parameter to undo"),
    }
}

pub fn redo(app: &mut App, effects: &mut Vec<Effect>) {
    let now = state(app);
    match app.panels.sampling.changes.redo(now) {
        Some(after) => restore(app, after, "done again", effects),
        None => app.say("nothing was undone"),
    }
}

fn restore(app: &mut App, to: State, what: &str, effects: &mut Vec<Effect>) {
    let moved = |spec: &&crate::protocol::ParamSpec| (spec.get)(&app.params) != (spec.get)(&to.params);
    let said: Vec<String> =
        PARAMS.iter().filter(moved).map(|spec| format!("{} {}", spec.name, (spec.get)(&to.params))).collect();
    (app.params, app.set_here, app.set_by_preset) = (to.params, to.set_here, to.set_by_preset);
    app.say(format!("{what}: {}", said.join(", ")));
    tell(app, effects);
}

fn state(app: &App) -> State {
    State {
        params: app.params.clone(),
        set_here: app.set_here.clone(),
        set_by_preset: app.set_by_preset.clone(),
    }
}

/// Running answers go on with them, but for those that are compared under settings of their own.
fn tell(app: &App, effects: &mut Vec<Effect>) {
    for id in app.chat.running() {
        if !app.chat.all_answers().any(|answer| answer.seq.request == id && answer.is_fixed) {
            effects.push(Effect::Send(Command::SetParams(id, Box::new(app.params.clone()))));
        }
    }
}
