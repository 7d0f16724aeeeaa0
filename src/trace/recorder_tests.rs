#![allow(clippy::unwrap_used)]
use super::*;
use crate::protocol::{
    Channel, KvView, Part, Phases, RequestId, RowKind, RowRecord, SeqId, StepRecord, TokenInfo,
};
use std::sync::Mutex;

/// The engine's side of a handle, moved by hand.
struct Engine {
    commands: Receiver<Command>,
    events: EventSender,
    cell: SnapshotCell,
}

fn engine() -> (Handle, Engine) {
    let (commands, inbox) = channel();
    let (sender, events) = EventReceiver::channel();
    let cell = SnapshotCell::default();
    (Handle { commands, events, snapshot: cell.clone() }, Engine { commands: inbox, events: sender, cell })
}

/// A file in memory.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("no space left"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ready() -> Event {
    Event::Ready(Box::new(ModelInfo { name: "m".into(), ..ModelInfo::default() }))
}

fn note(text: &str) -> Event {
    Event::Note(text.into())
}

const SEQ: SeqId = SeqId { request: RequestId(1), choice: 0 };

fn step(number: u64) -> Arc<StepRecord> {
    Arc::new(StepRecord { step: number, ..StepRecord::default() })
}

fn snapshot(steps: impl IntoIterator<Item = u64>) -> Snapshot {
    let steps: Vec<_> = steps.into_iter().map(step).collect();
    Snapshot { step: steps.last().map_or(0, |s| s.step), steps, ..Snapshot::default() }
}

#[test]
fn everything_passes_through_in_order_and_every_step_is_written_once() {
    let (handle, engine) = engine();
    let paper = Paper::default();
    let (mut handle, recording) = record(handle, paper.clone());
    let sent = [Command::Pause, Command::Focus(None), Command::Step(2), Command::Abort(RequestId(3))];
    for command in &sent {
        handle.commands.send(command.clone()).unwrap();
    }
    let arrived: Vec<Command> = engine.commands.iter().take(sent.len()).collect();
    assert_eq!(arrived, sent);

    let batches = [vec![ready()], vec![note("one"), note("two")], vec![], vec![note("three")]];
    for (i, batch) in batches.iter().enumerate() {
        engine.cell.store(snapshot(1..=(2 * i as u64)));
        engine.events.send(batch.clone());
        assert_eq!(handle.events.blocking_recv().as_ref(), Some(batch));
    }
    drop(recording);
    let text = paper.text();
    let steps: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("{\"s\":")?.split(',').next()).collect();
    assert_eq!(steps, ["1", "2", "3", "4", "5", "6"]);
    assert!(text.starts_with("{\"glassbox_trace\":1,"), "{text}");
    assert_eq!(text.matches("\"command\":").count(), 3, "a focus is nobody's business: {text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("\"Pause\"") < at("one") && at("one") < at("two") && at("two") < at("three"));
    // The recording is closed; the conversation is not.
    engine.events.send(vec![note("four")]);
    assert_eq!(handle.events.blocking_recv(), Some(vec![note("four")]));
    assert_eq!(paper.text(), text);
}

