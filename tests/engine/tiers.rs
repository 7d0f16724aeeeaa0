//! Host memory and disk: what the device has no room for comes back, and changes no token.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::kv::CacheSpec;
use glassbox::model::{Fault, ModelLimits, Scripted};
use glassbox::protocol::*;
use std::fs;
use std::path::{Path, PathBuf};

/// 40 tokens: ten blocks, of which a second turn hits nine.
const PROMPT: &str = "a prompt of forty tokens, ten blocks all";

fn limits(blocks: usize) -> ModelLimits {
    Scripted::limits(blocks, 4)
}

fn with_host(blocks: usize, slots: usize) -> EngineSettings {
    EngineSettings { host_kv_bytes: slots * limits(blocks).bytes_per_block, ..settings() }
}

fn with_disk(folder: &Path) -> EngineSettings {
    EngineSettings { kv_cache_dir: Some(folder.to_owned()), kv_cache_dir_bytes: 1 << 20, ..with_host(64, 64) }
}

fn on_disk(folder: &Path) -> Bench {
    Bench::with(with_disk(folder), Scripted::babbling(limits(64)))
}

/// Says it, and gives back how much of the prompt was found.
fn say(bench: &mut Bench, prompt: &str) -> usize {
    let id = bench.ask(prompt, seeded(1, 12));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 12)), "{prompt}");
    bench.outcome(first(id)).usage.cached_tokens
}

fn tier(bench: &Bench, medium: Medium) -> TierView {
    let tiers = bench.kv().tiers;
    *tiers.iter().find(|tier| tier.medium == medium).expect("the tier is on")
}

/// The program ends: what is to be kept is written.
fn leave(mut bench: Bench) {
    bench.send(Command::Shutdown);
}

/// The prompt's blocks lie in the folder.
fn kept_from_an_earlier_run(folder: &Path) {
    let mut bench = on_disk(folder);
    say(&mut bench, PROMPT);
    leave(bench);
}

/// The files of blocks.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for identity in fs::read_dir(folder).unwrap() {
        let inside = fs::read_dir(identity.unwrap().path()).unwrap();
        files.extend(inside.map(|file| file.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "kvblock"));
    files
}

// ---- host memory ----

#[test]
fn what_was_evicted_comes_back_from_host_memory() {
    for cache in [PrefixCache::Hash, PrefixCache::Radix] {
        let settings = EngineSettings { prefix_cache: cache, ..with_host(14, 64) };
        let mut bench = Bench::with(settings, Scripted::babbling(limits(14)));
        assert_eq!(say(&mut bench, PROMPT), 0);
        assert_eq!(say(&mut bench, "something else of about the same length"), 0);
        assert!(bench.engine.snapshot().counters.evictions > 0);
        assert_eq!(say(&mut bench, PROMPT), 36, "{cache}");
        let (saved, loaded) =
            bench.engine.snapshot().steps.iter().fold((0, 0), |(saved, loaded), step| {
                (saved + step.blocks_saved, loaded + step.blocks_loaded)
            });
        assert!(saved >= loaded && loaded > 0, "{saved} saved, {loaded} loaded");
        let host = tier(&bench, Medium::Host);
        assert_eq!((host.blocks, host.hits), (64, loaded as u64));
        assert!(host.stored > 0 && host.queries >= host.hits && host.used <= host.blocks, "{host:?}");
    }
}

#[test]
fn a_full_host_memory_forgets_what_was_unused_the_longest() {
    let mut bench = Bench::with(with_host(14, 6), Scripted::babbling(limits(14)));
    for turn in 0..6 {
        assert_eq!(say(&mut bench, &format!("{turn} is a prompt that evicts the others")), 0);
    }
    let host = tier(&bench, Medium::Host);
    assert!(host.evicted > 0 && host.used <= 6, "{host:?}");
}

#[test]
fn a_window_comes_back_too() {
    let limits =
        ModelLimits { groups: vec![CacheSpec::Full, CacheSpec::Sliding { window: 6 }], ..limits(28) };
    let mut bench = Bench::with(with_host(28, 64), Scripted::babbling(limits));
    say(&mut bench, PROMPT);
    say(&mut bench, "something else of about the same length");
    say(&mut bench, "and a third one to make room by force..");
    assert_eq!(say(&mut bench, PROMPT), 36);
    assert!(tier(&bench, Medium::Host).hits > 0);
}

