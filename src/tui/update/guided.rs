//! What the next answers must be: `/schema`, `/grammar`, `/regex`.

use crate::protocol::{Grammar, Guided};
use crate::tui::app::{App, Effect};
use crate::tui::chat::Level;
use crate::tui::slash::Slash;

/// Sets it at once, or asks for the file; alone it tells what holds, `off` lets answers be anything.
pub fn run(app: &mut App, command: Slash, argument: &str, effects: &mut Vec<Effect>) {
    match (command, argument) {
        (_, "") => tell(app),
        (_, "off" | "none") => hold(app, None),
        (Slash::Regex, regex) => hold(app, Some(Grammar::Regex(regex.into()))),
        (Slash::Schema, "object" | "json") => hold(app, Some(Grammar::Json)),
        (Slash::Schema, json) if json.starts_with('{') => hold(app, Some(Grammar::JsonSchema(json.into()))),
        (command, path) => effects.push(Effect::ReadGrammar { command, path: path.into() }),
    }
}

pub fn read(app: &mut App, command: Slash, path: &str, content: Result<String, String>) {
    match content {
        Ok(text) if command == Slash::Schema => hold(app, Some(Grammar::JsonSchema(text))),
        Ok(text) => hold(app, Some(Grammar::read(path, text))),
        Err(why) => app.chat.note(Level::Bad, format!("{path}: {why}; answers stay as they were")),
    }
}

fn hold(app: &mut App, grammar: Option<Grammar>) {
    app.guided = grammar.map(|grammar| Guided { grammar, in_reasoning: false });
    tell(app);
}

fn tell(app: &mut App) {
    let words = match &app.guided {
        None => "answers are free; /schema, /grammar or /regex hold the next ones to a form".to_owned(),
        Some(guided) => {
            let what = match &guided.grammar {
                Grammar::Regex(regex) => format!("match {regex}"),
                other => format!("follow the {other}"),
            };
            format!("the next answers {what}, until it is switched off (`off`)")
        }
    };
    app.chat.note(Level::Info, words);
}
