//! `/continue`: an answer that was cut goes on where it ended, as a fork at its end.

use crate::protocol::{Command, FinishReason, ForkRequest, RequestId, SamplingParams, SeqId};
use crate::tui::app::{App, Effect};
use crate::tui::chat::Answer;

pub fn resume(app: &mut App, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    if app.ready().is_none() {
        return app.say("no model is ready");
    }
    if app.chat.is_answering() {
        return app.say("the answer is not at its end yet");
    }
    let answer = app.chat.last_main().and_then(|turn| turn.answers.first());
    let Some((seq, prompt_tokens, tokens)) = answer.and_then(where_it_ended) else {
        return app.say(why_not(answer));
    };
    let id = RequestId(app.next_request);
    app.next_request += 1;
    let params = longer(&app.params, tokens);
    take_up(app, seq, SeqId { request: id, choice: 0 }, &params);
    let request = ForkRequest { id, parent: seq, keep: prompt_tokens + tokens, then: Vec::new(), params };
    effects.push(Effect::Send(Command::Fork(Box::new(request))));
}

/// Its sequence, the tokens of its prompt and its own; only if it was cut.
fn where_it_ended(answer: &Answer) -> Option<(SeqId, usize, usize)> {
    let reason = &answer.outcome.as_ref()?.reason;
    let was_cut = matches!(reason, FinishReason::Length | FinishReason::Abort | FinishReason::Repetition);
    was_cut.then_some((answer.seq, answer.prompt_tokens?, answer.tokens))
}

fn why_not(answer: Option<&Answer>) -> &'static str {
    match answer.and_then(|answer| answer.outcome.as_ref()).map(|outcome| &outcome.reason) {
        None => "no answer to go on with",
        Some(FinishReason::Error(_)) => "it ended by an error: /regen answers anew",
        Some(FinishReason::ToolCalls) => "it waits for its tools",
        Some(_) => "the answer came to its own end: /regen answers anew",
    }
}

/// As many tokens again as an answer may have.
fn longer(params: &SamplingParams, tokens: usize) -> SamplingParams {
    let more = |most: u32| most.saturating_add(tokens.try_into().unwrap_or(u32::MAX));
    SamplingParams { max_tokens: params.max_tokens.map(more), ..params.clone() }
}

/// The answer is the new sequence's from now on.
fn take_up(app: &mut App, old: SeqId, new: SeqId, params: &SamplingParams) {
    let now = app.now;
    let Some(answer) = app.chat.answer_mut(old) else { return };
    answer.resumes = answer.outcome.take().map(|outcome| (old, outcome));
    answer.seq = new;
    answer.params = params.clone();
    (answer.submitted, answer.first_token) = (now, None);
    app.chat.scroll = None;
}
