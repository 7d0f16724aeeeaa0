use super::control::Next;
use super::intake::{Accepted, Intake, Work, panic_message, unanswered};
use super::lost::Patience;
use super::meter::Limits;
use super::output::refused;
use super::step::Engine;
use crate::base::Clock;
use crate::config::EngineSettings;
use crate::model::Runner;
use crate::protocol::{
    Command, Event, EventReceiver, EventSender, Failure, FailureKind, FinishReason, Handle, LoadStage,
    MemoryPlan, ModelInfo, SnapshotCell, WeakEventSender,
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
/// sent meanwhile wait; when it fails, they and all later ones are refused with its failure. It is
/// called again should the device be lost, after everything on it was dropped.
pub fn spawn(
    settings: EngineSettings,
    clock: Clock,
    open: impl FnMut(&dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure> + Send + 'static,
) -> Handle {
    let (commands, inbox) = channel();
    let (work_sender, work) = channel();
    let (ready, opened) = channel();
    let (events, receiver) = EventReceiver::channel();
    let snapshot = SnapshotCell::default();
    let answers = events.downgrade();
    let host = Host {
        work,
        events,
        cell: snapshot.clone(),
        published: Duration::ZERO,
        limits: Limits::default(),
        ready,
        patience: Patience::default(),
    };
    let intake_clock = clock.clone();
    start("intake", move || take_in(&inbox, &opened, &work_sender, &answers, &intake_clock));
    start("engine", move || host.run(&settings, clock, open));
    Handle { commands, events: receiver, snapshot }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.into()).spawn(body).expect("the system can start a thread");
}

/// The intake thread. Waits for the model first: without its tokenizer nothing can be prepared. Of a
/// device that was opened again it has other limits from there on.
fn take_in(
    inbox: &Receiver<Command>,
    opened: &Receiver<Result<Intake, Failure>>,
    work: &Sender<Work>,
    answers: &WeakEventSender,
    clock: &Clock,
) {
    let Ok(mut newest) = opened.recv() else { return };
    for command in inbox {
        newest = opened.try_iter().last().unwrap_or(newest);
        let item = match (&newest, command) {
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
    ready: Sender<Result<Intake, Failure>>,
    patience: Patience,
}

/// Opens the model, as often as it is called.
type Open<'a> = &'a mut dyn FnMut() -> Result<Opened, Failure>;

impl Host {
    fn run(
        mut self,
        settings: &EngineSettings,
        clock: Clock,
        mut open: impl FnMut(&dyn Fn(LoadStage, u64, u64)) -> Result<Opened, Failure>,
    ) {
        let events = self.events.clone();
        let report = move |stage, done, total| {
            events.send(vec![Event::Loading { stage, done, total }]);
        };
        let mut open = move || guarded(|| open(&report));
        match open() {
            Ok(Opened { runner, text, info, memory }) => {
                let mut engine = Engine::new(settings, runner, text, clock);
                engine.memory = memory;
                engine.run_ahead();
                self.cell.store(engine.snapshot());
                self.events.send(vec![Event::Ready(Box::new(info.clone()))]);
                // Intake cannot be gone: it waits for this.
                let _ = self.ready.send(Ok(engine.intake()));
                self.serve(engine, info, settings, &mut open);
            }
            Err(failure) => {
                self.events.send(vec![Event::LoadFailed(failure.clone())]);
                let _ = self.ready.send(Err(failure));
                self.refuse_all();
            }
        }
    }

    fn serve(&mut self, mut engine: Engine, mut info: ModelInfo, settings: &EngineSettings, open: Open) {
        let mut events = Vec::new();
        loop {
            let next = self.receive(&mut engine, &mut events);
            if next == Next::GoOn {
                engine.tick(&mut events);
            }
            self.patience.answered |= events.iter().any(is_good_end);
            if let Some(why) = engine.take_lost() {
                self.open_again(&mut engine, &mut info, &why, settings, open, &mut events);
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

    /// The device is lost. Everybody has been told by then, and the engine is empty.
    fn open_again(
        &mut self,
        engine: &mut Engine,
        info: &mut ModelInfo,
        why: &str,
        settings: &EngineSettings,
        open: Open,
        events: &mut Vec<Event>,
    ) {
        let start = engine.clock.now();
        if !self.patience.is_left(start) {
            engine.close(format!("{why}; it stays closed, as it failed soon after it was opened again"));
            events.push(Event::Note(format!(
                "the device failed again: {why}; it stays closed until the model is loaded anew"
            )));
            return;
        }
        // Memory first: what opens now may need all of it. It may take its time, and nobody waits for it.
        engine.close(why.to_owned());
        self.publish(engine, true);
        self.events.send(std::mem::take(events));
        match open() {
            Ok(opened) => {
                let now = engine.clock.now();
                let took = (now - start).as_secs_f64();
                events.push(Event::Note(format!("the device failed: {why}; opened again in {took:.1} s")));
                let changed = ModelInfo { load_ms: info.load_ms, ..opened.info.clone() } != *info;
                if changed {
                    *info = opened.info.clone();
                    self.limits = Limits::default();
                    events.push(Event::Ready(Box::new(info.clone())));
                }
                engine.go_on_with(settings, opened);
                self.patience.opened_again(now);
                // Intake ends before this only with everything else.
                let _ = self.ready.send(Ok(engine.intake()));
            }
            Err(failure) => {
                engine.close(format!("{why}; it could not be opened again: {failure}"));
                events.push(Event::Note(format!(
                    "the device failed: {why}; it could not be opened again: {failure}"
                )));
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

fn is_good_end(event: &Event) -> bool {
    let Event::Finished { outcome, .. } = event else { return false };
    !matches!(outcome.reason, FinishReason::Error(_) | FinishReason::Abort)
}

/// A panic while the model opens is a failure to open it.
fn guarded<T>(open: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| {
        let why = format!("opening the model failed: {}", panic_message(&*panic));
        Err(Failure::new(FailureKind::Internal, why))
    })
}
