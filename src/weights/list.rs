use super::Checkpoint;
use super::catalogue::{Catalogue, CatalogueModel};
use super::dirs::{ModelDirs, gguf_files, hub_folders, is_hub_folder};
use super::find::Origin;
use super::summary::Summary;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of `models ls`: a model of the catalogue, on disk or not, or another file on disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Listed {
    /// What `find` takes.
    pub name: String,
    pub origin: Origin,
    /// `None` when it is only in the catalogue.
    pub path: Option<PathBuf>,
    /// On disk, or to fetch.
    pub bytes: u64,
    /// Of an interrupted fetch, which the next one goes on from.
    pub fetched_bytes: u64,
    pub title: Option<String>,
    pub licence: Option<String>,
    pub architecture: Option<String>,
    pub quantization: Option<String>,
    pub parameters: Option<u64>,
    /// Tokens.
    pub context: Option<u64>,
    /// Why the file cannot be used.
    pub problem: Option<String>,
}

/// The catalogue in its order, then other files of our folder, then the hub cache.
pub fn list(dirs: &ModelDirs, catalogue: &Catalogue) -> Vec<Listed> {
    let mut listed: Vec<Listed> = catalogue.models().iter().map(|model| of_catalogue(model, dirs)).collect();
    // A snapshot is a link to a blob that other snapshots share.
    let identity = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut seen: HashSet<PathBuf> =
        listed.iter().filter_map(|entry| entry.path.as_deref().map(identity)).collect();
    let mut add = |name: String, path: PathBuf, origin| {
        if seen.insert(identity(&path)) {
            listed.push(on_disk(name, path, origin));
        }
    };
    for path in gguf_files(&dirs.root, 2) {
        add(path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path, Origin::ModelFolder);
    }
    for path in hub_folders(&dirs.root) {
        add(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path, Origin::ModelFolder);
    }
    for repository in dirs.repositories() {
        for snapshot in dirs.snapshots(&repository) {
            if is_hub_folder(&snapshot) {
                add(repository.clone(), snapshot.clone(), Origin::HubCache);
            }
            for path in gguf_files(&snapshot, 2) {
                let file = path.strip_prefix(&snapshot).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                add(format!("{repository}/{file}"), path, Origin::HubCache);
            }
        }
    }
    listed
}

fn of_catalogue(model: &CatalogueModel, dirs: &ModelDirs) -> Listed {
    let mut entry = match dirs.existing_model(model) {
        Some(path) => on_disk(model.name.clone(), path, Origin::Catalogue),
        None => Listed { bytes: model.bytes(), ..empty(model.name.clone(), Origin::Catalogue) },
    };
    entry.title = Some(model.title.clone());
    entry.licence = Some(model.licence.clone());
    entry.context = entry.context.or(Some(model.context));
    entry.parameters = Some(model.parameters);
    if entry.path.is_none() {
        let part = |file| {
            fs::metadata(super::fetch::part_path(&dirs.target(model, file))).map_or(0, |meta| meta.len())
        };
        entry.fetched_bytes = model.files.iter().map(part).sum();
    }
    entry
}

fn on_disk(name: String, path: PathBuf, origin: Origin) -> Listed {
    let mut entry = empty(name, origin);
    entry.bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
    match Checkpoint::inspect(&path).and_then(|file| Summary::of(&file)) {
        Ok(summary) => {
            entry.bytes = summary.file_bytes;
            entry.architecture = Some(summary.architecture);
            entry.quantization = Some(summary.quantization);
            entry.parameters = Some(summary.parameters);
            entry.context = summary.context;
            entry.licence = summary.licence;
            entry.title = summary.title;
        }
        Err(error) => entry.problem = Some(error.to_string()),
    }
    entry.path = Some(path);
    entry
}

fn empty(name: String, origin: Origin) -> Listed {
    Listed {
        name,
        origin,
        path: None,
        bytes: 0,
        fetched_bytes: 0,
        title: None,
        licence: None,
        architecture: None,
        quantization: None,
        parameters: None,
        context: None,
        problem: None,
    }
}
