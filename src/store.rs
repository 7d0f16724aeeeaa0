//! The models that this computer has or can get, for every front end. Part of the wiring, as `launch`
//! is: the reports know nothing of catalogues, and the catalogue nothing of reports.

use crate::base::Memory;
use crate::card::file_card;
use crate::config::{self, EngineSettings, Options, Sources};
use crate::launch::{origins, variable};
use crate::open;
use crate::protocol::Handle;
use crate::script::{self, ModelCard, ModelDir, ModelRow, Progress, Quit, Status, TensorRow};
use crate::trace::{self, Recording, ReplayOptions, TraceError};
use crate::tui::{FetchEvent, MemoryNeed, ModelChoice, Models, PresetChoice, StartSettings};
use crate::weights::{
    self, BadName, Catalogue, CatalogueModel, Checkpoint, FetchError, FetchOptions, Found, Listed, ModelDirs,
    NotFound, Origin, Phase, Repository, Source, Summary,
};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Keys and values are kept in 16 bits.
pub const KV_BYTES_PER_VALUE: u64 = 2;

#[derive(Clone, Debug)]
pub struct Store {
    pub catalogue: Arc<Catalogue>,
    pub dirs: ModelDirs,
    pub offline: bool,
    /// What runs when no model is named.
    pub default: String,
}

/// What to do about a model of the catalogue that is not on this computer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    Fetch,
    /// Ask the person, if there is one at a terminal.
    Ask,
    Refuse,
}

impl Store {
    pub fn new(options: &Options) -> Self {
        let mut dirs = ModelDirs::from_env();
        if let Some(root) = &options.models {
            dirs.root.clone_from(root);
        }
        Self {
            catalogue: Arc::new(Catalogue::builtin()),
            dirs,
            offline: options.offline,
            default: options.model.clone(),
        }
    }

    pub fn find(&self, wanted: &str) -> Result<Found, NotFound> {
        weights::find(wanted, &self.dirs, &self.catalogue)
    }

    /// Names a person may mean by one word: those of the catalogue, and `word` itself if it is found.
    pub fn names(&self, word: Option<&str>) -> Vec<String> {
        let catalogue = self.catalogue.models().iter().map(|model| model.name.clone());
        catalogue.chain(word.filter(|word| self.find(word).is_ok()).map(str::to_owned)).collect()
    }

    /// The model's file, fetched first if that is wanted.
    pub fn obtain(&self, wanted: &str, if_missing: IfMissing, quiet: bool) -> Result<Found, Quit> {
        let missing = match self.find(wanted) {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        if let Some(repository) = Repository::parse(wanted) {
            let bad = |why: BadName| Quit::new(Status::Usage, why.to_string());
            return self.obtain_repository(&repository.map_err(bad)?, missing, if_missing, quiet);
        }
        let Some(model) = missing.known.as_deref().and_then(|name| self.catalogue.get(name)) else {
            return Err(Quit::new(Status::NoModel, missing.to_string())
                .advise("glassbox models ls lists what there is; a .gguf file can be named by its path"));
        };
        let fetch = match if_missing {
            IfMissing::Fetch => true,
            IfMissing::Ask => !self.offline && ask(model, &self.dirs).unwrap_or(false),
            IfMissing::Refuse => false,
        };
        if !fetch {
            return Err(Quit::new(Status::NoModel, format!("{} is not on this computer", model.name))
                .advise(format!(
                    "glassbox models pull {} fetches it; --yes does so on the way",
                    model.name
                )));
        }
        let path = self.fetch(model, quiet)?;
        Ok(Found { name: model.name.clone(), path, origin: Origin::Catalogue, reasoning: model.reasoning })
    }

    /// A repository of a hub. How large it is, only the hub knows.
    fn obtain_repository(
        &self,
        wanted: &Repository,
        missing: NotFound,
        if_missing: IfMissing,
        quiet: bool,
    ) -> Result<Found, Quit> {
        let fetch = match if_missing {
            IfMissing::Fetch => true,
            IfMissing::Ask => {
                let question = format!("{} is not here. Fetch it from the hub?", wanted.name);
                !self.offline && agreed(&question).unwrap_or(false)
            }
            IfMissing::Refuse => false,
        };
        if !fetch {
            return Err(Quit::new(Status::NoModel, missing.to_string()).advise(format!(
                "glassbox models pull {} fetches it; --yes does so on the way",
                missing.wanted
            )));
        }
        let (store, repository) = (self.clone(), wanted.clone());
        let path = fetching(&wanted.name, quiet, move |progress| {
            let options = FetchOptions { offline: store.offline, ..FetchOptions::from_env() };
            weights::fetch_repository(&repository, &store.dirs, &options, progress)
        })?;
        let name = missing.wanted.strip_prefix("hf:").unwrap_or(&missing.wanted).to_owned();
        Ok(Found { name, path, origin: Origin::HubCache, reasoning: None })
    }

    /// Fetches a model of the catalogue or a repository of a hub, and shows how it goes.
    pub fn pull(&self, wanted: &str, quiet: bool) -> Result<(String, PathBuf, bool), Quit> {
        match self.find(wanted) {
            Ok(found) => Ok((found.name, found.path, false)),
            Err(_) => {
                self.obtain(wanted, IfMissing::Fetch, quiet).map(|found| (found.name, found.path, true))
            }
        }
    }

    pub fn remove(&self, wanted: &str) -> Result<(String, PathBuf), Quit> {
        let model = self.catalogue.get(wanted).ok_or_else(|| {
            Quit::new(Status::NoModel, format!("{wanted:?} is not a model of the catalogue"))
                .advise("only fetched models are deleted; glassbox models ls lists them")
        })?;
        let folder = self.dirs.root.join(&model.name);
        match weights::remove(model, &self.dirs) {
            Ok(_) => Ok((model.name.clone(), folder)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Quit::new(Status::NoModel, format!("{} was not fetched", model.name)))
            }
            Err(e) => Err(Quit::new(Status::Failed, format!("cannot delete {}: {e}", folder.display()))),
        }
    }

