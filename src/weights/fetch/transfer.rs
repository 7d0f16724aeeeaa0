use super::error::{FetchError, Stop};
use super::partial::Partial;
use super::{FetchOptions, Phase, Progress};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a source writes into and reports to: one file on its way.
pub(super) struct Transfer<'a, 'p> {
    pub options: &'a FetchOptions,
    pub partial: &'a mut Partial,
    pub reporter: &'a mut Reporter<'p>,
    /// What the source is doing with the bytes.
    pub phase: Phase,
}

/// Tells the caller how far the whole model is.
pub(super) struct Reporter<'p> {
    pub progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>,
    pub source: Arc<str>,
    /// Bytes of the files before this one, and of all files.
    pub before: u64,
    pub total: u64,
    /// The most of this file that was reported: what is unpacked was downloaded before, and counts once.
    pub highest: u64,
}

impl Reporter<'_> {
    pub fn report(&mut self, phase: Phase, of_this_file: u64) -> Result<(), FetchError> {
        self.highest = self.highest.max(of_this_file);
        let done = (self.before + self.highest).min(self.total);
        let source = Arc::clone(&self.source);
        match (self.progress)(Progress { phase, source, done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(FetchError::Cancelled),
        }
    }
}

impl Transfer<'_, '_> {
    /// Bytes that are here.
    pub fn len(&self) -> u64 {
        self.partial.len()
    }

    pub fn expected_len(&self) -> u64 {
        self.partial.expected_len()
    }

    pub fn is_whole(&self) -> bool {
        self.partial.is_whole()
    }

    pub fn restart(&mut self) -> Result<(), Stop> {
        self.reporter.highest = 0;
        self.partial.restart()
    }

    /// Appends, and reports.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.partial.write(bytes)?;
        self.report_ahead(0)
    }

    /// With bytes that are on this computer but not in the file yet.
    pub fn report_ahead(&mut self, ahead: u64) -> Result<(), Stop> {
        Ok(self.reporter.report(self.phase, self.partial.len() + ahead)?)
    }
}
