//! The token that is looked at: the newest one, or the one that the person chose, here or in the
//! transcript; and why there is nothing to see of it.

use super::app::{App, ParsedToken};
use super::chat::Answer;
use super::format;
use super::history;
use crate::protocol::{SamplingTrace, SeqId};
use std::sync::Arc;

pub enum Looked {
    /// No token was drawn yet.
    Nothing,
    At(Arc<SamplingTrace>),
    Untraced {
        seq: SeqId,
        index: usize,
        why: String,
    },
}

pub fn looked(app: &App) -> Looked {
    let Some((seq, index)) = app.token else {
        let newest = history::seen(app).snapshot.sampling.clone();
        return newest.map_or(Looked::Nothing, Looked::At);
    };
    match app.traces.get(seq, index) {
        Some(trace) => Looked::At(trace.clone()),
        None => Looked::Untraced { seq, index, why: why_not(app, seq, index) },
    }
}

/// Whose token it is, and the how-manieth.
pub fn place(app: &App) -> Option<(SeqId, usize)> {
    match looked(app) {
        Looked::Nothing => None,
        Looked::At(trace) => Some((trace.seq, trace.index)),
        Looked::Untraced { seq, index, .. } => Some((seq, index)),
    }
}

/// Whose tokens the reasoning panel lists: of the token that is looked at, else the one chosen there, else
/// the one in focus, else the first that runs, else the newest.
pub fn parsed_sequence(app: &App) -> Option<SeqId> {
    let newest = app.chat.last_answer().map(|answer| answer.seq);
    let known = |seq: &SeqId| app.parsed.iter().any(|token| token.seq == *seq);
    let runs = |seq: &SeqId| app.snapshot.sequences.iter().any(|view| view.seq == *seq);
    let is_of_now = |seq: &SeqId| runs(seq) || newest.is_some_and(|newest| newest.request == seq.request);
    let looked_at = app.token.map(|(seq, _)| seq).filter(known);
    let chosen = app.panels.reasoning.seq.or(app.focused_seq).filter(|seq| known(seq) && is_of_now(seq));
    let first = app.snapshot.sequences.first().map(|view| view.seq).filter(known);
    looked_at.or(chosen).or(first).or(newest)
}

/// An answer of any chat.
pub fn answer(app: &App, seq: SeqId) -> Option<&Answer> {
    app.tabs.all(&app.chat).flat_map(|chat| chat.answers()).find(|answer| answer.seq == seq)
}

/// How many tokens the sequence has drawn, as far as the screen knows.
pub fn drawn(app: &App, seq: SeqId) -> Option<usize> {
    answer(app, seq).map(|answer| answer.tokens)
}

/// The token as it came, while the newest are remembered.
pub fn token(app: &App, seq: SeqId, index: usize) -> Option<&ParsedToken> {
    app.parsed.iter().rev().find(|t| t.seq == seq && t.index == index)
}

/// Why the waterfall of a token that was drawn is not known.
pub fn why_not(app: &App, seq: SeqId, index: usize) -> String {
    if token(app, seq, index).is_some_and(|token| token.forced) {
        return "it was not drawn: its grammar let nothing else follow".into();
    }
    match app.traces.of(seq) {
        None => format!(
            "sequence {seq} was not in focus when it drew this, and only that one is traced; \
             f puts the next one in focus"
        ),
        Some((first, _)) if index < first => {
            let first = format::count(first as u64 + 1);
            format!("it is older than what was traced: the first one known is token {first}")
        }
        Some((_, last)) if index > last => "it has not been drawn, or not traced, yet".into(),
        Some(_) => "it was drawn while another sequence was in focus, and only that one is traced".into(),
    }
}
