//! Breakpoints through the engine: it stops after the very step that met one, says which and why, and
//! goes on as if nothing had been.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::Scripted;
use glassbox::protocol::*;

const PROMPTS: [&str; 2] = ["first prompt", "second one"];

/// Every way of working: a plan for each step, planned ahead, one plan for several.
fn loops() -> [EngineSettings; 3] {
    let tuned = |change: fn(&mut SchedulerSettings)| settings().tuned(change);
    [settings(), tuned(|s| s.async_scheduling = true), tuned(|s| s.num_scheduler_steps = 4)]
}

fn in_pool(blocks: usize, settings: EngineSettings) -> Bench {
    Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)))
}

fn broke(bench: &Bench) -> Vec<(u32, u64, String)> {
    let broke = bench.events.iter().filter_map(|event| match event {
        Event::Broke { id, step, why } => Some((*id, *step, why.clone())),
        _ => None,
    });
    broke.collect()
}

fn set(bench: &mut Bench, on: &str) {
    bench.send(Command::Break(on.parse().unwrap()));
}

/// Runs into the only breakpoint, and looks at the step that met it and at those before.
fn stopped(bench: &mut Bench, on: &str) -> StepRecord {
    bench.run();
    let snapshot = bench.engine.snapshot();
    let broke = broke(bench);
    assert_eq!(broke.len(), 1, "{on}: {broke:?}");
    assert!(snapshot.paused && !bench.engine.is_idle(), "{on}");
    assert_eq!((broke[0].0, broke[0].1), (1, snapshot.step), "{on}");
    assert_eq!((snapshot.breakpoints[0].id, snapshot.breakpoints[0].hits), (1, 1), "{on}");
    assert_eq!(snapshot.breakpoints[0].on, on.parse().unwrap());
    assert_eq!(bench.events.iter().filter(|event| **event == Event::Paused(true)).count(), 1, "{on}");
    bench.record()
}

/// Takes the breakpoint away and lets everyone finish: the stop has changed nothing.
fn goes_on(bench: &mut Bench, asked: &[(RequestId, &str, SamplingParams)]) {
    bench.send(Command::Clear(Some(1)));
    assert!(bench.engine.snapshot().breakpoints.is_empty());
    bench.send(Command::Resume);
    bench.run();
    assert_eq!(broke(bench).len(), 1);
    for (id, prompt, params) in asked {
        assert_eq!(bench.tokens(first(*id)), solo(babbler, prompt, params), "{prompt}");
    }
}

/// Two requests in a pool of so many blocks meet `on` in the first step of which `met` is true.
fn stops_at(blocks: usize, on: &str, met: impl Fn(&StepRecord) -> bool) {
    for settings in loops() {
        let mut bench = in_pool(blocks, settings);
        set(&mut bench, on);
        let asked = PROMPTS.map(|prompt| (bench.ask(prompt, seeded(1, 24)), prompt, seeded(1, 24)));
        let record = stopped(&mut bench, on);
        assert!(met(&record), "{on}: {record:?}");
        let snapshot = bench.engine.snapshot();
        let earlier = &snapshot.steps[..snapshot.steps.len() - 1];
        assert!(!earlier.iter().any(|record| met(record)), "{on}: an earlier step met it too");
        goes_on(&mut bench, &asked);
    }
}

#[test]
fn a_preemption_stops_the_engine_once_it_has_happened() {
    stops_at(12, "preemption", |record| !record.preempted.is_empty());
}

#[test]
fn an_eviction_does() {
    for settings in loops() {
        let mut bench = in_pool(12, settings);
        bench.ask("what will be evicted", seeded(3, 8));
        bench.run();
        set(&mut bench, "eviction");
        let prompt = "another long prompt altogether";
        let asked = [(bench.ask(prompt, seeded(1, 9)), prompt, seeded(1, 9))];
        assert!(stopped(&mut bench, "eviction").blocks_evicted > 0);
        goes_on(&mut bench, &asked);
    }
}

