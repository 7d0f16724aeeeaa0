//! Choosing, fetching and opening models.

use crate::base::nearest;
use crate::protocol::{LoadStage, SchedulingSpec};
use crate::tui::app::{App, Effect, Fetch, ModelState};
use crate::tui::chat::Level;
use crate::tui::format;
use crate::tui::meter::Meter;
use crate::tui::port::{FetchEvent, ModelChoice};

/// The first list decides what opens; later ones are shown.
pub fn listed(app: &mut App, choices: Vec<ModelChoice>, effects: &mut Vec<Effect>) {
    let first = app.models.is_empty() && matches!(app.model, ModelState::None) && app.fetch.is_none();
    app.models = choices;
    if !first {
        return;
    }
    match app.options.model.clone() {
        Some(wanted) => {
            let missing = app.models.iter().any(|m| m.name == wanted && !m.on_disk);
            match missing {
                false => open(app, &wanted, effects),
                true if app.options.fetch_without_asking => fetch(app, &wanted, effects),
                true => {}
            }
        }
        None => {
            let at_hand = app.models.iter().filter(|m| m.on_disk);
            if let Some(name) = at_hand.max_by_key(|m| m.is_default).map(|m| m.name.clone()) {
                open(app, &name, effects);
            } else if let Some(offer) = app.offer().filter(|_| app.options.fetch_without_asking) {
                let name = offer.name.clone();
                fetch(app, &name, effects);
            }
        }
    }
}

/// `/model`: without a name, what there is.
pub fn choose(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    if name.is_empty() {
        app.chat.note(Level::Info, table(app));
        return;
    }
    match app.models.iter().find(|m| m.name == name) {
        Some(choice) if choice.on_disk => open(app, name, effects),
        Some(_) => fetch(app, name, effects),
        None if name.contains(['/', '.']) => open(app, name, effects),
        None => {
            let known = app.models.iter().map(|m| m.name.as_str());
            let hint = nearest(name, known).map_or(String::new(), |n| format!("; did you mean {n}?"));
            app.chat.note(
                Level::Bad,
                format!("no model {name:?}{hint} (/model lists them; a path to a .gguf file works too)"),
            );
        }
    }
}

pub fn fetch(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    if app.fetch.is_some() {
        app.say("one model is being fetched already");
        return;
    }
    let total = app.models.iter().find(|m| m.name == name).map_or(0, |m| m.bytes);
    app.fetch = Some(Fetch {
        name: name.to_owned(),
        done: 0,
        total,
        source: String::new(),
        started: app.now,
        resumed_at: None,
    });
    effects.push(Effect::Fetch(name.to_owned()));
}

pub fn fetched(app: &mut App, event: FetchEvent, effects: &mut Vec<Effect>) {
    let Some(fetch) = &mut app.fetch else { return };
    let name = fetch.name.clone();
    match event {
        FetchEvent::Progress { done, total, source } => {
            fetch.resumed_at.get_or_insert(done);
            (fetch.done, fetch.total, fetch.source) = (done, total, source);
        }
        FetchEvent::Done { path } => {
            let took = (app.now - fetch.started).as_secs_f64();
            let size = format::bytes(fetch.total);
            app.fetch = None;
            app.chat
                .note(Level::Good, format!("fetched {name}, {size} in {}, to {path}", format::seconds(took)));
            for choice in app.models.iter_mut().filter(|m| m.name == name) {
                choice.on_disk = true;
            }
            open(app, &name, effects);
        }
        FetchEvent::Failed(why) => {
            app.fetch = None;
            app.chat.note(Level::Bad, format!("{name} was not fetched: {why}"));
        }
        FetchEvent::Cancelled => {
            app.fetch = None;
            app.chat.note(Level::Info, format!("{name}: cancelled; fetching again goes on from there"));
        }
    }
}

/// What is running goes on until it is known that the other can be opened.
pub fn open(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    app.say(format!("opening {name}"));
    effects.push(Effect::Open(name.to_owned()));
}

pub fn opening(app: &mut App, name: String) {
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| super::engine::close_answers(app, "the model was changed"));
    }
    app.model = ModelState::Loading { name, stage: LoadStage::Reading, done: 0, total: 0 };
    app.snapshot = Default::default();
    app.meter = Meter::default();
    app.parsed.clear();
    app.paused = false;
    app.replay = None;
    app.focused_seq = None;
    app.asked = None;
    app.broke.clear();
    app.panels.batch.step_back = 0;
    // A new engine starts with the start's settings.
    app.set_here.retain(|name| SchedulingSpec::find(name).is_none());
    app.flash = None;
}

pub fn open_failed(app: &mut App, name: String, why: &str) {
    app.flash = None;
    app.chat.note(Level::Bad, format!("{name} cannot be opened: {why}"));
    if app.ready().is_none() {
        app.model = ModelState::Failed { name, message: why.to_owned() };
    }
}

fn table(app: &App) -> String {
    let here = app.ready().map(|info| info.name.as_str());
    let wide = app.models.iter().map(|m| format::width(&m.name)).max().unwrap_or(0);
    let row = |m: &ModelChoice| {
        let in_use = Some(m.name.as_str()) == here;
        let mark = if in_use { "●" } else { " " };
        let place = match m.on_disk {
            _ if in_use => "in use",
            true => "on disk",
            false => "to fetch",
        };
        let size = format::pad_left(&format::bytes(m.bytes), 8);
        let context = format::count(m.context as u64);
        format!("{mark} {}  {size}  {:<8}  ctx {context:<7} {}", format::pad(&m.name, wide), place, m.licence)
    };
    let rows: Vec<String> = app.models.iter().map(row).collect();
    match rows.is_empty() {
        true => "no models known; /model PATH opens a .gguf file".into(),
        false => format!("{}\n/model NAME switches, and fetches what is not on disk", rows.join("\n")),
    }
}
