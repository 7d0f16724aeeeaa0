//! Passes that look like one before are queued as one graph.
//!
//! Decode steps of the same bucket differ in numbers only, and those lie in the step's words. The second
//! pass of a bucket is recorded and the third recorded once more together with its logits and draws;
//! from then on the operations are walked through without launching anything, held against the recorded
//! ones, and one graph is queued. It waits for the logits to be asked for; whoever wants the pass to run
//! meanwhile says [`Passes::start`].

use super::gpu::{Gpu, Graph};
use crate::compute::{DeviceError, Result};
use std::collections::HashMap;

/// What the launches of a decode pass depend on: everything else is in the step's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Rows, rounded up to a bucket.
    pub rows: usize,
}

/// Buckets of rows; larger passes are not recorded.
const BUCKETS: [usize; 15] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256];

/// The bucket of so many rows that a buffer of `most` has room for.
pub fn bucket(rows: usize, most: usize) -> Option<usize> {
    BUCKETS.into_iter().find(|bucket| *bucket >= rows).filter(|bucket| *bucket <= most)
}

/// Recorded passes at most; then all are forgotten.
const MOST_GRAPHS: usize = 256;
/// A pass that did not wait for its logits when it was recorded with them gets another chance after so
/// many.
const RETRY: u32 = 256;

#[derive(Default)]
pub struct Passes {
    phase: Phase,
    seen: HashMap<Key, Seen>,
    graphs: usize,
}

#[derive(Default)]
struct Seen {
    times: u32,
    pass: Option<Graph>,
    /// With logits and draws of these kinds.
    whole: Vec<(Logits, Graph)>,
    /// Its logits came too late to be recorded with it, at this time.
    alone: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Launches are queued as they come.
    Eager,
    Recording {
        key: Key,
        /// With its logits.
        whole: bool,
    },
    Replaying(Key),
    /// Ended and not queued. `open`: still being recorded.
    Waiting {
        key: Key,
        open: bool,
    },
    Logits {
        key: Key,
        open: bool,
        of: Logits,
    },
}

/// What the launches for logits and draws depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logits {
    /// Padded.
    pub rows: usize,
    pub draws: super::draw::Passes,
}

impl Passes {
    /// Addresses have changed: no graph is right any more.
    pub fn forget(&mut self) {
        self.seen.clear();
        self.graphs = 0;
    }

    pub fn begin(&mut self, gpu: &Gpu, key: Option<Key>) -> Result<()> {
        self.start(gpu)?;
        let Some(key) = key else {
            self.phase = Phase::Eager;
            return Ok(());
        };
        if self.graphs >= MOST_GRAPHS {
            self.forget();
        }
        let seen = self.seen.entry(key).or_default();
        seen.times += 1;
        let chance = seen.alone.is_none_or(|at| seen.times >= at + RETRY);
        self.phase = match (seen.times, &seen.pass) {
            (1, _) => Phase::Eager,
            (_, None) => Phase::Recording { key, whole: false },
            (_, Some(_)) if seen.whole.is_empty() && chance => Phase::Recording { key, whole: true },
            _ => Phase::Replaying(key),
        };
        match self.phase {
            Phase::Recording { .. } => gpu.record(),
            Phase::Replaying(_) => {
                gpu.replay();
                Ok(())
            }
            _ => Ok(()),
        }
        .inspect_err(|_| self.phase = Phase::Idle)
    }

    pub fn end(&mut self, gpu: &Gpu, fine: bool) -> Result<()> {
        let phase = std::mem::take(&mut self.phase);
        if !fine {
            gpu.discard();
            return Ok(());
        }
        match phase {
            Phase::Recording { key, whole: false } => {
                let graph = gpu.recorded()?;
                gpu.start(&graph)?;
                self.keep(key, graph);
            }
            Phase::Recording { key, whole: true } => self.phase = Phase::Waiting { key, open: true },
            Phase::Replaying(key) => {
                let pass = self.seen.get(&key).and_then(|seen| seen.pass.as_ref());
                same(gpu, pass)?;
                self.phase = Phase::Waiting { key, open: false };
            }
            _ => {}
        }
        Ok(())
    }

    /// Queues the pass that waits.
    pub fn start(&mut self, gpu: &Gpu) -> Result<()> {
        match std::mem::take(&mut self.phase) {
            Phase::Waiting { key, open: true } => {
                let graph = gpu.recorded()?;
                gpu.start(&graph)?;
                self.keep(key, graph);
                let seen = self.seen.entry(key).or_default();
                seen.alone = Some(seen.times);
            }
            Phase::Waiting { key, open: false } => {
                let pass = self.seen.get(&key).and_then(|seen| seen.pass.as_ref());
                gpu.start(pass.ok_or_else(gone)?)?;
            }
            // An operation failed half-way.
            _ => gpu.discard(),
        }
        Ok(())
    }

    /// What comes until [`Passes::end_logits`] are logits and draws from them.
    pub fn begin_logits(&mut self, gpu: &Gpu, of: Logits) -> Result<()> {
        let Phase::Waiting { key, open } = self.phase else { return Ok(()) };
        let known = self.seen.get(&key).is_some_and(|seen| seen.whole.iter().any(|(whole, _)| *whole == of));
        if !open && !known {
            return self.start(gpu);
        }
        self.phase = Phase::Logits { key, open, of };
        Ok(())
    }

    pub fn end_logits(&mut self, gpu: &Gpu, fine: bool) -> Result<()> {
        let Phase::Logits { key, open, of } = std::mem::take(&mut self.phase) else { return Ok(()) };
        if !fine {
            gpu.discard();
            return Ok(());
        }
        let seen = self.seen.entry(key).or_default();
        if open {
            let graph = gpu.recorded()?;
            gpu.start(&graph)?;
            seen.whole.push((of, graph));
            seen.alone = None;
            self.graphs += 1;
            return Ok(());
        }
        let whole = seen.whole.iter().find(|(whole, _)| *whole == of).map(|(_, graph)| graph);
        same(gpu, whole)?;
        gpu.start(whole.ok_or_else(gone)?)
    }

    fn keep(&mut self, key: Key, graph: Graph) {
        self.graphs += 1;
        self.seen.entry(key).or_default().pass = Some(graph);
    }
}

/// The launches looked at are the graph's own.
fn same(gpu: &Gpu, graph: Option<&Graph>) -> Result<()> {
    if graph.is_some_and(|graph| gpu.is(graph)) {
        return Ok(());
    }
    gpu.discard();
    Err(DeviceError("CUDA: a graph was about to run in the place of other launches".into()))
}

fn gone() -> DeviceError {
    DeviceError("CUDA: the graph of a pass is gone".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rounded_up_to_a_bucket_that_fits() {
        assert_eq!(bucket(1, 512), Some(1));
        assert_eq!(bucket(3, 512), Some(4));
        assert_eq!(bucket(9, 512), Some(16));
        assert_eq!(bucket(256, 512), Some(256));
        assert_eq!(bucket(257, 512), None);
        assert_eq!(bucket(5, 5), None, "8 rows would not fit");
    }
}