#[test]
fn a_copy_on_write_does() {
    for settings in loops() {
        let mut bench = in_pool(64, settings);
        set(&mut bench, "copy-on-write");
        let request = bench.request("ten tokens", seeded(5, 9));
        let id = bench.submit(Request { n: 2, ..request });
        assert_eq!(stopped(&mut bench, "copy-on-write").blocks_copied, 1);
        goes_on(&mut bench, &[(id, "ten tokens", seeded(5, 9))]);
    }
}

#[test]
fn a_step_number_does() {
    stops_at(64, "step 7", |record| record.step == 7);
}

#[test]
fn a_share_of_the_blocks_does() {
    stops_at(32, "kv > 25%", |record| (32 - record.blocks_free) as f64 / 32.0 > 0.25);
}

#[test]
fn a_token_does_by_its_id_and_by_its_text_of_anyone_and_of_one_request() {
    let answer = solo(babbler, PROMPTS[1], &seeded(1, 24));
    // One that is drawn once, and that no special token has in its name.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"</think>|end".contains(&byte);
    let drawn = |id: &TokenId| answer.iter().filter(|other| *other == id).count();
    let token = *answer[2..20]
        .iter()
        .find(|id| u8::try_from(**id).is_ok_and(is_plain) && drawn(id) == 1)
        .expect("a babbled answer has some letter");
    let at = answer.iter().position(|id| *id == token).unwrap();
    let letter = serde_json::Value::from(char::from(token as u8).to_string());
    for on in [format!("token of 2 {token}"), format!("token of 2 {letter}")] {
        for settings in loops() {
            let mut bench = in_pool(64, settings);
            set(&mut bench, &on);
            let asked = PROMPTS.map(|prompt| (bench.ask(prompt, seeded(1, 24)), prompt, seeded(1, 24)));
            let record = stopped(&mut bench, &on);
            assert_eq!(record.rows[1].sampled, Some(token), "{on}");
            assert_eq!(bench.tokens(first(asked[1].0)).len(), at + 1, "{on}");
            goes_on(&mut bench, &asked);
        }
    }
}

/// The threshold lies between the most extreme token of an answer and the next: only that one is met.
#[test]
fn entropy_and_probability_of_the_drawn_token_do() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask(PROMPTS[0], seeded(1, 24));
    bench.run();
    let by = |value: fn(&TokenInfo) -> f32| {
        let mut values: Vec<(f32, usize)> =
            bench.infos(first(id))[1..23].iter().zip(1..).map(|(info, at)| (value(info), at)).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        values
    };
    let (entropy, probability) = (by(|info| info.entropy), by(|info| info.logprob.exp()));
    let between = |a: (f32, usize), b: (f32, usize)| f32::midpoint(a.0, b.0);
    let cases = [
        (format!("entropy > {}", between(entropy[20], entropy[21])), entropy[21].1),
        (format!("entropy < {}", between(entropy[0], entropy[1])), entropy[0].1),
        (format!("probability > {}", between(probability[20], probability[21])), probability[21].1),
        (format!("probability < {}", between(probability[0], probability[1])), probability[0].1),
    ];
    for (on, at) in cases {
        for settings in loops() {
            let mut bench = in_pool(64, settings);
            let id = bench.ask(PROMPTS[0], seeded(1, 24));
            // The first token may be more extreme than all others.
            while bench.tokens(first(id)).is_empty() {
                bench.step();
            }
            set(&mut bench, &on);
            stopped(&mut bench, &on);
            assert_eq!(bench.tokens(first(id)).len(), at + 1, "{on}");
            goes_on(&mut bench, &[(id, PROMPTS[0], seeded(1, 24))]);
        }
    }
}

