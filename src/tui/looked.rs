//! The token that is looked at: the newest one, or the one that the person chose, here or in the
//! transcript; and why there is nothing to see of it.

use super::app::{App, ParsedToken};
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

/// How many tokens the sequence has drawn, as far as the screen knows.
pub fn drawn(app: &App, seq: SeqId) -> Option<usize> {
    app.tabs.all(&app.chat).flat_map(|chat| chat.answers()).find(|a| a.seq == seq).map(|a| a.tokens)
}

/// The token as it came, while the newest are remembered.
pub fn token(app: &App, seq: SeqId, index: usize) -> Option<&ParsedToken> {
    app.parsed.iter().rev().find(|t| t.seq == seq && t.index == index)
}

fn why_not(app: &App, seq: SeqId, index: usize) -> String {
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
