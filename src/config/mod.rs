//! What the user typed, the environment and the config file, read once into [`Settings`].
//!
//! - `cli`, `flags`, `sampling_flags`: the command line as clap reads it
//! - `guided`: what an answer must be
//! - `compared`: what `bench speed --compare` changes
//! - `file`: config.toml, presets and the `GLASSBOX_*` variables
//! - `sources`: all of those together, to be read again for another preset or model
//! - `resolve`: those laid over one another, each value with its [`Origin`]
//! - `options`, `settings`: what comes out
//! - `paths`: where files live

mod cli;
mod compared;
mod file;
mod flags;
mod guided;
mod options;
mod paths;
mod resolve;
mod sampling_flags;
mod settings;
mod sources;

pub use cli::{
    Against, BenchCommand, Cli, Command, DoctorArgs, ExportArgs, GpuArgs, GrammarArgs, InspectCommand,
    LogitsArgs, ModelsCommand, PrefixArgs, QuantizeArgs, ReplayArgs, ScoreArgs, ScreenArgs, SessionsCommand,
    SpeedArgs, TemplateArgs, TokenizeArgs, Ui,
};
pub use compared::{Compared, Comparison};
pub use file::ConfigError;
pub use flags::{EngineFlags, Format, PromptFlags, RunArgs, RunTools, ShowReasoning, UiFlags};
pub use guided::{GrammarFlags, GuidedFlags};
pub use options::{Background, Notify, Options, SETTINGS, SettingSpec, parse_bytes};
pub use paths::Paths;
pub use resolve::{Given, Origin, SettingRow, Settings};
pub use sampling_flags::SamplingFlags;
pub use settings::{Device, EngineSettings, INSTRUCTION_SETS};
pub use sources::{Known, Preset, Sources};