#[test]
fn steps_that_were_gone_before_anyone_looked_are_a_gap() {
    let cell = SnapshotCell::default();
    let mut writer = Writer::new(Vec::new(), cell.clone(), Clock::virtual_time());
    for (event, steps) in [(ready(), 0..0), (note("a"), 1..4), (note("b"), 7..10)] {
        cell.store(snapshot(steps));
        writer.events(Duration::ZERO, &[event]).unwrap();
    }
    let text = String::from_utf8(writer.out).unwrap();
    let told: Vec<&str> = text.lines().filter_map(|l| l.get(..6)).collect();
    assert_eq!(&told[1..6], [r#"{"s":1"#, r#"{"s":2"#, r#"{"s":3"#, r#"{"t":0"#, r#"{"t":0"#]);
    assert!(text.contains("\"gap\":[4,6]}\n{\"s\":7"), "{text}");
}

#[test]
fn a_full_disk_is_told_once_and_the_conversation_goes_on() {
    let (handle, engine) = engine();
    let (mut handle, recording) = record(handle, FullDisk);
    engine.events.send(vec![ready()]);
    let mut heard = Vec::new();
    // The note comes when the file was tried, before or after what was to be written.
    while heard.len() < 2 {
        heard.extend(handle.events.blocking_recv().unwrap());
    }
    assert!(heard.contains(&note("the trace ends here, it cannot be written: no space left")), "{heard:?}");
    engine.events.send(vec![note("alive")]);
    assert_eq!(handle.events.blocking_recv(), Some(vec![note("alive")]));
    handle.commands.send(Command::Resume).unwrap();
    assert_eq!(engine.commands.recv(), Ok(Command::Resume));
    drop(recording);
    drop(engine);
    assert_eq!(handle.events.blocking_recv(), None, "said once");
}

#[test]
fn whoever_leaves_is_missed_by_the_other() {
    let (handle, engine) = engine();
    let (handle, _recording) = record(handle, Paper::default());
    drop(handle);
    assert!(engine.commands.recv().is_err());

    let (handle, engine) = super::tests::engine();
    let (mut handle, _recording) = record(handle, Paper::default());
    drop(engine);
    assert_eq!(handle.events.blocking_recv(), None);
}

#[test]
fn events_of_the_cache_are_written_once_though_every_snapshot_repeats_them() {
    let removed = |hash| KvEvent::BlockRemoved {
        block_hashes: vec![hash],
        medium: crate::protocol::Medium::Device,
        group_idx: 0,
    };
    let mut writer = Writer::new(Vec::new(), SnapshotCell::default(), Clock::virtual_time());
    let ring = |hashes: std::ops::Range<u64>| hashes.map(removed).collect::<Vec<_>>();
    assert_eq!(writer.new_kv_events(&ring(0..3)), ring(0..3));
    assert_eq!(writer.new_kv_events(&ring(1..5)), ring(3..5));
    assert_eq!(writer.new_kv_events(&ring(1..5)), []);
    assert_eq!(writer.new_kv_events(&ring(8..9)), ring(8..9));
}

/// The numbers of a 135M model on two cores: what a real recording of one sequence costs, waterfall
/// aside.
#[test]
fn a_decode_row_takes_less_than_200_bytes() {
    const ROWS: u64 = 2_000;
    let words = [" the", " of", " Paris", ",", " scattering", "ing", "\n\n", " wavelength", " é", "**"];
    let (cell, clock) = (SnapshotCell::default(), Clock::virtual_time());
    cell.store(Snapshot {
        kv: KvView { blocks: vec![Default::default(); 512], free: 512, ..KvView::default() },
        ..Snapshot::default()
    });
    let mut writer = Writer::new(Vec::new(), cell.clone(), clock.clone());
    writer.events(clock.now(), &[ready()]).unwrap();
    let header = writer.out.len();
    let mut state = Snapshot::clone(&cell.load());
    let mut random = 88_172_645_463_325_252u64;
    for step in 1..=ROWS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let noise = (random >> 40) as f32 / (1u64 << 24) as f32;
        let text = words[random as usize % words.len()].to_owned();
        let id = 1_000 + (random % 48_000) as u32;
        let computed = 400 + step as usize;
        let block = (computed / 16 % 512) as u32;
        let used = crate::protocol::BlockView { references: 1, cached: false, owner: Some(SEQ), used: step };
        state.counters.generated_tokens += 1;
        state.counters.bytes_read += 98_362_432 + 23_040 * computed as u64;
        state.counters.flops += 270_012_416 + 69_120 * computed as u64;
        let before = state.kv.blocks[block as usize];
        let mut blocks = Vec::new();
        if computed.is_multiple_of(16) {
            state.kv.blocks[block as usize] = used;
            state.kv.owned += usize::from(before.references == 0);
            state.kv.free = 512 - state.kv.owned;
            blocks.push(crate::protocol::BlockChange { block, before, after: used });
        }
        let record = StepRecord {
            step,
            started_ms: 212.0 + 16.5 * step as f64,
            phases: Phases {
                schedule_ms: f64::from(0.012 + noise / 100.0),
                forward_ms: f64::from(14.0 + noise),
                sample_ms: f64::from(0.9 + noise / 10.0),
                output_ms: 0.034,
            },
            tokens: 1,
            token_budget: 512,
            rows: vec![RowRecord { seq: SEQ, kind: RowKind::Decode, tokens: 1, computed, sampled: Some(id) }],
            blocks_taken: blocks.len(),
            blocks,
            counters: state.counters,
            ..StepRecord::default()
        };
        state.counters.busy_ms += record.phases.total_ms();
        state.step = step;
        state.steps = vec![Arc::new(StepRecord { counters: state.counters, ..record })];
        let token = TokenInfo {
            id,
            bytes: text.clone().into_bytes(),
            text: text.clone(),
            logprob: -noise * 3.0,
            rank: 1 + (random % 9) as u32,
            entropy: noise * 4.0,
            top: vec![],
            forced: false,
            channel: Channel::Content,
            held: String::new(),
            why: None,
        };
        clock.advance(Duration::from_micros(16_500));
        cell.store(state.clone());
        let said = Event::Delta { seq: SEQ, part: Part::Text(text) };
        writer.events(clock.now(), &[Event::Token { seq: SEQ, token: Box::new(token) }, said]).unwrap();
    }
    let text = String::from_utf8(writer.out).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("{\"s\":")).count();
    assert_eq!(rows as u64, ROWS);
    let each = (text.len() - header) as f64 / ROWS as f64;
    println!("{each:.1} bytes a row");
    assert!(each < 200.0, "{each:.1} bytes a row");
}
