//! The scheduler's settings, from `/set` and the batch panel: sent whole, in force from the next step.

use super::keys;
use crate::protocol::{Command, SCHEDULING, SchedulerSettings, SchedulingSpec};
use crate::tui::app::{App, Effect};
use crate::tui::chat::Level;

/// Sets it, or says what it is where nothing was typed.
pub fn set_or_tell(app: &mut App, spec: &'static SchedulingSpec, typed: &str, effects: &mut Vec<Effect>) {
    if !typed.is_empty() {
        return set(app, spec, typed, effects);
    }
    let now = (spec.get)(app.scheduler());
    let choices = match spec.choices {
        [] => String::new(),
        choices => format!(" ({})", choices.join(", ")),
    };
    app.chat.note(Level::Info, format!("{} is {now}: {}{choices}", spec.name, spec.help));
}

/// Sets it to what was typed, or says what would be right.
pub fn set(app: &mut App, spec: &'static SchedulingSpec, typed: &str, effects: &mut Vec<Effect>) {
    let mut wanted = app.scheduler().clone();
    match (spec.set)(&mut wanted, typed) {
        Ok(()) => configure(app, spec, wanted, effects),
        Err(expected) => {
            let text = format!("{} must be {expected}, not {:?}", spec.name, typed.trim());
            app.chat.note(Level::Bad, text);
        }
    }
}

/// One press of an arrow: the next name, or a number a little larger or smaller.
pub fn nudge(app: &mut App, up: bool, effects: &mut Vec<Effect>) {
    let Some(spec) = SCHEDULING.get(app.panels.batch.setting) else { return };
    let mut wanted = app.scheduler().clone();
    let now = (spec.get)(&wanted);
    let tried = beside(spec, &now, up);
    match tried.map(|value| (spec.set)(&mut wanted, &value)) {
        Some(Ok(())) => configure(app, spec, wanted, effects),
        _ => app.say(format!("{} goes no further than {now}", spec.name)),
    }
}

/// Every setting with its value, where that is from, and the built-in one where it differs.
pub fn table(app: &App) -> String {
    let built_in = SchedulerSettings::default();
    let row = |spec: &SchedulingSpec| {
        let (now, default) = ((spec.get)(app.scheduler()), (spec.get)(&built_in));
        let default = if now == default { String::new() } else { format!("  (built-in {default})") };
        format!("{:<37}  {now:<9}  {}{default}", spec.name, origin(app, spec.name))
    };
    SCHEDULING.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Who said so: this session, or a source of the start.
pub fn origin<'a>(app: &'a App, name: &str) -> &'a str {
    if let Some(preset) = app.set_by_preset.get(name) {
        return preset;
    }
    if app.set_here.contains(&name) {
        return "session";
    }
    // Of a file its name is enough.
    let origin = app.options.origins.get(name).map_or("built-in", String::as_str);
    origin.rsplit(['/', '\\']).next().unwrap_or(origin)
}

fn configure(
    app: &mut App,
    spec: &'static SchedulingSpec,
    wanted: SchedulerSettings,
    effects: &mut Vec<Effect>,
) {
    if super::replay::is_as_recorded(app) {
        return;
    }
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    keys::remember_set(app, spec.name);
    app.say(format!("{} {}", spec.name, (spec.get)(&wanted)));
    app.asked = Some((wanted.clone(), app.now));
    effects.push(Effect::Send(Command::Configure(Box::new(wanted))));
}

/// The value before or after `now`; none at an end.
fn beside(spec: &SchedulingSpec, now: &str, up: bool) -> Option<String> {
    if let Some(at) = spec.choices.iter().position(|choice| *choice == now).filter(|_| spec.choices.len() > 1)
    {
        let n = spec.choices.len();
        return Some(spec.choices[(at + if up { 1 } else { n - 1 }) % n].to_owned());
    }
    let takes = |value: &str| (spec.set)(&mut SchedulerSettings::default(), value).is_ok();
    let Ok(number) = now.parse::<f64>() else {
        // `auto`: numbers begin above it.
        return up.then(|| "1".to_owned());
    };
    let moved = if takes("0.5") { next_real(number, up) } else { next_whole(number, up) };
    match takes(&moved) {
        true => Some(moved),
        false => spec.choices.first().filter(|_| !up).map(|choice| (*choice).to_owned()),
    }
}

/// A tenth of its size, and at least a hundredth.
fn next_real(number: f64, up: bool) -> String {
    let size = if number > 0.0 { 10f64.powf(number.log10().floor()) } else { 0.0 };
    let step = (size / 10.0).max(0.01);
    let moved = if up { number + step } else { number - step };
    ((moved * 100.0).round() / 100.0).to_string()
}

/// One where that is much, else an eighth of the power of two below.
fn next_whole(number: f64, up: bool) -> String {
    let number = number as i64;
    let step = if number < 16 { 1 } else { (1 << number.ilog2()) / 8 };
    (if up { number + step } else { number - step }).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn arrows_move_every_setting_to_a_value_it_takes_and_back() {
        for spec in SCHEDULING {
            let mut settings = SchedulerSettings::default();
            let before = (spec.get)(&settings);
            let above = beside(spec, &before, true).unwrap();
            assert_ne!(above, before, "{}", spec.name);
            (spec.set)(&mut settings, &above).unwrap_or_else(|e| panic!("{} {above}: {e}", spec.name));
            assert_eq!((spec.get)(&settings), above, "{}", spec.name);
            let back = beside(spec, &above, false).unwrap();
            (spec.set)(&mut settings, &back).unwrap_or_else(|e| panic!("{} {back}: {e}", spec.name));
        }
    }

    #[test]
    fn numbers_move_by_what_is_much_for_them_and_stop_at_their_ends() {
        let find = |name| SchedulingSpec::find(name).unwrap();
        assert_eq!(beside(find("max_num_batched_tokens"), "512", true).unwrap(), "576");
        assert_eq!(beside(find("max_num_seqs"), "4", false).unwrap(), "3");
        assert_eq!(beside(find("max_num_seqs"), "1", false), None);
        assert_eq!(beside(find("max_num_active_seqs"), "1", false).unwrap(), "auto");
        assert_eq!(beside(find("watermark"), "0", true).unwrap(), "0.01");
        assert_eq!(beside(find("watermark"), "0", false), None);
        assert_eq!(beside(find("time_slice_ms"), "10", true).unwrap(), "11");
        assert_eq!(beside(find("schedule_policy"), "fcfs", false).unwrap(), "round-robin");
    }
}
