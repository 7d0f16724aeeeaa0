use super::digest::Digest;
use super::names::{self, BadName};
use serde::Deserialize;
use std::collections::HashSet;
use std::path::PathBuf;

/// Models that can be fetched by name: `models.toml`, which is built into the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    models: Vec<CatalogueModel>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueModel {
    /// Lower case, what is typed.
    pub name: String,
    /// What is shown.
    pub title: String,
    pub description: String,
    pub licence: String,
    /// Tokens it was trained for.
    pub context: u64,
    pub parameters: u64,
    /// Offered when there is no model at hand.
    #[serde(default)]
    pub default: bool,
    /// How its thoughts are told from its answer, where its template and vocabulary do not tell.
    pub reasoning: Option<ReasoningHint>,
    /// The first is the one to open.
    pub files: Vec<CatalogueFile>,
}

impl CatalogueModel {
    /// Stands for files that no catalogue names, in the folder `name`.
    pub(super) fn of_files(name: &str, title: &str) -> Self {
        CatalogueModel {
            name: name.to_owned(),
            title: title.to_owned(),
            description: String::new(),
            licence: String::new(),
            context: 0,
            parameters: 0,
            default: false,
            reasoning: None,
            files: Vec::new(),
        }
    }
}

/// A parser of thoughts by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningHint {
    /// All of a reply is the answer, tags and all.
    Off,
    /// Between `<think>` and `</think>`.
    Think,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: Digest,
    /// Tried in this order.
    pub sources: Vec<Source>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Source {
    Hub {
        /// `owner/name`.
        hub: String,
        file: String,
        rev: String,
    },
    /// Members of Python wheels, one after the other.
    Wheels { wheels: Vec<Wheel> },
    /// A file on this computer.
    Path { path: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    pub package: String,
    pub version: String,
    /// Path inside the wheel.
    pub member: String,
    /// Of the member.
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("the catalogue cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    #[error("the catalogue: {0}")]
    Name(#[from] BadName),
    #[error("the catalogue: {model}: {problem}")]
    Model { model: String, problem: &'static str },
}

impl Catalogue {
    pub fn builtin() -> Catalogue {
        Catalogue::parse(include_str!("../../models.toml")).expect("models.toml is checked by a test")
    }

    pub fn parse(text: &str) -> Result<Catalogue, CatalogueError> {
        let catalogue: Catalogue = toml::from_str(text)?;
        let mut names = HashSet::new();
        for model in &catalogue.models {
            model.check()?;
            if !names.insert(&model.name) {
                return Err(model.problem("its name appears twice"));
            }
        }
        Ok(catalogue)
    }

    pub fn models(&self) -> &[CatalogueModel] {
        &self.models
    }

    pub fn get(&self, name: &str) -> Option<&CatalogueModel> {
        self.models.iter().find(|model| model.name.eq_ignore_ascii_case(name))
    }

    /// The one to offer on a fresh machine.
    pub fn default_model(&self) -> Option<&CatalogueModel> {
        self.models.iter().find(|model| model.default).or(self.models.first())
    }
}

impl CatalogueModel {
    /// Of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    fn check(&self) -> Result<(), CatalogueError> {
        names::component(&self.name, "a model's name")?;
        if self.name.starts_with('.') || self.name != self.name.to_lowercase() {
            return Err(self.problem("its name must be lower case and not hidden"));
        }
        if self.files.is_empty() {
            return Err(self.problem("it has no files"));
        }
        self.files.iter().try_for_each(|file| self.check_file(file))
    }

    fn check_file(&self, file: &CatalogueFile) -> Result<(), CatalogueError> {
        names::component(&file.name, "a file's name")?;
        for source in &file.sources {
            match source {
                Source::Hub { hub, file, rev } => {
                    names::repository(hub)?;
                    names::relative(file, "a file of a hub repository")?;
                    names::component(rev, "a revision")?;
                }
                Source::Wheels { wheels } => {
                    for wheel in wheels {
                        names::package(&wheel.package, &wheel.version)?;
                        names::relative(&wheel.member, "a member of a wheel")?;
                    }
                    if wheels.iter().map(|wheel| wheel.bytes).fold(0, u64::saturating_add) != file.bytes {
                        return Err(self.problem("the members of its wheels are not as long as the file"));
                    }
                }
                Source::Path { .. } => {}
            }
        }
        Ok(())
    }

    fn problem(&self, problem: &'static str) -> CatalogueError {
        CatalogueError::Model { model: self.name.clone(), problem }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalogue_is_sound() {
        let catalogue = Catalogue::builtin();
        let names: Vec<_> = catalogue.models().iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]);
        assert_eq!(catalogue.default_model().unwrap().name, "smollm2-135m");
        assert_eq!(catalogue.get("SmolLM2-135M").unwrap().bytes(), 98_362_432);
        for model in catalogue.models() {
            assert!(model.files.iter().all(|file| !file.sources.is_empty()), "{}", model.name);
        }
    }

    #[test]
    fn a_hint_names_a_parser_that_there_is() {
        let with = |hint: &str| {
            Catalogue::parse(&format!(
                "[[models]]\nname = 'm'\ntitle = 't'\ndescription = 'd'\nlicence = 'l'\ncontext = 1\n\
                 parameters = 1\n{hint}\n[[models.files]]\nname = 'f'\nbytes = 3\nsha256 = '{}'\n\
                 sources = [{{ path = '/f' }}]\n",
                "0".repeat(64)
            ))
        };
        let hint = |line| with(line).map(|catalogue| catalogue.models()[0].reasoning);
        assert_eq!(hint("").unwrap(), None);
        assert_eq!(hint("reasoning = 'think'").unwrap(), Some(ReasoningHint::Think));
        assert_eq!(hint("reasoning = 'off'").unwrap(), Some(ReasoningHint::Off));
        assert!(hint("reasoning = 'guess'").unwrap_err().to_string().contains("guess"));
    }

    fn with(name: &str, file: &str, sha256: &str, source: &str) -> Result<Catalogue, CatalogueError> {
        Catalogue::parse(&format!(
            "[[models]]\nname = '{name}'\ntitle = 't'\ndescription = 'd'\nlicence = 'l'\ncontext = 1\n\
             parameters = 1\n[[models.files]]\nname = '{file}'\nbytes = 3\nsha256 = '{sha256}'\n\
             sources = [{source}]\n"
        ))
    }

    // D05 and D06: where they enter.
    #[test]
    fn names_and_digests_that_could_leave_the_folder_are_refused() {
        let sha = "0".repeat(64);
        let hub = "{ hub = 'o/n', file = 'f', rev = 'main' }";
        with("m", "f.gguf", &sha, hub).unwrap();
        for name in ["../m", "a/b", "/m", "..", ".m", "", "C:m", "M"] {
            assert!(with(name, "f.gguf", &sha, hub).is_err(), "{name}");
        }
        for file in ["../f", "a/../../f", "/f", r"..\f", ""] {
            assert!(with("m", file, &sha, hub).is_err(), "{file}");
        }
        for digest in ["", "abc", "sha256:../../x", &format!("../{}", &sha[3..])] {
            assert!(with("m", "f.gguf", digest, hub).is_err(), "{digest}");
        }
        for source in [
            "{ hub = '../x', file = 'f', rev = 'main' }",
            "{ hub = 'o/n', file = '../f', rev = 'main' }",
            "{ hub = 'o/n', file = 'f', rev = '../main' }",
            "{ wheels = [{ package = '--pre', version = '1', member = 'm', bytes = 3 }] }",
            "{ wheels = [{ package = 'p', version = '1', member = 'm', bytes = 2 }] }",
            "{ wheels = [{ package = 'p', version = '1', member = '/m', bytes = 3 }] }",
            "{ hub = 'o/n', file = 'f', rev = 'main', oops = 1 }",
        ] {
            assert!(with("m", "f.gguf", &sha, source).is_err(), "{source}");
        }
    }
}
