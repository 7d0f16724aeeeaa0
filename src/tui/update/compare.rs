//! `/compare`: one prompt under several settings, side by side in one batch.

use super::engine;
use crate::base::nearest;
use crate::protocol::{PARAMS, ParamSpec, Prompt, SamplingParams, Tools};
use crate::tui::app::{App, Effect};
use crate::tui::chat::{Answer, Entry, Level, Turn};
use std::ops::RangeInclusive;

/// Fewer are no comparison, more are no picture.
const COLUMNS: RangeInclusive<usize> = 2..=8;
const HOW: &str = "/compare temp=0.2 | temp=1 top_p=0.5 | greedy : PROMPT";

/// What one column is answered under.
struct Setting {
    title: String,
    params: SamplingParams,
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
    let prompt = match app.ready() {
        Some(info) if !info.has_chat_template => Prompt::Text(text.clone()),
        _ => Prompt::Chat(app.chat.told(told, app.chat.system.as_deref(), Some(&text))),
    };
    let mut turn = Turn::new(&text);
    (turn.side, turn.retries) = (true, retries);
    turn.answers = settings.iter().map(|setting| column(app, &prompt, setting, effects)).collect();
    app.chat.insert(Entry::Turn(turn));
    app.chat.scroll = None;
}

fn column(app: &mut App, prompt: &Prompt, setting: &Setting, effects: &mut Vec<Effect>) -> Answer {
    let mut request = engine::request(app, prompt.clone(), 1, Tools::default());
    request.params = setting.params.clone();
    request.beam = None;
    let mut answer = engine::send(app, request, effects).remove(0);
    answer.title = Some(setting.title.clone());
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

/// `temp=0.2 top_p 0.5`, `greedy`; nothing is what is set now.
fn setting(app: &App, text: &str) -> Result<Setting, String> {
    let mut params = app.params.clone();
    let mut names = Vec::new();
    let mut words = split(text, ' ').into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let pair = word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (name, value) = match (pair, word.as_str()) {
            (Some(pair), _) => pair,
            (None, "greedy") => ("temperature".into(), "0".into()),
            (None, _) if ParamSpec::find(&word).is_some() => {
                let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                (word, value)
            }
            (None, _) => return Err(unknown(&word)),
        };
        let spec = ParamSpec::find(&name).ok_or_else(|| unknown(&name))?;
        spec.parse(&mut params, &value).map_err(|why| why.to_string())?;
        names.push(spec.name);
    }
    params.check().map_err(|why| why.to_string())?;
    Ok(Setting { title: title(&params, &names), params })
}

/// What was asked for, by the names that `/set` lists.
fn title(params: &SamplingParams, names: &[&str]) -> String {
    let named = PARAMS.iter().filter(|spec| names.contains(&spec.name));
    let words: Vec<String> = named.map(|s| format!("{} {}", s.name, (s.get)(params))).collect();
    if words.is_empty() { "as it is set".into() } else { words.join(", ") }
}

fn unknown(name: &str) -> String {
    let near = nearest(name, PARAMS.iter().map(|spec| spec.name).chain(["greedy"]));
    let hint = near.map_or("/set lists them".into(), |near| format!("did you mean {near}?"));
    format!("no parameter {name:?}; {hint}")
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
