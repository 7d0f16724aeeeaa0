#![allow(clippy::unwrap_used)]
use super::*;
use crate::protocol::{KvView, Phases, Reason, RequestId, RowKind, Shortage};
use crate::trace::format::Line;

fn seq(request: u64, choice: u32) -> SeqId {
    SeqId { request: RequestId(request), choice }
}

fn row(seq: SeqId, tokens: usize, computed: usize, sampled: Option<u32>) -> RowRecord {
    RowRecord { seq, kind: RowKind::Decode, tokens, computed, sampled }
}

fn through_text(line: &StepLine) -> StepLine {
    let text = serde_json::to_string(line).unwrap();
    match Line::read(serde_json::from_str(&text).unwrap()).unwrap() {
        (Some(Line::Step(line)), unknown) if unknown.is_empty() => *line,
        other => panic!("{text}: {other:?}"),
    }
}

fn view_through_text(line: &ViewLine) -> ViewLine {
    let text = serde_json::to_string(line).unwrap();
    match Line::read(serde_json::from_str(&text).unwrap()).unwrap() {
        (Some(Line::View(line)), unknown) if unknown.is_empty() => *line,
        other => panic!("{text}: {other:?}"),
    }
}

/// Everything a record can hold.
fn record(step: u64) -> StepRecord {
    let block = |before: u16, after: u16| BlockChange {
        block: 3,
        before: BlockView { references: before, ..BlockView::default() },
        after: BlockView { references: after, cached: true, owner: Some(seq(1, 2)), used: step },
    };
    StepRecord {
        step,
        started_ms: 1.5 * step as f64,
        phases: Phases { schedule_ms: 0.012, forward_ms: 15.601, sample_ms: 0.32, output_ms: 0.045 },
        tokens: 9,
        token_budget: 512,
        rows: vec![row(seq(1, 2), 8, 0, None), row(seq(4, 0), 1, 17, Some(99))],
        slots: Slots { all: 8, used: 2, idle: 1 },
        waiting: vec![
            Waiting {
                seq: seq(5, 0),
                reason: Reason::Blocks(Shortage { needed: 9, free: 4, cached: 3, reserved: 0 }),
            },
            Waiting { seq: seq(6, 0), reason: Reason::Behind { ahead: 1 } },
            Waiting { seq: seq(7, 0), reason: Reason::InFlight },
        ],
        preempted: vec![Preemption {
            seq: seq(8, 1),
            blocks_freed: 2,
            swapped: true,
            by: seq(4, 0),
            shortage: Shortage { needed: 1, ..Shortage::default() },
        }],
        blocks_taken: 1,
        blocks_copied: 2,
        blocks_free: 7,
        blocks: vec![block(0, 1)],
        counters: Counters {
            prefix_queries: 100,
            evictions: 3,
            generated_tokens: step,
            bytes_read: 98_362_432 * step,
            busy_ms: 15.978 * step as f64,
            ..Counters::default()
        },
        ..StepRecord::default()
    }
}

#[test]
fn a_record_comes_back_as_it_was() {
    let (mut writer, mut reader) = (Mirror::new(8, Default::default()), Mirror::new(8, Default::default()));
    for step in 1..4 {
        let mut given = record(step);
        if step > 1 {
            given.blocks[0].before = record(step - 1).blocks[0].after;
            given.waiting.remove(0);
        }
        let line = through_text(&writer.write_step(&given));
        let mut read = reader.read_step(&line);
        assert!((read.counters.busy_ms - given.counters.busy_ms).abs() < 0.2);
        read.counters.busy_ms = given.counters.busy_ms;
        assert_eq!(read, given);
    }
}

