//! The footer's hints and the frame around the input.

use super::{draft, entry, paint};
use crate::tui::app::{App, Focus, ModelState};
use crate::tui::branches::has_branches;
use crate::tui::completion;
use crate::tui::format;
use crate::tui::overlay::Overlay;
use crate::tui::panels::{Panel, SizeClass};
use crate::tui::place::Part;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

const SEPARATOR: &str = " · ";

/// What keys do here and now; or what was just done.
pub fn footer(app: &App, area: Rect, buf: &mut Buffer) {
    if let Some((text, _)) = app.flash.as_ref().filter(|(_, until)| app.now <= *until) {
        let text = crate::tui::sanitize::one_line(text);
        let line = Line::styled(format!(" {text}"), app.theme.style(Role::Warn));
        return paint::line(area.x, area.y, &line, area, buf);
    }
    let mut spans = vec![Span::raw(" ")];
    for (key, does) in fitting(app, area.width.into()) {
        if spans.len() > 1 {
            spans.push(Span::styled(SEPARATOR, app.theme.style(Role::Faint)));
        }
        spans.push(Span::styled(key, app.theme.style(Role::Key)));
        spans.push(Span::styled(format!(" {does}"), app.theme.style(Role::Muted)));
    }
    paint::line(area.x, area.y, &Line::from(spans), area, buf);
}

