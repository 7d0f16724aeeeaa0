//! Presets: files of values to start a chat with, and what holds for a model by itself.

use super::{params, sampling};
use crate::base::nearest;
use crate::protocol::{PARAMS, ParamSpec, ParamValue, SamplingParams, Thinking};
use crate::tui::app::{App, Effect, ModelState};
use crate::tui::chat::Level;
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::port::{PresetChoice, StartSettings};
use crate::tui::presets::PRESETS;
use crate::tui::{format, sanitize};

/// As the picker of presets is called.
const TITLE: &str = "presets";
/// By this name a thought's effort is set in a file.
const THINK: &str = "think";
const SYSTEM: &str = "system";

/// `/preset`, `/preset NAME`, `/preset save NAME`, `/preset save NAME!`.
pub fn run(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if super::replay::is_as_recorded(app) {
        return;
    }
    match arguments.split_once(char::is_whitespace).unwrap_or((arguments, "")) {
        ("", _) => {
            app.overlay = Some(Overlay::Picker(Box::new(Picker::new(TITLE, items(app)))));
            effects.push(Effect::ListPresets);
        }
        ("save", name) => save(app, name.trim(), effects),
        _ => {
            app.asked_preset = Some(arguments.to_owned());
            effects.push(start_settings(app, Some(arguments)));
        }
    }
}

/// What a chat with this model and this preset starts with is asked for.
pub fn start_settings(app: &App, preset: Option<&str>) -> Effect {
    let model = app.ready().map(|info| info.name.clone());
    Effect::StartSettings { model, preset: preset.map(str::to_owned) }
}

pub fn listed(app: &mut App, presets: Vec<PresetChoice>) {
    app.presets = presets;
    let items = items(app);
    if let Some(Overlay::Picker(picker)) = &mut app.overlay
        && picker.title == TITLE
    {
        picker.replace(items);
    }
}

/// The files, as entries of another list.
pub fn files(app: &App) -> Vec<Item> {
    items(app).into_iter().take(app.presets.len()).collect()
}

pub fn is_file(app: &App, name: &str) -> bool {
    app.presets.iter().any(|preset| preset.name == name)
}

/// Files first, then the built-in ones that no file has the name of.
fn items(app: &App) -> Vec<Item> {
    let file = |preset: &PresetChoice| Item {
        label: preset.name.clone(),
        detail: preset.problem.clone().unwrap_or_else(|| values(preset)),
        note: if preset.problem.is_some() { "cannot be used".into() } else { mark(app, &preset.name) },
        choice: Choice::Command(format!("/preset {}", preset.name)),
    };
    let own = PRESETS.iter().filter(|preset| !is_file(app, preset.name)).map(|preset| Item {
        label: preset.name.to_owned(),
        detail: preset.values.iter().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", "),
        note: "built in".into(),
        choice: Choice::Command(format!("/preset {}", preset.name)),
    });
    app.presets.iter().map(file).chain(own).collect()
}

fn mark(app: &App, name: &str) -> String {
    if app.options.preset.as_deref() == Some(name) { "in use".into() } else { "file".into() }
}

/// `temperature 1.2, system "Rhyme."`
fn values(preset: &PresetChoice) -> String {
    let mut all: Vec<String> = preset.values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.extend(preset.system.as_ref().map(|text| format!("system {text:?}")));
    if all.is_empty() { "sets nothing".into() } else { all.join(", ") }
}

/// What was asked for, for a preset or for another model.
pub fn answered(
    app: &mut App,
    preset: Option<String>,
    settings: Result<StartSettings, String>,
    effects: &mut Vec<Effect>,
) {
    let by_hand = app.asked_preset.take().filter(|name| Some(name) == preset.as_ref());
    match (settings, by_hand) {
        // From when the model is there: until then another one's may come back.
        (Ok(settings), None) if matches!(app.model, ModelState::Loading { .. }) => {
            app.start = Some((preset, settings));
        }
        (Ok(settings), by_hand) => {
            app.options.preset = preset;
            apply(app, settings, by_hand.as_deref(), effects);
        }
        (Err(why), Some(name)) => match PRESETS.iter().position(|preset| preset.name == name) {
            Some(built_in) => sampling::preset(app, built_in, effects),
            None => app.chat.note(Level::Bad, not_there(&name, &why)),
        },
        // A model of which nothing is known keeps what there is.
        (Err(_), None) => {}
    }
}

/// The model is ready: what holds for it by itself holds now.
pub fn in_force(app: &mut App, effects: &mut Vec<Effect>) {
    if let Some((preset, settings)) = app.start.take() {
        app.options.preset = preset;
        apply(app, settings, None, effects);
    }
}

fn not_there(name: &str, why: &str) -> String {
    let near = nearest(name, PRESETS.iter().map(|preset| preset.name));
    let hint = near.map_or(String::new(), |near| format!("; built in is {near}"));
    format!("/preset {name}: {why}{hint}")
}

