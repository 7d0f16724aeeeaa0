//! What keys do.

use super::{
    attach, branch, branches, calls, command, counting, engine, find, kv, layout, metrics, models, overlay,
    palette, params, reading, reasoning, replay, requests, sampling, scheduling, sessions, tabs, transcript,
};
use crate::protocol::{Command, PARAMS, SCHEDULING, SequenceState};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::branches::has_branches;
use crate::tui::keymap::Action;
use crate::tui::overlay::Overlay;
use crate::tui::panels::{Panel, SizeClass};
use crate::tui::place::{Place, Scroll, Shown};
use crate::tui::{completion, slash};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// A second press within this counts as a second press.
const TWICE: Duration = Duration::from_millis(1_500);
/// Steps that a page key goes back or forth.
const STRIDE: isize = 10;
/// Sent by Enter on an empty input before anything was said.
pub const EXAMPLE: &str = "Why is the sky blue?";

pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    app.pointer.selection = None;
    if calls::key(app, key, effects) {
        return;
    }
    if overlay::key(app, key, effects) {
        return;
    }
    if find::key(app, key) || reading::key(app, key, effects) {
        return;
    }
    if app.panels.typing.is_some() && typing(app, key, effects) {
        return;
    }
    if app.focus == Focus::Input && recalling(app, key) {
        return;
    }
    if replay::key(app, key, effects) {
        return;
    }
    match app.keymap.action(key, app.focus) {
        Some(action) => act(app, action, key, effects),
        None if app.overlay.is_some() => app.overlay = None,
        None if app.focus == Focus::Input => {
            attach::wait(app);
            app.composer.key(key);
            app.completion = 0;
        }
        None => {}
    }
}

pub fn paste(app: &mut App, text: &str) {
    let now = app.now;
    if let Some(question) = &mut app.tools.question {
        question.disturbed(now);
    }
    if find::pasted(app, text) {
        return;
    }
    app.focus = Focus::Input;
    app.composer.paste(text);
    app.completion = 0;
}

/// After panels closed or the screen shrank.
pub fn keep_focus_visible(app: &mut App) {
    if let Focus::Panel(panel) = app.focus
        && !app.panels.open(app.class()).contains(&panel)
    {
        // The keys of a replay act in panels only.
        let open = app.panels.open(app.class()).first().filter(|_| app.replay.is_some());
        app.focus = open.map_or(Focus::Input, |panel| Focus::Panel(*panel));
        app.panels.zoomed = false;
        app.panels.typing = None;
    }
}

