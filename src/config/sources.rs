use super::file::{ConfigFile, ModelTable, from_environment, from_file, from_preset};
use super::{ConfigError, Given, Paths, Settings};
use crate::base::{glob, nearest};
use std::path::{Path, PathBuf};

/// Where values may come from, but for the model: read again when a preset or a model is chosen.
#[derive(Clone)]
pub struct Sources {
    pub paths: Option<Paths>,
    flags: Vec<Given>,
}

/// What those said.
#[derive(Clone)]
pub struct Known {
    given: Vec<Given>,
    models: Vec<ModelTable>,
}

/// A file of the presets folder, and what it says or what is wrong with it.
pub struct Preset {
    pub name: String,
    pub path: PathBuf,
    pub given: Result<Vec<Given>, ConfigError>,
}

impl Sources {
    pub fn new(paths: Option<Paths>, flags: Vec<Given>) -> Self {
        Self { paths, flags }
    }

    /// # Errors
    /// A mistake in a file or a variable, or a preset that is not there.
    pub fn read(
        &self,
        preset: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Known, ConfigError> {
        let ConfigFile { mut given, models } = match &self.paths {
            Some(paths) => from_file(&paths.config, &variable)?,
            None => ConfigFile::default(),
        };
        given.extend(from_environment(&variable)?);
        if let Some(name) = preset {
            given.extend(self.preset(name, &variable)?);
        }
        given.extend(self.flags.iter().cloned());
        Ok(Known { given, models })
    }

    /// Every preset, by name.
    pub fn presets(&self, variable: impl Fn(&str) -> Option<String>) -> Vec<Preset> {
        let Some(folder) = self.folder() else { return Vec::new() };
        let preset = |name: String| {
            let path = file_of(&folder, &name);
            Preset { given: from_preset(&path, &name, &variable), name, path }
        };
        names(&folder).into_iter().map(preset).collect()
    }

    /// Writes the file of a preset.
    ///
    /// # Errors
    /// There is one and it may not be written over, it cannot be written, or it could not be read again.
    pub fn save_preset(
        &self,
        name: &str,
        text: &str,
        overwrite: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<PathBuf, String> {
        let folder = self.folder().ok_or("there is no home folder to keep it in")?;
        let path = file_of(&folder, name);
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        if path.exists() && !overwrite {
            return Err(format!("there is {} already; {name}! writes over it", path.display()));
        }
        std::fs::create_dir_all(&folder).map_err(told)?;
        // Whole or not at all, also when the disk is full.
        let mut file = tempfile_in(&folder, name).map_err(told)?;
        std::io::Write::write_all(&mut file.1, text.as_bytes()).map_err(told)?;
        let read = from_preset(&file.0, name, &variable).map_err(|e| e.to_string());
        let moved = read.and_then(|_| std::fs::rename(&file.0, &path).map_err(told));
        if moved.is_err() {
            let _ = std::fs::remove_file(&file.0);
        }
        moved.map(|()| path.clone())
    }

    fn preset(
        &self,
        name: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Given>, ConfigError> {
        let folder = self.folder().unwrap_or_default();
        let known = names(&folder);
        if known.iter().any(|one| one == name) {
            return from_preset(&file_of(&folder, name), name, &variable);
        }
        let hint = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None if known.is_empty() => format!("there is none; {name}.toml would be one"),
            None => format!("known are {}", known.join(", ")),
        };
        let message = format!("no preset {name:?}; {hint}");
        Err(ConfigError { place: folder.display().to_string(), message })
    }

    fn folder(&self) -> Option<PathBuf> {
        self.paths.as_ref().map(Paths::presets)
    }
}

impl Known {
    /// While no model is known.
    pub fn settings(&self) -> Settings {
        Settings::resolve(self.given.clone())
    }

    /// Over `own`, what the model's file brings.
    pub fn settings_for(&self, model: &str, own: Vec<Given>) -> Settings {
        let of_name = self.models.iter().filter(|table| glob(&table.pattern, model));
        let tables = of_name.flat_map(|table| &table.given).cloned();
        Settings::resolve(own.into_iter().chain(tables).chain(self.given.iter().cloned()))
    }
}

/// Beside where it will be.
fn tempfile_in(folder: &Path, name: &str) -> std::io::Result<(PathBuf, std::fs::File)> {
    let path = folder.join(format!(".{name}.{}.new", std::process::id()));
    let file = std::fs::File::create(&path)?;
    Ok((path, file))
}

fn file_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.toml"))
}

/// Of the presets in a folder, sorted; none where there is no folder.
fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let toml = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut names: Vec<String> =
        toml.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Origin;