    pub fn rows(&self) -> Vec<ModelRow> {
        weights::list(&self.dirs, &self.catalogue).into_iter().map(|listed| self.row(listed)).collect()
    }

    /// How many models each of the folders holds.
    pub fn folders(&self) -> Vec<ModelDir> {
        let rows = self.rows();
        let folder = |path: &PathBuf| ModelDir {
            path: path.clone(),
            exists: path.is_dir(),
            models: rows.iter().filter(|row| row.path.as_ref().is_some_and(|p| p.starts_with(path))).count(),
        };
        [&self.dirs.root].into_iter().chain(&self.dirs.hub_cache).map(folder).collect()
    }

    pub fn card(&self, wanted: &str, settings: &EngineSettings) -> Result<ModelCard, Quit> {
        let found = self.find(wanted);
        let name = match &found {
            Ok(found) => found.name.clone(),
            Err(missing) => match &missing.known {
                Some(known) => known.clone(),
                None => return Err(Quit::new(Status::NoModel, missing.to_string())),
            },
        };
        let model = self.catalogue.get(&name);
        let listed =
            weights::list(&self.dirs, &self.catalogue).into_iter().find(|listed| listed.name == name);
        let mut row = listed.map(|listed| self.row(listed)).unwrap_or_default();
        row.name = name;
        let mut card = ModelCard { row, sources: model.map(sources).unwrap_or_default(), file: None };
        let Ok(found) = found else { return Ok(card) };
        let file = Checkpoint::inspect(&found.path).map_err(|e| Quit::new(Status::NoModel, e.to_string()))?;
        let summary = Summary::of(&file).map_err(|e| Quit::new(Status::NoModel, e.to_string()))?;
        card.file = Some(file_card(&file, &summary, &card.row.name, settings));
        let row = &mut card.row;
        row.present = true;
        row.path = Some(found.path);
        row.bytes = summary.file_bytes;
        row.parameters = Some(summary.parameters);
        row.architecture = Some(summary.architecture);
        row.quantization = Some(summary.quantization);
        row.context = summary.context.or(row.context);
        if row.licence.is_empty() {
            row.licence = summary.licence.unwrap_or_default();
        }
        Ok(card)
    }

