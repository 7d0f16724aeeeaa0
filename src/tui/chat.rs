//! The conversation: turns with their answers, and notes between them.

use super::calls::Call;
use super::format;
use super::saved::Saved;
use super::transcript::Document;
use crate::protocol::{
    CallId, Event, FinishReason, Message, Outcome, PARAMS, Part, Role, SamplingParams, SeqId, TokenInfo,
    ToolCall, TurnNumber,
};
use std::time::Duration;

#[derive(Default)]
pub struct Chat {
    pub entries: Vec<Entry>,
    /// As its tab and the list of sessions call it.
    pub title: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// First line of the transcript shown; none follows the end.
    pub scroll: Option<usize>,
    /// What is being written, while another chat is in view.
    pub draft: String,
    /// Something came while another chat was in view.
    pub unread: bool,
    /// How thoughts are shown in every answer.
    pub thoughts_open: bool,
    /// What of it is on disk.
    pub saved: Saved,
    /// A message that was sent is in the input.
    pub editing: Option<Editing>,
}

/// What is sent next takes the place of an earlier message.
pub struct Editing {
    /// The how-manieth message of the person, from 0.
    pub message: usize,
    /// What was being written before.
    pub draft: String,
}

pub enum Entry {
    Turn(Turn),
    Note(Note),
}

/// What a person said, or what tools gave back, and what was answered.
pub struct Turn {
    pub text: String,
    pub shown: Document,
    pub answers: Vec<Answer>,
    /// Waits for the model, or for the answer before it.
    pub queued: bool,
    /// Several answers side by side; the chat goes on without them.
    pub side: bool,
    /// They answer the message before them once more.
    pub retries: bool,
    /// Those of the answer before: their results stand in the place of a person's words.
    pub calls: Vec<Call>,
    /// The person stopped here: no answer is asked for.
    pub held: bool,
    pub versions: Versions,
    /// Its number in the session, once it has one.
    pub number: Option<TurnNumber>,
}

/// What else was said, or answered, in a turn's place. Each begins with its own turn and has all that
/// followed; together with the one in the chat, in between, they are in the order they were made.
#[derive(Default)]
pub struct Versions {
    pub before: Vec<Vec<Entry>>,
    pub after: Vec<Vec<Entry>>,
}

pub struct Note {
    pub level: Level,
    pub shown: Document,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Good,
    Bad,
}

/// One continuation as it streams.
pub struct Answer {
    pub seq: SeqId,
    /// What tells it from those beside it: its prompt, its settings, where it branched off.
    pub title: Option<String>,
    /// Who gave it, where that is known from an earlier session.
    pub model: Option<String>,
    /// Its own, where the turn has several.
    pub prompt: Option<String>,
    pub text: String,
    pub reasoning: String,
    /// That it asks for, as they form.
    pub tool_calls: Vec<ToolCall>,
    pub body: Document,
    pub thoughts: Document,
    pub tokens: usize,
    pub reasoning_tokens: usize,
    pub prompt_tokens: Option<usize>,
    pub cached_tokens: Option<usize>,
    /// In force now; changes are marked in the text.
    pub params: SamplingParams,
    pub submitted: Duration,
    pub first_token: Option<Duration>,
    /// Most tokens of its thoughts.
    pub budget: Option<u32>,
    /// First and last token of its thoughts.
    pub thinking: Option<(Duration, Duration)>,
    pub outcome: Option<Box<Outcome>>,
    /// Its parameters are its own: what is set for the chat leaves them.
    pub is_fixed: bool,
    /// It goes on where it was cut; this is how it stood, until the engine has taken it up again.
    pub resumes: Option<(SeqId, Box<Outcome>)>,
}

impl Chat {
    /// Said above the messages that wait: a question and its answer stay together.
    pub fn note(&mut self, level: Level, text: impl AsRef<str>) {
        self.insert(Entry::Note(Note { level, shown: Document::note(text.as_ref()) }));
    }

