use super::catalogue::{Catalogue, CatalogueModel, ReasoningHint};
use super::dirs::{ModelDirs, gguf_files, hub_folders, is_gguf, is_hub_folder};
use super::names;
use std::fmt;
use std::path::{Path, PathBuf};

/// A model file on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What to call it: its name in the catalogue, or the file's name.
    pub name: String,
    pub path: PathBuf,
    pub origin: Origin,
    /// What the catalogue knows of its replies.
    pub reasoning: Option<ReasoningHint>,
}

/// Where a model was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Named by the catalogue, wherever it lies.
    Catalogue,
    /// Another file in our own folder.
    ModelFolder,
    HubCache,
    Path,
}

/// Nothing to open by that name, and what could have been meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct NotFound {
    pub wanted: String,
    /// It is in the catalogue and can be fetched.
    pub known: Option<String>,
    /// What is in the way, when there is more to say than that it is not there.
    pub problem: Option<String>,
    /// Names like it, in the catalogue or on disk.
    pub near: Vec<String>,
    /// Names of everything on disk.
    pub on_disk: Vec<String>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.known, &self.problem) {
            (Some(known), _) => write!(f, "{known} is not on this computer: glassbox models pull {known}")?,
            (None, Some(problem)) => write!(f, "{:?}: {problem}", self.wanted)?,
            (None, None) => write!(f, "no model {:?}", self.wanted)?,
        }
        if self.known.is_none() && !self.near.is_empty() {
            write!(f, "; did you mean {}?", self.near.join(" or "))?;
        }
        match self.on_disk.is_empty() {
            true => write!(f, "\nNo models are on this computer yet."),
            false => write!(f, "\nOn this computer: {}", self.on_disk.join(", ")),
        }
    }
}

/// Finds what the user named: a file, a folder with one model, a name of the catalogue or a beginning of
/// only one, a file of our folder, or `owner/name[/file]` of a hub cache (`hf:` before it is optional).
pub fn find(wanted: &str, dirs: &ModelDirs, catalogue: &Catalogue) -> Result<Found, NotFound> {
    let lookup = Lookup { wanted, dirs, catalogue };
    let says_path =
        Path::new(wanted).is_absolute() || wanted.starts_with('.') || wanted.ends_with(['/', '\\']);
    if says_path {
        return lookup.by_path().unwrap_or_else(|| lookup.fail(Some("there is no such file".to_owned())));
    }
    // A file in the working directory hides a model's name only if it looks like a file.
    let looks_like_path = wanted.contains('/') || is_gguf(Path::new(wanted));
    (looks_like_path.then(|| lookup.by_path()).flatten())
        .or_else(|| lookup.by_name())
        .or_else(|| lookup.in_hub_cache())
        .or_else(|| lookup.by_path())
        .unwrap_or_else(|| {
            lookup.fail(is_gguf(Path::new(wanted)).then(|| "there is no such file".to_owned()))
        })
}

type Outcome = Result<Found, NotFound>;

struct Lookup<'a> {
    wanted: &'a str,
    dirs: &'a ModelDirs,
    catalogue: &'a Catalogue,
}

