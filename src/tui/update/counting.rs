//! Asking the engine how many tokens the draft is, a moment after the last key.

use super::{branch, engine};
use crate::protocol::{Command, Count, Counted, Failure, Prompt, Tools};
use crate::tui::app::{App, Effect};
use crate::tui::chat::Level;
use crate::tui::counting;
use crate::tui::format;

/// After every message: whether there is something new to count, and whether it is time.
pub fn follow(app: &mut App, effects: &mut Vec<Effect>) {
    let about = counting::fingerprint(app);
    app.counting.look(about, app.now);
    count_files(app, effects);
    if app.counting.due.is_some_and(|due| due <= app.now) {
        app.counting.due = None;
        let text = app.composer.whole_text();
        let ticket = ask(app, Counted::Texts(vec![text.clone()]), effects);
        app.counting.draft = Some(ticket);
        // What an answer that streams will have been, nobody knows.
        if !app.chat.is_answering() || app.chat.editing.is_some() {
            let prompt = prompt(app, &text);
            let tools = Tools { tools: app.tools.offered(), ..Tools::default() };
            let request = engine::request(app, prompt, 1, tools);
            app.counting.prompt = Some(ask(app, Counted::Prompt(Box::new(request)), effects));
        }
    }
}

/// Files that were attached and not counted yet.
fn count_files(app: &mut App, effects: &mut Vec<Effect>) {
    if app.ready().is_none() || app.replay.is_some() {
        return;
    }
    let asked = |path: &str| app.counting.files.iter().any(|(_, other)| other == path);
    let new: Vec<(String, String)> = app
        .composer
        .uncounted()
        .filter(|(path, _)| !asked(path))
        .map(|(path, content)| (path.to_owned(), content.to_owned()))
        .collect();
    for (path, content) in new {
        let ticket = ask(app, Counted::Texts(vec![content]), effects);
        app.counting.files.push((ticket, path));
    }
}

/// What would be sent: the conversation up to where the draft will stand, and the draft.
fn prompt(app: &App, text: &str) -> Prompt {
    match app.ready() {
        Some(info) if !info.has_chat_template => Prompt::Text(text.to_owned()),
        _ => {
            let turns =
                app.chat.editing.as_ref().map(|editing| branch::turns_before(&app.chat, editing.message));
            Prompt::Chat(app.chat.told(turns.unwrap_or(usize::MAX), app.chat.system.as_deref(), Some(text)))
        }
    }
}

fn ask(app: &mut App, what: Counted, effects: &mut Vec<Effect>) -> u64 {
    let ticket = app.counting.ticket();
    effects.push(Effect::Send(Command::Count(Box::new(Count { ticket, what }))));
    ticket
}

/// An answer; only of the newest questions it is still of interest.
pub fn counted(app: &mut App, ticket: u64, tokens: &Result<Vec<usize>, Failure>) {
    let tokens = tokens.as_ref().ok().and_then(|all| all.first().copied());
    let counting = &mut app.counting;
    if counting.draft == Some(ticket) {
        (counting.draft, counting.known.draft) = (None, tokens);
    } else if counting.prompt == Some(ticket) {
        (counting.prompt, counting.known.prompt) = (None, tokens);
    } else if let Some(at) = counting.files.iter().position(|(of, _)| *of == ticket) {
        // One that cannot be counted stays in the list, and is not asked again.
        if let Some(tokens) = tokens {
            let (_, path) = counting.files.remove(at);
            app.composer.counted(&path, tokens);
        }
    }
}

/// Whether it is known that the draft does not fit; it says so, with the ways out. Nothing is cut.
pub fn refuses(app: &mut App) -> bool {
    let Some((prompt, limit)) = app.counting.known.prompt.zip(app.ready().map(|info| info.context_length))
    else {
        return false;
    };
    if prompt < limit {
        return false;
    }
    let count = |n: usize| format::count(n as u64);
    let draft =
        app.counting.known.draft.map_or(String::new(), |n| format!(" ({} of them the draft)", count(n)));
    let text = format!(
        "not sent: the prompt has {} tokens{draft}, the context {}: {} too many, with one left for the answer\n\
         shorten it, or take a file out; /clear starts a new chat, /edit goes on from an earlier message",
        count(prompt),
        count(limit),
        count(prompt + 1 - limit),
    );
    app.chat.note(Level::Bad, text);
    true
}