/// As many as there is room for, in their order. The key of the help, which has all, is kept.
fn fitting(app: &App, width: usize) -> Vec<(String, &'static str)> {
    let all = hints(app).into_iter().filter_map(|(keys, does)| Some((in_force(app, keys)?, does)));
    let mut shown: Vec<(String, &'static str)> = all.collect();
    let wide = |hints: &[(String, &str)]| {
        let words: usize = hints.iter().map(|(key, does)| format::width(key) + 1 + does.len()).sum();
        1 + words + hints.len().saturating_sub(1) * format::width(SEPARATOR)
    };
    while wide(&shown) > width {
        let Some(least) = shown.iter().rposition(|(_, does)| *does != "help") else { break };
        shown.remove(least);
    }
    shown
}

/// Hints are written with the built-in keys; shown are those that the person chose.
fn in_force(app: &App, keys: &str) -> Option<String> {
    let arrows = keys.chars().all(|c| "↑↓←→".contains(c));
    let all: Vec<String> = match arrows {
        true => keys.chars().map(String::from).collect(),
        false => keys.split(' ').map(str::to_owned).collect(),
    };
    if app.overlay.is_some() || app.tools.question.is_some() {
        return Some(keys.to_owned());
    }
    let named: Vec<String> = all.iter().filter_map(|key| app.keymap.in_force(key, app.focus)).collect();
    let plain = named == all;
    (!named.is_empty()).then(|| if plain { keys.to_owned() } else { named.join(" ") })
}

fn hints(app: &App) -> Vec<(&'static str, &'static str)> {
    match app.overlay {
        Some(Overlay::Sessions(_)) => {
            return vec![("↑↓", "choose"), ("Enter", "open"), ("Del", "delete"), ("Esc", "close")];
        }
        Some(Overlay::Help(_)) => {
            return vec![("Esc", "close"), ("↑↓ PgUp PgDn", "scroll"), ("letters", "narrow it")];
        }
        Some(Overlay::Picker(_)) => return vec![("↑↓", "choose"), ("Enter", "take it"), ("Esc", "close")],
        None => {}
    }
    if app.tools.question.is_some() {
        return vec![("↑↓", "the question"), ("PgUp", "the chat"), ("Esc", "refuse all"), ("F1", "help")];
    }
    if app.panels.typing.is_some() {
        return vec![("Enter", "apply"), ("Esc", "leave it")];
    }
    if app.replay.is_some() {
        return replay_hints(app);
    }
    let stop = (app.chat.is_running() || app.chat.pending().is_some()).then_some(("Esc", "stop"));
    let run = if app.paused { ("F5", "resume") } else { ("F5", "pause") };
    match app.focus {
        Focus::Input if app.composer.recall().is_some() => {
            vec![("^R", "older"), ("Enter", "take it"), ("Esc", "leave it")]
        }
        Focus::Input if !completion::offered(app).is_empty() => {
            vec![("↑↓", "choose"), ("Tab", "complete"), ("Enter", completes(app))]
        }
        Focus::Input => {
            let mut all = vec![("Enter", "send"), ("^J", "newline")];
            all.extend(stop);
            if app.fetch.is_some() {
                all.push(("Esc", "cancel"));
            }
            if app.paused {
                all.extend([run, ("F6", "step")]);
            }
            all.extend(tab_leads_to(app).map(|there| ("Tab", there)));
            all.extend([("^O", "thoughts"), ("F1", "help"), ("/", "commands")]);
            if !app.paused {
                all.push(run);
            }
            all
        }
        Focus::Transcript if app.reading.is_some() => vec![
            ("←→", "token"),
            ("↑↓", "line"),
            ("j k", "alternative"),
            ("Enter", "fork"),
            ("c", "colours"),
            ("w", "next doubt"),
            ("Esc", "back"),
        ],
        Focus::Transcript => {
            let mut all = vec![("Esc", "back"), ("j k", "choose"), ("Enter", "tokens"), ("o", "fold")];
            if is_one_of_several(app) {
                all.push(("c", "go on from it"));
            }
            all.extend([("e", "edit"), ("r", "again"), ("y", "copy"), ("=", "compare")]);
            all.push(("Tab", if has_panels(app) { "panels" } else { "input" }));
            all.extend([("Y", "code"), ("[ ]", "message")]);
            all.extend([("^F", "find"), ("?", "help")]);
            all
        }
        Focus::Panel(panel) => {
            let mut all = vec![("Esc", "back")];
            all.extend(match panel {
                Panel::Kv if app.panels.kv.tree => vec![("↑↓", "choose"), ("Enter", "fold"), ("t", "map")],
                Panel::Kv => vec![("←→↑↓", "block"), ("c", "colours"), ("t", "tree")],
                Panel::Sampling if app.panels.sampling.trial.is_some() => vec![
                    ("a", "use it"),
                    ("←→", "change"),
                    ("Enter", "type"),
                    (", .", "token"),
                    ("P", "preset"),
                ],
                Panel::Sampling => vec![
                    ("↑↓", "choose"),
                    ("←→", "change"),
                    ("Enter", "type"),
                    (", .", "token"),
                    ("t", "stage"),
                    ("w", "what if"),
                ],
                Panel::Batch if app.panels.batch.settings => {
                    vec![("↑↓", "choose"), ("←→", "change"), ("Enter", "type"), ("e", "step view")]
                }
                Panel::Batch if app.panels.batch.chosen.is_some() => vec![
                    ("J K", "choose"),
                    ("i", if app.panels.batch.inspecting { "list" } else { "details" }),
                    ("x", "cancel"),
                    ("+ -", "priority"),
                    ("f", "trace"),
                    ("j k", "steps"),
                ],
                Panel::Batch => vec![
                    ("j k", "older newer"),
                    ("J K", "choose"),
                    ("Space", if app.paused { "resume" } else { "pause" }),
                    ("s", "step"),
                    ("b", "break"),
                    ("e", "settings"),
                ],
                Panel::Reasoning => vec![("j k", "token"), ("Enter", "its waterfall"), ("f", "sequence")],
                Panel::Metrics => vec![("j k", "what it means"), ("m", "measure limits")],
                Panel::Beams if has_branches(&app.chat) => vec![("j k", "choose"), ("Enter", "go there")],
                Panel::Beams => vec![("j k", "scroll")],
            });
            all.extend([("z", "zoom"), ("1-6", "toggle"), ("Tab", "next"), ("?", "help")]);
            all
        }
    }
}

fn is_one_of_several(app: &App) -> bool {
    let turn = app.chat.selected.filter(|spot| spot.part != Part::Said);
    turn.and_then(|spot| app.chat.turn(spot.entry)).is_some_and(|turn| turn.answers.len() > 1)
}

/// From the input on. The transcript, which its frame calls chat, is passed by while nothing is in it.
fn tab_leads_to(app: &App) -> Option<&'static str> {
    /// Columns under which there is no room for its name.
    const WIDE: u16 = 100;
    match (app.chat.turns().next().is_some(), has_panels(app)) {
        (true, true) => Some(if app.size.0 < WIDE { "chat, panels" } else { "transcript, panels" }),
        (true, false) => Some("transcript"),
        (false, true) => Some("panels"),
        (false, false) => None,
    }
}