impl Lookup<'_> {
    fn by_path(&self) -> Option<Outcome> {
        let path = Path::new(self.wanted);
        match path.is_dir() {
            true => Some(self.in_folder(path)),
            false => path.exists().then(|| Ok(found(stem(path), path, Origin::Path))),
        }
    }

    fn in_folder(&self, folder: &Path) -> Outcome {
        // A folder that only says what a model is gets the reader's own words for what it lacks.
        if is_hub_folder(folder) || (folder.join("config.json").is_file() && gguf_files(folder, 0).is_empty())
        {
            return Ok(found(file_name(folder), folder, Origin::Path));
        }
        let files = gguf_files(folder, 0);
        match files.as_slice() {
            [only] => Ok(found(stem(only), only, Origin::Path)),
            [] => self.fail(Some(
                "there is no .gguf file in this folder, and no config.json with safetensors".to_owned(),
            )),
            several => {
                self.fail(Some(format!("this folder has several models; name one: {}", file_names(several))))
            }
        }
    }

    fn by_name(&self) -> Option<Outcome> {
        if let Some(model) = self.catalogue.get(self.wanted) {
            return Some(self.of_catalogue(model));
        }
        let hub = hub_folders(&self.dirs.root).into_iter().find(|folder| file_name(folder) == self.wanted);
        if let Some(folder) = hub {
            return Some(Ok(found(file_name(&folder), &folder, Origin::ModelFolder)));
        }
        let files = gguf_files(&self.dirs.root, 2);
        let named = |path: &&PathBuf| stem(path) == self.wanted || file_name(path) == self.wanted;
        if let Some(path) = files.iter().find(named) {
            return Some(Ok(found(stem(path), path, Origin::ModelFolder)));
        }
        let wanted = plain(self.wanted);
        let begins = |model: &&CatalogueModel| !wanted.is_empty() && plain(&model.name).starts_with(&wanted);
        match self.catalogue.models().iter().filter(begins).collect::<Vec<_>>().as_slice() {
            [] => None,
            [only] => Some(self.of_catalogue(only)),
            several => {
                let names: Vec<_> = several.iter().map(|model| model.name.as_str()).collect();
                Some(self.fail(Some(format!("several models begin so: {}", names.join(", ")))))
            }
        }
    }

    fn of_catalogue(&self, model: &CatalogueModel) -> Outcome {
        match self.dirs.existing_model(model) {
            Some(path) => Ok(Found {
                name: model.name.clone(),
                path,
                origin: Origin::Catalogue,
                reasoning: model.reasoning,
            }),
            None => Err(NotFound { known: Some(model.name.clone()), ..self.not_found(None) }),
        }
    }

    /// `owner/name`, or `owner/name/file`.
    fn in_hub_cache(&self) -> Option<Outcome> {
        let (explicit, name) = match self.wanted.strip_prefix("hf:") {
            Some(name) => (true, name),
            None => (false, self.wanted),
        };
        let slash = name.match_indices('/').nth(1).map_or(name.len(), |(at, _)| at);
        let (repository, file) = (&name[..slash], name[slash..].strip_prefix('/'));
        let (repository, revision) = match repository.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (repository, None),
        };
        let checked = names::repository(repository).and_then(|_| {
            revision.map_or(Ok(()), |revision| names::component(revision, "a revision"))?;
            file.map_or(Ok(PathBuf::new()), |file| names::relative(file, "a file of a hub repository"))
        });
        let file_path = match checked {
            Ok(path) => path,
            Err(bad) => return explicit.then(|| self.fail(Some(bad.to_string()))),
        };
        let snapshots = match revision {
            None => self.dirs.snapshots(repository),
            Some(revision) => self.dirs.snapshots_at(repository, revision),
        };
        if snapshots.is_empty() {
            return explicit.then(|| self.fail(Some("this repository is not in the hub cache".to_owned())));
        }
        if file.is_some() {
            let there =
                snapshots.iter().map(|snapshot| snapshot.join(&file_path)).find(|path| path.is_file());
            return Some(match there {
                Some(path) => Ok(found(stem(&path), &path, Origin::HubCache)),
                None => self.fail(Some("the repository is in the hub cache, that file is not".to_owned())),
            });
        }
        if let Some(folder) = snapshots.iter().find(|snapshot| is_hub_folder(snapshot)) {
            return Some(Ok(found(repository.to_owned(), folder, Origin::HubCache)));
        }
        let mut files =
            snapshots.iter().map(|snapshot| gguf_files(snapshot, 2)).filter(|files| !files.is_empty());
        Some(match files.next().as_deref() {
            Some([only]) => Ok(found(repository.to_owned(), only, Origin::HubCache)),
            Some(several) => self.fail(Some(format!(
                "the repository has several models; add one of: {}",
                file_names(several)
            ))),
            None => self.fail(Some(
                "the repository is in the hub cache, without safetensors and a .gguf file".to_owned(),
            )),
        })
    }

    fn fail(&self, problem: Option<String>) -> Outcome {
        Err(self.not_found(problem))
    }

    fn not_found(&self, problem: Option<String>) -> NotFound {
        let on_disk = names_on_disk(self.dirs, self.catalogue);
        let mut candidates: Vec<String> =
            self.catalogue.models().iter().map(|model| model.name.clone()).collect();
        candidates
            .extend(on_disk.iter().filter(|name| !candidates.contains(name)).cloned().collect::<Vec<_>>());
        let wanted = plain(self.wanted);
        candidates.retain(|name| is_near(&wanted, &plain(name)));
        NotFound { wanted: self.wanted.to_owned(), known: None, problem, near: candidates, on_disk }
    }
}

/// Names that [`find`] takes for what is on disk.
fn names_on_disk(dirs: &ModelDirs, catalogue: &Catalogue) -> Vec<String> {
    super::list(dirs, catalogue)
        .into_iter()
        .filter(|entry| entry.path.is_some())
        .map(|entry| entry.name)
        .collect()
}

fn found(name: String, path: &Path, origin: Origin) -> Found {
    Found { name, path: path.to_owned(), origin, reasoning: None }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn file_names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| file_name(path)).collect::<Vec<_>>().join(", ")
}

/// Letters and digits only, so that `SmolLM2 135M` is `smollm2-135m`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// A part of the name, or the name or its beginning with a few slips.
fn is_near(wanted: &str, name: &str) -> bool {
    let len = wanted.chars().count();
    let beginning: String = name.chars().take(len).collect();
    let contains = len >= 3 && (name.contains(wanted) || wanted.contains(name));
    contains || edit_distance(wanted, &beginning).min(edit_distance(wanted, name)) <= (len / 3).min(3)
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(
            (edit_distance("", "abc"), edit_distance("kitten", "sitting"), edit_distance("same", "same")),
            (3, 3, 0)
        );
        for wanted in ["smolm", "smolm2", "smolm2135m", "135m", "smollm2135minstruct"] {
            assert!(is_near(wanted, "smollm2135m"), "{wanted}");
        }
        assert!(!is_near("llama", "gemma3270m"));
    }
}