    /// Puts it above the messages that wait.
    pub fn insert(&mut self, entry: Entry) {
        let waits = |entry: &Entry| matches!(entry, Entry::Turn(turn) if turn.queued);
        let at = self.entries.iter().position(waits).unwrap_or(self.entries.len());
        self.entries.insert(at, entry);
    }

    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &Turn> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Turn(turn) => Some(turn),
            Entry::Note(_) => None,
        })
    }

    pub fn turns_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Turn> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Turn(turn) => Some(turn),
            Entry::Note(_) => None,
        })
    }

    pub fn answers(&self) -> impl DoubleEndedIterator<Item = &Answer> {
        self.turns().flat_map(|turn| &turn.answers)
    }

    /// Those that the conversation is made of.
    pub fn main_turns(&self) -> impl DoubleEndedIterator<Item = &Turn> {
        self.turns().filter(|turn| !turn.queued && !turn.side)
    }

    pub fn last_main(&self) -> Option<&Turn> {
        self.main_turns().next_back()
    }

    fn last_main_mut(&mut self) -> Option<&mut Turn> {
        self.turns_mut().rev().find(|turn| !turn.queued && !turn.side)
    }

    /// The calls that are asked about, run, or done and not yet sent back.
    pub fn pending(&self) -> Option<&Turn> {
        self.last_main().filter(|turn| turn.is_pending())
    }

    pub fn pending_mut(&mut self) -> Option<&mut Turn> {
        self.last_main_mut().filter(|turn| turn.is_pending())
    }

    pub fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.turns_mut().rev().flat_map(|turn| &mut turn.calls).find(|call| call.id == id)
    }

    /// Rounds of calls since a person last spoke.
    pub fn rounds(&self) -> usize {
        self.main_turns().rev().take_while(|turn| !turn.calls.is_empty()).count()
    }

    pub fn last_answer(&self) -> Option<&Answer> {
        self.answers().next_back()
    }

    /// What the model is told: the turns before the first queued one, their answers, and `text`.
    /// A turn that was refused is left out, so that the session stays usable.
    pub fn messages(&self, system: Option<&str>, text: Option<&str>) -> Vec<Message> {
        self.told(usize::MAX, system, text)
    }

    /// The same, of the first so many turns.
    pub fn told(&self, turns: usize, system: Option<&str>, text: Option<&str>) -> Vec<Message> {
        let mut messages: Vec<Message> = system.map(|s| Message::new(Role::System, s)).into_iter().collect();
        let mut turns = self.main_turns().take(turns).peekable();
        while let Some(turn) = turns.next() {
            let answer = turn.answers.first().filter(|answer| !answer.is_refused());
            if turn.calls.is_empty() {
                messages.extend(answer.map(|_| Message::new(Role::User, &turn.text)));
            }
            messages.extend(turn.calls.iter().map(result));
            let Some(answer) = answer else { continue };
            let mut said = Message::new(Role::Assistant, &answer.text);
            said.reasoning = (!answer.reasoning.is_empty()).then(|| answer.reasoning.clone());
            // A call without a result, as of an answer that was stopped, is not told of.
            said.tool_calls =
                turns.peek().iter().flat_map(|next| &next.calls).map(|c| c.call.clone()).collect();
            messages.push(said);
        }
        messages.extend(text.map(|text| Message::new(Role::User, text)));
        messages
    }
}

/// What a call gave back, as the model is told.
fn result(call: &Call) -> Message {
    let mut message = Message::new(Role::Tool, call.told());
    message.tool_call_id = Some(call.call.id.clone());
    message.name = Some(call.call.name.clone());
    message
}

impl Turn {
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            shown: Document::plain(&folded(text)),
            answers: Vec::new(),
            queued: false,
            side: false,
            retries: false,
            calls: Vec::new(),
            held: false,
            versions: Versions::default(),
            number: None,
        }
    }

    /// What was written, and how that is shown: with chips as chips.
    pub fn shown_as(text: &str, shown: &str) -> Self {
        Self { shown: Document::plain(&folded(shown)), ..Self::new(text) }
    }

    /// The same said again, or the same results of calls, to be answered anew.
    pub fn again(&self) -> Self {
        let mut turn = Self::new(&self.text);
        turn.calls = self.calls.iter().map(Call::again).collect();
        turn
    }

    /// Nothing was answered.
    pub fn is_refused(&self) -> bool {
        self.answers.iter().all(Answer::is_refused) && !self.versions.is_several()
    }

    fn is_pending(&self) -> bool {
        !self.calls.is_empty() && self.answers.is_empty() && !self.held
    }
}

