//! A repository of a hub that the catalogue does not name: `hf:owner/name[@revision][/file]`.
//!
//! The hub says which commit the revision is and which files it has with what hashes; that commit is
//! fetched, into the layout that a hub cache has. Files that carry code (pickles) are never fetched.

use super::error::{FetchError, SourceError, clean};
use super::transfer::Reporter;
use super::{FetchOptions, Progress, fetch_file, hub, lock};
use crate::weights::catalogue::{CatalogueFile, CatalogueModel, Source};
use crate::weights::digest::Digest;
use crate::weights::dirs::ModelDirs;
use crate::weights::hub::refuse_pickle;
use crate::weights::names::{self, BadName};
use serde::Deserialize;
use sha1::Digest as _;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `owner/name`.
    pub name: String,
    /// A commit, a branch or a tag; `main` where none is named.
    pub revision: Option<String>,
    /// One file of it.
    pub file: Option<String>,
}

impl Repository {
    /// `None` for what does not begin with `hf:`.
    pub fn parse(text: &str) -> Option<Result<Repository, BadName>> {
        let rest = text.strip_prefix("hf:")?;
        let slash = rest.match_indices('/').nth(1).map_or(rest.len(), |(at, _)| at);
        let (repository, file) = (&rest[..slash], rest[slash..].strip_prefix('/'));
        let (name, revision) = match repository.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (repository, None),
        };
        let checked = names::repository(name)
            .and_then(|_| revision.map_or(Ok(()), |revision| names::component(revision, "a revision")))
            .and_then(|()| {
                file.map_or(Ok(()), |file| names::relative(file, "a file of a hub repository").map(drop))
            });
        Some(checked.map(|()| Repository {
            name: name.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        }))
    }

    fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

/// What the hub says of a revision.
#[derive(Debug, Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
    #[serde(default)]
    size: u64,
    /// SHA-1 as git has it, of `blob LENGTH\0` and the bytes.
    #[serde(default, rename = "blobId")]
    blob: String,
    lfs: Option<Large>,
}

#[derive(Debug, Deserialize)]
struct Large {
    sha256: Digest,
    size: u64,
}

/// Files that a model is made of, beside its weights.
const SMALL: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
    "README.md",
];
const MOST_LISTING: u64 = 16 << 20;
/// What is larger, hubs keep apart with a SHA-256.
const MOST_SMALL: u64 = 16 << 20;

/// Fetches what is missing of a repository, and gives what to open: a GGUF file, or the folder.
///
/// # Errors
/// As [`fetch`](super::fetch); also where the repository has several models, or only files that carry code.
pub fn fetch_repository(
    wanted: &Repository,
    dirs: &ModelDirs,
    options: &FetchOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PathBuf, FetchError> {
    let failed = |error: SourceError| refused(wanted, error);
    if options.offline {
        return Err(failed(SourceError::Offline));
    }
    let listing = list(wanted, options).map_err(failed)?;
    names::component(&listing.sha, "a commit").map_err(|e| failed(SourceError::Http(e.to_string())))?;
    let chosen = choose(wanted, &listing.siblings).map_err(|why| failed(SourceError::Http(why)))?;
    let total = chosen.iter().map(|file| file.bytes()).sum();
    let source = Arc::from(format!("hub {}", wanted.name));
    let mut reporter = Reporter { progress, source, before: 0, total, highest: 0 };
    let folder = dirs.repository(&wanted.name).join("snapshots").join(&listing.sha);
    let _lock = lock::take(&dirs.root, &wanted.name.replace('/', "--"), &mut reporter)?;
    fs::create_dir_all(&folder).map_err(|source| FetchError::Write { path: folder.clone(), source })?;
    let to = To { wanted, commit: &listing.sha, folder: &folder, dirs, options };
    for file in &chosen {
        to.get(file, &mut reporter)?;
        reporter.before += file.bytes();
    }
    remember(dirs, wanted, &listing.sha)?;
    Ok(opened(&folder, &chosen))
}

/// Where files go.
struct To<'a> {
    wanted: &'a Repository,
    commit: &'a str,
    folder: &'a Path,
    dirs: &'a ModelDirs,
    options: &'a FetchOptions,
}

