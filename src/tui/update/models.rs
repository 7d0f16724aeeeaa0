//! Choosing, fetching and opening models.

use crate::base::nearest;
use crate::protocol::{LoadStage, SchedulingSpec};
use crate::tui::app::{App, Before, Effect, Fetch, ModelState};
use crate::tui::chat::Level;
use crate::tui::format;
use crate::tui::meter::Meter;
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::port::{FetchEvent, MemoryNeed, ModelChoice};
use crate::tui::sanitize;

/// As the list of models is called.
const TITLE: &str = "models";

/// The first list decides what opens; later ones are shown.
pub fn listed(app: &mut App, choices: Vec<ModelChoice>, effects: &mut Vec<Effect>) {
    let first = app.models.is_empty() && matches!(app.model, ModelState::None) && app.fetch.is_none();
    app.models = choices;
    if !first {
        return relist(app);
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
        app.overlay = Some(Overlay::Picker(Box::new(Picker::new(title(app), items(app)))));
        return;
    }
    let (name, is_sure) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
    let Some(obstacle) = obstacle(app, name).filter(|_| !is_sure) else {
        return choose_now(app, name, effects);
    };
    let item = |label: &str, detail: String, line: String| Item {
        label: label.into(),
        detail,
        note: String::new(),
        choice: Choice::Command(line),
    };
    let items = vec![
        item("go on", obstacle.clone(), format!("/model {name}!")),
        item("leave it", "the model in use stays".into(), String::new()),
    ];
    app.chat.note(Level::Info, format!("{name}: {obstacle}"));
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new(format!("{name}?"), items))));
}

/// What there is to be said before a model is opened, or nothing.
fn obstacle(app: &App, name: &str) -> Option<String> {
    let mut all = Vec::new();
    let choice = app.models.iter().find(|m| m.name == name);
    if let Some(need) = choice.and_then(|choice| choice.need) {
        match room(app, &need) {
            Room::None => all.push(need.line()),
            Room::Instead(old) => all.push(format!(
                "{}, and {old} is given up first: if the new one fails, there is none",
                need.line()
            )),
            Room::Beside => {}
        }
    }
    let running: usize = app.tabs.all(&app.chat).map(|chat| chat.running().len()).sum();
    match running {
        0 => {}
        1 => all.push("1 answer is stopped".into()),
        n => all.push(format!("{n} answers are stopped")),
    }
    (!all.is_empty()).then(|| all.join(" · "))
}

/// Where another model would have its memory from.
enum Room {
    /// From what is free: the one in use stays until the new one is ready.
    Beside,
    /// From the one in use, by its name.
    Instead(String),
    None,
}

fn room(app: &App, need: &MemoryNeed) -> Room {
    let held = &app.snapshot.memory;
    let held = held.weights + held.kv_cache + held.workspace;
    match (need.fits(), app.ready()) {
        (Some(true) | None, _) => Room::Beside,
        (Some(false), Some(old)) if need.free.is_some_and(|free| need.bytes <= free + held) => {
            Room::Instead(old.name.clone())
        }
        (Some(false), _) => Room::None,
    }
}

fn choose_now(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    match app.models.iter().find(|m| m.name == name) {
        Some(choice) if choice.on_disk => {
            let gives_up = choice.need.is_some_and(|need| !matches!(room(app, &need), Room::Beside));
            if gives_up && app.ready().is_some() {
                // Its memory is needed: it must be gone before the other one looks for room.
                effects.push(Effect::Close);
                closed(app);
            }
            open(app, name, effects)
        }
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

/// The one before is kept aside until this one is ready.
pub fn opening(app: &mut App, name: String, effects: &mut Vec<Effect>) {
    end_answers(app);
    let loading = ModelState::Loading {
        name: name.clone(),
        stage: LoadStage::Reading,
        done: 0,
        total: 0,
        started: app.now,
    };
    let snapshot = std::mem::take(&mut app.snapshot);
    if let ModelState::Ready(info) = std::mem::replace(&mut app.model, loading) {
        app.before = Some(Before { info, snapshot });
    }
    let preset = app.options.preset.clone();
    effects.push(Effect::StartSettings { model: Some(name), preset });
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

/// The new one did not load: the one before is used again, where it is still there.
pub fn back_to_before(app: &mut App) -> Option<String> {
    let Before { info, snapshot } = app.before.take()?;
    app.start = None;
    let name = info.name.clone();
    (app.model, app.snapshot) = (ModelState::Ready(info), snapshot);
    Some(name)
}

pub fn open_failed(app: &mut App, name: String, why: &str) {
    app.flash = None;
    app.chat.note(Level::Bad, format!("{name} cannot be opened: {why}"));
    if app.ready().is_none() {
        app.model = ModelState::Failed { name, message: why.to_owned() };
    }
}

fn end_answers(app: &mut App) {
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| super::engine::close_answers(app, "the model was changed"));
    }
}

/// The model in use is given up.
fn closed(app: &mut App) {
    end_answers(app);
    app.model = ModelState::None;
    app.before = None;
}

/// The list while it is open: what is free and what is on disk may have changed.
fn relist(app: &mut App) {
    let (title, items) = (title(app), items(app));
    if let Some(Overlay::Picker(picker)) = &mut app.overlay
        && picker.title.starts_with(TITLE)
    {
        picker.title = title;
        picker.replace(items);
    }
}

fn items(app: &App) -> Vec<Item> {
    let here = app.ready().map(|info| info.name.as_str());
    let wide = app.models.iter().map(|m| format::width(&sanitize::one_line(&m.name))).max().unwrap_or(0);
    let item = |m: &ModelChoice| {
        let in_use = Some(m.name.as_str()) == here;
        let mut facts = vec![format::bytes(m.bytes), format!("context {}", format::count(m.context as u64))];
        facts.extend(m.need.filter(|_| !in_use).map(|need| format!("needs {}", format::bytes(need.bytes))));
        let mark = if in_use { "●" } else { " " };
        Item {
            label: format!("{mark} {}", format::pad(&sanitize::one_line(&m.name), wide)),
            detail: facts.join(" · "),
            note: note(app, m, in_use),
            choice: Choice::Command(if in_use { String::new() } else { format!("/model {}", m.name) }),
        }
    };
    app.models.iter().map(item).collect()
}

/// Whether it fits, and where it is.
fn note(app: &App, m: &ModelChoice, in_use: bool) -> String {
    if in_use {
        return "in use".into();
    }
    let place = if m.on_disk { "on disk" } else { "to fetch" };
    match m.need.filter(|need| need.free.is_some()).map(|need| room(app, &need)) {
        Some(Room::Beside) => format!("fits · {place}"),
        Some(Room::Instead(_)) => format!("fits alone · {place}"),
        Some(Room::None) => format!("does not fit · {place}"),
        None => place.into(),
    }
}

/// With what is free for a model, where that is known.
fn title(app: &App) -> String {
    match app.models.iter().find_map(|m| m.need?.free) {
        Some(free) => format!("{TITLE} · {} free", format::bytes(free)),
        None => TITLE.into(),
    }
}
