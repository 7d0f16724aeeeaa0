//! `/take`: of several answers side by side the chat goes on from one. The others stay together as
//! another version.

use crate::tui::app::App;
use crate::tui::chat::{Answer, Chat, Entry, Level, Turn};
use crate::tui::keymap::Place;
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::place::Part;
use crate::tui::{format, sanitize};

/// `/take 2`; alone it lists them, to be chosen with Enter.
pub fn run(app: &mut App, arguments: &str) {
    let Some(at) = last_with_several(&app.chat) else {
        return app.say("no answers stand side by side: /compare and /parallel make them");
    };
    if arguments.is_empty() {
        return offer(app, at);
    }
    let count = several(&app.chat, at).map_or(0, |turn| turn.answers.len());
    match arguments.parse::<usize>().ok().and_then(|n| n.checked_sub(1)).filter(|n| *n < count) {
        Some(answer) => take(app, at, answer),
        None => {
            app.chat.note(Level::Bad, format!("/take takes an answer from 1 to {count}, not {arguments:?}"))
        }
    }
}

/// The answer that is selected in the transcript.
pub fn selected(app: &mut App) {
    let Some(spot) = app.chat.selected else { return };
    let stands_beside = several(&app.chat, spot.entry).is_some_and(|turn| turn.answers.len() > 1);
    let (Part::Answer(answer), true) = (spot.part, stands_beside) else {
        return app.say("select one of several answers that stand side by side");
    };
    let seq = app.chat.answer_at(spot).map(|answer| answer.seq);
    take(app, spot.entry, answer);
    app.chat.selected = seq.and_then(|seq| app.chat.spot_of(seq));
}

/// Their numbers and what they are, for completion.
pub fn answers_beside(app: &App) -> Vec<(String, String)> {
    let turn = last_with_several(&app.chat).and_then(|at| several(&app.chat, at));
    let answers = turn.into_iter().flat_map(|turn| &turn.answers).zip(1..);
    let said = |answer: &Answer| match &answer.title {
        Some(title) => sanitize::one_line(title),
        None => sanitize::one_line(&answer.text.chars().take(80).collect::<String>()),
    };
    answers.map(|(answer, n): (_, usize)| (n.to_string(), said(answer))).collect()
}

fn offer(app: &mut App, at: usize) {
    let Some(turn) = several(&app.chat, at) else { return };
    let item = |(i, answer): (usize, &Answer)| Item {
        label: format!("{} {}", i + 1, answer.title.as_deref().unwrap_or_default()).trim_end().to_owned(),
        detail: sanitize::one_line(&answer.text.chars().take(200).collect::<String>()),
        note: format!("{} tok", format::count(answer.tokens as u64)),
        choice: Choice::Command(format!("/take {}", i + 1)),
    };
    let items = turn.answers.iter().enumerate().map(item).collect();
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new("go on from", items))));
}

fn take(app: &mut App, at: usize, answer: usize) {
    if app.chat.pending().is_some() {
        return app.say("a tool call is open: Esc refuses it");
    }
    let Some(turn) = several_mut(&mut app.chat, at) else { return };
    let mut taken = Turn::new(&turn.text);
    taken.calls = turn.calls.iter().map(|call| call.again()).collect();
    let mut winner = turn.answers.remove(answer);
    // Of several prompts, its own.
    let own = winner.prompt.take();
    if let Some(prompt) = &own {
        taken = Turn::new(prompt);
    }
    winner.title = None;
    taken.answers.push(winner);
    let (is_first, retries) = (answer == 0 && !turn.side, turn.retries);
    if turn.answers.len() == 1 && turn.answers[0].prompt.is_none() {
        turn.side = false;
    }
    let at = if retries { answered_before(&app.chat, at) } else { at };
    app.chat.branch(at, taken);
    if is_first {
        follow(&mut app.chat, at);
    }
    app.chat.scroll = None;
    let others = app.keymap.hint(Place::Anywhere, "previous_version", "shows the others");
    let others = others.unwrap_or("/version shows the others".into());
    app.say(format!("the chat goes on from answer {}; {others}", answer + 1));
}

/// What followed went on from the answer that was taken: it stays with it.
fn follow(chat: &mut Chat, at: usize) {
    let Some(Entry::Turn(turn)) = chat.entries.get_mut(at) else { return };
    let rest = turn.versions.before.last_mut().map(|tail| tail.split_off(1)).unwrap_or_default();
    let waiting = chat.entries.split_off(at + 1);
    chat.entries.extend(rest);
    chat.entries.extend(waiting);
}

/// The message that these answers answer once more.
fn answered_before(chat: &Chat, at: usize) -> usize {
    let is_main = |entry: &Entry| matches!(entry, Entry::Turn(turn) if !turn.queued && !turn.side);
    chat.entries[..at].iter().rposition(is_main).unwrap_or(at)
}

fn last_with_several(chat: &Chat) -> Option<usize> {
    chat.entries.iter().rposition(|entry| matches!(entry, Entry::Turn(turn) if turn.answers.len() > 1))
}

fn several(chat: &Chat, at: usize) -> Option<&Turn> {
    chat.entries.get(at).and_then(|entry| if let Entry::Turn(turn) = entry { Some(turn) } else { None })
}

fn several_mut(chat: &mut Chat, at: usize) -> Option<&mut Turn> {
    chat.entries.get_mut(at).and_then(|entry| if let Entry::Turn(turn) = entry { Some(turn) } else { None })
}