impl To<'_> {
    fn get(&self, file: &Sibling, reporter: &mut Reporter<'_>) -> Result<(), FetchError> {
        let target = self.folder.join(&file.name);
        let here = fs::metadata(&target).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes());
        if !here {
            match &file.lfs {
                Some(large) => self.large(file, large, reporter)?,
                None => self.small(file, &target).map_err(|error| refused(self.wanted, error))?,
            }
        }
        let mut start = vec![0; 1024];
        let read = File::open(&target).and_then(|mut opened| opened.read(&mut start)).unwrap_or(0);
        refuse_pickle(&target, &start[..read]).map_err(|error| {
            // Under its name it would be found again.
            let _ = fs::remove_file(&target);
            refused(self.wanted, SourceError::Http(error.to_string()))
        })
    }

    fn large(&self, file: &Sibling, large: &Large, reporter: &mut Reporter<'_>) -> Result<(), FetchError> {
        let source = Source::Hub {
            hub: self.wanted.name.clone(),
            file: file.name.clone(),
            rev: self.commit.to_owned(),
        };
        let within = self.folder.strip_prefix(&self.dirs.root).unwrap_or(self.folder);
        let model = CatalogueModel::of_files(&within.to_string_lossy(), &self.wanted.name);
        let expected = CatalogueFile {
            name: file.name.clone(),
            bytes: large.size,
            sha256: large.sha256,
            sources: vec![source],
        };
        fetch_file(&model, &expected, self.dirs, self.options, reporter).map(drop)
    }

    fn small(&self, file: &Sibling, target: &Path) -> Result<(), SourceError> {
        let address = hub::address(self.options, &self.wanted.name, self.commit, &file.name);
        let bytes = hub::get(self.options, &address, MOST_SMALL)?;
        if bytes.len() as u64 != file.size {
            return Err(SourceError::WrongSize { expected: file.size, got: bytes.len() as u64 });
        }
        let got = git_blob(&bytes);
        if got != file.blob {
            let problem =
                format!("{}: its hash is {got}, not {} as the hub says", file.name, clean(&file.blob));
            return Err(SourceError::Http(problem));
        }
        let part = super::part_path(target);
        let written = target.parent().map_or(Ok(()), fs::create_dir_all);
        written
            .and_then(|()| fs::write(&part, &bytes))
            .and_then(|()| fs::rename(&part, target))
            .map_err(|source| SourceError::Read { path: target.to_owned(), source })
    }
}

impl Sibling {
    fn bytes(&self) -> u64 {
        self.lfs.as_ref().map_or(self.size, |large| large.size)
    }
}

fn list(wanted: &Repository, options: &FetchOptions) -> Result<Listing, SourceError> {
    let address = hub::listing_address(options, &wanted.name, wanted.revision());
    let bytes = hub::get(options, &address, MOST_LISTING)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| SourceError::Http(format!("the hub's list of files cannot be read: {error}")))
}

/// The named file; or a folder's files, where there is a configuration and safetensors; or the only GGUF.
fn choose<'l>(wanted: &Repository, all: &'l [Sibling]) -> Result<Vec<&'l Sibling>, String> {
    let safe: Vec<&Sibling> =
        all.iter().filter(|file| names::relative(&file.name, "a file").is_ok()).collect();
    if let Some(name) = &wanted.file {
        let found = safe.iter().find(|file| file.name == *name);
        return found.map(|file| vec![*file]).ok_or_else(|| format!("it has no file {name:?}"));
    }
    let ending = |ending: &'static str| {
        let fits = move |file: &&&Sibling| file.name.to_lowercase().ends_with(ending);
        safe.iter().filter(fits).copied().collect::<Vec<&Sibling>>()
    };
    let weights: Vec<&Sibling> = weights(&ending(".safetensors"));
    if !weights.is_empty() && safe.iter().any(|file| file.name == "config.json") {
        let small = safe.iter().filter(|file| SMALL.contains(&file.name.as_str())).copied();
        return Ok(small.chain(weights).collect());
    }
    match ending(".gguf").as_slice() {
        [only] => Ok(vec![only]),
        [] => {
            Err("it has neither safetensors with a config.json nor a GGUF file (files that carry code, as \
                   .bin and .pt do, are never fetched)"
                .to_owned())
        }
        several => {
            let names: Vec<&str> = several.iter().map(|file| file.name.as_str()).collect();
            Err(format!("it has several models; add one of: {}", names.join(", ")))
        }
    }
}

