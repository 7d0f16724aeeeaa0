//! A recorded conversation with a real engine (on the Scripted runner) played again without it.
#![allow(clippy::unwrap_used)]

#[path = "trace/recorded.rs"]
mod recorded;

use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::{Opened, spawn};
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;
use glassbox::text::TextModel;
use glassbox::trace::{self, ReplayOptions};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file in memory.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What was said, and what was written.
struct Session {
    events: Vec<Event>,
    last: Arc<Snapshot>,
    file: Vec<u8>,
}

fn engine(limits: ModelLimits) -> Handle {
    spawn(EngineSettings::default(), Clock::wall(), move |_| {
        let info = ModelInfo { name: "scripted".into(), ..ModelInfo::default() };
        let runner = Box::new(Scripted::babbling(limits.clone()));
        Ok(Opened { runner, text: Arc::new(TextModel::bytes()), info, memory: MemoryPlan::default() })
    })
}

fn request(id: u64, prompt: &str, n: u32, tokens: u32) -> Command {
    let params = SamplingParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(id),
        max_tokens: Some(tokens),
        ignore_eos: true,
        ..SamplingParams::default()
    };
    Command::Submit(Box::new(Request {
        n,
        ..Request::new(RequestId(id), Prompt::Text(prompt.into()), params)
    }))
}

fn finished(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Finished { .. })).count()
}

/// Commands to a recorded engine that is told every step, so that none is missed.
fn session(limits: ModelLimits, commands: Vec<Command>, choices: usize) -> Session {
    let paper = Paper::default();
    let (mut handle, recording) = trace::record(engine(limits), paper.clone());
    let mut events = handle.events.blocking_recv().unwrap();
    handle.commands.send(Command::Pause).unwrap();
    let mut steps = 0;
    for command in commands {
        handle.commands.send(command.clone()).unwrap();
        if let Command::Step(n) = command {
            steps += u64::from(n);
            while handle.snapshot.load().step < steps {
                events.extend(handle.events.blocking_recv().unwrap());
            }
        }
    }
    while finished(&events) < choices {
        let taken = handle.snapshot.load().step;
        if taken >= steps {
            steps = taken + 100;
            handle.commands.send(Command::Step(100)).unwrap();
        }
        events.extend(handle.events.blocking_recv().unwrap());
        events.extend(std::iter::from_fn(|| handle.events.try_recv()).flatten());
    }
    let last = handle.snapshot.load();
    drop(recording);
    let file = std::mem::take(&mut *paper.0.lock().unwrap());
    Session { events, last, file }
}

/// Three requests that share a prefix, one of them in three choices, one aborted.
fn mixed() -> Session {
    let common = "a common beginning of some length, ";
    let commands = vec![
        request(1, &format!("{common}one"), 1, 30),
        request(2, &format!("{common}two"), 3, 12),
        request(3, &format!("{common}three"), 1, 400),
        Command::Step(20),
        Command::Abort(RequestId(3)),
        request(4, &format!("{common}four"), 1, 25),
    ];
    session(Scripted::limits(64, 4), commands, 6)
}

fn replay(file: &[u8], options: ReplayOptions) -> Handle {
    trace::play(file, "test.jsonl", options).unwrap()
}

/// Without what only a replay says, and what only a live engine does.
fn told(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let only = |event: &Event| {
        matches!(event, Event::Sent(_) | Event::Replaying { .. } | Event::Paused(_) | Event::Loading { .. })
    };
    events.into_iter().filter(|event| !only(event)).collect()
}

/// Everything up to the pause at the end.
fn until_paused(handle: &mut Handle) -> Vec<Event> {
    let mut events = Vec::new();
    while events.last() != Some(&Event::Paused(true)) {
        events.extend(handle.events.blocking_recv().unwrap());
    }
    events
}

fn fastest() -> ReplayOptions {
    ReplayOptions { speed: f32::INFINITY, paused: false }
}

/// Times are kept in microseconds.
fn rounded(mut snapshot: Snapshot) -> Snapshot {
    snapshot.counters.busy_ms = 0.0;
    snapshot.steps.clear();
    snapshot.kv_events.clear();
    snapshot.paused = false;
    snapshot
}

fn command(handle: &mut Handle, command: Command) -> Vec<Event> {
    handle.commands.send(command).unwrap();
    handle.events.blocking_recv().unwrap()
}