pub fn act(app: &mut App, action: Action, key: KeyEvent, effects: &mut Vec<Effect>) {
    let completing = app.focus == Focus::Input && !completion::offered(app).is_empty();
    match action {
        Action::Submit => submit(app, effects),
        Action::Newline => app.composer.newline(),
        Action::Escape => escape(app, effects),
        Action::Interrupt => interrupt(app, effects),
        Action::QuitIfEmpty if app.composer.is_empty() => effects.push(Effect::Quit),
        Action::QuitIfEmpty => app.composer.delete_next_char(),
        Action::Suspend => effects.push(Effect::Suspend),
        Action::Redraw => effects.push(Effect::Redraw),
        Action::Palette => palette::open(app),
        Action::NextTab | Action::PreviousTab | Action::CloseTab if tabs::belongs_to_the_draft(app, key) => {
            app.composer.key(key);
        }
        Action::NextTab => tabs::go_by(app, 1),
        Action::PreviousTab => tabs::go_by(app, app.tabs.len() - 1),
        Action::NewTab => tabs::open(app),
        Action::CloseTab => tabs::close(app, effects),
        Action::Sessions => sessions::list(app, "", effects),
        Action::Help => overlay::toggle_help(app),
        Action::ToggleThoughts => transcript::fold_all(app),
        Action::ChooseModel => command::run(app, slash::Slash::Model, "", effects),
        Action::Regenerate => branch::regenerate(app, effects),
        Action::NextVersion => branch::beside(app, 1),
        Action::PreviousVersion => branch::beside(app, -1),
        Action::NewChat => command::run(app, slash::Slash::Clear, "", effects),
        Action::TogglePause => hold(app, !app.paused, effects),
        Action::Resume => hold(app, false, effects),
        Action::Step => command::step(app, 1, effects),
        Action::StepBack => replay::back(app, effects),
        Action::Slower => replay::change_speed(app, 0.5, effects),
        Action::Faster => replay::change_speed(app, 2.0, effects),
        Action::NextFocus if completing => complete(app, effects),
        Action::NextFocus => move_focus(app, 1),
        Action::PreviousFocus => move_focus(app, -1),
        Action::PageUp => page_by(app, -1),
        Action::PageDown => page_by(app, 1),
        Action::ScrollTop => app.chat.scroll = Some(Scroll::At(Place::default())),
        Action::ScrollBottom => app.chat.scroll = None,
        Action::NextMessage => transcript::to_message(app, 1),
        Action::PreviousMessage => transcript::to_message(app, -1),
        Action::Find => find::open(app),
        Action::Transcript(action) => transcript::act(app, action, effects),
        Action::OpenMessage => transcript::open(app),
        Action::Token(action) => reading::act(app, action, effects),
        Action::HistoryBack if completing => move_completion(app, -1),
        Action::HistoryForward if completing => move_completion(app, 1),
        Action::HistoryBack => app.composer.up(),
        Action::HistoryForward => app.composer.down(),
        Action::SearchHistory => app.composer.recall_start(),
        Action::OpenEditor => effects.push(Effect::Edit(app.composer.whole_text())),
        Action::Undo => app.composer.undo(),
        Action::Redo => app.composer.redo(),
        Action::ExpandChip => app.composer.expand_chip(),
        Action::ClearToLineStart => app.composer.clear_to_line_start(),
        Action::TogglePanel(panel) => toggle_panel(app, panel),
        Action::Zoom => app.panels.zoomed = !app.panels.zoomed,
        Action::NextSequence if app.focus == Focus::Panel(Panel::Reasoning) => {
            reasoning::next_sequence(app, effects)
        }
        Action::PanelUp | Action::PanelDown | Action::PanelLeft | Action::PanelRight => {
            layout::act(app, action);
        }
        Action::Narrower | Action::Wider | Action::Shorter | Action::Taller => layout::act(app, action),
        Action::NextSequence => next_sequence(app, effects),
        Action::EditValue => begin_typing(app, key),
        Action::EditSettings => edit_settings(app),
        Action::EarlierToken => sampling::step_token(app, false, effects),
        Action::LaterToken => sampling::step_token(app, true, effects),
        Action::NewestToken => sampling::follow(app, effects),
        Action::NextStage => sampling::step_stage(app, true),
        Action::PreviousStage => sampling::step_stage(app, false),
        Action::Try => sampling::toggle_trial(app, effects),
        Action::ApplyTried => sampling::apply_tried(app, effects),
        Action::UndoParameter => params::undo(app, effects),
        Action::RedoParameter => params::redo(app, effects),
        Action::ResetParameter => sampling::reset(app, effects),
        Action::FindParameter => sampling::find(app),
        Action::MeasureLimits => metrics::measure_limits(app, effects),
        Action::SamplingPresets => sampling::presets(app),
        Action::AddBreakpoint => begin_command(app, "/break "),
        Action::BeginCommand => begin_command(app, "/"),
        Action::Answer(reply) => calls::answer(app, reply, effects),
        Action::NextColours => kv::next_colours(app),
        Action::ToggleDense => kv::toggle_dense(app),
        Action::ToggleTree => kv::toggle_tree(app),
        Action::Fold if app.panels.kv.tree => app.panels.kv.fold(),
        Action::Fold if key.code == KeyCode::Char(' ') => hold(app, !app.paused, effects),
        Action::Fold => {}
        Action::NextRow => requests::choose(app, 1),
        Action::PreviousRow => requests::choose(app, -1),
        Action::Inspect if app.panels.batch.settings => begin_typing(app, key),
        Action::Inspect => requests::inspect(app),
        Action::CancelRequest => requests::cancel(app, effects),
        Action::RaisePriority => requests::reprioritise(app, 1, effects),
        Action::LowerPriority => requests::reprioritise(app, -1, effects),
        Action::TraceRow => requests::trace(app, effects),
        Action::GoToBranch => branches::go(app),
        Action::Down | Action::Up | Action::First | Action::Last | Action::Decrease | Action::Increase => {
            in_panel(app, action, effects)
        }
    }
}

/// From a panel to the input, with the beginning of a command.
fn begin_command(app: &mut App, line: &str) {
    app.focus = Focus::Input;
    app.panels.zoomed = false;
    app.completion = 0;
    app.composer.set(line);
}