impl Answer {
    pub fn new(seq: SeqId, params: SamplingParams, now: Duration) -> Self {
        Self {
            seq,
            title: None,
            model: None,
            prompt: None,
            text: String::new(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            body: Document::default(),
            thoughts: Document::plain(""),
            tokens: 0,
            reasoning_tokens: 0,
            prompt_tokens: None,
            cached_tokens: None,
            params,
            submitted: now,
            first_token: None,
            budget: None,
            thinking: None,
            outcome: None,
            is_fixed: false,
            resumes: None,
        }
    }

    /// The engine has taken it. One that is resumed is told again from its beginning.
    pub fn accepted(&mut self, prompt_tokens: usize) {
        self.prompt_tokens = Some(prompt_tokens);
        if self.resumes.take().is_some() {
            (self.text, self.reasoning) = (String::new(), String::new());
            (self.body, self.thoughts) = (Document::default(), Document::plain(""));
            self.tool_calls.clear();
        }
    }

    /// Takes an event that names this answer.
    pub fn apply(&mut self, event: &Event, now: Duration) {
        match event {
            Event::Started { cached_tokens, .. } => self.cached_tokens = Some(*cached_tokens),
            Event::Token { token, .. } => self.count(token, now),
            Event::Delta { part: Part::Text(text), .. } => {
                self.text.push_str(text);
                self.body.push(text);
            }
            Event::Delta { part: Part::Reasoning(text), .. } => {
                self.reasoning.push_str(text);
                self.thoughts.push(text);
                self.thinking = Some((self.thinking.map_or(now, |(from, _)| from), now));
            }
            Event::Delta { part: Part::ToolCall(piece), .. } => piece.add_to(&mut self.tool_calls),
            Event::ParamsApplied { params, .. } => {
                if let Some(note) = difference(&self.params, params) {
                    self.body.mark(note);
                }
                self.params = (**params).clone();
            }
            Event::Finished { .. } if self.resumes.is_some() => self.not_resumed(),
            Event::Finished { outcome, .. } => {
                self.tokens = outcome.usage.completion_tokens;
                self.reasoning_tokens = outcome.usage.reasoning_tokens;
                self.outcome = Some(outcome.clone());
            }
            _ => {}
        }
    }

    /// Ended by an error before it said anything.
    pub fn is_refused(&self) -> bool {
        let failed = self.outcome.as_ref().is_some_and(|o| matches!(o.reason, FinishReason::Error(_)));
        failed && self.text.is_empty()
    }

    /// Milliseconds from sending to the first token: the engine's own measure once it is known.
    pub fn ttft_ms(&self) -> Option<f64> {
        let measured = self.outcome.as_ref().map(|o| o.timings.ttft_ms).filter(|ms| *ms > 0.0);
        // No time passes between what a replay catches up on.
        let seen = self.first_token.filter(|first| *first > self.submitted);
        measured.or_else(|| Some((seen? - self.submitted).as_secs_f64() * 1e3))
    }

    /// It stays as it was.
    fn not_resumed(&mut self) {
        if let Some((seq, before)) = self.resumes.take() {
            (self.seq, self.outcome) = (seq, Some(before));
        }
    }

    fn count(&mut self, token: &TokenInfo, now: Duration) {
        self.tokens += 1;
        self.first_token.get_or_insert(now);
        if token.channel == crate::protocol::Channel::Reasoning {
            self.reasoning_tokens += 1;
        }
    }
}

/// A long message as the transcript shows it: its beginning and its size. The model gets all of it.
fn folded(text: &str) -> String {
    const LINES: usize = 10;
    const CHARACTERS: usize = 1_500;
    let lines = text.lines().count();
    if lines <= 2 * LINES && text.len() <= 2 * CHARACTERS {
        return text.to_owned();
    }
    let start: Vec<&str> = text.lines().take(LINES).collect();
    let start: String = start.join("\n").chars().take(CHARACTERS).collect();
    let size = format::bytes(text.len() as u64);
    match lines {
        1 => format!("{start}…\n… {size} in all"),
        lines => format!("{start}\n… {} lines, {size} in all", format::count(lines as u64)),
    }
}

/// `temperature 0.8→0.2, top_k 40→20`; nothing when they are equal.
fn difference(before: &SamplingParams, after: &SamplingParams) -> Option<String> {
    let changed = PARAMS.iter().filter(|spec| (spec.get)(before) != (spec.get)(after));
    let notes: Vec<String> =
        changed.map(|s| format!("{} {}→{}", s.name, (s.get)(before), (s.get)(after))).collect();
    (!notes.is_empty()).then(|| notes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Failure, FailureKind, Timings, Usage};

    fn finish(answer: &mut Answer, reason: FinishReason) {
        let outcome = Outcome {
            reason,
            usage: Usage::default(),
            timings: Timings::default(),
            seed: 1,
            params: SamplingParams::default(),
            beam: None,
        };
        answer.apply(&Event::Finished { seq: answer.seq, outcome: Box::new(outcome) }, Duration::ZERO);
    }

    fn turn(text: &str, answer: &str, reason: FinishReason) -> Entry {
        let mut turn = Turn::new(text);
        let mut a = Answer::new(SeqId::default(), SamplingParams::default(), Duration::ZERO);
        a.apply(&Event::Delta { seq: a.seq, part: Part::Text(answer.into()) }, Duration::ZERO);
        finish(&mut a, reason);
        turn.answers.push(a);
        Entry::Turn(turn)
    }

    #[test]
    fn stopped_answers_stay_in_the_conversation_and_refused_ones_do_not() {
        // BUGLOG X28 (partial text kept) and K10 (the session stays usable).
        let refused = FinishReason::Error(Failure::new(FailureKind::TooLong, "2059 tokens, 2048 fit"));
        let mut chat = Chat::default();
        chat.entries.push(turn("one", "partial", FinishReason::Abort));
        chat.entries.push(turn("too long", "", refused));
        let mut queued = Turn::new("later");
        queued.queued = true;
        chat.entries.push(Entry::Turn(queued));
        let told: Vec<_> =
            chat.messages(Some("be brief"), Some("two")).into_iter().map(|m| m.content).collect();
        assert_eq!(told, ["be brief", "one", "partial", "two"]);
    }

    #[test]
    fn a_call_and_its_result_are_told_together_or_not_at_all() {
        let mut chat = Chat::default();
        let mut asks = turn("one", "", FinishReason::ToolCalls);
        let call = ToolCall { id: "c".into(), name: "x".into(), arguments: "{}".into() };
        if let Entry::Turn(turn) = &mut asks {
            turn.answers[0].tool_calls.push(call.clone());
        }
        chat.entries.push(asks);
        // Stopped before anything was asked: the call has no result.
        assert!(chat.messages(None, None).iter().all(|m| m.tool_calls.is_empty()));
        let mut results = Turn::new("");
        results.calls.push(Call::new(CallId(1), call.clone()));
        chat.insert(Entry::Turn(results));
        assert_eq!((chat.rounds(), chat.pending().is_some()), (1, true));
        let told = chat.messages(None, Some("two"));
        let roles: Vec<Role> = told.iter().map(|m| m.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::User]);
        assert_eq!((&told[1].tool_calls[..], told[2].tool_call_id.as_deref()), (&[call][..], Some("c")));
        assert_eq!(told[2].content, "This call was not run.");
    }

    #[test]
    fn only_what_changed_is_marked() {
        let before = SamplingParams::default();
        let after = SamplingParams { temperature: 0.2, seed: Some(7), ..before.clone() };
        assert_eq!(difference(&before, &after).as_deref(), Some("temperature 0.8→0.2, seed none→7"));
        assert_eq!(difference(&before, &before.clone()), None);
    }
}