#[test]
fn a_quiet_step_says_only_what_it_did() {
    let mut writer = Mirror::new(8, Default::default());
    let given = |step: u64| StepRecord {
        step,
        rows: vec![row(seq(1, 0), 1, 100 + step as usize, Some(7))],
        tokens: 1,
        counters: Counters {
            generated_tokens: step,
            // A little more with every token of context.
            bytes_read: 98_362_432 * step + 23_040 * step * step,
            busy_ms: 15.978 * step as f64,
            ..Counters::default()
        },
        ..record(step)
    };
    let bare = |step| StepRecord {
        blocks: vec![],
        preempted: vec![],
        blocks_taken: 0,
        blocks_copied: 0,
        ..given(step)
    };
    (1..4).for_each(|step| drop(writer.write_step(&bare(step))));
    let line = serde_json::to_string(&writer.write_step(&bare(4))).unwrap();
    assert_eq!(line, r#"{"s":4,"a":6000,"p":[12,15601,320,45],"r":[[1,1,1,104,7]]}"#);
    assert_eq!(writer.counters.bytes_read, bare(4).counters.bytes_read);
}

#[test]
fn a_snapshot_comes_back_from_what_the_steps_do_not_say() {
    let view = |seq, computed, blocks: &[u32]| SequenceView {
        seq,
        state: SequenceState::Running,
        prompt_tokens: 4,
        cached_tokens: 2,
        generated_tokens: 1,
        computed_tokens: computed,
        blocks: blocks.to_vec(),
        params: SamplingParams::default(),
        preemptions: 0,
        priority: 0,
    };
    let snapshot = |sequences, free| Snapshot {
        sequences,
        kv: KvView {
            blocks: vec![BlockView::default(), BlockView { references: 2, ..BlockView::default() }],
            free,
            cached: 0,
            owned: 1,
            ..KvView::default()
        },
        counters: Counters { prefix_hits: 5, ..Counters::default() },
        ..Snapshot::default()
    };
    let (mut writer, mut reader) = (Mirror::new(2, Default::default()), Mirror::new(2, Default::default()));
    let (a, b, c) = (seq(1, 0), seq(2, 0), seq(3, 0));
    for given in [
        snapshot(vec![view(a, 4, &[1]), view(b, 4, &[1, 2])], 1),
        snapshot(vec![view(a, 5, &[1, 3]), view(b, 4, &[1, 2])], 0),
        snapshot(vec![view(c, 4, &[]), view(b, 4, &[1])], 1),
        snapshot(vec![], 1),
    ] {
        let line = view_through_text(&writer.write_view(&given));
        reader.read_view(&line);
        let read: Vec<_> = reader.sequences.iter().map(|k| (k.seq, k.computed, k.blocks.to_vec())).collect();
        let wanted: Vec<_> =
            given.sequences.iter().map(|s| (s.seq, s.computed_tokens, s.blocks.clone())).collect();
        assert_eq!(read, wanted);
        assert_eq!((&reader.blocks, reader.counters), (&given.kv.blocks, given.counters));
        assert_eq!(reader.counts, [given.kv.free, 0, 1]);
        assert!(writer.write_view(&given).is_empty(), "said once");
    }
}

#[test]
fn a_sequence_grows_by_its_rows_and_its_blocks_without_being_told_again() {
    let mut writer = Mirror::new(4, Default::default());
    let mut snapshot = Snapshot {
        sequences: vec![SequenceView {
            seq: seq(1, 0),
            state: SequenceState::Running,
            prompt_tokens: 4,
            cached_tokens: 0,
            generated_tokens: 0,
            computed_tokens: 4,
            blocks: vec![1],
            params: SamplingParams::default(),
            preemptions: 0,
            priority: 0,
        }],
        ..Snapshot::default()
    };
    writer.write_view(&snapshot);
    let after = BlockView { references: 1, cached: false, owner: Some(seq(1, 0)), used: 1 };
    let blocks = vec![BlockChange { block: 2, before: BlockView::default(), after }];
    writer.write_step(&StepRecord {
        step: 1,
        rows: vec![row(seq(1, 0), 1, 4, Some(3))],
        blocks,
        ..StepRecord::default()
    });
    let view = &mut snapshot.sequences[0];
    (view.generated_tokens, view.computed_tokens, view.blocks) = (1, 5, vec![1, 2]);
    assert_eq!(writer.write_view(&snapshot).q, []);
}