/// Shows the panel and gives it the focus, or hides it.
pub fn toggle_panel(app: &mut App, panel: Panel) {
    app.panels.scroll = 0;
    if app.options.inline {
        app.say("panels need the full screen: glassbox --ui full");
    } else if app.class() == SizeClass::Tiny {
        app.say("the window is too small for panels");
    } else if app.panels.presenting && app.panels.open(app.class()).contains(&panel) {
        // There it is chosen, not hidden.
        app.focus = Focus::Panel(panel);
    } else if app.panels.toggle(app.class(), panel) {
        app.focus = Focus::Panel(panel);
    } else if app.focus == Focus::Panel(panel) {
        let next = app.panels.open(app.class()).first().copied();
        app.focus = next.map_or(Focus::Input, Focus::Panel);
        app.panels.zoomed &= next.is_some();
    }
}

pub fn hold(app: &mut App, pause: bool, effects: &mut Vec<Effect>) {
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    app.paused = pause;
    if !pause {
        app.panels.batch.step_back = 0;
    }
    effects.push(Effect::Send(if pause { Command::Pause } else { Command::Resume }));
}

/// Whether there is something to stop: in a replay there never is.
fn answers(app: &App) -> bool {
    (app.chat.is_running() || app.chat.pending().is_some()) && app.replay.is_none()
}

/// Stops every answer, and gives back what was still waiting to be sent.
pub fn stop(app: &mut App, effects: &mut Vec<Effect>) {
    calls::stop(app, effects);
    for id in app.chat.running() {
        effects.push(Effect::Send(Command::Abort(id)));
    }
    let waiting: Vec<String> = app.chat.turns().filter(|t| t.queued).map(|t| t.text.clone()).collect();
    if !waiting.is_empty() && app.composer.is_empty() {
        app.composer.set(&waiting.join("\n"));
        app.chat.entries.retain(|e| !matches!(e, crate::tui::chat::Entry::Turn(t) if t.queued));
    }
}

/// That this session set it, for those who ask where a value is from.
pub fn remember_set(app: &mut App, name: &'static str) {
    app.set_by_preset.remove(name);
    if !app.set_here.contains(&name) {
        app.set_here.push(name);
    }
}

pub fn submit(app: &mut App, effects: &mut Vec<Effect>) {
    let chosen = completion::offered(app).into_iter().nth(app.completion);
    if let Some(choice) = chosen.filter(|choice| choice.eager || app.completion > 0) {
        if let Some(path) = &choice.file {
            return attach::choose(app, path, effects);
        }
        app.composer.set(&choice.line);
    }
    app.completion = 0;
    if app.composer.text().trim().is_empty() {
        return submit_nothing(app, effects);
    }
    let is_message = matches!(slash::read(&app.composer.text()), slash::Line::Message(_));
    if is_message && (attach::holds(app, effects) || counting::refuses(app)) {
        return;
    }
    attach::sent(app);
    let written = app.composer.take();
    effects.push(Effect::Remember(written.typed));
    // What comes of it stands at the end.
    app.chat.scroll = None;
    // A command begins the line; files are not in front of it.
    let text = if is_message { &written.whole } else { &written.shown }.trim_end();
    match slash::read(&written.shown) {
        slash::Line::Message(_) => {
            let escaped =
                |text: &str| attach::unescaped(text.strip_prefix("//").map_or(text, |_| &text[1..]));
            branch::submit(app, &escaped(text), &escaped(written.shown.trim_end()), effects);
        }
        _ => command_line(app, text, effects),
    }
}

fn command_line(app: &mut App, text: &str, effects: &mut Vec<Effect>) {
    match slash::read(text) {
        slash::Line::Message(_) => {}
        slash::Line::Command(name, arguments) => command::run(app, name, arguments, effects),
        slash::Line::Unknown { name, nearest } => command::unknown(app, name, nearest),
    }
}

/// Enter alone: accept what is offered.
fn submit_nothing(app: &mut App, effects: &mut Vec<Effect>) {
    if app.chat.editing.is_some() {
        app.say("nothing is written; Esc leaves the message as it was");
    } else if let Some(name) = app.offer().map(|m| m.name.clone()) {
        models::fetch(app, &name, effects);
    } else if app.ready().is_some() && app.chat.turns().next().is_none() {
        engine::submit(app, EXAMPLE, EXAMPLE, effects);
    }
}

