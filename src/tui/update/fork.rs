//! `/fork`: an answer goes on anew from one of its tokens, beside itself.

use super::debug;
use crate::protocol::{Command, ForkRequest, RequestId, SeqId};
use crate::tui::app::{App, Effect};
use crate::tui::chat::{Answer, Level};
use crate::tui::format;

/// `/fork`, `/fork 2.1`, `/fork @12`, `/fork 2.1 @12`: the focused or newest answer, at its end.
pub fn fork(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    match point(app, arguments) {
        Ok((parent, token)) => branch(app, parent, token, effects),
        Err(why) => app.chat.note(Level::Bad, why),
    }
}

/// Which answer, and after how many of its tokens.
fn point(app: &App, arguments: &str) -> Result<(SeqId, usize), String> {
    let mut seq = None;
    let mut token = None;
    for (i, word) in arguments.split_whitespace().enumerate() {
        let at = word.strip_prefix('@');
        match (i, at) {
            (0, None) => seq = Some(debug::sequence(word)),
            (0 | 1, _) if token.is_none() => token = Some(at.unwrap_or(word).parse::<usize>().ok()),
            _ => token = Some(None),
        }
    }
    let wrong = || format!("/fork takes a sequence and a token, as /fork 2 @12, not {arguments:?}");
    if seq == Some(None) || token == Some(None) {
        return Err(wrong());
    }
    let (seq, token) = (seq.flatten(), token.flatten());
    let wanted = seq.or(app.focused_seq);
    let answer = match wanted {
        Some(wanted) => app.chat.answers().rev().find(|a| a.seq == wanted),
        None => app.chat.last_answer(),
    };
    let answer = answer.ok_or_else(|| match wanted {
        Some(seq) => format!("no answer {seq} to fork"),
        None => "no answer to fork".to_owned(),
    })?;
    if answer.model.is_some() {
        let why = "is of an earlier session: the engine has no tokens of it; /regen answers again";
        return Err(format!("answer {} {why}", answer.seq));
    }
    if answer.prompt_tokens.is_none() {
        return Err(format!("answer {} has not begun", answer.seq));
    }
    match token.unwrap_or(answer.tokens) {
        token if token <= answer.tokens => Ok((answer.seq, token)),
        token => Err(format!(
            "answer {} has {} tokens: it cannot be forked at {token}",
            answer.seq,
            format::count(answer.tokens as u64)
        )),
    }
}

fn branch(app: &mut App, parent: SeqId, token: usize, effects: &mut Vec<Effect>) {
    let Some(turn) = app.chat.turns().rev().find(|t| t.answers.iter().any(|a| a.seq == parent)) else {
        return;
    };
    let answer = turn.answers.iter().find(|a| a.seq == parent);
    let Some(prompt) = answer.and_then(|a| a.prompt_tokens) else { return };
    let mut params = app.params.clone();
    // The same seed would say the same again.
    params.seed = params.seed.map(|seed| seed.wrapping_add(turn.answers.len() as u64));
    let id = RequestId(app.next_request);
    app.next_request += 1;
    app.chat.scroll = None;
    let request = ForkRequest { id, parent, keep: prompt + token, then: Vec::new(), params };
    place(app, &request);
    effects.push(Effect::Send(Command::Fork(Box::new(request))));
}

/// Gives the branch its place beside its parent. The engine tells what it keeps of the parent's text.
pub fn place(app: &mut App, request: &ForkRequest) {
    let parent = request.parent;
    let Some(prompt) = app.chat.answer_mut(parent).and_then(|answer| answer.prompt_tokens) else { return };
    let token = request.keep.saturating_sub(prompt);
    let mut answer = Answer::new(SeqId { request: request.id, choice: 0 }, request.params.clone(), app.now);
    answer.title = Some(format!("from {parent} at token {token}"));
    answer.tokens = token;
    if let Some(turn) = app.chat.turn_of_mut(parent) {
        turn.answers.push(answer);
    }
}