// ---- disk ----

#[test]
fn a_conversation_goes_on_after_a_restart() {
    for cache in [PrefixCache::Hash, PrefixCache::Radix] {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = on_disk(folder.path());
        let prompt = format!("{cache}: {PROMPT}");
        assert_eq!(say(&mut bench, &prompt), 0);
        let stored = tier(&bench, Medium::Disk).used;
        assert!(stored >= 11, "{stored} blocks");
        leave(bench);

        let settings = EngineSettings { prefix_cache: cache, ..with_disk(folder.path()) };
        let mut bench = Bench::with(settings, Scripted::babbling(limits(64)));
        let found = say(&mut bench, &prompt);
        assert_eq!(found, (prompt.len() - 1) / 4 * 4);
        let disk = tier(&bench, Medium::Disk);
        assert_eq!(disk.hits as usize, found / 4);
        assert_eq!(say(&mut bench, "nothing that was ever said before"), 0);
        assert!(tier(&bench, Medium::Disk).queries > disk.queries, "a miss is looked for as well");
        assert!(bench.notes().is_empty(), "{:?}", bench.notes());
        bench.send(Command::Shutdown);
    }
}

#[test]
fn the_second_turn_of_a_chat_finds_the_first_answer_too() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    let mut tokens = Scripted::encode(PROMPT);
    tokens.extend(solo(babbler, PROMPT, &seeded(1, 12)));
    tokens.extend(Scripted::encode(" and then"));
    let mut bench = on_disk(folder.path());
    let request = bench.request("", seeded(2, 5));
    let id = bench.submit(Request { prompt: Prompt::Tokens(tokens), ..request });
    bench.run();
    assert_eq!(bench.outcome(first(id)).usage.cached_tokens, 48, "the last of 52 tokens was never computed");
}

/// An answer that was stopped, and one that the end of the program stops, are conversations too.
#[test]
fn what_was_aborted_is_kept_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = on_disk(folder.path());
    let aborted = bench.ask(PROMPT, seeded(1, 40));
    (0..6).for_each(|_| bench.step());
    bench.send(Command::Abort(aborted));
    let other = "the prompt of an answer that is cut off by the end";
    bench.ask(other, seeded(2, 40));
    (0..6).for_each(|_| bench.step());
    leave(bench);
    let mut bench = on_disk(folder.path());
    assert_eq!(say(&mut bench, PROMPT), 36);
    assert_eq!(say(&mut bench, other), 48);
}

#[test]
fn a_stopped_answer_can_be_branched_from() {
    let mut bench = Bench::new(babbler());
    let parent = bench.ask(PROMPT, seeded(1, 40));
    (0..8).for_each(|_| bench.step());
    bench.send(Command::Abort(parent));
    let id = RequestId(1000);
    let fork = ForkRequest { id, parent: first(parent), keep: 44, then: Vec::new(), params: seeded(1, 20) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, PROMPT, &seeded(1, 20))[4..]);
}

#[test]
fn a_reset_empties_the_tiers_of_this_run_and_leaves_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = on_disk(folder.path());
    say(&mut bench, PROMPT);
    bench.send(Command::ResetPrefixCache);
    assert_eq!((bench.kv().cached, tier(&bench, Medium::Host).used), (0, 0));
    assert_eq!(say(&mut bench, PROMPT), 36, "from disk");
    assert_eq!(tier(&bench, Medium::Disk).hits, 9);
}

#[test]
fn a_branch_of_a_finished_sequence_is_brought_back_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = on_disk(folder.path());
    let parent = first(bench.ask(PROMPT, seeded(1, 12)));
    bench.run();
    bench.send(Command::ResetPrefixCache);
    let id = RequestId(1000);
    let fork = ForkRequest { id, parent, keep: 45, then: Vec::new(), params: seeded(1, 12) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(bench.outcome(first(id)).usage.cached_tokens, 44);
    assert_eq!(bench.tokens(first(id)), solo(babbler, PROMPT, &seeded(1, 12))[5..]);
}

