use directories::{BaseDirs, ProjectDirs};
use std::path::PathBuf;

/// Where glassbox keeps its files: the XDG folders on Linux, the system's own elsewhere.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Paths {
    /// `$XDG_CONFIG_HOME/glassbox/config.toml`
    pub config: PathBuf,
    /// `$XDG_DATA_HOME/glassbox`
    pub data: PathBuf,
    /// `$XDG_STATE_HOME/glassbox`: the input history.
    pub state: PathBuf,
    /// `$XDG_CACHE_HOME/glassbox`
    pub cache: PathBuf,
}

impl Paths {
    /// `None` when the user has no home folder and no variable names another.
    pub fn find() -> Option<Self> {
        let dirs = ProjectDirs::from("", "", "glassbox")?;
        let state = dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir());
        Some(Self {
            config: dirs.config_dir().join("config.toml"),
            data: dirs.data_dir().to_owned(),
            state: state.to_owned(),
            cache: dirs.cache_dir().to_owned(),
        })
    }

    /// Files of values to start a chat with.
    pub fn presets(&self) -> PathBuf {
        self.config.with_file_name("presets")
    }

    pub fn home() -> Option<PathBuf> {
        BaseDirs::new().map(|dirs| dirs.home_dir().to_owned())
    }
}
