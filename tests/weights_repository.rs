//! Repositories of a hub that no catalogue names, from a server of the tests' own.
#![allow(clippy::unwrap_used)]

#[path = "support/http_stub.rs"]
mod http_stub;

use glassbox::weights::{
    Catalogue, Checkpoint, FetchError, FetchOptions, ModelDirs, Origin, ProxySettings, Repository,
    fetch_repository, find,
};
use http_stub::{Stub, good_answer, length, respond};
use serde_json::json;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Name, bytes, and whether the hub keeps it apart with a SHA-256.
type File = (&'static str, Vec<u8>, bool);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn blob(bytes: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hex(&hash.finalize())
}

/// A hub with one repository, `owner/name`, whose `main` is [`COMMIT`].
fn hub(files: Vec<File>) -> Stub {
    let files = Arc::new(files);
    Stub::new(move |_, request, stream| {
        let path = request.line.split(' ').nth(1).unwrap();
        let listing =
            |revision: &str| path == format!("/api/models/owner/name/revision/{revision}?blobs=true");
        if listing("main") || listing(COMMIT) {
            let siblings: Vec<_> = files
                .iter()
                .map(|(name, bytes, large)| {
                    let lfs =
                        large.then(|| json!({"sha256": hex(&Sha256::digest(bytes)), "size": bytes.len()}));
                    json!({"rfilename": name, "size": bytes.len(), "blobId": blob(bytes), "lfs": lfs})
                })
                .collect();
            let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
            return respond(stream, "200 OK", &[length(body.len())], body.as_bytes());
        }
        let wanted = path.strip_prefix(&format!("/owner/name/resolve/{COMMIT}/"));
        match wanted.and_then(|wanted| files.iter().find(|(name, ..)| *name == wanted)) {
            Some((_, bytes, _)) => good_answer(bytes, request, stream),
            None => respond(stream, "404 Not Found", &[length(0)], b""),
        }
    })
}

fn tiny() -> Vec<File> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/checkpoints/llama_f16_linear_rope/");
    let read = |name: &str| fs::read(format!("{folder}{name}")).unwrap();
    vec![
        ("config.json", read("config.json"), false),
        ("tokenizer.json", read("tokenizer.json"), false),
        ("tokenizer_config.json", read("tokenizer_config.json"), false),
        ("model.safetensors", read("model.safetensors"), true),
        ("pytorch_model.bin", vec![0x80, 2, 0], true),
        ("README.md", b"---\nlicense: mit\n---\n".to_vec(), false),
    ]
}

struct Place {
    _dir: tempfile::TempDir,
    dirs: ModelDirs,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place { dirs: ModelDirs { root: dir.path().join("models"), hub_cache: None }, _dir: dir }
    }

    fn fetch(&self, wanted: &str, hub: &Stub) -> Result<PathBuf, FetchError> {
        let options = FetchOptions {
            offline: false,
            endpoint: hub.url(),
            token: None,
            proxies: ProxySettings::default(),
            pip: None,
            retry_delay: Duration::from_millis(1),
        };
        let wanted = Repository::parse(wanted).unwrap().unwrap();
        fetch_repository(&wanted, &self.dirs, &options, &mut |_| ControlFlow::Continue(()))
    }
}

#[test]
fn a_folder_is_fetched_pinned_and_found_again() {
    let (hub, place) = (hub(tiny()), Place::new());
    let folder = place.fetch("hf:owner/name", &hub).unwrap();
    assert!(folder.ends_with(format!("models--owner--name/snapshots/{COMMIT}")), "{}", folder.display());
    assert!(!folder.join("pytorch_model.bin").exists());
    let model = Checkpoint::open(&folder).unwrap();
    assert!(model.info("token_embd.weight").is_some());
    let catalogue = Catalogue::builtin();
    for name in ["hf:owner/name", "owner/name", "owner/name@main", "hf:owner/name@0123456"] {
        let found = find(name, &place.dirs, &catalogue).unwrap();
        assert_eq!((found.path.as_path(), found.origin), (folder.as_path(), Origin::HubCache), "{name}");
    }
    assert!(find("owner/name@fedc", &place.dirs, &catalogue).is_err());
    let asked = hub.count();
    place.fetch("hf:owner/name", &hub).unwrap();
    assert_eq!(hub.count(), asked + 1, "only the list is asked for again");
}

