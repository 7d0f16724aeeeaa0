//! What the metrics panel asks for.

use crate::protocol::Command;
use crate::tui::app::{App, Effect};
use crate::tui::meter::Limits;

/// The device's limits, measured by the engine while it has nothing else to do.
pub fn measure_limits(app: &mut App, effects: &mut Vec<Effect>) {
    if app.ready().is_none() {
        return app.say("no model is ready");
    }
    if app.chat.is_running() {
        return app.say("limits are measured beside an idle engine: ask again after the answer");
    }
    app.meter.limits = Limits::Asked;
    effects.push(Effect::Send(Command::MeasureLimits));
}