fn escape(app: &mut App, effects: &mut Vec<Effect>) {
    let twice = app.last_escape.replace(app.now).is_some_and(|at| app.now - at < TWICE);
    if app.overlay.is_some() {
        overlay::close(app);
    } else if sampling::leave_trial(app) || (app.focus == Focus::Transcript && transcript::leave(app)) {
    } else if app.focus != Focus::Input {
        app.focus = Focus::Input;
        app.panels.zoomed = false;
    } else if app.chat.editing.is_some() {
        branch::leave(app);
    } else if answers(app) {
        stop(app, effects);
    } else if app.fetch.is_some() {
        effects.push(Effect::CancelFetch);
    } else if twice && !app.composer.is_empty() {
        app.composer.clear();
    } else if app.chat.scroll.is_some() {
        app.chat.scroll = None;
    }
}

fn interrupt(app: &mut App, effects: &mut Vec<Effect>) {
    let twice = app.last_interrupt.take().is_some_and(|at| app.now - at < TWICE);
    if twice {
        effects.push(Effect::Quit);
    } else if !app.composer.is_empty() {
        // Taking it puts it into the history.
        app.composer.take();
        app.say("cleared; ↑ brings it back");
    } else if answers(app) {
        stop(app, effects);
        app.say("stopped");
    } else if app.fetch.is_some() {
        effects.push(Effect::CancelFetch);
    } else {
        app.last_interrupt = Some(app.now);
        app.flash = Some(("Ctrl+C again to quit".into(), app.now + TWICE));
    }
}

fn complete(app: &mut App, effects: &mut Vec<Effect>) {
    let offered = completion::offered(app);
    if let Some(choice) = offered.get(app.completion.min(offered.len().saturating_sub(1))) {
        if let Some(path) = &choice.file {
            return attach::choose(app, path, effects);
        }
        app.composer.set(&format!("{} ", choice.line));
        app.completion = 0;
    }
}

fn move_completion(app: &mut App, by: isize) {
    let length = completion::offered(app).len();
    app.completion = (app.completion as isize + by).rem_euclid(length.max(1) as isize) as usize;
}

/// Input, then the open panels in order, and round.
fn move_focus(app: &mut App, by: isize) {
    app.overlay = None;
    let class = app.class();
    let open = if class == SizeClass::Tiny { vec![] } else { app.panels.layout(class).stops() };
    let chat = app.chat.turns().next().map(|_| Focus::Transcript);
    let stops: Vec<Focus> =
        std::iter::once(Focus::Input).chain(chat).chain(open.into_iter().map(Focus::Panel)).collect();
    let at = stops.iter().position(|f| *f == app.focus).unwrap_or(0) as isize;
    app.focus = stops[(at + by).rem_euclid(stops.len() as isize) as usize];
    app.panels.scroll = 0;
    app.panels.zoomed &= matches!(app.focus, Focus::Panel(_));
    if app.focus == Focus::Transcript {
        transcript::enter(app);
    }
}

fn page(app: &App) -> usize {
    app.shown.get().view.saturating_sub(2).max(1)
}

/// A page of the panel in focus that has pages, else of the transcript.
fn page_by(app: &mut App, direction: isize) {
    match app.focus {
        Focus::Panel(Panel::Kv) if app.overlay.is_none() => kv::page(app, direction),
        Focus::Panel(Panel::Batch) if app.overlay.is_none() && !app.panels.batch.settings => {
            let last = app.meter.steps.len().saturating_sub(1);
            let back = &mut app.panels.batch.step_back;
            *back = back.saturating_add_signed(-direction * STRIDE).min(last);
        }
        _ => scroll(app, direction * page(app) as isize),
    }
}

pub fn scroll(app: &mut App, by: isize) {
    if let Some(Overlay::Help(help)) = &mut app.overlay {
        return help.scroll_by(by);
    }
    let Shown { top, below, .. } = app.shown.get();
    let is_end = by > 0 && by as usize >= below;
    app.chat.scroll = (!is_end).then_some(Scroll::At(top.moved(by)));
}

fn next_sequence(app: &mut App, effects: &mut Vec<Effect>) {
    let running: Vec<_> =
        app.snapshot.sequences.iter().filter(|s| s.state == SequenceState::Running).map(|s| s.seq).collect();
    let at = running.iter().position(|seq| Some(*seq) == app.focused_seq);
    app.focused_seq = running.get(at.map_or(0, |at| at + 1)).copied();
    match app.focused_seq {
        Some(seq) => app.say(format!("tracing sequence {seq}")),
        None => app.say("tracing the first sequence"),
    }
    effects.push(Effect::Send(Command::Focus(app.focused_seq)));
}

