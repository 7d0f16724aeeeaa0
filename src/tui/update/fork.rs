//! `/fork`: an answer goes on anew from one of its tokens, beside itself.

use super::debug;
use crate::protocol::{Channel, Command, ForkRequest, RequestId, SeqId, TokenId};
use crate::tui::app::{App, Effect};
use crate::tui::chat::{Answer, Level};
use crate::tui::drawn::DrawnTokens;
use crate::tui::{format, reading};

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
        Ok((parent, token)) => branch(app, parent, token, Vec::new(), effects),
        Err(why) => app.chat.note(Level::Bad, why),
    }
}

/// Goes on from `token` of an answer, first with what follows `then`. False says why not.
pub fn at_token(
    app: &mut App,
    parent: SeqId,
    token: usize,
    then: Vec<TokenId>,
    effects: &mut Vec<Effect>,
) -> bool {
    if super::replay::does_not_answer(app) {
        return false;
    }
    if app.ready().is_none() {
        app.say("no model is ready");
        return false;
    }
    branch(app, parent, token, then, effects);
    true
}

/// The answer that is called so, as `2` or `2.1`.
pub fn named(app: &App, word: &str) -> Option<SeqId> {
    let seq = debug::sequence(word)?;
    app.chat.answer(seq).map(|answer| answer.seq)
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

fn branch(app: &mut App, parent: SeqId, token: usize, then: Vec<TokenId>, effects: &mut Vec<Effect>) {
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
    let request = ForkRequest { id, parent, keep: prompt + token, then, params };
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
    answer.from = Some((parent, token));
    answer.drawn = kept(app, parent, token, &request.then);
    answer.tokens = token + request.then.len();
    answer.reasoning_tokens = answer.drawn.iter().filter(|t| t.channel == Channel::Reasoning).count();
    if let Some(turn) = app.chat.turn_of_mut(parent) {
        turn.answers.push(answer);
    }
}

/// The tokens that a branch has before it draws one. The text of those it is made to take is known
/// where they were alternatives.
fn kept(app: &App, parent: SeqId, token: usize, then: &[TokenId]) -> DrawnTokens {
    let Some(answer) = app.chat.answer(parent) else { return DrawnTokens::default() };
    let mut drawn = answer.drawn.first(token);
    let channel = answer.drawn.get(token).map_or(Channel::Content, |token| token.channel);
    let alternatives = reading::alternatives(app, answer, token).candidates;
    for id in then {
        let known = alternatives.iter().find(|candidate| candidate.id == *id);
        drawn.push_given(*id, &known.map_or_else(|| format!("‹{id}›"), |c| c.text.clone()), channel);
    }
    drawn
}
