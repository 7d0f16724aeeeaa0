use super::control::Next;
use super::intake::{Accepted, Intake, Work, panic_message, unanswered};
use super::meter::Limits;
use super::output::refused;
use super::step::Engine;
use crate::base::Clock;
use crate::config::EngineSettings;
use crate::model::Runner;
use crate::protocol::{
    Command, Event, EventReceiver, EventSender, Failure, FailureKind, Handle, LoadStage, MemoryPlan,
    ModelInfo, SnapshotCell, WeakEventSender,
};
use crate::text::TextModel;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// A snapshot is for eyes: more often is wasted.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(33);

/// A model that is ready to run.
pub struct Opened {
    pub runner: Box<dyn Runner>,
    pub text: Arc<TextModel>,
    pub info: ModelInfo,
    /// What was planned before anything was allocated.
    pub memory: MemoryPlan,
}

/// Starts an engine. Two threads: intake prepares requests in the order they arrive; the engine
/// opens the model itself, so that a device context never changes its thread, then steps while
/// there is work and sleeps while there is none.
///
/// `open` is given a function to report progress with: stage, bytes done, bytes in all. Requests
/// sent meanwhile wait; when it fails, they and all later ones are refused with its failure.
pub fn spawn(
    settings: EngineSettings,
    clock: Clock,
    open: impl FnOnce(&dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure> + Send + 'static,
) -> Handle {
    let (commands, inbox) = channel();
    let (work_sender, work) = channel();
    let (ready, opened) = channel();
    let (events, receiver) = EventReceiver::channel();
    let snapshot = SnapshotCell::default();
    let answers = events.downgrade();
    let host =
        Host { work, events, cell: snapshot.clone(), published: Duration::ZERO, limits: Limits::default() };
    let intake_clock = clock.clone();
    start("intake", move || take_in(&inbox, &opened, &work_sender, &answers, &intake_clock));
    start("engine", move || host.run(&settings, clock, open, &ready));
    Handle { commands, events: receiver, snapshot }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.into()).spawn(body).expect("the system can start a thread");
}

/// The intake thread. Waits for the model first: without its tokenizer nothing can be prepared.
fn take_in(
    inbox: &Receiver<Command>,
    opened: &Receiver<Result<Intake, Failure>>,
    work: &Sender<Work>,
    answers: &WeakEventSender,
    clock: &Clock,
) {
    let Ok(opened) = opened.recv() else { return };
    for command in inbox {
        let item = match (&opened, command) {
            (Ok(intake), command) => intake.take(command),
            (Err(failure), Command::Submit(request)) => {
                Work::Refuse(Box::new(Accepted::new(*request, clock.now())), failure.clone())
            }
            (Err(failure), Command::Count(count)) => {
                Work::Say(Event::Counted { ticket: count.ticket, tokens: Err(failure.clone()) })
            }
            (Err(failure), Command::WhatIf(asked)) => Work::Say(unanswered(*asked, failure)),
            (Err(_), command) => Work::Control(command),
        };
        // What intake can answer need not wait for the step that runs.
        let item = match item {
            Work::Say(event) => match answers.send(vec![event]) {
                true => continue,
                false => return,
            },
            item => item,
        };
        if work.send(item).is_err() {
            return;
        }
    }
}

/// The engine thread's side of the channels.
struct Host {
    work: Receiver<Work>,
    events: EventSender,
    cell: SnapshotCell,
    /// When the newest snapshot was.
    published: Duration,
    limits: Limits,
}

impl Host {
    fn run(
        mut self,
        settings: &EngineSettings,
        clock: Clock,
        open: impl FnOnce(&dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure>,
        ready: &Sender<Result<Intake, Failure>>,
    ) {
        let events = self.events.clone();
        let report = move |stage, done, total| {
            events.send(vec![Event::Loading { stage, done, total }]);
        };
        match guarded(|| open(&report)) {
            Ok(Opened { runner, text, info, memory }) => {
                let mut engine = Engine::new(settings, runner, text, clock);
                engine.memory = memory;
                engine.run_ahead();
                self.cell.store(engine.snapshot());
                self.events.send(vec![Event::Ready(Box::new(info))]);
                // Intake cannot be gone: it waits for this.
                let _ = ready.send(Ok(engine.intake()));
                self.serve(engine);
            }
            Err(failure) => {
                self.events.send(vec![Event::LoadFailed(failure.clone())]);
                let _ = ready.send(Err(failure));
                self.refuse_all();
            }
        }
    }

    fn serve(&mut self, mut engine: Engine) {
        let mut events = Vec::new();
        loop {
            let next = self.receive(&mut engine, &mut events);
            if next == Next::GoOn {
                engine.tick(&mut events);
            }
            if engine.is_idle() {
                check(&mut engine, &mut events);
            }
            self.publish(&engine, !engine.can_step());
            let heard = events.is_empty() || self.events.send(std::mem::take(&mut events));
            if next == Next::Stop || !heard {
                return;
            }
        }
    }

    /// Takes all work that has arrived; waits for some while there is nothing to step.
    fn receive(&mut self, engine: &mut Engine, events: &mut Vec<Event>) -> Next {
        let mut waited = false;
        loop {
            let work = match engine.can_step() || waited {
                false => self.work.recv().map_err(|_| TryRecvError::Disconnected),
                true => self.work.try_recv(),
            };
            waited = true;
            match work {
                Ok(work) if self.limits.take(&work, engine, &self.events) => {}
                Ok(work) => match engine.apply(work, events) {
                    Next::GoOn => {}
                    Next::Stop => return Next::Stop,
                },
                Err(TryRecvError::Empty) => return Next::GoOn,
                // The front end is gone without a word.
                Err(TryRecvError::Disconnected) => {
                    engine.shut_down(events);
                    return Next::Stop;
                }
            }
        }
    }

    fn publish(&mut self, engine: &Engine, at_once: bool) {
        let time = engine.clock.now();
        if at_once || time >= self.published + SNAPSHOT_EVERY {
            self.published = time;
            self.cell.store(engine.snapshot());
        }
    }

    /// Without a model: every request ends with the reason why there is none.
    fn refuse_all(&self) {
        for work in &self.work {
            let events = match work {
                Work::Refuse(accepted, failure) => refused(&accepted, &failure).collect(),
                Work::Control(Command::Shutdown) => return,
                Work::Control(Command::MeasureLimits) => {
                    vec![Event::Limits(Err("there is no model, and no device for one".into()))]
                }
                _ => continue,
            };
            if !self.events.send(events) {
                return;
            }
        }
    }
}

/// Blocks that went missing are worth a word, and are had back by starting over.
fn check(engine: &mut Engine, events: &mut Vec<Event>) {
    if let Err(wrong) = engine.self_check() {
        events.push(Event::Note(format!("the KV cache lost count and was emptied: {wrong}")));
        engine.empty_cache();
    }
}

/// A panic while the model opens is a failure to open it.
fn guarded<T>(open: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| {
        let why = format!("opening the model failed: {}", panic_message(&*panic));
        Err(Failure::new(FailureKind::Internal, why))
    })
}
