//! Conversations on real runners: whatever the engine does to save time or memory, not a word changes.
//!
//! The reference is each request alone, uncached, its prompt in one piece. Against it stand batches,
//! caches of both kinds, preemption of all kinds, blocks that went to host memory or to disk and came
//! back, prompts in chunks, steps planned ahead, other orders of work, other block sizes and dtypes.
//! Histories grow by what was really answered, so a wrong word is never forgotten. Each mode also
//! shows that it was at work: an engine that never preempts would pass otherwise.
//!
//! The ordinary run uses the committed checkpoints: full attention, and gemma3 with its sliding
//! window. `cargo test --release --test conversations -- --ignored --nocapture` uses models from disk.

#![allow(clippy::unwrap_used)]

#[path = "../support/cpu.rs"]
mod cpu;
mod drive;
mod house;
mod modes;
mod talks;

use glassbox::weights::{Catalogue, ModelDirs, find};
use house::House;
use modes::Mode;
use std::path::PathBuf;
use std::sync::LazyLock;

/// In debug builds, which are some fifteen times slower, fewer.
const CONVERSATIONS: usize = if cfg!(debug_assertions) { 40 } else { 200 };

static HOUSES: LazyLock<[House; 2]> =
    LazyLock::new(|| ["llama", "gemma3_text_std"].map(|name| House::tiny(name, CONVERSATIONS)));

fn prove(modes: impl Fn() -> Vec<Mode>) {
    for house in &*HOUSES {
        modes().iter().for_each(|mode| house.prove(mode));
    }
}

#[test]
fn no_cache_a_hash_cache_and_a_radix_tree_say_the_same_in_a_batch_as_alone() {
    prove(modes::caches);
}

#[test]
fn who_was_recomputed_swapped_or_retracted_goes_on_as_if_nothing_had_been() {
    prove(modes::preemption);
}

#[test]
fn blocks_come_back_from_host_memory_and_after_a_restart_from_disk() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (house, folder) in HOUSES.iter().zip(&folders) {
        modes::tiers(folder.path()).iter().for_each(|mode| house.prove(mode));
    }
}

#[test]
fn chunks_of_any_size_are_the_whole_prompt() {
    prove(modes::chunks);
}

#[test]
fn steps_planned_ahead_and_several_steps_a_plan_say_the_same() {
    prove(modes::loops);
}

#[test]
fn turns_priorities_static_batches_and_sorted_queues_say_the_same() {
    prove(modes::policies);
}

#[test]
fn every_block_size_and_every_dtype_says_the_same_cached_as_not() {
    prove(modes::layouts);
}

/// `GLASSBOX_MODEL`, a path, or the catalogue's file where it lies on this computer.
fn on_disk(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("GLASSBOX_MODEL").map(PathBuf::from).filter(|_| name == "smollm2-135m");
    let found = named.or_else(|| Some(find(name, &ModelDirs::from_env(), &Catalogue::builtin()).ok()?.path));
    if found.is_none() {
        eprintln!("skipped: {name} is not on disk; `glassbox models pull {name}` fetches it");
    }
    found
}

fn prove_on(name: &str, count: usize) {
    let Some(path) = on_disk(name) else { return };
    let (house, folder) = (House::real(name, path, count), tempfile::tempdir().unwrap());
    modes::on_disk(folder.path()).iter().for_each(|mode| house.prove(mode));
}

#[test]
#[ignore = "takes many minutes, and a model"]
fn smollm2_says_the_same_in_every_mode() {
    prove_on("smollm2-135m", 200);
}

/// For its cache groups with and without a window; fewer, because what is not a group's is proven above.
#[test]
#[ignore = "takes many minutes, and a model"]
fn gemma3_says_the_same_in_every_mode() {
    prove_on("gemma-3-270m", 40);
}
