//! The same through threads and channels, as front ends see it.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::engine::{Opened, spawn};
use glassbox::model::{Fault, Scripted};
use glassbox::protocol::*;
use glassbox::text::TextModel;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

fn opened(runner: Scripted) -> Opened {
    let info = ModelInfo { name: "scripted".into(), ..ModelInfo::default() };
    Opened {
        runner: Box::new(runner),
        text: Arc::new(TextModel::bytes()),
        info,
        memory: MemoryPlan::default(),
    }
}

fn host(runner: impl Fn() -> Scripted + Send + 'static) -> Handle {
    spawn(settings(), Clock::wall(), move |_| Ok(opened(runner())))
}

fn request(id: u64, prompt: &str, params: SamplingParams) -> Command {
    Command::Submit(Box::new(Request::new(RequestId(id), Prompt::Text(prompt.into()), params)))
}

/// Everything until so many choices have ended.
fn until_finished(handle: &mut Handle, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.iter().filter(|e| matches!(e, Event::Finished { .. })).count() < count {
        events.extend(handle.events.blocking_recv().expect("the engine lives"));
    }
    events
}

fn until(handle: &mut Handle, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    while !events.iter().any(&wanted) {
        events.extend(handle.events.blocking_recv().expect("the engine lives"));
    }
    events
}

/// Whatever is left until the engine's side of the queue is closed.
fn drain(handle: &mut Handle) -> Vec<Event> {
    std::iter::from_fn(|| handle.events.blocking_recv()).flatten().collect()
}

fn text(events: &[Event]) -> String {
    let parts = events.iter().filter_map(|event| match event {
        Event::Delta { part: Part::Text(text), .. } => Some(text.as_str()),
        _ => None,
    });
    parts.collect()
}

/// Opens when told to, so that a test can send requests before.
fn gated() -> (impl FnOnce() + Send, Receiver<()>) {
    let (sender, receiver) = channel();
    (move || sender.send(()).unwrap(), receiver)
}

#[test]
fn requests_sent_while_loading_are_answered_when_it_is_ready() {
    let (open_now, gate) = gated();
    let mut handle = spawn(settings(), Clock::wall(), move |progress| {
        progress(LoadStage::Reading, 1, 2);
        gate.recv().unwrap();
        progress(LoadStage::Reading, 2, 2);
        Ok(opened(Scripted::saying(Scripted::limits(64, 4), "hello")))
    });
    handle.commands.send(request(1, "hi", greedy())).unwrap();
    open_now();
    let events = until_finished(&mut handle, 1);
    assert_eq!(events[0], Event::Loading { stage: LoadStage::Reading, done: 1, total: 2 });
    let at = |wanted: fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    assert!(at(|e| matches!(e, Event::Ready(_))) < at(|e| matches!(e, Event::Accepted { .. })));
    assert_eq!(text(&events), "hello");
}

#[test]
fn without_a_model_every_request_is_refused_with_the_reason() {
    for panics in [false, true] {
        let mut handle = spawn(settings(), Clock::wall(), move |_| match panics {
            true => panic!("no such file"),
            false => Err(Failure::new(FailureKind::Model, "no such file")),
        });
        handle.commands.send(request(1, "hi", greedy())).unwrap();
        handle.commands.send(Command::Abort(RequestId(1))).unwrap();
        handle.commands.send(request(2, "hi", greedy())).unwrap();
        let events = until_finished(&mut handle, 2);
        assert!(matches!(&events[0], Event::LoadFailed(f) if f.message.contains("no such file")));
        for event in &events[1..] {
            let Event::Finished { outcome, .. } = event else { panic!("{event:?}") };
            let FinishReason::Error(failure) = &outcome.reason else { panic!("{outcome:?}") };
            assert!(failure.message.contains("no such file"));
        }
        handle.commands.send(Command::Shutdown).unwrap();
        assert!(drain(&mut handle).is_empty());
    }
}

#[test]
fn every_request_finishes_exactly_once_through_faults() {
    let mut handle = host(|| babbler().failing_at(3, Fault::Device).failing_at(9, Fault::Panic));
    for id in 0..40 {
        let params = if id % 7 == 0 { SamplingParams { top_p: 0.0, ..greedy() } } else { seeded(id, 5) };
        handle.commands.send(request(id, "hello", params)).unwrap();
        if id % 5 == 0 {
            handle.commands.send(Command::Abort(RequestId(id))).unwrap();
        }
    }
    let mut events = until_finished(&mut handle, 40);
    handle.commands.send(Command::Shutdown).unwrap();
    events.extend(drain(&mut handle));
    let mut ends: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Finished { seq, .. } => Some(seq.request.0),
            _ => None,
        })
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, (0..40).collect::<Vec<_>>());
    assert!(!events.iter().any(|event| matches!(event, Event::Note(_))), "no block was lost");
}

#[test]
fn pause_step_and_resume_through_the_queue() {
    let mut handle = host(|| Scripted::saying(Scripted::limits(64, 4), "abc"));
    handle.commands.send(Command::Pause).unwrap();
    handle.commands.send(request(1, "hi", greedy())).unwrap();
    handle.commands.send(Command::Step(1)).unwrap();
    let events = until(&mut handle, |event| matches!(event, Event::Token { .. }));
    assert_eq!(text(&events), "a");
    // Served while paused; the answer to the abort shows that no step was taken in between.
    handle.commands.send(Command::Abort(RequestId(1))).unwrap();
    let events = until_finished(&mut handle, 1);
    assert_eq!(text(&events), "");
    handle.commands.send(request(2, "hi", greedy())).unwrap();
    handle.commands.send(Command::Resume).unwrap();
    assert_eq!(text(&until_finished(&mut handle, 1)), "abc");
}

#[test]
fn the_snapshot_of_an_idle_engine_is_that_of_the_last_step() {
    let mut handle = host(|| Scripted::saying(Scripted::limits(64, 4), "abc"));
    handle.commands.send(request(1, "hi", greedy())).unwrap();
    until_finished(&mut handle, 1);
    // The snapshot is stored before the events of its step are sent.
    let snapshot = handle.snapshot.load();
    assert_eq!((snapshot.step, snapshot.sequences.len(), snapshot.kv.owned), (4, 0, 0));
    assert_eq!(snapshot.counters.requests_finished, 1);
}

#[test]
fn a_shutdown_ends_requests_and_closes_the_queue() {
    let mut handle = host(babbler);
    handle.commands.send(request(1, "hi", SamplingParams { max_tokens: None, ..seeded(1, 1) })).unwrap();
    until(&mut handle, |event| matches!(event, Event::Token { .. }));
    handle.commands.send(Command::Shutdown).unwrap();
    let events = drain(&mut handle);
    let ends: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::Finished { .. })).collect();
    assert_eq!(ends.len(), 1);
    assert!(handle.commands.send(Command::Resume).is_err() || handle.events.blocking_recv().is_none());
}

#[test]
fn a_front_end_that_leaves_takes_the_engine_with_it() {
    let Handle { commands, mut events, .. } = host(babbler);
    commands.send(request(1, "hi", SamplingParams { max_tokens: None, ..seeded(1, 1) })).unwrap();
    drop(commands);
    let mut all = Vec::new();
    while let Some(batch) = events.blocking_recv() {
        all.extend(batch);
    }
    let ends = all.iter().filter(|event| matches!(event, Event::Finished { .. })).count();
    assert_eq!(ends, 1);
}
