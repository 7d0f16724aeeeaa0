use crate::base::visible;
use crate::protocol::{Failure, FailureKind};
use std::io::{self, Write};

/// How a command ended; the numbers follow sysexits.h and the shell's 128 + signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done = 0,
    Failed = 1,
    /// Wrong flags or values.
    Usage = 2,
    /// The prompt does not fit, is not text, or the template refused it.
    Data = 65,
    /// An input file is missing.
    NoInput = 66,
    /// Memory or queue is full: try again later.
    Busy = 75,
    /// The model is not here, or cannot be used.
    NoModel = 77,
    /// Ctrl-C.
    Interrupted = 130,
    /// SIGTERM.
    Terminated = 143,
}

impl From<Status> for std::process::ExitCode {
    fn from(status: Status) -> Self {
        (status as u8).into()
    }
}

impl From<FailureKind> for Status {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::BadRequest => Status::Usage,
            FailureKind::TooLong | FailureKind::Grammar | FailureKind::Template => Status::Data,
            FailureKind::Busy => Status::Busy,
            FailureKind::Model => Status::NoModel,
            FailureKind::Internal => Status::Failed,
        }
    }
}

/// Why a command ends without its result, and what can be done about it.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Quit {
    pub status: Status,
    pub message: String,
    pub advice: Option<String>,
}

impl Quit {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), advice: None }
    }

    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// `error: …` and, on a line of its own, the advice. Names and texts from files may be in it.
    pub fn print(&self, err: &mut impl Write) -> io::Result<()> {
        writeln!(err, "error: {}", visible(&self.message))?;
        self.advice.iter().try_for_each(|advice| writeln!(err, "  tip: {}", visible(advice)))
    }
}

impl From<Failure> for Quit {
    fn from(failure: Failure) -> Self {
        Quit::new(failure.kind.into(), failure.message)
    }
}

/// A report was written, or its reader went away, which is no error: `glassbox models ls | head -1`.
pub fn written(result: io::Result<()>) -> Result<Status, Quit> {
    match result {
        Ok(()) => Ok(Status::Done),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Done),
        Err(e) => Err(Quit::new(Status::Failed, format!("cannot write to stdout: {e}"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_from_a_file_cannot_drive_the_terminal() {
        let mut out = Vec::new();
        Quit::new(Status::Data, "template: \x1b]0;pwned\x07").advise("do \x1bc").print(&mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said, "error: template: \\x1b]0;pwned\\x07\n  tip: do \\x1bc\n");
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
        assert_eq!(written(Err(io::ErrorKind::BrokenPipe.into())), Ok(Status::Done));
        assert_eq!(written(Err(io::ErrorKind::StorageFull.into())).unwrap_err().status, Status::Failed);
    }
}
