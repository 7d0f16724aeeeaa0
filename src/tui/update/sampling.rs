//! Keys of the sampling panel: which token, which stage, which values; and values tried on a token.

use super::{command, params, replay, scheduling};
use crate::protocol::{
    Command, PARAMS, ParamKind, ParamSpec, ParamValue, SamplingParams, SeqId, Stage, WhatIfAnswer,
};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::looked::{self, Looked};
use crate::tui::overlay::Overlay;
use crate::tui::panels::Panel;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::presets::{PRESETS, Preset};
use crate::tui::trial::Trial;

/// To the token drawn before the one that is looked at, or after it; after the last the newest is followed.
pub fn step_token(app: &mut App, later: bool, effects: &mut Vec<Effect>) {
    let Some((seq, index)) = looked::place(app) else {
        return app.say("no token yet");
    };
    let newest = looked::drawn(app, seq).map_or(index, |drawn| drawn.saturating_sub(1));
    match later {
        false if index == 0 => app.say("this is the first token"),
        false => app.token = Some((seq, index - 1)),
        true if index < newest => app.token = Some((seq, index + 1)),
        true if app.panels.sampling.trial.is_none() => app.token = None,
        true => app.say("this is the newest token"),
    }
    ask_again(app, effects);
}

/// Looks at a token, or follows the newest.
pub fn look_at(app: &mut App, token: Option<(SeqId, usize)>, effects: &mut Vec<Effect>) {
    app.token = token;
    ask_again(app, effects);
}

pub fn follow(app: &mut App, effects: &mut Vec<Effect>) {
    app.token = None;
    if app.panels.sampling.trial.is_some() {
        app.token = looked::place(app);
    }
    ask_again(app, effects);
}

/// The next of the stages that acted on the token; after the last, none in particular.
pub fn step_stage(app: &mut App, forward: bool) {
    let Looked::At(trace) = looked::looked(app) else { return };
    let mut stops: Vec<Option<Stage>> = vec![None];
    stops.extend(trace.stages.iter().filter(|s| s.active && s.stage != Stage::Raw).map(|s| Some(s.stage)));
    let at = stops.iter().position(|stop| *stop == app.panels.sampling.stage).unwrap_or(0);
    let by = if forward { 1 } else { stops.len() - 1 };
    app.panels.sampling.stage = stops[(at + by) % stops.len()];
}

/// Begins to try values on the token that is looked at, or ends it.
pub fn toggle_trial(app: &mut App, effects: &mut Vec<Effect>) {
    if leave_trial(app) {
        return;
    }
    match looked::looked(app) {
        Looked::Nothing => app.say("no token yet"),
        Looked::Untraced { why, .. } => app.say(why),
        Looked::At(trace) => {
            app.panels.sampling.trial = Some(Trial::new(&trace, app.token.is_none()));
            app.token = Some((trace.seq, trace.index));
            ask(app, effects);
        }
    }
}

/// False where nothing is tried.
pub fn leave_trial(app: &mut App) -> bool {
    if app.focus != Focus::Panel(Panel::Sampling) {
        return false;
    }
    let Some(trial) = app.panels.sampling.trial.take() else { return false };
    if trial.followed {
        app.token = None;
    }
    true
}

/// The session goes on with what was tried.
pub fn apply_tried(app: &mut App, effects: &mut Vec<Effect>) {
    if app.panels.sampling.trial.is_none() {
        return app.say("w tries values on this token first");
    }
    if replay::is_as_recorded(app) {
        return;
    }
    let Some(trial) = &app.panels.sampling.trial else { return };
    let tried: Vec<&'static ParamSpec> = trial.tried().collect();
    let mut to = app.params.clone();
    let set = tried.iter().try_for_each(|spec| spec.set(&mut to, (spec.get)(&trial.asked.params)));
    if let Err(why) = set.and_then(|()| to.check()) {
        return app.say(why.to_string());
    }
    leave_trial(app);
    let said: Vec<String> = tried.iter().map(|s| format!("{} {}", s.name, (s.get)(&to))).collect();
    match tried.is_empty() {
        true => app.say("nothing else was tried"),
        false => {
            app.say(format!("{} from the next token on", said.join(", ")));
            let names: Vec<&'static str> = tried.iter().map(|spec| spec.name).collect();
            params::put(app, to, &names, effects);
        }
    }
}

/// What the engine says to a question.
pub fn answered(app: &mut App, answer: &WhatIfAnswer) {
    if let Some(trial) = &mut app.panels.sampling.trial {
        trial.take(answer.clone());
    }
}

/// One press of an arrow on the selected parameter.
pub fn nudge(app: &mut App, direction: f64, effects: &mut Vec<Effect>) {
    if is_fixed(app) {
        return;
    }
    let Some(spec) = PARAMS.get(app.panels.sampling.param) else { return };
    let mut changed = edited(app).clone();
    let value = match beside(spec, &changed, direction) {
        Some(value) => value,
        None if spec.kind == ParamKind::List => {
            return app.say("enter types it: words with spaces between, texts in double quotes");
        }
        None => return,
    };
    match spec.set(&mut changed, value).and_then(|()| changed.check()) {
        Ok(()) => put(app, changed, spec, effects),
        Err(why) => app.say(why.to_string()),
    }
}

/// A value that was typed in the panel.
pub fn typed(app: &mut App, spec: &'static ParamSpec, typed: &str, effects: &mut Vec<Effect>) {
    if app.panels.sampling.trial.is_none() {
        return command::set(app, spec, typed, effects);
    }
    let mut changed = edited(app).clone();
    match spec.parse(&mut changed, typed).and_then(|()| changed.check()) {
        Ok(()) => put(app, changed, spec, effects),
        Err(why) => app.say(why.to_string()),
    }
}

