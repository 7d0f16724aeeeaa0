//! `/compare`: one prompt under several settings, side by side in one batch. A preset's name is a setting:
//! its values lie over what is set now.

use super::engine;
use crate::base::nearest;
use crate::protocol::{PARAMS, ParamSpec, Prompt, SamplingParams, Thinking, Tools};
use crate::tui::app::{App, Effect};
use crate::tui::chat::{Answer, Entry, Level, Turn};
use crate::tui::port::PresetChoice;
use crate::tui::presets::PRESETS;
use crate::tui::sanitize;
use std::ops::RangeInclusive;

/// Fewer are no comparison, more are no picture.
const COLUMNS: RangeInclusive<usize> = 2..=8;
const HOW: &str = "/compare temp=0.2 | temp=1 top_p=0.5 | greedy : PROMPT";

/// What one column is answered under.
struct Setting {
    /// The presets it is made of, then the parameters that were named.
    presets: Vec<String>,
    names: Vec<&'static str>,
    params: SamplingParams,
    thinking: Thinking,
    system: Option<String>,
}

pub fn run(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    if app.ready().is_none() {
        return app.say("no model is ready");
    }
    let (settings, text) = split_prompt(arguments);
    match read(app, settings) {
        Err(why) => app.chat.note(Level::Bad, format!("/compare: {why}")),
        Ok(settings) => ask(app, &settings, text, effects),
    }
}

/// To a prompt of its own, or once more to the last message.
fn ask(app: &mut App, settings: &[Setting], text: &str, effects: &mut Vec<Effect>) {
    let main = app.chat.main_turns().count();
    let last = app.chat.last_main().filter(|turn| turn.calls.is_empty()).map(|turn| turn.text.clone());
    let retries = text.is_empty();
    let (told, text) = match last.filter(|_| retries) {
        Some(last) => (main - 1, last),
        None if retries => return app.chat.note(Level::Bad, format!("/compare needs a prompt: {HOW}")),
        None => (main, text.to_owned()),
    };
    let mut turn = Turn::new(&text);
    (turn.side, turn.retries) = (true, retries);
    turn.answers = settings.iter().map(|setting| column(app, (told, &text), setting, effects)).collect();
    app.chat.insert(Entry::Turn(turn));
    app.chat.scroll = None;
}

fn column(
    app: &mut App,
    (told, text): (usize, &str),
    setting: &Setting,
    effects: &mut Vec<Effect>,
) -> Answer {
    let prompt = match app.ready() {
        Some(info) if !info.has_chat_template => Prompt::Text(text.to_owned()),
        _ => Prompt::Chat(app.chat.told(told, setting.system.as_deref(), Some(text))),
    };
    let mut request = engine::request(app, prompt, 1, Tools::default());
    request.params = setting.params.clone();
    request.thinking = setting.thinking.clone();
    request.beam = None;
    let mut answer = engine::send(app, request, effects).remove(0);
    answer.title = Some(setting.title());
    answer.is_fixed = true;
    answer
}

fn read(app: &App, settings: &str) -> Result<Vec<Setting>, String> {
    let parts = split(settings, '|');
    if !COLUMNS.contains(&parts.len()) {
        return Err(format!("{} to {} settings with | between them: {HOW}", COLUMNS.start(), COLUMNS.end()));
    }
    let part = |(i, text): (usize, &String)| {
        setting(app, text).map_err(|why| format!("part {} ({}): {why}", i + 1, text.trim()))
    };
    parts.iter().enumerate().map(part).collect()
}

/// `temp=0.2 top_p 0.5`, `greedy`, `poet top_k=5`; nothing is what is set now.
fn setting(app: &App, text: &str) -> Result<Setting, String> {
    let mut setting = Setting {
        presets: Vec::new(),
        names: Vec::new(),
        params: app.params.clone(),
        thinking: app.thinking.clone(),
        system: app.chat.system.clone(),
    };
    let mut words = split(text, ' ').into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if let Some((name, value)) = word.split_once('=') {
            setting.set(name, value)?;
        } else if ParamSpec::find(&word).is_some() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            setting.set(&word, &value)?;
        } else {
            setting.take_preset(app, &word)?;
        }
    }
    setting.params.check().map_err(|why| why.to_string())?;
    Ok(setting)
}

