//! A device that is lost: requests end with the reason, and it is opened again, once.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::{Opened, spawn};
use glassbox::model::{Batch, DeviceError, Fault, Launched, ModelLimits, Runner, Scripted, Threaded};
use glassbox::protocol::*;
use glassbox::sample::{RowError, SampleRow, Sampled};
use glassbox::text::TextModel;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const LOST: &str = "the device was told to be lost";

fn limits() -> ModelLimits {
    Scripted::limits(64, 4)
}

fn saying() -> Scripted {
    Scripted::saying(limits(), "hello")
}

/// One opening after the other, each with what it gives. The engine's clock is the test's.
struct House {
    handle: Handle,
    clock: Clock,
    next: u64,
    events: Vec<Event>,
}

type Opening = Result<(Box<dyn Runner>, &'static str), Failure>;

impl House {
    fn new(openings: Vec<Opening>) -> Self {
        Self::with(settings(), openings)
    }

    fn with(settings: EngineSettings, openings: Vec<Opening>) -> Self {
        let clock = Clock::virtual_time();
        let mut openings = openings.into_iter();
        let handle = spawn(settings, clock.clone(), move |_| {
            let (runner, device) = openings.next().expect("it is opened no more often than this")?;
            let blocks = runner.limits().num_blocks - 1;
            let info = ModelInfo {
                device: device.into(),
                kv_blocks: blocks,
                context_length: runner.limits().max_model_len,
                ..ModelInfo::default()
            };
            let text = Arc::new(TextModel::bytes());
            Ok(Opened { runner, text, info, memory: MemoryPlan::default() })
        });
        Self { handle, clock, next: 0, events: Vec::new() }
    }

    fn submit(&mut self, prompt: &str) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        let request = Request::new(id, Prompt::Text(prompt.into()), greedy());
        self.handle.commands.send(Command::Submit(Box::new(request))).unwrap();
        id
    }

    fn hear(&mut self, wanted: impl Fn(&Event) -> bool) {
        while !self.events.iter().any(&wanted) {
            self.events.extend(self.handle.events.blocking_recv().expect("the engine lives"));
        }
    }

    /// The text of a whole answer, or why there is none.
    fn ask(&mut self, prompt: &str) -> Result<String, String> {
        let id = self.submit(prompt);
        self.end_of(id)
    }

    fn end_of(&mut self, id: RequestId) -> Result<String, String> {
        self.hear(|event| matches!(event, Event::Finished { seq, .. } if seq.request == id));
        let mut text = String::new();
        for event in &self.events {
            match event {
                Event::Delta { seq, part: Part::Text(part) } if seq.request == id => text += part,
                Event::Finished { seq, outcome } if seq.request == id => {
                    if let FinishReason::Error(failure) = &outcome.reason {
                        return Err(failure.message.clone());
                    }
                }
                _ => {}
            }
        }
        Ok(text)
    }

    fn hear_note(&mut self, part: &str) {
        self.hear(|event| matches!(event, Event::Note(note) if note.contains(part)));
    }

    fn devices(&self) -> Vec<&str> {
        let ready = self.events.iter().filter_map(|event| match event {
            Event::Ready(info) => Some(info.device.as_str()),
            _ => None,
        });
        ready.collect()
    }
}

fn good(runner: Scripted) -> Opening {
    Ok((Box::new(runner), "gpu"))
}

#[test]
fn requests_end_with_the_reason_and_the_next_one_is_answered() {
    let mut house = House::new(vec![good(saying().failing_at(3, Fault::Lost)), good(saying())]);
    // Both run when it is lost.
    house.handle.commands.send(Command::Pause).unwrap();
    let two = [house.submit("one"), house.submit("two")];
    house.handle.commands.send(Command::Resume).unwrap();
    for id in two {
        assert_eq!(house.end_of(id), Err(format!("the device failed: {LOST}")));
    }
    house.hear_note(&format!("the device failed: {LOST}; opened again in 0.0 s"));
    assert_eq!(house.ask("three"), Ok("hello".into()));
    assert_eq!(house.devices(), ["gpu"], "it is the same device with the same room");
    // What the lost device held is not found again.
    let cached = house.events.iter().rev().find_map(|event| match event {
        Event::Finished { outcome, .. } => Some(outcome.usage.cached_tokens),
        _ => None,
    });
    assert_eq!(cached, Some(0));
}

/// Its memory must be free before the next one asks for it.
#[test]
fn the_lost_runner_is_gone_before_the_next_is_opened() {
    struct Dropping(Scripted, Sender<&'static str>);
    impl Drop for Dropping {
        fn drop(&mut self) {
            let _ = self.1.send("dropped");
        }
    }
    impl Runner for Dropping {
        fn limits(&self) -> &ModelLimits {
            self.0.limits()
        }
        fn launch(&mut self, batch: &Batch) -> Result<Launched, DeviceError> {
            self.0.launch(batch)
        }
        fn sample(
            &mut self,
            launched: Launched,
            rows: &[SampleRow],
        ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
            self.0.sample(launched, rows)
        }
        fn is_lost(&self) -> bool {
            self.0.is_lost()
        }
    }
    for threaded in [false, true] {
        let (tell, told) = channel();
        let mut failing = Some(saying().failing_at(1, Fault::Lost));
        let settings = settings().tuned(|s| s.async_scheduling = threaded);
        let mut handle = spawn(settings, Clock::wall(), move |_| {
            let _ = tell.send("opened");
            let runner = Dropping(failing.take().unwrap_or_else(saying), tell.clone());
            let info = ModelInfo::default();
            let (runner, text) = (Box::new(runner), Arc::new(TextModel::bytes()));
            Ok(Opened { runner, text, info, memory: MemoryPlan::default() })
        });
        for id in 1..=2 {
            let request = Request::new(RequestId(id), Prompt::Text("hi".into()), greedy());
            handle.commands.send(Command::Submit(Box::new(request))).unwrap();
            let mut ended = false;
            while !ended {
                let events = handle.events.blocking_recv().unwrap();
                ended = events.iter().any(|event| matches!(event, Event::Finished { .. }));
            }
        }
        handle.shut_down(Duration::from_secs(10));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["opened", "dropped", "opened", "dropped"]);
    }
}