#[test]
fn states_do_when_a_sequence_gets_into_them() {
    for settings in loops() {
        let mut bench = in_pool(12, settings);
        set(&mut bench, "state preempted of 2");
        let asked = PROMPTS.map(|prompt| (bench.ask(prompt, seeded(1, 24)), prompt, seeded(1, 24)));
        let record = stopped(&mut bench, "state preempted of 2");
        assert_eq!(record.preempted[0].seq, first(asked[1].0));
        let state = |bench: &Bench| bench.engine.snapshot().sequences[1].state;
        assert_eq!(state(&bench), SequenceState::Preempted);
        goes_on(&mut bench, &asked);
    }
    for settings in loops() {
        let mut bench = in_pool(64, settings);
        set(&mut bench, "state finished");
        let (short, long) = (seeded(1, 5), seeded(1, 24));
        let asked = [(bench.ask("x", short.clone()), "x", short), (bench.ask("y", long.clone()), "y", long)];
        stopped(&mut bench, "state finished");
        assert_eq!(bench.reason(asked[0].0), &FinishReason::Length);
        assert_eq!(broke(&bench)[0].2, format!("sequence {} is finished", first(asked[0].0)));
        goes_on(&mut bench, &asked);
    }
}

/// It arrives, runs and ends in one step: no two looks at the queues tell.
#[test]
fn a_request_of_one_step_runs_and_finishes_all_the_same() {
    for (on, is) in [("state running of 1", "running"), ("state finished of 1", "finished")] {
        let mut bench = Bench::new(babbler());
        set(&mut bench, on);
        let id = bench.ask("x", seeded(1, 1));
        bench.ask("y", seeded(1, 9));
        stopped(&mut bench, on);
        assert_eq!(broke(&bench)[0].2, format!("sequence {} is {is}", first(id)));
    }
}

#[test]
fn an_aborted_request_has_finished_at_the_next_step() {
    let mut bench = Bench::new(babbler());
    let ids = PROMPTS.map(|prompt| bench.ask(prompt, seeded(1, 24)));
    (0..3).for_each(|_| bench.step());
    set(&mut bench, "state finished");
    bench.send(Command::Abort(ids[0]));
    bench.run();
    assert_eq!(broke(&bench)[0].1, 4);
}

#[test]
fn set_while_a_step_is_in_flight_it_acts_on_that_step() {
    let mut bench = in_pool(64, loops()[1].clone());
    let id = bench.ask(PROMPTS[0], seeded(1, 24));
    (0..5).for_each(|_| bench.step());
    let next = bench.engine.snapshot().step + 1;
    set(&mut bench, &format!("step {next}"));
    bench.run();
    assert_eq!((broke(&bench)[0].1, bench.engine.snapshot().step), (next, next));
    goes_on(&mut bench, &[(id, PROMPTS[0], seeded(1, 24))]);
}

#[test]
fn resumed_it_stops_again_and_counts() {
    let mut bench = Bench::new(babbler());
    bench.ask(PROMPTS[0], seeded(1, 6));
    set(&mut bench, "entropy > 0");
    for hits in 1..6 {
        bench.run();
        assert_eq!(bench.engine.snapshot().breakpoints[0].hits, hits);
        assert!(bench.engine.snapshot().paused);
        bench.send(Command::Resume);
    }
    bench.send(Command::Clear(None));
    bench.run();
    assert!(bench.engine.is_idle() && !bench.engine.is_paused());
}

#[test]
fn of_several_all_that_are_met_count_and_the_oldest_is_named() {
    let mut bench = Bench::new(babbler());
    for on in ["step 3", "kv > 0%", "step 3"] {
        set(&mut bench, on);
    }
    bench.ask(PROMPTS[0], seeded(1, 6));
    bench.run();
    bench.send(Command::Resume);
    bench.run();
    let named: Vec<(u32, u64)> = broke(&bench).iter().map(|(id, step, _)| (*id, *step)).collect();
    assert_eq!(named, [(2, 1), (1, 3)], "a level is met once while it is exceeded");
    let hits: Vec<u64> = bench.engine.snapshot().breakpoints.iter().map(|set| set.hits).collect();
    assert_eq!(hits, [1, 1, 1]);
}