/// The selected parameter as it was: at the start, or at the token.
pub fn reset(app: &mut App, effects: &mut Vec<Effect>) {
    if is_fixed(app) {
        return;
    }
    let index = app.panels.sampling.param;
    let Some(trial) = &app.panels.sampling.trial else {
        return params::put_back(app, index, effects);
    };
    let Some(spec) = PARAMS.get(index) else { return };
    let mut changed = trial.asked.params.clone();
    if spec.set(&mut changed, (spec.get)(&trial.recorded)).is_ok() {
        put(app, changed, spec, effects);
    }
}

/// Every parameter, to be found by typing.
pub fn find(app: &mut App) {
    let params = edited(app);
    let item = |(index, spec): (usize, &ParamSpec)| Item {
        label: spec.name.to_owned(),
        detail: spec.help.to_owned(),
        note: format!("{} {}", (spec.get)(params), scheduling::origin(app, spec.name)),
        choice: Choice::Parameter(index),
    };
    let items = PARAMS.iter().enumerate().map(item).collect();
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new("sampling parameters", items))));
}

pub fn go_to(app: &mut App, index: usize) {
    app.panels.sampling.param = index;
    if app.panels.open(app.class()).contains(&Panel::Sampling) {
        app.focus = Focus::Panel(Panel::Sampling);
    }
}

/// The built-in sets of values, and those in files; what is tried takes the built-in ones.
pub fn presets(app: &mut App) {
    if is_fixed(app) {
        return;
    }
    let item = |(index, preset): (usize, &Preset)| Item {
        label: preset.name.to_owned(),
        detail: preset.help.to_owned(),
        note: preset
            .values
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join("  "),
        choice: Choice::Preset(index),
    };
    let tries = app.panels.sampling.trial.is_some();
    let files = if tries { Vec::new() } else { super::presets::files(app) };
    let own = |(_, preset): &(usize, &Preset)| tries || !super::presets::is_file(app, preset.name);
    let items = PRESETS.iter().enumerate().filter(own).map(item).chain(files).collect();
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new("sampling presets", items))));
}

/// Takes a preset's values, for the session or to be tried.
pub fn preset(app: &mut App, index: usize, effects: &mut Vec<Effect>) {
    let Some(preset) = PRESETS.get(index) else { return };
    let mut to = edited(app).clone();
    let mut names = Vec::new();
    for (spec, value) in preset.values.iter().filter_map(|(name, v)| Some((ParamSpec::find(name)?, v))) {
        if let Err(why) = spec.parse(&mut to, value) {
            return app.say(why.to_string());
        }
        names.push(spec.name);
    }
    match &mut app.panels.sampling.trial {
        Some(trial) => {
            trial.asked.params = to;
            ask(app, effects);
        }
        None => {
            app.say(format!("{}: {}", preset.name, preset.help));
            params::put_preset(app, to, preset.name, &names, effects);
        }
    }
}

/// Those that keys change now: what is tried, else the session's.
pub fn edited(app: &App) -> &SamplingParams {
    app.panels.sampling.trial.as_ref().map_or(&app.params, |trial| &trial.asked.params)
}

fn put(app: &mut App, to: SamplingParams, spec: &'static ParamSpec, effects: &mut Vec<Effect>) {
    match &mut app.panels.sampling.trial {
        Some(trial) => {
            trial.asked.params = to;
            ask(app, effects);
        }
        None => params::put(app, to, &[spec.name], effects),
    }
}

/// Nothing is set in a replay; it says so.
fn is_fixed(app: &mut App) -> bool {
    app.panels.sampling.trial.is_none() && replay::is_as_recorded(app)
}

/// What is tried goes along to another token.
fn ask_again(app: &mut App, effects: &mut Vec<Effect>) {
    let place = app.token;
    let Some((trial, (seq, index))) = app.panels.sampling.trial.as_mut().zip(place) else { return };
    if trial.place() != (seq, index) {
        let there = app.traces.get(seq, index).map(|trace| trace.params.clone());
        trial.move_to((seq, index), there);
        ask(app, effects);
    }
}

fn ask(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(trial) = &mut app.panels.sampling.trial else { return };
    trial.waits = true;
    effects.push(Effect::Send(Command::WhatIf(Box::new(trial.asked.clone()))));
}

/// The value that an arrow leads to; none where there is none.
fn beside(spec: &ParamSpec, params: &SamplingParams, direction: f64) -> Option<ParamValue> {
    use ParamValue::{Choice, List, None as Unset, Real, Whole};
    let up = direction > 0.0;
    Some(match (spec.get)(params) {
        Real(x) if !up && f64::from(x) <= spec.min && spec.optional => Unset,
        Real(x) => {
            let moved = (f64::from(x) + direction * spec.step).clamp(spec.min, spec.max);
            Real((moved * 1e4).round() as f32 / 1e4)
        }
        Choice(name) => Choice(spec.choice_beside(name, up)),
        Whole(x) if !up && x as f64 <= spec.min && spec.optional => Unset,
        Whole(x) => Whole(x.saturating_add_signed(direction as i64).max(spec.min as u64)),
        Unset if up && spec.kind == ParamKind::Real => Real(spec.min as f32),
        Unset if up => Whole(spec.min as u64),
        Unset | List(_) => return None,
    })
}