    /// `progress` is called often and stops the fetch with `Break`.
    pub fn fetch_with(
        &self,
        model: &CatalogueModel,
        progress: &mut dyn FnMut(weights::Progress) -> ControlFlow<()>,
    ) -> Result<PathBuf, FetchError> {
        let options = FetchOptions { offline: self.offline, ..FetchOptions::from_env() };
        weights::fetch(model, &self.dirs, &options, progress)
    }

    fn fetch(&self, model: &CatalogueModel, quiet: bool) -> Result<PathBuf, Quit> {
        if !quiet && !self.offline && !io::stderr().is_terminal() {
            eprintln!("fetching {} ({:.1} MB, {})", model.name, model.bytes() as f64 / 1e6, model.licence);
        }
        let (store, wanted) = (self.clone(), model.clone());
        fetching(&model.name, quiet, move |progress| store.fetch_with(&wanted, progress))
    }

    fn row(&self, listed: Listed) -> ModelRow {
        let model = self.catalogue.get(&listed.name);
        ModelRow {
            description: model.map(|m| m.description.clone()).or(listed.title).unwrap_or_default(),
            licence: listed.licence.unwrap_or_default(),
            bytes: listed.bytes,
            fetched_bytes: listed.fetched_bytes,
            architecture: listed.architecture,
            quantization: listed.quantization,
            parameters: listed.parameters,
            context: listed.context,
            present: listed.path.is_some() && listed.problem.is_none(),
            path: listed.path,
            problem: listed.problem,
            default: listed.name == self.default,
            name: listed.name,
        }
    }
}