fn has_panels(app: &App) -> bool {
    let class = app.class();
    class != SizeClass::Tiny && !app.panels.layout(class).stops().is_empty()
}

/// Nothing is sent, stopped or set in a replay.
fn replay_hints(app: &App) -> Vec<(&'static str, &'static str)> {
    let play = if app.paused { "play" } else { "pause" };
    let Focus::Panel(panel) = app.focus else {
        let mut all: Vec<_> = tab_leads_to(app).map(|there| ("Tab", there)).into_iter().collect();
        all.extend([("F5", play), ("F6", "step"), ("F1", "help"), ("/", "commands")]);
        return all;
    };
    let mut all = vec![("Space", play), ("n b", "step, back"), ("[ ]", "speed")];
    all.extend(match panel {
        Panel::Sampling => Some((", .", "token")),
        Panel::Kv => Some(("←→↑↓", "block")),
        Panel::Batch => Some(("j k", "older newer")),
        Panel::Reasoning => Some(("j k", "token")),
        Panel::Metrics => Some(("j k", "what it means")),
        Panel::Beams => Some(("j k", "scroll")),
    });
    all.extend([("z", "zoom"), ("1-6", "toggle"), ("Tab", "next"), ("?", "help")]);
    all
}

/// The rule over the input; the room under it.
pub fn input_frame(app: &App, area: Rect, buf: &mut Buffer) -> Rect {
    let focused = app.focus == Focus::Input && app.overlay.is_none();
    let style = app.theme.style(if focused { Role::Focus } else { Role::Border });
    let (mut note, count) = (note(app), draft::line(app, area.width));
    let room = usize::from(area.width).saturating_sub(left(app).width() + note.width() + 4);
    if count.width() <= room {
        note.spans.extend(count.spans);
    }
    paint::titled(left(app), note, area, style, buf)
}

/// Which message is said differently.
fn left(app: &App) -> Line<'static> {
    let Some(editing) = &app.chat.editing else { return Line::default() };
    let text = format!(" editing message {} · Esc leaves it ", editing.message + 1);
    Line::styled(text, app.theme.style(Role::Warn))
}

fn note(app: &App) -> Line<'static> {
    if let Some(recall) = app.composer.recall() {
        let text = format!(" earlier inputs with: {}▍", crate::tui::sanitize::one_line(&recall.query));
        let (rest, role) = if recall.found { (" ", Role::Focus) } else { (" none ", Role::Warn) };
        return Line::styled(text + rest, app.theme.style(role));
    }
    let queued = app.chat.turns().filter(|t| t.queued).count();
    let waits_for = match &app.model {
        ModelState::Ready(_) if app.chat.pending().is_some() => "the tools",
        ModelState::Ready(_) => "the answer",
        _ => "the model",
    };
    let text = match (app.paused, queued) {
        (true, _) => format!(" {} ", entry::paused(app, ("toggle_pause", "resumes"), ("step", "steps"))),
        (false, 0) => return Line::default(),
        (false, 1) => format!(" 1 message waits for {waits_for} "),
        (false, n) => format!(" {n} messages wait for {waits_for} "),
    };
    Line::styled(text, app.theme.style(Role::Warn))
}

/// What Enter does with a completion.
fn completes(app: &App) -> &'static str {
    if app.composer.mention().is_some() { "attach" } else { "run" }
}