#[test]
fn damaged_and_foreign_files_are_ignored_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    let blocks = files(folder.path());
    for file in &blocks {
        let mut bytes = fs::read(file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(file, bytes).unwrap();
    }
    fs::write(blocks[0].with_file_name("holiday.jpg"), "not a block").unwrap();
    let mut bench = on_disk(folder.path());
    assert_eq!(say(&mut bench, PROMPT), 0);
    let notes = bench.notes().join("\n");
    assert!(
        notes.contains("1 not cached blocks, ignored") && notes.contains("damaged or missing"),
        "{notes}"
    );
}

#[test]
fn files_that_vanish_while_the_program_runs_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    let mut bench = on_disk(folder.path());
    files(folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(say(&mut bench, PROMPT), 0);
    assert!(bench.notes().join("\n").contains("damaged or missing"), "{:?}", bench.notes());
}

#[test]
fn a_folder_is_not_filled_beyond_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let settings = EngineSettings { kv_cache_dir_bytes: 4000, ..with_disk(folder.path()) };
    let mut bench = Bench::with(settings, Scripted::babbling(limits(64)));
    for turn in 0..8 {
        say(&mut bench, &format!("{turn} is one of many prompts to be kept"));
    }
    leave(bench);
    let bytes: u64 = files(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes > 0 && bytes <= 4000, "{bytes} bytes");
}

#[test]
fn a_place_that_is_no_folder_is_a_note_and_the_engine_works_without() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bench = Bench::with(with_disk(file.path()), Scripted::babbling(limits(64)));
    assert_eq!(say(&mut bench, PROMPT), 0);
    assert!(bench.notes()[0].contains("cached blocks are not kept on disk"), "{:?}", bench.notes());
}

#[test]
fn without_host_memory_of_its_own_the_disk_still_has_a_way_in() {
    let folder = tempfile::tempdir().unwrap();
    for found in [0, 36] {
        let settings = EngineSettings { host_kv_bytes: 0, ..with_disk(folder.path()) };
        let mut bench = Bench::with(settings, Scripted::babbling(limits(64)));
        assert_eq!(say(&mut bench, PROMPT), found);
        bench.send(Command::Shutdown);
    }
}

#[test]
fn a_request_that_is_aborted_while_it_loads_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    let mut bench = on_disk(folder.path());
    for _ in 0..3 {
        let id = bench.ask(PROMPT, seeded(1, 12));
        assert_eq!(bench.engine.snapshot().sequences[0].state, SequenceState::Loading);
        bench.send(Command::Abort(id));
        assert_eq!(bench.reason(id), &FinishReason::Abort);
    }
    assert_eq!(say(&mut bench, PROMPT), 36);
}

/// A step that fails takes all sequences with it, but not what is on its way from disk.
#[test]
fn a_device_that_fails_while_blocks_are_read_loses_no_slot() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    let runner = Scripted::babbling(limits(64)).failing_at(1, Fault::Device);
    let mut bench = Bench::with(with_disk(folder.path()), runner);
    let ids = ["x", PROMPT].map(|prompt| bench.ask(prompt, seeded(1, 5)));
    bench.step();
    ids.iter().for_each(|id| assert_eq!(bench.failure(*id).kind, FailureKind::Internal));
    assert_eq!(say(&mut bench, PROMPT), 36, "read again, or come meanwhile");
}

#[test]
fn others_run_while_blocks_are_read() {
    let folder = tempfile::tempdir().unwrap();
    kept_from_an_earlier_run(folder.path());
    for (change, name) in [
        ((|_| ()) as fn(&mut SchedulerSettings), "plain"),
        (|s| s.async_scheduling = true, "overlapped"),
        (|s| s.scheduling_policy = SchedulingPolicy::Priority, "priority"),
    ] {
        let settings = with_disk(folder.path()).tuned(change);
        let mut bench = Bench::with(settings, Scripted::babbling(limits(64)));
        let loading = bench.ask(PROMPT, seeded(1, 12));
        let fresh = bench.ask("a fresh one", seeded(2, 12));
        bench.run();
        assert_eq!(bench.tokens(first(loading)), solo(babbler, PROMPT, &seeded(1, 12)), "{name}");
        assert_eq!(bench.tokens(first(fresh)), solo(babbler, "a fresh one", &seeded(2, 12)), "{name}");
        assert_eq!(bench.outcome(first(loading)).usage.cached_tokens, 36, "{name}");
        bench.send(Command::Shutdown);
    }
}
