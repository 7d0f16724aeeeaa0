//! `bench speed --compare`: the same load under two settings of one engine.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::bench::{
    Load, Sample, compare, compute_and_find, print_restored, prompts, restore, shut_down, wait_until_ready,
};
use glassbox::config::EngineSettings;
use glassbox::engine::{Opened, spawn};
use glassbox::model::Scripted;
use glassbox::protocol::*;
use glassbox::text::TextModel;
use std::sync::Arc;

fn compared(
    change: impl FnOnce(&mut SchedulerSettings),
    blocks: usize,
    repetitions: u32,
) -> Result<[Vec<Sample>; 2], Failure> {
    let base = settings().seqs(8).scheduler;
    let mut changed = base.clone();
    change(&mut changed);
    let mut handle = spawn(settings(), Clock::wall(), move |_| {
        let info = ModelInfo { vocab_size: 256, ..ModelInfo::default() };
        let runner = Scripted::babbling(Scripted::limits(blocks, 16));
        let text = Arc::new(TextModel::bytes());
        Ok(Opened { runner: Box::new(runner), text, info, memory: MemoryPlan::default() })
    });
    let info = wait_until_ready(&mut handle, |_, _| {}).unwrap();
    let mut pairs = Vec::new();
    let samples =
        compare(&mut handle, &info, &Load::mixed(32), [&base, &changed], repetitions, |i| pairs.push(i));
    assert!(samples.is_err() || pairs.len() == repetitions as usize);
    samples
}

#[test]
fn static_batching_keeps_places_idle_and_needs_more_steps_for_the_same_tokens() {
    let [continuous, batched] = compared(|s| s.batching = Batching::Static, 1024, 2).unwrap();
    assert_eq!((continuous.len(), batched.len()), (2, 2));
    let tokens = |s: &Sample| (s.tokens_per_second * s.wall_s).round();
    for (ours, theirs) in continuous.iter().zip(&batched) {
        assert_eq!(tokens(ours), tokens(theirs));
        assert!(theirs.steps > ours.steps, "{ours:?} {theirs:?}");
        assert!(ours.slots_idle == 0.0 && theirs.slots_idle > 1.0, "{ours:?} {theirs:?}");
        assert!(ours.slots_used > theirs.slots_used && ours.slots_used <= 8.0, "{ours:?} {theirs:?}");
        assert!(ours.ttft_mean_ms > 0.0 && ours.ttft_p99_ms >= ours.ttft_mean_ms);
        assert_eq!((ours.preemptions, theirs.preemptions), (0.0, 0.0));
    }
    // Nothing is left for the second run to gain from.
    assert_eq!(continuous[0].steps, continuous[1].steps);
    assert_eq!(batched[0].steps, batched[1].steps);
}

#[test]
fn any_setting_of_the_scheduler_can_be_compared() {
    let [one, four] = compared(|s| s.max_num_seqs = 4, 1024, 1).unwrap();
    assert!(one[0].steps < four[0].steps && four[0].slots_used <= 4.0);
    let [plain, ahead] = compared(|s| s.async_scheduling = true, 1024, 1).unwrap();
    assert!(plain[0].steps > 0.0 && ahead[0].steps > 0.0);
}

#[test]
fn what_the_engine_cannot_be_changed_to_or_cannot_hold_is_an_error_and_no_figure() {
    let said = compared(|s| s.max_num_batched_tokens = 1 << 20, 1024, 1).unwrap_err().message;
    assert!(said.contains("max_num_batched_tokens can be at most 4096"), "{said}");
    // Four blocks hold no request of the load's longer ones.
    let failure = compared(|s| s.batching = Batching::Static, 4, 1).unwrap_err();
    assert_eq!(failure.kind, FailureKind::TooLong);
}

#[test]
fn a_prompt_is_computed_once_then_found_and_restored_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("glassbox-engine-prefix-{}", std::process::id()));
    let start = || {
        let settings = EngineSettings { kv_cache_dir: Some(folder.clone()), ..settings() };
        let mut handle = spawn(settings, Clock::wall(), |_| {
            let info = ModelInfo { vocab_size: 256, ..ModelInfo::default() };
            let runner = Box::new(Scripted::babbling(Scripted::limits(64, 16)));
            let text = Arc::new(TextModel::bytes());
            Ok(Opened { runner, text, info, memory: MemoryPlan::default() })
        });
        let info = wait_until_ready(&mut handle, |_, _| {}).unwrap();
        (handle, info)
    };
    let (mut handle, info) = start();
    let prompts = prompts(&info, 100, 2);
    let mut rows = compute_and_find(&mut handle, &prompts).unwrap().to_vec();
    shut_down(&mut handle).unwrap();
    let (mut handle, _) = start();
    rows.push(restore(&mut handle, &prompts).unwrap());
    shut_down(&mut handle).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let mut out = Vec::new();
    print_restored(&mut out, &info, 100, &rows, true).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let cached: Vec<_> = (0..3).map(|i| said["rows"][i]["cached_tokens"].clone()).collect();
    // Six full blocks of sixteen.
    assert_eq!(cached, [serde_json::json!([0, 0]), serde_json::json!([96, 96]), serde_json::json!([96, 96])]);
    assert_eq!(said["rows"][2]["samples_ms"].as_array().unwrap().len(), 2);
}
