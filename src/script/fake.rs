//! An engine for tests: it says what it was told to say.

use crate::protocol::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};

pub const REQUEST: RequestId = RequestId(1);

/// Ready at once; answers the first submission with these batches of events, then nothing. Ends when
/// the handle is dropped, with the commands it got.
pub fn engine(events: Vec<Vec<Event>>) -> (Handle, JoinHandle<Vec<Command>>) {
    start(events, true, false)
}

/// Says these events without being asked.
pub fn silent(events: Vec<Vec<Event>>) -> (Handle, JoinHandle<Vec<Command>>) {
    start(events, false, false)
}

/// Dies after its last event.
pub fn mortal(events: Vec<Vec<Event>>) -> (Handle, JoinHandle<Vec<Command>>) {
    start(events, true, true)
}

/// Answers each submission with the next of these. Ends when the handle is dropped.
pub fn conversation(answers: Vec<Vec<Event>>) -> (Handle, JoinHandle<Vec<Command>>) {
    let (commands, received) = channel();
    let (sender, receiver) = EventReceiver::channel();
    let handle = Handle { commands, events: receiver, snapshot: SnapshotCell::default() };
    let thread = spawn(move || {
        sender.send(vec![Event::Ready(Box::new(ModelInfo { name: "fake".into(), ..Default::default() }))]);
        let mut answers = answers.into_iter();
        let answer = |command: Command| {
            if matches!(command, Command::Submit(_)) {
                sender.send(answers.next().expect("as many answers as requests"));
            }
            command
        };
        received.into_iter().map(answer).collect()
    });
    (handle, thread)
}

fn start(events: Vec<Vec<Event>>, ready: bool, dies: bool) -> (Handle, JoinHandle<Vec<Command>>) {
    let (commands, received) = channel();
    let (sender, receiver) = EventReceiver::channel();
    let snapshot = SnapshotCell::default();
    let handle = Handle { commands, events: receiver, snapshot: snapshot.clone() };
    let thread = spawn(move || {
        let mut got = Vec::new();
        if ready {
            let info =
                ModelInfo { name: "fake".into(), device: "none".into(), load_ms: 1.5, ..Default::default() };
            sender.send(vec![Event::Ready(Box::new(info))]);
            got.extend(received.recv().ok());
        }
        let mut steps = Vec::new();
        for (i, batch) in events.into_iter().enumerate() {
            steps.push(Arc::new(StepRecord { step: 1 + i as u64, ..Default::default() }));
            snapshot.store(Snapshot { steps: steps.clone(), ..Default::default() });
            sender.send(batch);
        }
        if !dies {
            got.extend(rest(&received));
        }
        got
    });
    (handle, thread)
}

fn rest(received: &Receiver<Command>) -> Vec<Command> {
    received.iter().collect()
}

pub fn accepted(prompt_tokens: usize) -> Event {
    Event::Accepted { id: REQUEST, prompt_tokens, rendered: String::new() }
}

pub fn text(choice: u32, text: &str) -> Event {
    Event::Delta { seq: SeqId { request: REQUEST, choice }, part: Part::Text(text.into()) }
}

pub fn reasoning(choice: u32, text: &str) -> Event {
    Event::Delta { seq: SeqId { request: REQUEST, choice }, part: Part::Reasoning(text.into()) }
}

pub fn token(choice: u32, id: TokenId, text: &str) -> Event {
    let info = TokenInfo {
        id,
        text: text.into(),
        bytes: text.into(),
        logprob: -0.25,
        rank: 1,
        entropy: 0.5,
        top: vec![TopToken { id, text: text.into(), logit: 3.0, logprob: -0.25 }],
        forced: false,
        channel: Channel::Content,
        held: String::new(),
        why: None,
    };
    Event::Token { seq: SeqId { request: REQUEST, choice }, token: Box::new(info) }
}

pub fn finished(choice: u32, reason: FinishReason) -> Event {
    let outcome = Outcome {
        reason,
        usage: Usage { prompt_tokens: 3, completion_tokens: 2, ..Default::default() },
        timings: Timings { ttft_ms: 10.0, e2el_ms: 20.0, tokens_per_second: 100.0, ..Default::default() },
        seed: 42 + u64::from(choice),
        params: SamplingParams::default(),
        beam: None,
    };
    Event::Finished { seq: SeqId { request: REQUEST, choice }, outcome: Box::new(outcome) }
}