#[test]
fn one_file_of_a_revision() {
    let gguf = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gguf/qwen2.gguf")).unwrap();
    let (hub, place) =
        (hub(vec![("q4/a.gguf", gguf.clone(), true), ("q8/a.gguf", gguf, true)]), Place::new());
    let several = place.fetch("hf:owner/name", &hub).unwrap_err().to_string();
    assert!(several.contains("several models; add one of: q4/a.gguf, q8/a.gguf"), "{several}");
    let path = place.fetch(&format!("hf:owner/name@{COMMIT}/q8/a.gguf"), &hub).unwrap();
    assert!(path.ends_with("q8/a.gguf") && Checkpoint::open(&path).is_ok());
    let missing = place.fetch("hf:owner/name/q9.gguf", &hub).unwrap_err().to_string();
    assert!(missing.contains("it has no file \"q9.gguf\""), "{missing}");
}

/// Of a small file the hub says git's hash, of a large one SHA-256.
#[test]
fn bytes_that_are_not_those_of_the_list_are_not_kept() {
    for (index, name) in [(0, "config.json"), (3, "model.safetensors")] {
        let (honest, mut other) = (tiny(), tiny());
        let at = other[index].1.len() / 2;
        other[index].1[at] ^= 1;
        let (honest, other) = (Arc::new(honest), Arc::new(other));
        let stub = Stub::new(move |_, request, stream| {
            let path = request.line.split(' ').nth(1).unwrap();
            let file = |files: &Arc<Vec<File>>| {
                files.iter().find(|(name, ..)| path.ends_with(&format!("/{name}"))).cloned()
            };
            match file(&other) {
                Some((_, bytes, _)) if !path.starts_with("/api") => good_answer(&bytes, request, stream),
                _ => {
                    let siblings: Vec<_> = honest
                        .iter()
                        .map(|(name, bytes, large)| {
                            let lfs = large
                                .then(|| json!({"sha256": hex(&Sha256::digest(bytes)), "size": bytes.len()}));
                            json!({"rfilename": name, "size": bytes.len(), "blobId": blob(bytes), "lfs": lfs})
                        })
                        .collect();
                    let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
                    respond(stream, "200 OK", &[length(body.len())], body.as_bytes());
                }
            }
        });
        let place = Place::new();
        let error = place.fetch("hf:owner/name", &stub).unwrap_err().to_string();
        assert!(error.contains("hash") || error.contains("SHA-256"), "{error}");
        let snapshot = place.dirs.root.join("hub/models--owner--name/snapshots").join(COMMIT);
        assert!(!snapshot.join(name).exists(), "{name}");
    }
}

#[test]
fn a_pickle_under_another_name_is_refused_by_its_content() {
    let mut files = tiny();
    files[3].1 = vec![0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0, b'.'];
    let (hub, place) = (hub(files), Place::new());
    let error = place.fetch("hf:owner/name", &hub).unwrap_err().to_string();
    assert!(error.contains("pickle"), "{error}");
    let snapshot = place.dirs.root.join("hub/models--owner--name/snapshots").join(COMMIT);
    assert!(!snapshot.join("model.safetensors").exists());
}

#[test]
fn what_is_not_there_is_said() {
    let (hub, place) = (hub(vec![("config.json", b"{}".to_vec(), false)]), Place::new());
    let error = place.fetch("hf:owner/name", &hub).unwrap_err().to_string();
    assert!(error.contains("neither safetensors"), "{error}");
    let error = place.fetch("hf:owner/other", &hub).unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("no such repository"), "{error}");
}
