//! The device's limits, measured on a thread beside an engine that has nothing to do.

use super::intake::Work;
use super::step::Engine;
use crate::model::Meter;
use crate::protocol::{Command, DeviceLimits, Event, EventSender};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Measures once; what was found is told again to whoever asks again.
#[derive(Default)]
pub(super) struct Limits {
    found: Arc<OnceLock<DeviceLimits>>,
    measuring: Option<Measuring>,
}

#[derive(Clone, Default)]
struct Measuring {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
}

impl Limits {
    /// Looks at work before the engine has it: whether it is a question to answer here. What is to be
    /// computed needs the device for itself.
    pub fn take(&mut self, work: &Work, engine: &Engine, events: &EventSender) -> bool {
        match work {
            Work::Control(Command::MeasureLimits) => self.measure(engine, events),
            Work::Add(..) | Work::Fork(..) => self.stop(),
            _ => {}
        }
        matches!(work, Work::Control(Command::MeasureLimits))
    }

    fn measure(&mut self, engine: &Engine, events: &EventSender) {
        let say = |limits| _ = events.send(vec![Event::Limits(limits)]);
        if let Some(found) = self.found.get() {
            return say(Ok(Box::new(found.clone())));
        }
        // The answer to the first question is one to the second.
        if self.measuring.as_ref().is_some_and(|measuring| !measuring.done.load(Ordering::Acquire)) {
            return;
        }
        if !engine.is_idle() {
            return say(Err("not measured while answers run".into()));
        }
        match engine.meter() {
            None => say(Err("this device cannot be measured".into())),
            Some(meter) => self.measuring = Some(self.start(meter, events)),
        }
    }

    fn start(&self, meter: Meter, events: &EventSender) -> Measuring {
        let measuring = Measuring::default();
        let Measuring { stop, done } = measuring.clone();
        let (found, answers) = (self.found.clone(), events.downgrade());
        let body = move || {
            let limits = meter(stop).map_err(|why| why.to_string());
            if let Ok(limits) = &limits {
                let _ = found.set(limits.clone());
            }
            done.store(true, Ordering::Release);
            // Nobody may be left to be told.
            let _ = answers.send(vec![Event::Limits(limits.map(Box::new))]);
        };
        thread::Builder::new().name("limits".into()).spawn(body).expect("the system can start a thread");
        measuring
    }

    fn stop(&mut self) {
        self.measuring.iter().for_each(|measuring| measuring.stop.store(true, Ordering::Relaxed));
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        self.stop();
    }
}
