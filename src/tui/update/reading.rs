//! The keys of token mode: walking an answer's tokens, choosing an alternative, forking there.

use super::fork;
use crate::tui::app::{App, Effect, Focus};
use crate::tui::keymap::InTokens;
use crate::tui::place::{Scroll, Sight};
use crate::tui::reading::{self, Reading};
use crossterm::event::KeyEvent;

/// False lets the key act as usual.
pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    if app.reading.is_none() || app.focus != Focus::Transcript {
        return false;
    }
    let action = app.keymap.token_action(key);
    if let Some(action) = action {
        act(app, action, effects);
    }
    action.is_some()
}

/// The selected answer is read token by token.
pub fn begin(app: &mut App) {
    let answer = app.chat.selected.and_then(|spot| app.chat.answer_at(spot));
    let Some(answer) = answer else { return app.say("select an answer: j and k go there") };
    if answer.drawn.is_empty() {
        return app.say("the tokens of this answer are not known");
    }
    let (seq, at) = (answer.seq, answer.first_read());
    app.reading = Some(Reading::new(seq, at));
    look_at(app, at);
}

pub fn end(app: &mut App) {
    app.reading = None;
    app.token = None;
    if let Some(spot) = app.chat.selected {
        app.chat.scroll = app.chat.scroll.map(|_| Scroll::Show(app.shown.get().top, Sight::Message(spot)));
    }
}

pub fn act(app: &mut App, action: InTokens, effects: &mut Vec<Effect>) {
    let Some(reading) = &app.reading else { return };
    let Some(answer) = app.chat.answer(reading.seq) else { return end(app) };
    let (at, last) = (reading.at, answer.drawn.len().saturating_sub(1));
    match action {
        InTokens::Left => look_at(app, at.saturating_sub(1)),
        InTokens::Right => look_at(app, (at + 1).min(last)),
        InTokens::First => look_at(app, 0),
        InTokens::Last => look_at(app, last),
        InTokens::Up => look_at(app, reading.beside(&answer.drawn, -1)),
        InTokens::Down => look_at(app, reading.beside(&answer.drawn, 1)),
        InTokens::Doubtful => match (at + 1..=last).find(|index| is_doubtful(app, *index)) {
            Some(index) => look_at(app, index),
            None => app.say("no token after this one was in doubt"),
        },
        InTokens::Colour => {
            if let Some(reading) = &mut app.reading {
                reading.coloured = !reading.coloured;
            }
        }
        InTokens::NextChoice => choose(app, 1),
        InTokens::PreviousChoice => choose(app, -1),
        InTokens::Fork => fork(app, effects),
    }
}

/// The model gave it less than half.
fn is_doubtful(app: &App, index: usize) -> bool {
    let answer = app.reading.as_ref().and_then(|reading| app.chat.answer(reading.seq));
    let token = answer.and_then(|answer| answer.drawn.get(index));
    token.and_then(|token| token.probability()).is_some_and(|probability| probability < 0.5)
}

/// The panels follow.
pub fn look_at(app: &mut App, at: usize) {
    let Some(reading) = &mut app.reading else { return };
    (reading.at, reading.choice) = (at, None);
    let seq = reading.seq;
    app.token = Some((reading::origin(app, seq, at), at));
    app.chat.scroll = Some(Scroll::Show(app.shown.get().top, Sight::Token));
}

fn choose(app: &mut App, by: isize) {
    let Some(reading) = &app.reading else { return };
    let Some(answer) = app.chat.answer(reading.seq) else { return };
    let candidates = reading::alternatives(app, answer, reading.at).candidates;
    let drawn = answer.drawn.get(reading.at).map(|token| token.id);
    let at = reading.choice.or_else(|| candidates.iter().position(|c| Some(c.id) == drawn)).unwrap_or(0);
    choose_nth(app, at.saturating_add_signed(by));
}

pub fn choose_nth(app: &mut App, nth: usize) {
    let Some(reading) = &app.reading else { return };
    let Some(answer) = app.chat.answer(reading.seq) else { return };
    let known = reading::alternatives(app, answer, reading.at).candidates.len();
    if let Some(reading) = &mut app.reading
        && nth < known
    {
        reading.choice = Some(nth);
    }
}

/// Goes on from before the token: with the alternative that is chosen, or drawing anew.
pub fn fork(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(reading) = &app.reading else { return };
    let Some(answer) = app.chat.answer(reading.seq) else { return };
    let (seq, at) = (reading.seq, reading.at);
    let drawn = answer.drawn.get(at).map(|token| token.id);
    let candidates = reading::alternatives(app, answer, at).candidates;
    let chosen = reading.choice.and_then(|nth| candidates.get(nth)).map(|candidate| candidate.id);
    let then = chosen.filter(|id| Some(*id) != drawn);
    if fork::at_token(app, seq, at, then.into_iter().collect(), effects) {
        end(app);
        app.chat.selected = app.chat.selected.map(|spot| {
            let answers = app.chat.turn(spot.entry).map_or(1, |turn| turn.answers.len());
            crate::tui::place::Spot { part: crate::tui::place::Part::Answer(answers - 1), ..spot }
        });
        app.chat.scroll = None;
    }
}