impl Setting {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let spec = ParamSpec::find(name).ok_or_else(|| unknown("parameter", name, &[]))?;
        spec.parse(&mut self.params, value).map_err(|why| why.to_string())?;
        self.names.push(spec.name);
        Ok(())
    }

    /// A file's values, else those of the built-in preset of that name.
    fn take_preset(&mut self, app: &App, name: &str) -> Result<(), String> {
        let file = app.presets.iter().find(|preset| preset.name == name);
        let own = PRESETS.iter().find(|preset| preset.name == name);
        match (file, own) {
            (Some(file), _) => self.take_file(file)?,
            (None, Some(own)) => own.values.iter().try_for_each(|(name, value)| self.take(name, value))?,
            (None, None) => {
                let known: Vec<String> =
                    super::presets::names(app).into_iter().map(|(name, _)| name).collect();
                return Err(unknown("parameter or preset", name, &known));
            }
        }
        self.presets.push(sanitize::one_line(name));
        Ok(())
    }

    fn take_file(&mut self, file: &PresetChoice) -> Result<(), String> {
        if let Some(problem) = &file.problem {
            return Err(problem.clone());
        }
        if file.system.is_some() {
            self.system.clone_from(&file.system);
        }
        file.values.iter().try_for_each(|(name, value)| self.take(name, value))
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match ParamSpec::find(name) {
            Some(spec) => spec.parse(&mut self.params, value).map_err(|why| why.to_string()),
            None if name == "think" => self.thinking.set(value).map_err(|why| why.to_string()),
            None => Err(format!("{name} of a preset cannot be compared")),
        }
    }

    /// What was asked for, the parameters by the names that `/set` lists.
    fn title(&self) -> String {
        let named = PARAMS.iter().filter(|spec| self.names.contains(&spec.name));
        let named = named.map(|spec| format!("{} {}", spec.name, (spec.get)(&self.params)));
        let words: Vec<String> = self.presets.iter().cloned().chain(named).collect();
        if words.is_empty() { "as it is set".into() } else { words.join(", ") }
    }
}

fn unknown(what: &str, name: &str, presets: &[String]) -> String {
    let presets = presets.iter().map(String::as_str).filter(|name| *name != "save");
    let near = nearest(name, PARAMS.iter().map(|spec| spec.name).chain(presets));
    let hint = near.map_or("/set and /preset list them".into(), |near| format!("did you mean {near}?"));
    format!("no {what} {name:?}; {hint}")
}

/// The settings, and the prompt behind the first colon that is followed by a space.
fn split_prompt(arguments: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, c) in arguments.char_indices() {
        quoted ^= c == '"';
        let rest = &arguments[at + c.len_utf8()..];
        if c == ':' && !quoted && rest.starts_with(char::is_whitespace) {
            return (&arguments[..at], rest.trim());
        }
    }
    (arguments.trim_end_matches([' ', ':']), "")
}

/// Parts between separators that stand in no double quotes.
fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        match parts.last_mut() {
            Some(part) if c != separator || quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_begins_behind_a_colon_outside_quotes() {
        assert_eq!(split_prompt("temp=1 | greedy : Why: tell me"), ("temp=1 | greedy ", "Why: tell me"));
        assert_eq!(split_prompt("greedy | a: b"), ("greedy | a", "b"));
        assert_eq!(split_prompt("stop=\"a: b\" | greedy"), ("stop=\"a: b\" | greedy", ""));
        assert_eq!(split_prompt("a | b :"), ("a | b", ""));
    }

    #[test]
    fn separators_in_quotes_separate_nothing() {
        assert_eq!(split("a \"b | c\"|d", '|'), ["a \"b | c\"", "d"]);
    }
}
