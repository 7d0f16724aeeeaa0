//! The keys of the transcript: selecting, folding and copying messages, scrolling by them.

use super::{branch, find, fork, reading, take};
use crate::protocol::SeqId;
use crate::tui::app::{App, Effect, Focus};
use crate::tui::chat::{Chat, Level};
use crate::tui::format;
use crate::tui::keymap::InTranscript;
use crate::tui::place::{Part, Place, Scroll, Sight, Spot};
use crate::tui::transcript::code_blocks;

pub fn act(app: &mut App, action: InTranscript, effects: &mut Vec<Effect>) {
    match action {
        InTranscript::Next => select_beside(app, 1),
        InTranscript::Previous => select_beside(app, -1),
        InTranscript::First => {
            let first = spots(&app.chat).next();
            select(app, first);
        }
        InTranscript::Last => select_last(app),
        InTranscript::HalfUp => super::keys::scroll(app, -half(app)),
        InTranscript::HalfDown => super::keys::scroll(app, half(app)),
        InTranscript::Tokens => reading::begin(app),
        InTranscript::Fold => fold(app),
        InTranscript::Copy => copy(app, effects),
        InTranscript::CopyBlock => copy_block(app, effects),
        InTranscript::Compare => compare_selected(app),
        InTranscript::Edit => branch::edit_selected(app),
        InTranscript::Again => branch::answer_selected_again(app, effects),
        InTranscript::Take => take::selected(app),
        InTranscript::NextMatch => find::step(app, 1),
        InTranscript::PreviousMatch => find::step(app, -1),
    }
}

/// What can be selected, in the order of the transcript.
pub fn spots(chat: &Chat) -> impl DoubleEndedIterator<Item = Spot> + '_ {
    (0..chat.entries.len()).flat_map(move |entry| {
        let answers = chat.turn(entry).map_or(0, |turn| turn.answers.len());
        let said = chat.turn(entry).is_some().then_some(Part::Said);
        let parts = said.into_iter().chain((0..answers).map(Part::Answer));
        parts.map(move |part| Spot { entry, part }).collect::<Vec<_>>()
    })
}

/// The newest message is selected, and what is written goes nowhere until the focus is back.
pub fn enter(app: &mut App) {
    app.focus = Focus::Transcript;
    let known = app.chat.selected.filter(|spot| exists(&app.chat, *spot));
    app.chat.selected = known.or_else(|| spots(&app.chat).next_back());
}

/// Esc: leaves what is open in the transcript. False when nothing was.
pub fn leave(app: &mut App) -> bool {
    if app.reading.is_some() {
        reading::end(app);
    } else if app.find.take().is_some() {
    } else if app.chat.compared.take().is_none() {
        return false;
    }
    true
}

fn exists(chat: &Chat, spot: Spot) -> bool {
    match spot.part {
        Part::Said => chat.turn(spot.entry).is_some(),
        Part::Answer(_) => chat.answer_at(spot).is_some(),
    }
}

fn select(app: &mut App, spot: Option<Spot>) {
    app.chat.selected = spot;
    app.chat.scroll = spot.map(|spot| Scroll::Show(app.shown.get().top, Sight::Message(spot)));
}

fn select_last(app: &mut App) {
    let last = spots(&app.chat).next_back();
    app.chat.selected = last;
    app.chat.scroll = None;
}

fn select_beside(app: &mut App, by: isize) {
    let all: Vec<Spot> = spots(&app.chat).collect();
    let at = app.chat.selected.and_then(|spot| all.iter().position(|s| *s == spot));
    let next = at.map_or(all.len().saturating_sub(1), |at| at.saturating_add_signed(by));
    match all.get(next) {
        // Under the last there may be notes.
        Some(_) if next + 1 == all.len() => select_last(app),
        Some(spot) => select(app, Some(*spot)),
        None => app.chat.scroll = None,
    }
}

/// The message before or after the one at the top of the view comes to the top.
pub fn to_message(app: &mut App, by: isize) {
    let top = app.shown.get().top;
    let mut said = spots(&app.chat).filter(|spot| spot.part == Part::Said).map(|spot| spot.entry);
    let entry = match by {
        // The blank line over a message belongs to it.
        ..0 => said.rfind(|entry| *entry < top.entry || (*entry == top.entry && top.line > 1)),
        _ => said.find(|entry| *entry > top.entry),
    };
    drop(said);
    match entry {
        Some(entry) => {
            let spot = Spot { entry, part: Part::Said };
            app.chat.selected = Some(spot);
            app.chat.scroll = Some(Scroll::Show(top, Sight::Top(spot)));
        }
        None if by < 0 => app.chat.scroll = Some(Scroll::At(Place::default())),
        None => app.chat.scroll = None,
    }
}

fn half(app: &App) -> isize {
    (app.shown.get().view / 2).max(1) as isize
}

/// The thoughts of the selected answer, a long message, or what tools gave back.
fn fold(app: &mut App) {
    let Some(spot) = app.chat.selected else { return };
    let all = app.chat.thoughts_open;
    let Some(turn) = app.chat.turn_mut(spot.entry) else { return };
    match spot.part {
        Part::Said if !turn.calls.is_empty() => {
            let open = turn.calls.iter().any(|call| call.is_open(all));
            turn.calls.iter_mut().for_each(|call| call.open = Some(!open));
        }
        Part::Said if turn.is_long() => turn.unfold(!turn.unfolded),
        Part::Said => return app.say("the message is shown in full"),
        Part::Answer(nth) => match turn.answers.get_mut(nth) {
            Some(answer) if !answer.thoughts.is_empty() => answer.open = Some(!answer.is_open(all)),
            _ => return app.say("this answer has no thoughts"),
        },
    }
    app.chat.scroll = Some(Scroll::Show(app.shown.get().top, Sight::Message(spot)));
}