#[test]
fn the_replay_says_the_same_in_the_same_order_and_ends_in_the_same_state() {
    let session = mixed();
    let mut handle = replay(&session.file, fastest());
    let events = until_paused(&mut handle);
    let (again, before) = (told(events), told(session.events));
    assert_eq!(again.len(), before.len());
    for (again, before) in again.iter().zip(&before) {
        // As text: the last digit of a time may differ.
        match (again, before) {
            (Event::Finished { seq, outcome }, Event::Finished { seq: of, outcome: was }) => {
                assert_eq!((seq, &outcome.reason, outcome.usage), (of, &was.reason, was.usage));
            }
            _ => assert_eq!(again, before),
        }
    }
    assert_eq!(rounded(Snapshot::clone(&handle.snapshot.load())), rounded(Snapshot::clone(&session.last)));
    let steps = &handle.snapshot.load().steps;
    let known = |step: &StepRecord| (step.step, step.tokens, step.rows.clone(), step.waiting.clone());
    assert_eq!(
        steps.iter().map(|s| known(s)).collect::<Vec<_>>(),
        session.last.steps.iter().map(|s| known(s)).collect::<Vec<_>>()
    );
}

#[test]
fn what_was_asked_is_in_the_replay_before_it_is_answered() {
    let session = mixed();
    let mut handle = replay(&session.file, fastest());
    let events = until_paused(&mut handle);
    for id in 1..=4 {
        let asked = events.iter().position(|event| match event {
            Event::Sent(command) => matches!(&**command, Command::Submit(r) if r.id == RequestId(id)),
            _ => false,
        });
        let accepted = events.iter().position(|e| matches!(e, Event::Accepted { id: of, .. } if of.0 == id));
        assert!(asked.unwrap() < accepted.unwrap());
    }
}

#[test]
fn backwards_to_every_step_is_what_forwards_to_it_was() {
    let session = mixed();
    let mut handle = replay(&session.file, ReplayOptions { paused: true, speed: 1.0 });
    let opening = handle.events.blocking_recv().unwrap();
    let steps = session.last.step;
    let mut forwards = vec![(told(opening), Snapshot::clone(&handle.snapshot.load()))];
    for _ in 0..steps {
        let so_far = forwards.last().unwrap().0.clone();
        let events = told(command(&mut handle, Command::Step(1)));
        forwards.push(([so_far, events].concat(), Snapshot::clone(&handle.snapshot.load())));
    }
    assert!(forwards.windows(2).all(|pair| pair[0].1.step + 1 == pair[1].1.step));
    for at in (0..steps as usize).rev() {
        let events = command(&mut handle, Command::Replay(ReplayCommand::Back(1)));
        assert_eq!(events[0], Event::Rewound);
        assert_eq!(told(events[1..].to_vec()), forwards[at].0, "step {at}");
        assert_eq!(*handle.snapshot.load(), forwards[at].1, "step {at}");
    }
}

#[test]
fn a_trace_of_5000_steps_is_small_and_moved_through_quickly() {
    const TOKENS: u32 = 5_000;
    let limits = ModelLimits { max_model_len: 8_192, ..Scripted::limits(1_300, 4) };
    let session = session(limits, vec![request(1, "go", 1, TOKENS)], 1);
    let text = std::str::from_utf8(&session.file).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("{\"s\":")).count();
    let body: usize = text.lines().skip(1).map(|line| line.len() + 1).sum();
    let each = body as f64 / rows as f64;
    println!("{rows} steps, {} bytes, {each:.1} a step", text.len());
    assert!(rows >= TOKENS as usize, "{rows}");
    assert!(each < 200.0, "{each:.1} bytes a step");

    let start = Instant::now();
    let mut handle = replay(&session.file, ReplayOptions { paused: true, speed: 1.0 });
    handle.events.blocking_recv().unwrap();
    println!("read in {:?}", start.elapsed());
    let start = Instant::now();
    for i in 0..100u64 {
        let step = 1 + i * 2_657 % u64::from(TOKENS);
        command(&mut handle, Command::Replay(ReplayCommand::Seek(step)));
        assert_eq!(handle.snapshot.load().step, step);
    }
    let took = start.elapsed();
    println!("100 seeks in {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_recording_that_stopped_anywhere_still_plays_what_it_has() {
    let session = mixed();
    let header = session.file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for end in (header..session.file.len()).step_by(97) {
        let mut handle = replay(&session.file[..end], fastest());
        let said = until_paused(&mut handle);
        let is_cut = session.file[end - 1] != b'\n';
        let told = said.iter().any(|e| matches!(e, Event::Note(note) if note.contains("cut off")));
        assert!(is_cut || !told, "{end}");
    }
}

mod screen {
    use super::*;
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use glassbox::tui::{App, Depth, Effect, Message, ScreenOptions, Theme, draw, update};
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    /// A person at a screen over a replay.
    struct Desk {
        app: App,
        handle: Handle,
    }

    impl Desk {
        fn new(file: &[u8]) -> Self {
            let theme = Theme::load("dark", None, Depth::Sixteen).unwrap();
            let app = App::new(ScreenOptions::default(), theme, vec![]);
            let handle = replay(file, ReplayOptions { paused: true, speed: 1.0 });
            let mut desk = Self { app, handle };
            desk.tell(Message::Resize(120, 40));
            desk.tell(Message::Opening("test.jsonl".into()));
            desk.listen();
            desk
        }