/// Everything takes the value that it starts with, but for what was set in this session.
fn apply(app: &mut App, settings: StartSettings, preset: Option<&str>, effects: &mut Vec<Effect>) {
    let StartSettings { system, params: start, thinking, origins } = settings;
    let mut to = start.clone();
    let mut kept = Vec::new();
    let by_hand = |spec: &&ParamSpec| {
        let here = app.set_here.contains(&spec.name);
        here || (spec.get)(&app.params) != (spec.get)(&app.options.params)
    };
    for spec in PARAMS.iter().filter(by_hand) {
        if (spec.get)(&app.params) != (spec.get)(&start) && origins.contains_key(spec.name) {
            kept.push(spec.name);
        }
        // It was in range where it is from.
        let _ = spec.set(&mut to, (spec.get)(&app.params));
    }
    let changed = changed(&app.params, &to);
    app.options.params = start;
    app.options.origins = origins;
    app.set_by_preset.retain(|name, _| app.set_here.contains(name));
    if !changed.is_empty() {
        params::put(app, to, &[], effects);
    }
    let mut said = changed;
    if app.chat.system == app.options.system && app.chat.system != system {
        said.push(if system.is_some() { "a system prompt" } else { "no system prompt" }.to_owned());
        app.chat.system.clone_from(&system);
    }
    app.options.system = system;
    if app.thinking == app.options.thinking && app.thinking != thinking {
        said.push("thinking".to_owned());
        app.thinking = thinking.clone();
    }
    app.options.thinking = thinking;
    tell(app, preset, &said, &kept);
}

fn tell(app: &mut App, preset: Option<&str>, said: &[String], kept: &[&str]) {
    let what = match preset {
        Some(name) => format!("preset {name}"),
        None if said.is_empty() => return,
        None => "for this model".to_owned(),
    };
    let now = if said.is_empty() { "nothing changes".to_owned() } else { said.join(", ") };
    let kept = match kept {
        [] => String::new(),
        names => format!("; as set in this session stays {}", names.join(", ")),
    };
    app.chat.note(Level::Info, format!("{what}: {now}{kept}"));
}

fn changed(before: &SamplingParams, after: &SamplingParams) -> Vec<String> {
    let moved = PARAMS.iter().filter(|spec| (spec.get)(before) != (spec.get)(after));
    moved.map(|spec| format!("{} {}", spec.name, (spec.get)(after))).collect()
}

/// Writes what holds now, as far as it is not built in.
fn save(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    let (name, overwrite) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
    let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) {
        let text = "/preset save NAME: letters, digits, - _ and . make a name; NAME! writes over a file";
        return app.chat.note(Level::Bad, text);
    }
    let text = written(&app.params, &app.thinking, app.chat.system.as_deref());
    effects.push(Effect::SavePreset { name: name.to_owned(), text, overwrite });
}

pub fn saved(app: &mut App, name: &str, result: Result<String, String>, effects: &mut Vec<Effect>) {
    effects.push(Effect::ListPresets);
    match result {
        Ok(path) => app.chat.note(Level::Good, format!("saved as preset {name}: {path}")),
        Err(why) => app.chat.note(Level::Bad, format!("preset {name} is not saved: {why}")),
    }
}

/// As the file has it.
fn written(params: &SamplingParams, thinking: &Thinking, system: Option<&str>) -> String {
    let built_in = SamplingParams::default();
    let moved = PARAMS.iter().filter(|spec| (spec.get)(params) != (spec.get)(&built_in));
    let line = |spec: &ParamSpec| value((spec.get)(params)).map(|text| format!("{} = {text}\n", spec.name));
    let mut text: String = moved.filter_map(line).collect();
    let think = match (thinking.enabled, &thinking.effort) {
        (_, Some(level)) => Some(level.as_str()),
        (Some(on), None) => Some(if on { "on" } else { "off" }),
        (None, None) => None,
    };
    text.extend(think.map(|think| format!("{THINK} = {}\n", quoted(think))));
    text.extend(system.map(|system| format!("{SYSTEM} = {}\n", quoted(system))));
    text
}

fn value(value: ParamValue) -> Option<String> {
    Some(match value {
        ParamValue::Real(_) | ParamValue::Whole(_) => value.to_string(),
        ParamValue::Choice(name) => quoted(name),
        ParamValue::List(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("[{}]", words.join(", "))
        }
        ParamValue::None => return None,
    })
}

/// A basic string of TOML; a file's `${` is looked up in the environment, `$${` is not.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace("${", "$${")
}

/// How many are known, for completion.
pub fn names(app: &App) -> Vec<(String, String)> {
    let files = app.presets.iter().map(|preset| {
        (sanitize::one_line(&preset.name), format::fit(&sanitize::one_line(&values(preset)), 60))
    });
    let own =
        PRESETS.iter().filter(|p| !is_file(app, p.name)).map(|p| (p.name.to_owned(), p.help.to_owned()));
    let save = ("save".to_owned(), "what holds now, as a file: save NAME".to_owned());
    files.chain(own).chain([save]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_what_is_not_built_in() {
        let params = SamplingParams {
            temperature: 0.2,
            seed: Some(7),
            stop: vec!["a \"b\"".into(), "\n".into()],
            ..SamplingParams::default()
        };
        let thinking = Thinking { enabled: Some(false), ..Thinking::default() };
        let text = written(&params, &thinking, Some("Cost: ${PRICE}\nbriefly"));
        assert_eq!(
            text,
            "temperature = 0.2\nseed = 7\nstop = [\"a \\\"b\\\"\", \"\\n\"]\nthink = \"off\"\n\
             system = \"Cost: $${PRICE}\\nbriefly\"\n"
        );
    }
}