/// Enter: an answer's tokens; of what a person said, all of it.
pub fn open(app: &mut App) {
    match app.chat.selected.map(|spot| spot.part) {
        Some(Part::Answer(_)) => reading::begin(app),
        _ => fold(app),
    }
}

/// Thoughts and results, in every answer, whatever was chosen for one.
pub fn fold_all(app: &mut App) {
    app.chat.thoughts_open = !app.chat.thoughts_open;
    for turn in app.chat.turns_mut() {
        turn.answers.iter_mut().for_each(|answer| answer.open = None);
        turn.calls.iter_mut().for_each(|call| call.open = None);
    }
}

/// What is selected, as it was written.
fn selected_text(app: &App) -> Option<String> {
    let spot = app.chat.selected?;
    let turn = app.chat.turn(spot.entry)?;
    let text = match spot.part {
        Part::Said if !turn.calls.is_empty() => {
            turn.calls.iter().map(|c| c.told()).collect::<Vec<_>>().join("\n")
        }
        Part::Said => turn.text.clone(),
        Part::Answer(nth) => turn.answers.get(nth)?.text.trim().to_owned(),
    };
    (!text.is_empty()).then_some(text)
}

fn copy(app: &mut App, effects: &mut Vec<Effect>) {
    match selected_text(app) {
        Some(text) => effects.push(Effect::Copy(text)),
        None => app.say("nothing to copy here"),
    }
}

fn copy_block(app: &mut App, effects: &mut Vec<Effect>) {
    match selected_text(app).as_deref().map(code_blocks).unwrap_or_default().pop() {
        Some(block) => effects.push(Effect::Copy(block)),
        None => app.say("no code block here"),
    }
}

/// `/copy code`, `/copy code 2`: of the selected answer, or of the newest.
pub fn copy_code(app: &mut App, which: &str, effects: &mut Vec<Effect>) {
    let selected = app.chat.selected.filter(|_| app.focus == Focus::Transcript);
    let answer = selected.and_then(|spot| app.chat.answer_at(spot)).or_else(|| app.chat.last_answer());
    let blocks = answer.map_or_else(Vec::new, |answer| code_blocks(&answer.text));
    let wanted = match which {
        "" => Some(blocks.len().saturating_sub(1)),
        number => number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)),
    };
    match wanted.and_then(|at| blocks.get(at)) {
        Some(block) => effects.push(Effect::Copy(block.clone())),
        None if blocks.is_empty() => app.say("no code block in the answer"),
        None => {
            let known = format!("the answer has {} code blocks", format::count(blocks.len() as u64));
            app.chat.note(Level::Bad, format!("/copy code takes 1 to {}: {known}", blocks.len()));
        }
    }
}

/// `=`: the selected answer and the one it branched from, or its neighbour.
fn compare_selected(app: &mut App) {
    if app.chat.compared.take().is_some() {
        return;
    }
    let pair = app.chat.selected.and_then(|spot| pair(app, spot));
    show_compared(app, pair);
}

fn pair(app: &App, spot: Spot) -> Option<(SeqId, SeqId)> {
    let turn = app.chat.turn(spot.entry)?;
    let nth = match spot.part {
        Part::Answer(nth) => nth,
        Part::Said => 1,
    };
    let answer = turn.answers.get(nth)?;
    let parent = answer.from.map(|(parent, _)| parent).filter(|seq| app.chat.answer(*seq).is_some());
    let beside = turn.answers.get(if nth == 0 { 1 } else { nth - 1 });
    match parent {
        Some(parent) => Some((parent, answer.seq)),
        None if nth == 0 => Some((answer.seq, beside?.seq)),
        None => Some((beside?.seq, answer.seq)),
    }
}

fn show_compared(app: &mut App, pair: Option<(SeqId, SeqId)>) {
    let Some((a, b)) = pair else { return app.say("nothing to compare: /fork makes a second answer") };
    let tokens = |seq| app.chat.answer(seq).map_or(0, |answer| answer.drawn.len());
    if tokens(a) == 0 || tokens(b) == 0 {
        return app.say("an answer whose tokens are not known cannot be compared");
    }
    app.chat.compared = Some((a, b));
    if let Some(spot) = app.chat.spot_of(b) {
        app.chat.selected = Some(spot);
        app.chat.scroll = Some(Scroll::Show(app.shown.get().top, Sight::Message(spot)));
    }
}

/// `/diff`, `/diff 2 3`, `/diff off`.
pub fn diff(app: &mut App, arguments: &str) {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let pair = match words[..] {
        ["off"] => {
            app.chat.compared = None;
            return;
        }
        [] => spots(&app.chat).rev().find_map(|spot| pair(app, spot)),
        [a, b] => match (fork::named(app, a), fork::named(app, b)) {
            (Some(a), Some(b)) => Some((a, b)),
            _ => {
                return app
                    .chat
                    .note(Level::Bad, format!("/diff takes two answers, as /diff 2 3, not {arguments:?}"));
            }
        },
        _ => return app.chat.note(Level::Bad, "/diff takes two answers, as /diff 2 3, or none"),
    };
    show_compared(app, pair);
}