        /// Handles a message, and what the replay answers to what follows from it.
        fn tell(&mut self, message: Message) -> Vec<Effect> {
            let effects = update(&mut self.app, message, Duration::ZERO);
            for effect in &effects {
                if let Effect::Send(command) = effect {
                    self.handle.commands.send(command.clone()).unwrap();
                    self.listen();
                }
            }
            effects
        }

        fn listen(&mut self) {
            let events = self.handle.events.blocking_recv().unwrap();
            update(&mut self.app, Message::Engine(events), Duration::ZERO);
            update(&mut self.app, Message::Snapshot(self.handle.snapshot.load()), Duration::ZERO);
        }

        fn press(&mut self, c: char) -> Vec<Effect> {
            let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
            self.tell(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
        }

        fn picture(&self) -> String {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
            draw(&self.app, &mut buffer);
            let row = |y: u16| (0..120).map(|x| buffer[(x, y)].symbol()).collect::<String>();
            (0..40).map(row).collect::<Vec<_>>().join("\n")
        }

        fn header(&self) -> String {
            self.picture().lines().next().unwrap().to_owned()
        }
    }

    #[test]
    fn a_replay_is_stepped_through_both_ways_and_its_speed_is_shown() {
        let session = mixed();
        let (mut desk, last) = (Desk::new(&session.file), session.last.step);
        assert!(desk.header().contains(&format!("‖ REPLAY step 0 of {last} · 1×")), "{}", desk.header());
        for key in ['n', 's', 'n', 'b', 'n', 'p'] {
            desk.press(key);
        }
        assert!(desk.header().contains(&format!("REPLAY step 2 of {last}")), "{}", desk.header());
        assert!(desk.picture().contains("a common beginning"), "what was asked is the transcript");
        desk.press(']');
        desk.press(']');
        assert!(desk.header().contains("· 4×"), "{}", desk.header());
        desk.press('[');
        assert!(desk.header().contains("· 2×"), "{}", desk.header());
        desk.press(' ');
        assert!(desk.header().contains("▶ REPLAY"), "{}", desk.header());
        assert!(desk.picture().contains("A recording: Tab goes to the panels"), "{}", desk.picture());
        // A smaller window has another panel: the keys still act.
        desk.tell(Message::Resize(80, 24));
        desk.press(' ');
        assert!(desk.app.paused);
        desk.press(' ');
        assert!(!desk.app.paused);
    }

    #[test]
    fn going_back_forgets_what_was_not_said_yet() {
        let session = mixed();
        let mut desk = Desk::new(&session.file);
        (0..5).for_each(|_| drop(desk.press('n')));
        let (tokens, picture) = (desk.app.parsed.len(), desk.picture());
        (0..9).for_each(|_| drop(desk.press('n')));
        (0..9).for_each(|_| drop(desk.press('b')));
        assert_eq!((desk.app.parsed.len(), desk.app.meter.steps.len()), (tokens, 5));
        assert_eq!(desk.picture(), picture);
    }

    #[test]
    fn a_message_is_not_answered_and_the_screen_says_why() {
        let session = mixed();
        let mut desk = Desk::new(&session.file);
        desk.tell(Message::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
        let sent: Vec<Effect> = "hello\n".chars().flat_map(|c| desk.press(c)).collect();
        assert!(!sent.iter().any(|effect| matches!(effect, Effect::Send(_))), "{sent:?}");
        assert!(desk.picture().contains("a replay does not answer"), "{}", desk.picture());
    }

    #[test]
    fn nothing_is_set_in_a_replay() {
        let session = mixed();
        let mut desk = Desk::new(&session.file);
        (0..5).for_each(|_| drop(desk.press('n')));
        let params = desk.app.params.clone();
        for line in ["/set temp 0.1\n", "/set max_num_seqs 2\n", "/break preemption\n", "/fork\n"] {
            // From the panel that has the focus: a slash begins a command.
            let sent: Vec<Effect> = line.chars().flat_map(|c| desk.press(c)).collect();
            assert!(!sent.iter().any(|effect| matches!(effect, Effect::Send(_))), "{line}: {sent:?}");
            assert!(desk.picture().contains("a replay "), "{line}: {}", desk.picture());
            desk.tell(Message::Key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE)));
        }
        assert_eq!(desk.app.params, params);
    }

    #[test]
    fn control_c_quits_a_replay_also_in_the_middle_of_an_answer() {
        let session = mixed();
        let mut desk = Desk::new(&session.file);
        (0..5).for_each(|_| drop(desk.press('n')));
        let control_c = || Message::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(desk.tell(control_c()).len(), 0);
        assert!(desk.picture().contains("Ctrl+C again to quit"), "{}", desk.picture());
        assert!(desk.tell(control_c()).iter().any(|effect| matches!(effect, Effect::Quit)));
    }
}
