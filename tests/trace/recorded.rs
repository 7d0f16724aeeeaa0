//! A session with smollm2-135m, recorded with 17 blocks: three answers to one prompt, a fork of one of
//! them, and a question after they ended.

use super::*;

const BLOCKS: usize = 17;

fn file() -> Vec<u8> {
    std::fs::read("tests/fixtures/traces/fork_and_preemption.jsonl").unwrap()
}

fn preemptions(steps: &[Arc<StepRecord>]) -> Vec<(u64, SeqId, SeqId)> {
    let all = steps.iter().flat_map(|step| step.preempted.iter().map(|p| (step.step, p.seq, p.by)));
    all.collect()
}

#[test]
fn a_recorded_session_shows_its_copies_its_preemption_and_all_that_was_said() {
    let mut handle = replay(&file(), fastest());
    let events = until_paused(&mut handle);
    assert_eq!(finished(&events), 5);
    let said: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Delta { seq, part: Part::Text(text) } if seq.request == RequestId(3) => {
                Some(text.as_str())
            }
            _ => None,
        })
        .collect();
    assert!(said.starts_with("The sky appears blue because of a phenomenon known as Rayleigh"), "{said}");
    let last = handle.snapshot.load();
    let seq = |request, choice| SeqId { request: RequestId(request), choice };
    assert_eq!(preemptions(&last.steps), [(57, seq(2, 0), seq(1, 1))]);
    let copied: Vec<_> = last.steps.iter().map(|s| (s.step, s.blocks_copied)).filter(|c| c.1 > 0).collect();
    // Two choices part from the prompt's last block; the fork parts from its parent's.
    assert_eq!(copied, [(2, 2), (29, 1)]);
    assert_eq!((last.counters.copies_on_write, last.counters.preemptions), (3, 1));
    assert_eq!(last.counters.requests_finished, 3);
}

#[test]
fn a_recorded_session_goes_to_its_end_and_back_and_its_blocks_add_up_at_every_step() {
    let mut handle = replay(&file(), ReplayOptions { paused: true, speed: 1.0 });
    handle.events.blocking_recv().unwrap();
    let mut forwards = vec![Snapshot::clone(&handle.snapshot.load())];
    for step in 1..=140 {
        command(&mut handle, Command::Step(1));
        let now = Snapshot::clone(&handle.snapshot.load());
        assert_eq!(now.step, step);
        let references = |held: fn(&BlockView) -> bool| now.kv.blocks.iter().filter(|b| held(b)).count();
        assert_eq!(now.kv.owned + now.kv.cached + now.kv.free, BLOCKS, "step {step}");
        assert_eq!(now.kv.owned, references(|b| b.references > 0), "step {step}");
        let tables: usize = now.sequences.iter().map(|s| s.blocks.len()).sum();
        let owners: usize = now.kv.blocks.iter().map(|b| usize::from(b.references)).sum();
        assert_eq!(tables, owners, "step {step}");
        forwards.push(now);
    }
    for at in (0..140).rev() {
        command(&mut handle, Command::Replay(ReplayCommand::Back(1)));
        assert_eq!(*handle.snapshot.load(), forwards[at], "step {at}");
    }
}

/// As docs/trace.md measures it: steps that only decode without their waterfalls, the tokens' events,
/// and the snapshots.
#[test]
fn a_recorded_decode_row_takes_less_than_200_bytes() {
    let file = String::from_utf8(file()).unwrap();
    let (mut rows, mut bytes) = (0, 0);
    for line in file.lines().skip(1) {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(step) = value["r"].as_array() {
            if step.iter().all(|row| row[1] == 1) {
                rows += step.len();
                value.as_object_mut().unwrap().remove("u");
                bytes += value.to_string().len() + 1;
            }
        } else if let Some(events) = value["e"].as_array() {
            let only_tokens = events.iter().all(serde_json::Value::is_array);
            bytes += if only_tokens { line.len() + 1 } else { 0 };
        } else if value.get("v").is_some() {
            bytes += line.len() + 1;
        }
    }
    let each = bytes as f64 / rows as f64;
    println!("{rows} rows, {each:.1} bytes each");
    assert!(rows > 250 && each < 200.0, "{rows} rows, {each:.1} bytes each");
    assert!(!file.contains("/root") && !file.contains("/home"));
}
