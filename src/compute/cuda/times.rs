//! How long each kernel of a pass ran, of some passes.

use super::gpu::Gpu;
use crate::compute::{Result, Spent};

/// Which passes are timed, and what the timed ones took.
#[derive(Default)]
pub(super) struct Times {
    /// One pass of so many; `None` where nobody looks.
    every: Option<u32>,
    passes: u32,
    /// The newest pass is timed.
    taking: bool,
    /// Its logits are still to come.
    logits: bool,
    spent: Vec<Spent>,
}

impl Times {
    pub(super) fn sample(&mut self, every: u32) {
        self.every = Some(every.max(1));
    }

    /// A pass begins; `logits` will follow it, or not. Says whether it is timed.
    pub(super) fn begin(&mut self, gpu: &Gpu, logits: bool) -> Result<bool> {
        self.collect(gpu)?;
        let Some(every) = self.every else { return Ok(false) };
        // In the middle of each stretch: the first pass of all is like no other.
        self.taking = self.passes % every == every / 2;
        self.passes = self.passes.wrapping_add(1);
        if self.taking {
            self.logits = logits;
            gpu.take_times();
        }
        Ok(self.taking)
    }

    /// Everything of the pass is done.
    pub(super) fn logits_are_there(&mut self) {
        self.logits = false;
    }

    /// What was spent since this was last asked. A pass whose logits are not made yet comes next time.
    pub(super) fn take(&mut self, gpu: &Gpu) -> Vec<Spent> {
        // Times that cannot be read are none; that the device failed is heard of elsewhere.
        if !self.logits && self.collect(gpu).is_err() {
            self.spent.clear();
        }
        std::mem::take(&mut self.spent)
    }

    fn collect(&mut self, gpu: &Gpu) -> Result<()> {
        if !std::mem::take(&mut self.taking) {
            return Ok(());
        }
        for (name, time, work) in gpu.times()? {
            match self.spent.iter_mut().find(|spent| spent.name == name) {
                None => self.spent.push(Spent { name, calls: 1, time, work }),
                Some(spent) => {
                    (spent.calls, spent.time) = (spent.calls + 1, spent.time + time);
                    spent.work += work;
                }
            }
        }
        Ok(())
    }
}