/// Runs a fetch, with a bar unless `quiet`, until it ends or a signal says so.
fn fetching(
    name: &str,
    quiet: bool,
    fetch: impl FnOnce(&mut dyn FnMut(weights::Progress) -> ControlFlow<()>) -> Result<PathBuf, FetchError>
    + Send
    + 'static,
) -> Result<PathBuf, Quit> {
    let bar = if quiet { Progress::hidden() } else { Progress::bytes(name) };
    bar.keep_drawing();
    let name = name.to_owned();
    let ended = script::unless_signalled(move |stop| {
        fetch(&mut |progress| {
            bar.say(&format!("{} {name} from {}", phase(progress.phase), progress.source));
            bar.set(progress.done, progress.total);
            match stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    })?;
    match ended {
        Ok(fetched) => fetched.map_err(|error| {
            let status = match error {
                FetchError::AllFailed { .. } => Status::NoModel,
                _ => Status::Failed,
            };
            Quit::new(status, error.to_string())
        }),
        Err(signal) => Err(Quit::new(signal.into(), FetchError::Cancelled.to_string())),
    }
}

/// Every tensor of a file, also those in formats that glassbox cannot compute with.
pub fn tensor_rows(file: &Checkpoint) -> Vec<TensorRow> {
    let shape = |dims: &[usize]| dims.iter().map(|dim| *dim as u64).collect();
    let known = file.tensors().map(|tensor| TensorRow {
        name: tensor.name.clone(),
        format: tensor.format.name().to_owned(),
        shape: shape(&tensor.dims),
        bytes: tensor.bytes as u64,
    });
    let others = file.unsupported().iter().map(|tensor| TensorRow {
        name: tensor.name.clone(),
        format: tensor.format.to_owned(),
        shape: shape(&tensor.dims),
        bytes: tensor.bytes as u64,
    });
    known.chain(others).collect()
}

fn sources(model: &CatalogueModel) -> Vec<String> {
    let describe = |source: &Source| match source {
        Source::Hub { hub, file, .. } => format!("hub {hub}/{file}"),
        Source::Wheels { wheels } => {
            let names: Vec<String> = wheels.iter().map(|w| format!("{} {}", w.package, w.version)).collect();
            format!("Python packages {}", names.join(", "))
        }
        Source::Path { path } => path.display().to_string(),
    };
    model.files.iter().flat_map(|file| &file.sources).map(describe).collect()
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting for another fetch of",
        Phase::Checking => "checking what is here of",
        Phase::Downloading => "fetching",
        Phase::Unpacking => "unpacking",
    }
}

/// Only at a terminal: a script gets an exit status, never a question.
fn ask(model: &CatalogueModel, dirs: &ModelDirs) -> io::Result<bool> {
    let (name, megabytes) = (&model.name, model.bytes() as f64 / 1e6);
    let target = dirs.root.join(name);
    agreed(&format!(
        "{name} is not here. Fetch {megabytes:.1} MB ({}) to {}?",
        model.licence,
        target.display()
    ))
}

/// Yes, from a person at a terminal.
fn agreed(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let mut err = io::stderr();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The store as the screen uses it.
pub struct ScreenModels {
    store: Store,
    /// For another preset or model.
    sources: Sources,
    chat_template: Option<String>,
    settings: EngineSettings,
    cancel: Arc<AtomicBool>,
    traces: Option<Traces>,
}

impl ScreenModels {
    pub fn new(
        store: Store,
        sources: Sources,
        chat_template: Option<String>,
        settings: EngineSettings,
    ) -> Self {
        Self { store, sources, chat_template, settings, cancel: Arc::default(), traces: None }
    }

    /// Records every model that is opened.
    pub fn traced(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }
}

/// The recordings of a screen. Each model has its own file: the one named, then `-2`, `-3` before its
/// extension.
pub struct Traces {
    path: PathBuf,
    /// Made before the screen opens, so that a wrong name is told at once.
    first: Option<File>,
    recordings: Vec<Recording>,
}

impl Traces {
    /// # Errors
    /// The file cannot be made.
    pub fn to(path: &Path) -> io::Result<Self> {
        let first = Some(trace::create(path)?);
        Ok(Self { path: path.to_owned(), first, recordings: Vec::new() })
    }

    fn record(&mut self, handle: Handle) -> Result<Handle, String> {
        let file = match self.first.take() {
            Some(file) => file,
            None => {
                let path = self.path_of(self.recordings.len() + 1);
                trace::create(&path).map_err(|e| format!("{}: {e}", path.display()))?
            }
        };
        let (handle, recording) = trace::record(handle, file);
        self.recordings.push(recording);
        Ok(handle)
    }

    fn path_of(&self, nth: usize) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let name = match self.path.extension() {
            Some(extension) => format!("{stem}-{nth}.{}", extension.to_string_lossy()),
            None => format!("{stem}-{nth}"),
        };
        self.path.with_file_name(name)
    }
}

/// A recording in the place of all models.
pub struct ReplayModels {
    path: PathBuf,
    options: ReplayOptions,
    /// Opened before the screen, so that a file that is no trace is told at once.
    first: Option<Handle>,
}

impl ReplayModels {
    /// # Errors
    /// The file cannot be read, or is no trace.
    pub fn open(path: &Path, options: ReplayOptions) -> Result<Self, TraceError> {
        let first = Some(trace::open(path, options)?);
        Ok(Self { path: path.to_owned(), options, first })
    }
}

impl Models for ReplayModels {
    fn list(&mut self) -> Vec<ModelChoice> {
        Vec::new()
    }

    fn fetch(&mut self, _name: &str) -> UnboundedReceiver<FetchEvent> {
        let (events, receiver) = unbounded_channel();
        // The receiver is right here.
        let _ = events.send(FetchEvent::Failed("a replay fetches no models".into()));
        receiver
    }

    fn cancel_fetch(&mut self) {}

    fn open(&mut self, name: &str) -> Result<Handle, String> {
        match self.first.take() {
            Some(first) => Ok(first),
            None if Path::new(name) == self.path => {
                trace::open(&self.path, self.options).map_err(|e| e.to_string())
            }
            None => Err("a replay opens no models".into()),
        }
    }
}

impl Models for ScreenModels {
    fn list(&mut self) -> Vec<ModelChoice> {
        let root = self.store.dirs.root.clone();
        let needs = open::Needs::new(&self.settings);
        let free = Memory::now().available;
        let free = free.map(|bytes| (bytes as f64 * f64::from(self.settings.memory_utilization)) as u64);
        let choice = |row: ModelRow| ModelChoice {
            need: need(&row, &needs, free),
            target: row.path.unwrap_or_else(|| root.join(&row.name)).display().to_string(),
            on_disk: row.present,
            is_default: row.default,
            context: row.context.unwrap_or(0) as usize,
            name: row.name,
            description: row.description,
            bytes: row.bytes,
            licence: row.licence,
        };
        self.store.rows().into_iter().map(choice).collect()
    }

    fn fetch(&mut self, name: &str) -> UnboundedReceiver<FetchEvent> {
        let (events, receiver) = unbounded_channel();
        self.cancel = Arc::default();
        let (store, cancel, name) = (self.store.clone(), self.cancel.clone(), name.to_owned());
        std::thread::spawn(move || {
            // The screen may be gone: then nobody is left to be told.
            let _ = events.send(fetch(&store, &name, &cancel, &events));
        });
        receiver
    }

    fn cancel_fetch(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    fn open(&mut self, name_or_path: &str) -> Result<Handle, String> {
        let found = self.store.find(name_or_path).map_err(|missing| missing.to_string())?;
        let handle = open::engine(&found, None, self.chat_template.clone(), self.settings.clone());
        match &mut self.traces {
            Some(traces) => traces.record(handle),
            None => Ok(handle),
        }
    }

    fn presets(&mut self) -> Vec<PresetChoice> {
        self.sources.presets(variable).into_iter().map(preset_choice).collect()
    }

    fn start_settings(&mut self, model: Option<&str>, preset: Option<&str>) -> Result<StartSettings, String> {
        let known = self.sources.read(preset, variable).map_err(|e| e.to_string())?;
        let settings = match model {
            None => known.settings(),
            Some(model) => {
                let found = self.store.find(model).ok();
                let file = found.as_ref().and_then(|found| Checkpoint::inspect(&found.path).ok());
                let name = found.map_or_else(|| model.to_owned(), |found| found.name);
                let own = file.map(|file| open::generation_settings(&file)).unwrap_or_default();
                known.settings_for(&name, own)
            }
        };
        Ok(StartSettings {
            origins: origins(&settings),
            system: settings.options.system,
            params: settings.sampling,
            thinking: settings.options.thinking,
        })
    }

    fn save_preset(&mut self, name: &str, text: &str, overwrite: bool) -> Result<String, String> {
        self.sources.save_preset(name, text, overwrite, variable).map(|path| path.display().to_string())
    }
}

/// From the file where it is here; or else about what a file of its size takes.
fn need(row: &ModelRow, needs: &open::Needs, free: Option<u64>) -> Option<MemoryNeed> {
    match row.path.as_deref().filter(|_| row.present) {
        Some(path) => {
            let (bytes, context) = needs.of(path)?;
            Some(MemoryNeed { bytes, context: Some(context), free })
        }
        None if row.bytes > 0 => Some(MemoryNeed {
            bytes: row.bytes + LEAST_BESIDE_WEIGHTS.max(row.bytes / 8),
            context: None,
            free,
        }),
        None => None,
    }
}

/// Workspace and a short KV cache of a small model.
const LEAST_BESIDE_WEIGHTS: u64 = 80 << 20;

fn preset_choice(preset: config::Preset) -> PresetChoice {
    let path = preset.path.display().to_string();
    let choice = PresetChoice { name: preset.name, path, ..PresetChoice::default() };
    match preset.given {
        Err(e) => PresetChoice { problem: Some(e.to_string()), ..choice },
        Ok(given) => {
            let (system, values): (Vec<_>, Vec<_>) = given
                .iter()
                .map(|one| (one.name().to_owned(), one.text()))
                .partition(|(name, _)| name == "system");
            PresetChoice { system: system.into_iter().next().map(|(_, text)| text), values, ..choice }
        }
    }
}

fn fetch(store: &Store, name: &str, cancel: &AtomicBool, events: &UnboundedSender<FetchEvent>) -> FetchEvent {
    let Some(model) = store.catalogue.get(name) else {
        return FetchEvent::Failed(format!("{name} is not a model of the catalogue"));
    };
    let fetched = store.fetch_with(model, &mut |progress| {
        let event = FetchEvent::Progress {
            done: progress.done,
            total: progress.total,
            source: progress.source.to_string(),
        };
        match cancel.load(Ordering::Relaxed) || events.send(event).is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match fetched {
        Ok(path) => FetchEvent::Done { path: path.display().to_string() },
        Err(FetchError::Cancelled) => FetchEvent::Cancelled,
        Err(error) => FetchEvent::Failed(error.to_string()),
    }
}
