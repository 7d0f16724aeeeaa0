//! What a user may type for a model, and what `models ls` and `rm` see.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{
    Catalogue, Found, GgufWriter, ModelDirs, NotFound, Origin, ReasoningHint, find, list, part_path, remove,
};
use std::fs;
use std::path::{Path, PathBuf};

struct Disk {
    dir: tempfile::TempDir,
    dirs: ModelDirs,
    catalogue: Catalogue,
}

const SOURCE: &str = "{ hub = 'own/alpha', file = 'a.gguf', rev = 'main' }";

impl Disk {
    /// A catalogue of three models, of which none is on disk.
    fn new() -> Disk {
        let dir = tempfile::tempdir().unwrap();
        let bytes = tiny("x").to_bytes().len();
        let model = |name: &str| {
            format!(
                "[[models]]\nname = '{name}'\ntitle = 'T'\ndescription = 'd'\nlicence = 'MIT'\ncontext = 7\n\
                 parameters = 9\nreasoning = 'think'\n[[models.files]]\nname = 'm.gguf'\nbytes = {bytes}\nsha256 = '{}'\n\
                 sources = [{SOURCE}]\n",
                "0".repeat(64)
            )
        };
        let catalogue =
            Catalogue::parse(&(model("alpha-1b") + &model("beta-0.5b") + &model("beta-2b"))).unwrap();
        let dirs = ModelDirs { root: dir.path().join("models"), hub_cache: Some(dir.path().join("hub")) };
        Disk { dir, dirs, catalogue }
    }

    fn put(&self, path: &str) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        tiny("x").write(&path).unwrap();
        path
    }

    fn find(&self, wanted: &str) -> Result<Found, NotFound> {
        find(wanted, &self.dirs, &self.catalogue)
    }

    fn found(&self, wanted: &str) -> (String, PathBuf, Origin) {
        let found = self.find(wanted).unwrap_or_else(|error| panic!("{error}"));
        (found.name, found.path, found.origin)
    }

    fn problem(&self, wanted: &str) -> String {
        self.find(wanted).unwrap_err().to_string()
    }
}

fn tiny(architecture: &str) -> GgufWriter {
    GgufWriter::new(architecture).put("x.context_length", 64u32).tensor_f32("w", &[4], &[0.0; 4])
}

#[test]
fn a_name_of_the_catalogue_or_the_beginning_of_only_one() {
    let disk = Disk::new();
    let path = disk.put("models/alpha-1b/m.gguf");
    for wanted in ["alpha-1b", "Alpha-1B", "alpha", "al", "alpha1b", "alpha 1b"] {
        assert_eq!(disk.found(wanted), ("alpha-1b".into(), path.clone(), Origin::Catalogue));
    }
    assert_eq!(disk.find("alpha-1b").unwrap().reasoning, Some(ReasoningHint::Think));
    assert_eq!(disk.find(path.to_str().unwrap()).unwrap().reasoning, None, "a path is no catalogue's");
    let error = disk.problem("beta");
    assert!(error.contains("several models begin so: beta-0.5b, beta-2b"), "{error}");
}

#[test]
fn a_model_that_is_only_in_the_catalogue_can_be_fetched() {
    let disk = Disk::new();
    let error = disk.find("beta-2").unwrap_err();
    assert_eq!(error.known.as_deref(), Some("beta-2b"));
    assert!(error.to_string().starts_with("beta-2b is not on this computer: glassbox models pull beta-2b"));
    assert!(error.to_string().contains("No models are on this computer yet"));
    // A file of another length is not the model.
    fs::write(disk.put("models/beta-2b/m.gguf"), "GGUF").unwrap();
    assert!(disk.find("beta-2b").is_err());
}

#[test]
fn a_file_or_a_folder_with_one() {
    let disk = Disk::new();
    let path = disk.put("folder/my model.gguf");
    let folder = path.parent().unwrap();
    let expected = ("my model".to_owned(), path.clone(), Origin::Path);
    assert_eq!(disk.found(path.to_str().unwrap()), expected);
    assert_eq!(disk.found(folder.to_str().unwrap()), expected);
    assert_eq!(disk.found(&format!("{}/", folder.display())).0, "my model");

    disk.put("folder/second.gguf");
    let error = disk.problem(folder.to_str().unwrap());
    assert!(error.contains("name one: my model.gguf, second.gguf"), "{error}");
    let error = disk.problem(disk.dir.path().to_str().unwrap());
    assert!(error.contains("there is no .gguf file in this folder"), "{error}");
    for wanted in ["./no/such.gguf", "/no/such", "such.gguf", "../alpha"] {
        let error = disk.problem(wanted);
        assert!(error.contains("there is no such file"), "{wanted}: {error}");
    }
}

#[test]
fn a_file_of_our_folder_by_its_name() {
    let disk = Disk::new();
    let path = disk.put("models/Mine.Q8_0.gguf");
    disk.put("models/.hidden/h.gguf");
    assert_eq!(disk.found("Mine.Q8_0"), ("Mine.Q8_0".into(), path.clone(), Origin::ModelFolder));
    assert_eq!(disk.found("Mine.Q8_0.gguf").1, path);
    assert!(disk.find("h").is_err());
}