#[test]
fn a_device_lost_twice_in_a_row_stays_closed() {
    let openings = vec![good(saying().failing_at(1, Fault::Lost)), good(saying().failing_at(1, Fault::Lost))];
    let mut house = House::new(openings);
    house.ask("one").unwrap_err();
    house.hear_note("opened again");
    house.clock.advance(Duration::from_secs(3600));
    assert_eq!(house.ask("two"), Err(format!("the device failed: {LOST}")));
    house.hear_note(&format!(
        "the device failed again: {LOST}; it stays closed until the model is loaded anew"
    ));
    for _ in 0..2 {
        let why = house.ask("three").unwrap_err();
        assert!(why.contains(LOST) && why.contains("stays closed"), "{why}");
    }
}

/// Answers in between count only once a while has passed.
#[test]
fn a_device_lost_soon_after_it_was_opened_again_stays_closed_and_a_later_loss_is_another_one() {
    let lost = |at| good(saying().failing_at(at, Fault::Lost));
    for (seconds, again) in [(59, false), (61, true)] {
        // Six launches are one answer.
        let mut house = House::new(vec![lost(1), lost(7), good(saying())]);
        house.ask("one").unwrap_err();
        house.hear_note("opened again");
        assert_eq!(house.ask("two"), Ok("hello".into()));
        house.clock.advance(Duration::from_secs(seconds));
        assert_eq!(house.ask("three"), Err(format!("the device failed: {LOST}")));
        let answer = house.ask("four");
        assert_eq!(answer.is_ok(), again, "after {seconds} s: {answer:?}");
    }
}

#[test]
fn where_it_cannot_be_opened_again_requests_are_refused_with_both_reasons() {
    let gone = Failure::new(FailureKind::Internal, "no such device");
    let mut house = House::new(vec![good(saying().failing_at(1, Fault::Lost)), Err(gone)]);
    house.ask("one").unwrap_err();
    house.hear_note(&format!("the device failed: {LOST}; it could not be opened again: no such device"));
    for _ in 0..2 {
        let why = house.ask("two").unwrap_err();
        assert!(why.contains(LOST) && why.contains("no such device"), "{why}");
    }
    assert_eq!(house.devices(), ["gpu"]);
}

/// As under `--device auto`, when the GPU is gone: less room, and whoever prepares requests knows it.
#[test]
fn another_device_is_told_and_its_limits_hold() {
    let small = Scripted::saying(ModelLimits { max_model_len: 20, ..Scripted::limits(8, 4) }, "hello");
    let openings = vec![good(saying().failing_at(1, Fault::Lost)), Ok((Box::new(small), "cpu"))];
    let folder = tempfile::tempdir().unwrap();
    let settings =
        EngineSettings { kv_cache_dir: Some(folder.path().into()), host_kv_bytes: 1 << 16, ..settings() };
    let mut house = House::with(settings, openings);
    house.ask("one").unwrap_err();
    house.hear(|event| matches!(event, Event::Ready(info) if info.device == "cpu"));
    assert_eq!(house.ask("two"), Ok("hello".into()));
    let snapshot = house.handle.snapshot.load();
    assert_eq!(snapshot.kv.blocks.len(), 9);
    let why = house.ask(&"x".repeat(21)).unwrap_err();
    assert!(why.contains("20"), "{why}");
    assert_eq!(house.devices(), ["gpu", "cpu"]);
    let notes: Vec<_> = house.events.iter().filter(|event| matches!(event, Event::Note(_))).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

/// Tokens are remembered, and are computed anew.
#[test]
fn a_branch_may_start_from_an_answer_of_before() {
    let mut house = House::new(vec![good(saying().failing_at(7, Fault::Lost)), good(saying())]);
    assert_eq!(house.ask("one"), Ok("hello".into()));
    house.ask("two").unwrap_err();
    house.hear_note("opened again");
    let fork = ForkRequest {
        id: RequestId(9),
        parent: SeqId { request: RequestId(1), choice: 0 },
        keep: 5,
        then: Vec::new(),
        params: greedy(),
    };
    house.handle.commands.send(Command::Fork(Box::new(fork))).unwrap();
    assert_eq!(house.end_of(RequestId(9)), Ok("hello".into()));
}

/// A pass on a thread of its own that loses the device is found out by the next call.
#[test]
fn a_threaded_runner_says_what_its_own_says() {
    let mut runner: Box<dyn Runner> = Box::new(saying().failing_at(1, Fault::Lost));
    Threaded::take_over(&mut runner);
    assert!(!runner.is_lost());
    let mut bench = Bench::with(settings(), runner);
    let id = bench.ask("hi", greedy());
    bench.run();
    assert!(bench.failure(id).message.ends_with(LOST));
    assert_eq!(bench.engine.take_lost().as_deref(), Some(LOST));
    assert_eq!(bench.engine.take_lost(), None, "told once");
}