/// `model*.safetensors` of the repository's own folder; others (adapters, copies in one file) only where there is
/// no such.
fn weights<'l>(all: &[&'l Sibling]) -> Vec<&'l Sibling> {
    let usual: Vec<&Sibling> = all
        .iter()
        .filter(|file| file.name.starts_with("model") && !file.name.contains('/'))
        .copied()
        .collect();
    if usual.is_empty() { all.to_vec() } else { usual }
}

/// The revision's name leads to its commit, as in a hub cache.
fn remember(dirs: &ModelDirs, wanted: &Repository, commit: &str) -> Result<(), FetchError> {
    let refs = dirs.repository(&wanted.name).join("refs");
    let path = refs.join(wanted.revision());
    let written = fs::create_dir_all(&refs).and_then(|()| fs::write(&path, commit));
    written.map_err(|source| FetchError::Write { path, source })
}

fn opened(folder: &Path, chosen: &[&Sibling]) -> PathBuf {
    match chosen {
        [only] => folder.join(&only.name),
        _ => folder.to_owned(),
    }
}

fn refused(wanted: &Repository, error: SourceError) -> FetchError {
    FetchError::AllFailed {
        model: wanted.name.clone(),
        attempts: vec![(format!("hub {} at {}", wanted.name, wanted.revision()), error)],
        advice: "Without a network: copy the repository's folder here and open it by its path.".to_owned(),
    }
}

fn git_blob(bytes: &[u8]) -> String {
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_repositories() {
        let parse = |text: &str| Repository::parse(text).unwrap();
        let of = |name: &str, revision: Option<&str>, file: Option<&str>| Repository {
            name: name.into(),
            revision: revision.map(Into::into),
            file: file.map(Into::into),
        };
        assert_eq!(parse("hf:a/b").unwrap(), of("a/b", None, None));
        assert_eq!(parse("hf:a/b@v1/c/d.gguf").unwrap(), of("a/b", Some("v1"), Some("c/d.gguf")));
        for bad in ["hf:a", "hf:a/b@", "hf:a/b@../x", "hf:a/b/../c", "hf:../b", "hf:a/b@x y\n"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Repository::parse("a/b").is_none());
    }

    /// As `git hash-object` says.
    #[test]
    fn blobs_are_hashed_as_git_does() {
        assert_eq!(git_blob(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(git_blob(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    fn listing(names: &[&str]) -> Vec<Sibling> {
        let sibling = |name: &&str| Sibling { name: (*name).into(), size: 1, blob: String::new(), lfs: None };
        names.iter().map(sibling).collect()
    }

    #[test]
    fn what_is_fetched_of_a_repository() {
        let wanted = |file: Option<&str>| Repository {
            name: "a/b".into(),
            revision: None,
            file: file.map(Into::into),
        };
        let names = |files: &[&str], file: Option<&str>| {
            let all = listing(files);
            choose(&wanted(file), &all).map(|files| files.iter().map(|f| f.name.clone()).collect::<Vec<_>>())
        };
        let folder = [
            "config.json",
            "pytorch_model.bin",
            "model.safetensors",
            "tokenizer.json",
            "consolidated.safetensors",
        ];
        assert_eq!(names(&folder, None).unwrap(), ["config.json", "tokenizer.json", "model.safetensors"]);
        assert_eq!(names(&["x.gguf", "README.md"], None).unwrap(), ["x.gguf"]);
        assert_eq!(names(&["x.gguf", "y.gguf"], Some("y.gguf")).unwrap(), ["y.gguf"]);
        assert!(names(&["x.gguf", "y.gguf"], None).unwrap_err().contains("x.gguf, y.gguf"));
        assert!(names(&["config.json", "pytorch_model.bin"], None).unwrap_err().contains("carry code"));
        assert!(names(&["../x.gguf"], None).is_err() && names(&["a"], Some("b")).is_err());
    }
}
