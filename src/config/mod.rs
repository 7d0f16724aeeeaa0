//! What the user typed and the config file, read once into settings.

mod settings;

pub use settings::EngineSettings;
