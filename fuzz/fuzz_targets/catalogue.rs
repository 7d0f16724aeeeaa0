//! Any text as a catalogue: an error, or names that stay in the models' folder.
#![no_main]

use glassbox::weights::{Catalogue, ModelDirs};
use libfuzzer_sys::fuzz_target;
use std::path::{Component, Path};

fuzz_target!(|text: &str| {
    let Ok(catalogue) = Catalogue::parse(text) else { return };
    let dirs = ModelDirs { root: "/models".into(), hub_cache: None };
    for model in catalogue.models() {
        for file in &model.files {
            let target = dirs.target(model, file);
            let below = target.strip_prefix(Path::new("/models")).expect("below the root");
            assert!(below.components().all(|part| matches!(part, Component::Normal(_))), "{target:?}");
        }
    }
});
