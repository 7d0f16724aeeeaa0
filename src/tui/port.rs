use super::sessions::SessionOptions;
use crate::config::{Background, Notify};
use crate::protocol::{Handle, SamplingParams, SchedulerSettings, Thinking};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc::UnboundedReceiver;

/// A model the person may choose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelChoice {
    pub name: String,
    pub description: String,
    /// Of the file.
    pub bytes: u64,
    pub licence: String,
    /// Where the file is, or will be.
    pub target: String,
    pub on_disk: bool,
    pub is_default: bool,
    /// Longest prompt plus answer it was trained for, in tokens.
    pub context: usize,
    /// Of memory; `None` where nobody knows.
    pub need: Option<MemoryNeed>,
}

/// What a model takes of memory, to be told before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights, workspace, and keys and values of a chat of `context` tokens.
    pub bytes: u64,
    /// `None`: the file is not here yet, and its size is all that is known.
    pub context: Option<usize>,
    /// That a model may have now; `None` where the system does not say.
    pub free: Option<u64>,
}

impl MemoryNeed {
    /// `None` where nobody knows.
    pub fn fits(&self) -> Option<bool> {
        self.free.map(|free| self.bytes <= free)
    }

    /// `needs 2.9 GB, 1.1 GB free: does not fit`
    pub fn line(&self) -> String {
        let about = if self.context.is_none() { "about " } else { "" };
        let needs = format!("needs {about}{}", bytes(self.bytes));
        match (self.free, self.fits()) {
            (Some(free), Some(true)) => format!("{needs}, {} free: fits", bytes(free)),
            (Some(free), _) => format!("{needs}, {} free: does not fit", bytes(free)),
            (None, _) => needs,
        }
    }
}

fn bytes(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{:.1} GB", count as f64 / 1e9),
        _ => format!("{:.0} MB", count as f64 / 1e6),
    }
}

/// A preset as the person may choose it: a file `NAME.toml` in the presets folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PresetChoice {
    pub name: String,
    pub path: String,
    pub system: Option<String>,
    /// What it sets, by the names of `/set`; `think` is among them.
    pub values: Vec<(String, String)>,
    /// Why it cannot be used, with its line.
    pub problem: Option<String>,
}

/// What a chat starts with, every source laid over the one below it: flag > preset > `GLASSBOX_*` >
/// the model's table of the config file > the file's `[sampling]` > the model's own settings > built-in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartSettings {
    pub system: Option<String>,
    pub params: SamplingParams,
    pub thinking: Thinking,
    /// Where values are from, by name, `system` and `think` among them; built-in ones are left out.
    /// `flag`, `preset poet`, `/home/ada/.config/glassbox/config.toml:12`, `GLASSBOX_TOP_K`, `model`.
    pub origins: BTreeMap<&'static str, String>,
}

/// How a download goes. `Done`, `Failed` or `Cancelled` comes last, and once.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent {
    Progress { done: u64, total: u64, source: String },
    Done { path: String },
    Failed(String),
    Cancelled,
}

/// What the screen needs of model management, which lives outside it.
pub trait Models: Send {
    /// The catalogue and what else is on disk, the catalogue's default among them.
    fn list(&mut self) -> Vec<ModelChoice>;

    /// Starts fetching in the background. Calling it for what is partly there resumes.
    fn fetch(&mut self, name: &str) -> UnboundedReceiver<FetchEvent>;

    fn cancel_fetch(&mut self);

    /// Returns at once; the model loads in the background and reports with
    /// [`Event::Loading`](crate::protocol::Event::Loading), `Ready` or `LoadFailed`.
    ///
    /// # Errors
    /// No such model or file.
    fn open(&mut self, name_or_path: &str) -> Result<Handle, String>;

    /// Every preset there is, by name; looked up anew.
    fn presets(&mut self) -> Vec<PresetChoice> {
        Vec::new()
    }

    /// What a chat with this model and this preset starts with, the files read anew. For a change of the
    /// model as well as of the preset; what was set in the session stays over it, as the screen knows.
    ///
    /// # Errors
    /// No such preset (with the nearest name), or a mistake in a file with its line.
    fn start_settings(
        &mut self,
        _model: Option<&str>,
        _preset: Option<&str>,
    ) -> Result<StartSettings, String> {
        Err("there are no presets here".into())
    }

    /// Writes a preset's file and says where it is.
    ///
    /// # Errors
    /// There is one of that name and it may not be written over, or the file cannot be written.
    fn save_preset(&mut self, _name: &str, _text: &str, _overwrite: bool) -> Result<String, String> {
        Err("there are no presets here".into())
    }
}

/// What the person chose before the screen opened.
#[derive(Clone, Debug, Default)]
pub struct ScreenOptions {
    /// Catalogue name or path; `None` opens what is at hand, or offers the default.
    pub model: Option<String>,
    pub system: Option<String>,
    /// The preset that the values below are from, where one was named.
    pub preset: Option<String>,
    pub params: SamplingParams,
    pub thinking: Thinking,
    pub scheduler: SchedulerSettings,
    pub sessions: SessionOptions,
    /// Where the start's values are from, by name; built-in ones are left out.
    pub origins: BTreeMap<&'static str, String>,
    /// A built-in theme, or a file's stem in `themes`.
    pub theme: Option<String>,
    pub themes: Option<PathBuf>,
    /// A few lines at the end of the terminal's own screen, and no panels.
    pub inline: bool,
    pub background: Background,
    /// Draw with ASCII characters only.
    pub ascii: bool,
    /// Leave the mouse to the terminal.
    pub no_mouse: bool,
    /// Nothing flashes, and the picture changes at most five times a second while answers stream.
    pub reduced_motion: bool,
    /// How the end of a long answer is told to someone who looks elsewhere.
    pub notify: Notify,
    /// Leave the terminal's title alone.
    pub no_title: bool,
    /// Where layouts and the chosen theme are kept; `None` keeps them for this session only.
    pub layout: Option<PathBuf>,
    /// The person's own keys.
    pub keymap: Option<PathBuf>,
    /// No colour, whatever the environment says; `NO_COLOR` is obeyed without it.
    pub no_color: bool,
    /// Where earlier inputs are kept; `None` keeps them for this session only.
    pub history: Option<PathBuf>,
    /// Answers with tool calls in a row; `None` is the built-in limit.
    pub tool_rounds: Option<u32>,
    /// Fetch a missing model without being told to.
    pub fetch_without_asking: bool,
}

/// Why the screen closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Quit,
    /// SIGINT, SIGTERM or SIGHUP, by number; the exit status is 128 more.
    Signal(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said_with_both_numbers() {
        let need = |bytes, context, free| MemoryNeed { bytes, context, free }.line();
        assert_eq!(
            need(2_900_000_000, Some(2048), Some(1_100_000_000)),
            "needs 2.9 GB, 1.1 GB free: does not fit"
        );
        assert_eq!(need(180_000_000, None, Some(1_100_000_000)), "needs about 180 MB, 1.1 GB free: fits");
        assert_eq!(need(180_000_000, Some(64), None), "needs 180 MB");
    }
}
