use super::catalogue::{CatalogueFile, CatalogueModel, Source};
use std::fs;
use std::path::{Path, PathBuf};

/// Where models are: our own folder, and a hub cache that other programs fill and we only read.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDirs {
    /// `<root>/<model>/<file>` for every fetched file.
    pub root: PathBuf,
    /// Of the layout `models--owner--name/snapshots/<commit>/<file>`.
    pub hub_cache: Option<PathBuf>,
}

impl ModelDirs {
    pub fn from_env() -> ModelDirs {
        ModelDirs::from_vars(|name| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        })
    }

    /// `GLASSBOX_MODELS`, or `glassbox/models` in the user's data folder; and the hub's own variables in
    /// the order it reads them.
    pub fn from_vars(var: impl Fn(&str) -> Option<PathBuf>) -> ModelDirs {
        let user = directories::BaseDirs::new();
        let root = var("GLASSBOX_MODELS").unwrap_or_else(|| {
            match directories::ProjectDirs::from("", "", "glassbox") {
                Some(project) => project.data_dir().join("models"),
                None => std::env::temp_dir().join("glassbox").join("models"), // a user without a home
            }
        });
        let hub_cache = var("HF_HUB_CACHE")
            .or_else(|| var("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(var("HF_HOME")?.join("hub")))
            .or_else(|| Some(var("XDG_CACHE_HOME")?.join("huggingface").join("hub")))
            .or_else(|| Some(user?.home_dir().join(".cache").join("huggingface").join("hub")));
        ModelDirs { root, hub_cache }
    }

    /// Where a file of the catalogue is fetched to. Its names were checked when the catalogue was read.
    pub fn target(&self, model: &CatalogueModel, file: &CatalogueFile) -> PathBuf {
        self.root.join(&model.name).join(&file.name)
    }

    /// A file of the catalogue that is here already, whole: fetched, or in the hub cache.
    pub fn existing(&self, model: &CatalogueModel, file: &CatalogueFile) -> Option<PathBuf> {
        let fetched = self.target(model, file);
        let whole =
            |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == file.bytes);
        if whole(&fetched) {
            return Some(fetched);
        }
        file.sources.iter().find_map(|source| match source {
            Source::Hub { hub, file, .. } => {
                self.snapshots(hub).into_iter().map(|snapshot| snapshot.join(file)).find(|path| whole(path))
            }
            _ => None,
        })
    }

    /// The model's file to open, when all of its files are here.
    pub fn existing_model(&self, model: &CatalogueModel) -> Option<PathBuf> {
        let files: Option<Vec<_>> = model.files.iter().map(|file| self.existing(model, file)).collect();
        files?.into_iter().next()
    }

    /// Snapshots of a repository in the hub cache: the one that `main` names first, then the newest.
    pub(super) fn snapshots(&self, repository: &str) -> Vec<PathBuf> {
        let folder = repository_folder(repository);
        self.hub_caches().flat_map(|cache| snapshots(&cache.join(&folder))).collect()
    }

    /// The snapshot of a commit (or a beginning of one), a branch or a tag.
    pub(super) fn snapshots_at(&self, repository: &str, revision: &str) -> Vec<PathBuf> {
        let folder = repository_folder(repository);
        let of = |cache: PathBuf| {
            let repo = cache.join(&folder);
            let commit = fs::read_to_string(repo.join("refs").join(revision)).unwrap_or_default();
            let wanted =
                if commit.trim().is_empty() { revision.to_owned() } else { commit.trim().to_owned() };
            let fits = move |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&wanted))
            };
            snapshots(&repo).into_iter().filter(fits).collect::<Vec<_>>()
        };
        self.hub_caches().flat_map(of).collect()
    }

    /// Where repositories of hubs are fetched to, in the layout of a hub cache.
    pub(super) fn repository(&self, repository: &str) -> PathBuf {
        self.own_hub_cache().join(repository_folder(repository))
    }

    fn own_hub_cache(&self) -> PathBuf {
        self.root.join("hub")
    }

    /// Our own first.
    fn hub_caches(&self) -> impl Iterator<Item = PathBuf> {
        [self.own_hub_cache()].into_iter().chain(self.hub_cache.clone())
    }

    /// `owner/name` of every repository in the hub cache.
    pub(super) fn repositories(&self) -> Vec<String> {
        let folders: Vec<PathBuf> = self.hub_caches().flat_map(|cache| subfolders(&cache)).collect();
        let name = |path: &PathBuf| {
            path.file_name()?.to_str()?.strip_prefix("models--").map(|n| n.replacen("--", "/", 1))
        };
        let mut names: Vec<String> = folders.iter().filter_map(name).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn repository_folder(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

/// The one that `main` names first, then the newest.
fn snapshots(repo: &Path) -> Vec<PathBuf> {
    let main = fs::read_to_string(repo.join("refs").join("main")).unwrap_or_default();
    let mut snapshots = subfolders(&repo.join("snapshots"));
    snapshots.sort_by_key(|path| {
        let is_main = path.file_name().is_some_and(|name| name == main.trim());
        let age = fs::metadata(path).and_then(|meta| meta.modified()).ok().and_then(|t| t.elapsed().ok());
        (!is_main, age)
    });
    snapshots
}

/// A folder as hubs have them, with weights that can be read.
pub(super) fn is_hub_folder(dir: &Path) -> bool {
    let safe = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "safetensors");
    dir.join("config.json").is_file() && entries(dir).iter().any(safe)
}

fn subfolders(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = entries(dir).into_iter().filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// What can be read of a folder; nothing when it is not there.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// Folders of hubs right below a folder.
pub(super) fn hub_folders(dir: &Path) -> Vec<PathBuf> {
    subfolders(dir).into_iter().filter(|path| is_hub_folder(path)).collect()
}

/// By its name.
pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Every `.gguf` file of a folder, down to `depth` folders below it, sorted; hidden ones left out.
pub(super) fn gguf_files(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let visible =
        |path: &PathBuf| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let mut found = Vec::new();
    for path in entries(dir).into_iter().filter(visible) {
        if path.is_dir() {
            if depth > 0 {
                found.extend(gguf_files(&path, depth - 1));
            }
        } else if is_gguf(&path) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_in_the_hubs_order() {
        let dirs = |vars: &[(&str, &str)]| {
            ModelDirs::from_vars(|name| {
                vars.iter().find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        let all =
            [("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), ("XDG_CACHE_HOME", "/c"), ("GLASSBOX_MODELS", "/m")];
        assert_eq!(dirs(&all), ModelDirs { root: "/m".into(), hub_cache: Some("/a".into()) });
        assert_eq!(dirs(&all[1..]).hub_cache, Some("/b/hub".into()));
        assert_eq!(dirs(&all[2..]).hub_cache, Some("/c/huggingface/hub".into()));
        assert!(dirs(&[]).root.ends_with("glassbox/models"));
    }
}