#[test]
fn a_repository_of_the_hub_cache() {
    let disk = Disk::new();
    let path = disk.put("hub/models--own--repo/snapshots/abc/one.gguf");
    for wanted in ["hf:own/repo", "own/repo", "own/repo/one.gguf", "hf:own/repo/one.gguf"] {
        let found = disk.found(wanted);
        assert_eq!((found.1, found.2), (path.clone(), Origin::HubCache), "{wanted}");
    }
    disk.put("hub/models--own--repo/snapshots/abc/two.gguf");
    assert!(disk.problem("own/repo").contains("add one of: one.gguf, two.gguf"));
    assert!(disk.problem("hf:own/repo/three.gguf").contains("that file is not"));
    assert!(disk.problem("hf:own/other").contains("not in the hub cache"));

    // `main` says which snapshot counts.
    let newer = disk.put("hub/models--own--repo/snapshots/def/one.gguf");
    fs::create_dir_all(disk.dir.path().join("hub/models--own--repo/refs")).unwrap();
    for (commit, expected) in [("abc", &path), ("def\n", &newer)] {
        fs::write(disk.dir.path().join("hub/models--own--repo/refs/main"), commit).unwrap();
        assert_eq!(disk.found("own/repo/one.gguf").1, *expected);
    }
}

#[test]
fn a_catalogue_model_in_the_hub_cache_is_used_in_place() {
    let disk = Disk::new();
    let path = disk.put("hub/models--own--alpha/snapshots/abc/a.gguf");
    assert_eq!(disk.found("alpha-1b"), ("alpha-1b".into(), path, Origin::Catalogue));
}

// D06: names that would leave the cache.
#[test]
fn hub_names_cannot_leave_the_cache() {
    let disk = Disk::new();
    disk.put("hub/models--own--repo/snapshots/abc/one.gguf");
    disk.put("hub/models--own--repo/secret.gguf");
    for wanted in [
        "hf:own/repo/../../secret.gguf",
        "hf:../repo",
        "hf:own/..",
        "hf:/own/repo",
        r"hf:own/repo/..\x",
        "hf:own/repo//x",
    ] {
        let error = disk.problem(wanted);
        assert!(error.contains("cannot be used as a"), "{wanted}: {error}");
    }
}

#[test]
fn a_wrong_name_lists_near_ones_and_what_is_here() {
    let disk = Disk::new();
    disk.put("models/gamma.gguf");
    let error = disk.problem("alhpa-1b");
    assert!(error.contains(r#"no model "alhpa-1b"; did you mean alpha-1b?"#), "{error}");
    assert!(error.contains("On this computer: gamma"), "{error}");
    assert!(disk.find("gama").unwrap_err().near.contains(&"gamma".to_owned()));
    assert!(disk.find("entirely different").unwrap_err().near.is_empty());
    let error = disk.problem("\x1b]0;x\x07");
    assert!(!error.contains('\x1b'), "{error}");
    for odd in ["", " ", "/", "hf:", "hf:/", "a/b/c/d"] {
        assert!(disk.find(odd).is_err(), "{odd:?}");
    }
}

#[test]
fn the_list_has_the_catalogue_and_everything_on_disk_once() {
    let disk = Disk::new();
    disk.put("models/alpha-1b/m.gguf");
    disk.put("models/extra.gguf");
    fs::write(disk.put("models/broken.gguf"), "GGUF").unwrap();
    let blob = disk.put("hub/models--own--repo/blobs/0123");
    for snapshot in ["abc", "def"] {
        let folder = disk.dir.path().join("hub/models--own--repo/snapshots").join(snapshot);
        fs::create_dir_all(&folder).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&blob, folder.join("one.gguf")).unwrap();
        #[cfg(not(unix))]
        fs::copy(&blob, folder.join("one.gguf")).unwrap();
    }
    let part =
        part_path(&disk.dirs.target(&disk.catalogue.models()[1], &disk.catalogue.models()[1].files[0]));
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, [0; 5]).unwrap();

    let listed = list(&disk.dirs, &disk.catalogue);
    let names: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.path.is_some())).collect();
    let expected =
        [("alpha-1b", true), ("beta-0.5b", false), ("beta-2b", false), ("broken", true), ("extra", true)];
    assert_eq!(names[..5], expected);
    #[cfg(unix)]
    assert_eq!(names[5..], [("own/repo/one.gguf", true)]);

    assert_eq!((listed[1].fetched_bytes, listed[1].context, listed[1].parameters), (5, Some(7), Some(9)));
    assert!(listed[3].problem.as_deref().unwrap().contains("not a GGUF file"));
    let extra = &listed[4];
    assert_eq!(extra.architecture.as_deref(), Some("x"));
    assert_eq!(
        (extra.context, extra.parameters, extra.quantization.as_deref()),
        (Some(64), Some(4), Some("F32"))
    );
    assert_eq!(extra.bytes, fs::metadata(extra.path.as_ref().unwrap()).unwrap().len());
    // What is listed can be named.
    for entry in listed.iter().filter(|entry| entry.path.is_some()) {
        let found = disk.found(&entry.name);
        assert_eq!(
            fs::canonicalize(&found.1).unwrap(),
            fs::canonicalize(entry.path.as_ref().unwrap()).unwrap()
        );
    }
}

#[test]
fn removing_frees_our_copy_and_leaves_the_hub_cache() {
    let disk = Disk::new();
    let ours = disk.put("models/alpha-1b/m.gguf");
    let theirs = disk.put("hub/models--own--alpha/snapshots/abc/a.gguf");
    let other = disk.put("models/other.gguf");
    let bytes = fs::metadata(&ours).unwrap().len();
    let model = disk.catalogue.get("alpha-1b").unwrap();
    assert_eq!(remove(model, &disk.dirs).unwrap(), bytes);
    assert!(!ours.exists() && theirs.exists() && other.exists());
    assert!(remove(model, &disk.dirs).is_err(), "nothing is left to remove");
    assert!(Path::new(&disk.dirs.root).exists());
}