fn in_panel(app: &mut App, action: Action, effects: &mut Vec<Effect>) {
    let Focus::Panel(panel) = app.focus else { return };
    match panel {
        Panel::Sampling => match action {
            Action::Decrease => sampling::nudge(app, -1.0, effects),
            Action::Increase => sampling::nudge(app, 1.0, effects),
            _ => app.panels.sampling.param = moved(app.panels.sampling.param, action, 1, PARAMS.len()),
        },
        Panel::Kv => kv::moved(app, action),
        Panel::Batch if app.panels.batch.settings => match action {
            Action::Decrease => scheduling::nudge(app, false, effects),
            Action::Increase => scheduling::nudge(app, true, effects),
            _ => app.panels.batch.setting = moved(app.panels.batch.setting, action, 1, SCHEDULING.len()),
        },
        Panel::Batch => {
            // Left on the strip is older, as down in the list is.
            let action = match action {
                Action::Decrease => Action::Down,
                Action::Increase => Action::Up,
                other => other,
            };
            let steps = app.meter.steps.len();
            app.panels.batch.step_back = moved(app.panels.batch.step_back, action, 1, steps);
        }
        Panel::Reasoning => reasoning::moved(app, action, effects),
        Panel::Metrics => {
            app.panels.scroll = moved(app.panels.scroll, action, 1, crate::tui::view::metrics_count(app));
        }
        Panel::Beams if has_branches(&app.chat) => branches::moved(app, action),
        Panel::Beams => {
            app.panels.scroll = moved(app.panels.scroll, action, 1, app.parsed.len().max(64));
        }
    }
}

/// `at` after a movement among `length` places, `row` of them in a row.
pub fn moved(at: usize, action: Action, row: usize, length: usize) -> usize {
    let to = match action {
        Action::Down => at.saturating_add(row),
        Action::Up => at.saturating_sub(row),
        Action::Increase => at + 1,
        Action::Decrease => at.saturating_sub(1),
        Action::First => 0,
        Action::Last => length,
        _ => at,
    };
    to.min(length.saturating_sub(1))
}

fn begin_typing(app: &mut App, key: KeyEvent) {
    if app.focus == Focus::Panel(Panel::Reasoning) {
        return reasoning::show_in_sampling(app);
    }
    let takes_values = match app.focus {
        Focus::Panel(Panel::Sampling) => true,
        Focus::Panel(Panel::Batch) => app.panels.batch.settings,
        _ => false,
    };
    let tries = app.panels.sampling.trial.is_some() && app.focus == Focus::Panel(Panel::Sampling);
    if takes_values && key.code == KeyCode::Enter && (tries || !replay::is_as_recorded(app)) {
        app.panels.typing = Some(String::new());
    }
}

fn edit_settings(app: &mut App) {
    if app.focus == Focus::Panel(Panel::Batch) {
        app.panels.batch.settings = !app.panels.batch.settings;
    } else {
        app.say("e edits the scheduler's settings in the batch panel: 3 opens it");
    }
}

/// A key while earlier inputs are searched; false lets it act as usual.
fn recalling(app: &mut App, key: KeyEvent) -> bool {
    if app.composer.recall().is_none() {
        return false;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('r') if control => app.composer.recall_older(),
        KeyCode::Char('c' | 'g') if control => app.composer.recall_end(false),
        KeyCode::Esc => app.composer.recall_end(false),
        KeyCode::Enter => app.composer.recall_end(true),
        KeyCode::Backspace => app.composer.recall_type(None),
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            app.composer.recall_type(Some(c));
        }
        _ => {
            app.composer.recall_end(true);
            return false;
        }
    }
    true
}

/// A key while a value is being typed; false lets it act as usual.
fn typing(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    let Some(typed) = &mut app.panels.typing else { return false };
    match key.code {
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() && typed.len() < 200 => {
            typed.push(c);
        }
        KeyCode::Backspace => {
            typed.pop();
        }
        KeyCode::Esc => app.panels.typing = None,
        KeyCode::Enter => {
            let typed = app.panels.typing.take().unwrap_or_default();
            if typed.trim().is_empty() {
                return true;
            }
            match app.focus {
                Focus::Panel(Panel::Batch) => {
                    if let Some(spec) = SCHEDULING.get(app.panels.batch.setting) {
                        scheduling::set(app, spec, &typed, effects);
                    }
                }
                _ => {
                    if let Some(spec) = PARAMS.get(app.panels.sampling.param) {
                        sampling::typed(app, spec, &typed, effects);
                    }
                }
            }
        }
        KeyCode::Tab | KeyCode::BackTab | KeyCode::Up | KeyCode::Down => {
            app.panels.typing = None;
            return false;
        }
        _ => return false,
    }
    true
}