    struct Home {
        sources: Sources,
        _folder: tempfile::TempDir,
    }

    fn home(files: &[(&str, &str)], flags: &[(&str, &str)]) -> Home {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let here = folder.path().to_owned();
        let paths =
            Paths { config: here.join("config.toml"), data: here.clone(), state: here.clone(), cache: here };
        let flags = flags.iter().map(|(name, text)| Given::new(name, text, Origin::Flag).unwrap());
        Home { sources: Sources::new(Some(paths), flags.collect()), _folder: folder }
    }

    const CONFIG: &str = "[sampling]\ntemperature = 0.1\ntop_k = 11\nmin_p = 0.11\ntop_p = 0.11\n\
        [models.\"*\"]\ntop_k = 12\n[models.\"qwen*\"]\ntop_k = 13\nmin_p = 0.13\ntop_p = 0.13\n\
        system = \"You are Qwen.\"\n[models.\"gemma*\"]\ntop_k = 14\n";

    #[test]
    fn each_source_wins_over_the_one_below() {
        let preset =
            "temperature = 0.4\ntop_p = 0.14\nthink = \"off\"\nsystem = \"\"\"Rhyme.\nAlways.\"\"\"\n";
        let home = home(&[("config.toml", CONFIG), ("presets/poet.toml", preset)], &[("temperature", "0.5")]);
        let env = |name: &str| (name == "GLASSBOX_MIN_P").then(|| "0.3".to_owned());
        let known = home.sources.read(Some("poet"), env).unwrap();
        let own = [("temperature", "0.9"), ("repetition_penalty", "1.2")];
        let own = own.map(|(name, text)| Given::new(name, text, Origin::Model).unwrap()).to_vec();
        let settings = known.settings_for("Qwen2.5-0.5B", own);
        let s = &settings.sampling;
        assert_eq!((s.temperature, s.top_k, s.min_p, s.top_p), (0.5, 13, 0.3, 0.14));
        assert_eq!(s.repetition_penalty, 1.2);
        assert_eq!(settings.options.system.as_deref(), Some("Rhyme.\nAlways."));
        assert_eq!(settings.options.thinking.enabled, Some(false));
        let origin = |name: &str| settings.origin(name).to_string();
        assert_eq!((origin("temperature"), origin("top_p")), ("flag".into(), "preset poet".into()));
        assert_eq!((origin("min_p"), origin("system")), ("GLASSBOX_MIN_P".into(), "preset poet".into()));
        assert!(origin("top_k").ends_with("config.toml:9"), "{}", origin("top_k"));
        assert_eq!((origin("repetition_penalty"), origin("think")), ("model".into(), "preset poet".into()));

        let other = known.settings_for("llama-1b", Vec::new());
        assert_eq!((other.sampling.top_k, other.sampling.top_p), (12, 0.14));
        let none = home.sources.read(None, |_| None).unwrap();
        assert_eq!(none.settings().sampling.top_k, 11);
        assert_eq!(none.settings_for("qwen", Vec::new()).options.system.as_deref(), Some("You are Qwen."));
    }

