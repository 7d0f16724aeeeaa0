//! A device that failed for good: it is closed, and opened again if that may help. Whoever was answered
//! has been told by then, and what the device held is forgotten.

use super::host::Opened;
use super::offload::Offload;
use super::step::{Engine, bounds, cache, lengths};
use crate::config::EngineSettings;
use crate::model::{Closed, DeviceError, ModelLimits};
use std::time::Duration;

/// A device that fails sooner than this after it was opened again stays closed.
const SOON: Duration = Duration::from_secs(60);

/// Whether a lost device is worth opening.
#[derive(Default)]
pub(super) struct Patience {
    /// When it was opened again; `None` while it never was.
    opened_again: Option<Duration>,
    /// An answer has ended well since.
    pub answered: bool,
}

impl Patience {
    pub fn is_left(&self, now: Duration) -> bool {
        self.opened_again.is_none_or(|at| self.answered && now >= at + SOON)
    }

    pub fn opened_again(&mut self, now: Duration) {
        *self = Self { opened_again: Some(now), answered: false };
    }
}

impl Engine {
    /// Why the device was lost in the step before; told once.
    pub fn take_lost(&mut self) -> Option<String> {
        self.lost.take()
    }

    /// The runner goes, with all that it holds on the device; requests end with the reason.
    pub fn close(&mut self, why: String) {
        let limits = self.runner.limits().clone();
        self.runner = Box::new(Closed::new(limits, DeviceError(why)));
        self.runs_ahead = false;
    }

    /// Goes on with another runner of the same model. The one before is closed, and the engine idle.
    pub fn go_on_with(&mut self, settings: &EngineSettings, opened: Opened) {
        if opened.runner.limits() != self.runner.limits() {
            self.fit(settings, opened.runner.limits());
        }
        (self.runner, self.memory) = (opened.runner, opened.memory);
        self.run_ahead();
    }

    /// There may be less memory than there was, or another device.
    fn fit(&mut self, settings: &EngineSettings, limits: &ModelLimits) {
        self.lengths = lengths(settings, limits);
        self.scheduler.bounds = bounds(limits, self.lengths);
        self.output.set_longest(self.lengths.longest());
        // One at a time holds the folder.
        self.offload.flush();
        self.offload = Offload::default();
        self.offload = Offload::new(settings, limits);
        let kv = cache(settings, limits, &self.offload);
        let before = std::mem::replace(&mut self.kv, kv);
        self.kv.count_on(&before);
    }
}
