//! How fast text becomes tokens: beside the `tokenizers` library on prose, and against itself on runs that
//! have no end. Vocabularies are real ones, from `GLASSBOX_TOKENIZERS` (`NAME/tokenizer.json`), and the one
//! of the fixtures. Times mean something with optimisation only:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test --test text_speed -- --ignored --nocapture --test-threads 1`.
#![allow(clippy::unwrap_used)]

use glassbox::text::{HubFiles, Specials, TextModel, VocabSpec};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokenizers::Tokenizer;

/// Name, and the bytes of its tokenizer.json.
fn vocabularies() -> Vec<(String, Vec<u8>)> {
    let fixture = ("fixture".to_owned(), include_bytes!("fixtures/hub/tokenizer.json").to_vec());
    let folder = std::env::var_os("GLASSBOX_TOKENIZERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tokenizers"), PathBuf::from);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let bytes = std::fs::read(entry.path().join("tokenizer.json")).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), bytes))
        })
        .collect();
    if found.is_empty() {
        eprintln!("skipped: no NAME/tokenizer.json in {}", folder.display());
    }
    found.sort();
    found.push(fixture);
    found
}

fn model(bytes: &[u8]) -> TextModel {
    let files = HubFiles { tokenizer: bytes.to_vec(), ..HubFiles::default() };
    TextModel::new(VocabSpec::from_hub(&files).unwrap()).unwrap()
}

/// A megabyte of our own: notes and code.
fn prose() -> String {
    fn read(folder: &Path, all: &mut String) {
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                read(&path, all);
            } else if path.extension().is_some_and(|end| end == "md" || end == "rs") {
                *all += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    ["docs", "src"].iter().for_each(|folder| read(&root.join(folder), &mut all));
    all.chars()
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= 1_000_000).then_some(c)
        })
        .collect()
}

/// The shortest of some, in milliseconds.
fn time(times: usize, mut run: impl FnMut()) -> f64 {
    let once = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..times).map(|_| once(&mut run)).fold(f64::MAX, f64::min)
}

#[test]
#[ignore = "takes long, and needs optimisation"]
fn prose_takes_at_most_twice_the_time_of_the_library() {
    let prose = prose();
    for (name, bytes) in vocabularies() {
        let (model, library) = (model(&bytes), Tokenizer::from_bytes(&bytes).unwrap());
        let expected = library.encode_fast(prose.as_str(), false).unwrap();
        assert_eq!(model.encode(&prose, Specials::Parse), expected.get_ids(), "{name}");
        let ours = time(5, || drop(model.encode(&prose, Specials::Parse)));
        let theirs = time(5, || drop(library.encode_fast(prose.as_str(), false).unwrap()));
        println!("{name}: {} bytes in {ours:.1} ms, the library's {theirs:.1} ms", prose.len());
        assert!(ours <= 2.0 * theirs, "{name}: {ours:.1} ms where the library takes {theirs:.1} ms");
    }
}

// BUGLOG T16.
#[test]
#[ignore = "takes long, and needs optimisation"]
fn twice_the_run_takes_no_more_than_a_little_over_twice_the_time() {
    let runs =
        [("a", 100_000), ("_", 50_000), ("^", 1_000_000), (" ", 1_000_000), ("7", 1_000_000), ("é", 500_000)];
    for (name, bytes) in vocabularies() {
        let model = model(&bytes);
        for (text, count) in runs {
            let of = |part: usize| {
                let text = text.repeat(count / part);
                time(7, || drop(model.encode(&text, Specials::Parse)))
            };
            let times = [of(4), of(2), of(1)];
            println!("{name}: {count} of {text:?}: {times:.1?} ms for a quarter, a half, all");
            // The shortest runs are over before a clock can tell.
            let ratio = times.windows(2).map(|pair| pair[1] / pair[0].max(1.0)).fold(0.0, f64::max);
            assert!(ratio <= 2.3 && times[2] < 1000.0, "{name}: {text:?}: {times:.1?}");
        }
    }
}
