//! Keys of the reasoning panel: which sequence, and which of its tokens.

use super::{keys, sampling};
use crate::protocol::{Command, SeqId};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::keymap::Action;
use crate::tui::looked;
use crate::tui::panels::Panel;

/// Selects a token, for the sampling panel too; beyond the newest it is followed.
pub fn moved(app: &mut App, action: Action, effects: &mut Vec<Effect>) {
    let Some(seq) = looked::parsed_sequence(app) else { return };
    let known: Vec<usize> = app.parsed.iter().filter(|t| t.seq == seq).map(|t| t.index).collect();
    let (Some(first), Some(last)) = (known.first(), known.last()) else { return };
    let at = app.token.filter(|(of, _)| *of == seq).map(|(_, index)| index);
    let to = match (action, at) {
        (Action::First, _) => Some(*first),
        (Action::Up | Action::Decrease, None) => Some(last.saturating_sub(1).max(*first)),
        (Action::Up | Action::Decrease, Some(at)) => Some(at.saturating_sub(1).max(*first)),
        (Action::Down | Action::Increase, Some(at)) if at < *last => Some((at + 1).max(*first)),
        _ => None,
    };
    // While values are tried on it, a token stays chosen.
    let tried = app.panels.sampling.trial.is_some();
    let to = to.or(tried.then_some(*last)).map(|index| (seq, index));
    sampling::look_at(app, to, effects);
}

/// The next of the sequences whose tokens are known: those of the newest request, and all that run.
pub fn next_sequence(app: &mut App, effects: &mut Vec<Effect>) {
    let running: Vec<SeqId> = app.snapshot.sequences.iter().map(|view| view.seq).collect();
    let newest = app.chat.last_answer().map(|answer| answer.seq.request);
    let listed = |seq: &SeqId| running.contains(seq) || newest == Some(seq.request);
    let mut all: Vec<SeqId> = app.parsed.iter().map(|token| token.seq).filter(listed).collect();
    all.sort();
    all.dedup();
    let now = looked::parsed_sequence(app);
    let at = all.iter().position(|seq| Some(*seq) == now).map_or(0, |at| at + 1);
    let Some(seq) = all.get(at % all.len().max(1)).copied() else {
        return app.say("no token yet");
    };
    sampling::look_at(app, None, effects);
    app.panels.reasoning.seq = Some(seq);
    app.say(format!("sequence {seq}"));
    if running.contains(&seq) {
        app.focused_seq = Some(seq);
        effects.push(Effect::Send(Command::Focus(Some(seq))));
    }
}

/// From a token to its waterfall.
pub fn show_in_sampling(app: &mut App) {
    match app.panels.open(app.class()).contains(&Panel::Sampling) {
        true => app.focus = Focus::Panel(Panel::Sampling),
        false => keys::toggle_panel(app, Panel::Sampling),
    }
}