    #[test]
    fn a_system_prompt_may_lie_in_a_file_beside() {
        let home = home(
            &[
                ("config.toml", "[chat]\nsystem_file = \"house.txt\"\n"),
                ("house.txt", "House rules.\n"),
                ("presets/poet.toml", "system_file = \"poet.md\"\n"),
                ("presets/poet.md", "# Rhyme\nalways\n\n"),
                ("presets/lost.toml", "\nsystem_file = \"nowhere.md\"\n"),
            ],
            &[],
        );
        let system = |preset| {
            let known = home.sources.read(preset, |_| None);
            known.map(|known| known.settings().options.system.unwrap()).map_err(|e| e.to_string())
        };
        assert_eq!(system(None).unwrap(), "House rules.");
        assert_eq!(system(Some("poet")).unwrap(), "# Rhyme\nalways");
        let why = system(Some("lost")).unwrap_err();
        assert!(why.contains("lost.toml:2: ") && why.contains("nowhere.md"), "{why}");
    }

    #[test]
    fn presets_are_listed_with_what_is_wrong_with_them() {
        let home = home(
            &[
                ("presets/poet.toml", "temperature = 1.2\nsystem = \"Rhyme.\"\nstop = [\"END\"]\n"),
                ("presets/bad.toml", "\ntemprature = 1\n"),
                ("presets/notes.txt", "no preset"),
            ],
            &[],
        );
        let presets = home.sources.presets(|_| None);
        assert_eq!(presets.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["bad", "poet"]);
        let why = presets[0].given.as_ref().err().unwrap().to_string();
        assert!(
            why.ends_with("bad.toml:2: unknown key \"temprature\"; did you mean \"temperature\"?"),
            "{why}"
        );
        let given = presets[1].given.as_ref().unwrap();
        let mut shown: Vec<(&str, String)> = given.iter().map(|one| (one.name(), one.text())).collect();
        shown.sort_unstable();
        let wanted = [("stop", "END"), ("system", "Rhyme."), ("temperature", "1.2")];
        assert_eq!(shown, wanted.map(|(name, text)| (name, text.to_owned())));
    }

    #[test]
    fn a_saved_preset_is_read_again_and_never_written_over_unasked() {
        let home = home(&[], &[]);
        let save = |text: &str, over| home.sources.save_preset("poet", text, over, |_| None);
        let path = save("temperature = 1.2\nsystem = \"Cost: $${X}\"\n", false).unwrap();
        assert!(path.ends_with("presets/poet.toml"));
        let known = home.sources.read(Some("poet"), |_| None).unwrap().settings();
        assert_eq!((known.sampling.temperature, known.options.system.as_deref()), (1.2, Some("Cost: ${X}")));
        assert!(save("", false).unwrap_err().contains("already"));
        assert!(save("temprature = 1\n", true).unwrap_err().contains("did you mean"));
        save("temperature = 0.5\n", true).unwrap();
        assert_eq!(home.sources.read(Some("poet"), |_| None).unwrap().settings().sampling.temperature, 0.5);
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1);
    }

    #[test]
    fn an_unknown_preset_is_refused_with_its_neighbour() {
        let why =
            |home: &Home, name: &str| home.sources.read(Some(name), |_| None).err().unwrap().to_string();
        let some = home(&[("presets/poet.toml", ""), ("presets/coder.toml", "")], &[]);
        assert!(why(&some, "poe").ends_with("presets: no preset \"poe\"; did you mean \"poet\"?"));
        assert!(why(&some, "../poet").contains("no preset"));
        assert!(why(&some, "lawyer").ends_with("known are coder, poet"));
        assert!(why(&home(&[], &[]), "x").ends_with("there is none; x.toml would be one"));
    }

    #[test]
    fn a_models_table_is_checked_as_everything_is() {
        for (text, wanted) in [
            ("[models.\"q*\"]\ntop_p = 7", "config.toml:2: top_p must be"),
            ("[models.\"q*\"]\nthreads = 7", "config.toml:2: unknown key \"threads\""),
            ("[models]\nqwen = 7", "config.toml:2: models.\"qwen\" must be a table"),
            ("models = 7", "config.toml:1: models must be a table"),
            ("[model.\"q*\"]\ntop_p = 1", "did you mean \"models\"?"),
        ] {
            let home = home(&[("config.toml", text)], &[]);
            let why = home.sources.read(None, |_| None).err().unwrap().to_string();
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }
}
