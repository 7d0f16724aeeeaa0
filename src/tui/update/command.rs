//! What slash commands do.

use super::{
    attach, branch, calls, compare, debug, engine, find, fork, guided, keymap, keys, layout, models, overlay,
    params, presets, resume, scheduling, sessions, tabs, take, theme, transcript,
};
use crate::base::nearest;
use crate::protocol::{BeamSearch, Command, PARAMS, ParamSpec, SCHEDULING, SchedulingSpec, Thinking};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::chat::{Chat, Level};
use crate::tui::format;
use crate::tui::panels::{Panel, SizeClass};
use crate::tui::slash::Slash;

/// More would not be readable, nor much faster.
const MAX_PARALLEL: u32 = 16;

pub fn run(app: &mut App, command: Slash, arguments: &str, effects: &mut Vec<Effect>) {
    match command {
        Slash::Help => overlay::help(app),
        Slash::Exit => effects.push(Effect::Quit),
        Slash::Clear => new_chat(app, effects),
        Slash::New => tabs::open(app),
        Slash::Tab => tabs::command(app, arguments, effects),
        Slash::Sessions => sessions::list(app, arguments, effects),
        Slash::Rename => sessions::rename(app, arguments),
        Slash::Save => sessions::tell(app),
        Slash::Duplicate => sessions::duplicate(app),
        Slash::Export => sessions::export(app, arguments, effects),
        Slash::Import => sessions::import(app, arguments, effects),
        Slash::Model => {
            effects.push(Effect::ListModels);
            models::choose(app, arguments, effects);
        }
        Slash::System if arguments == "edit" => {
            effects.push(Effect::EditSystem(app.chat.system.clone().unwrap_or_default()));
        }
        Slash::System if arguments.is_empty() && app.chat.system.is_some() => edit_system(app),
        Slash::System => system(app, arguments),
        Slash::Set => set_named(app, arguments, effects),
        Slash::Regenerate => branch::regenerate(app, effects),
        Slash::Edit => branch::edit(app, arguments),
        Slash::Version => branch::version(app, arguments),
        Slash::Continue => resume::resume(app, effects),
        Slash::Compare => compare::run(app, arguments, effects),
        Slash::Read => attach::read(app, arguments, effects),
        Slash::Glob => attach::glob(app, arguments, effects),
        Slash::Preset => presets::run(app, arguments, effects),
        Slash::Take => take::run(app, arguments),
        Slash::Stop => keys::stop(app, effects),
        Slash::Parallel => parallel(app, arguments, effects),
        Slash::Beam => beam(app, arguments),
        Slash::Pause => keys::hold(app, true, effects),
        Slash::Resume => keys::hold(app, false, effects),
        Slash::Step => match if arguments.is_empty() { Ok(1) } else { arguments.parse() } {
            Ok(n @ 1..) => step(app, n, effects),
            _ => app.chat.note(Level::Bad, format!("/step takes a number of steps, not {arguments:?}")),
        },
        Slash::Break => debug::set_break(app, arguments, effects),
        Slash::Unbreak => debug::clear(app, arguments, effects),
        Slash::Why => debug::why(app, arguments),
        Slash::Fork => fork::fork(app, arguments, effects),
        Slash::Diff => transcript::diff(app, arguments),
        Slash::Find => find::find(app, arguments),
        Slash::Panel => panel(app, arguments),
        Slash::Layout => layout::command(app, arguments),
        Slash::Theme => theme::command(app, arguments, effects),
        Slash::Mouse => mouse(app, arguments, effects),
        Slash::Keys => keymap::tell(app),
        Slash::Kv => kv(app, arguments, effects),
        Slash::Stats => stats(app),
        Slash::Context => context(app),
        Slash::Copy => copy(app, arguments, effects),
        Slash::Think => think(app, arguments),
        Slash::Tools => calls::command(app, arguments, effects),
        Slash::Schema | Slash::Grammar | Slash::Regex => guided::run(app, command, arguments, effects),
    }
}

pub fn unknown(app: &mut App, name: &str, nearest: Option<&str>) {
    let hint = match nearest {
        Some(nearest) => format!("did you mean /{nearest}?"),
        None => "/help lists them".into(),
    };
    app.chat.note(Level::Bad, format!("no command /{name}; {hint} (//{name} sends it as text)"));
}

/// Sets a parameter to what was typed, or says what would be right.
pub fn set(app: &mut App, spec: &'static ParamSpec, typed: &str, effects: &mut Vec<Effect>) {
    if super::replay::is_as_recorded(app) {
        return;
    }
    let mut changed = app.params.clone();
    match spec.parse(&mut changed, typed).and_then(|()| changed.check()) {
        Ok(()) => {
            app.say(format!("{} {}", spec.name, (spec.get)(&changed)));
            params::put(app, changed, &[spec.name], effects);
        }
        Err(why) => app.chat.note(Level::Bad, why.to_string()),
    }
}

pub fn step(app: &mut App, n: u32, effects: &mut Vec<Effect>) {
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    if !app.paused {
        keys::hold(app, true, effects);
    }
    app.panels.batch.step_back = 0;
    effects.push(Effect::Send(Command::Step(n)));
}

fn new_chat(app: &mut App, effects: &mut Vec<Effect>) {
    keys::stop(app, effects);
    sessions::leave_chat(app, effects);
    let system = app.chat.system.take();
    app.chat = Chat { system, thoughts_open: app.chat.thoughts_open, ..Chat::default() };
    app.chat.scroll = None;
}

/// The system prompt, in the input.
fn edit_system(app: &mut App) {
    let now = app.chat.system.clone().unwrap_or_default();
    app.composer.set(&format!("/system {now}"));
    app.say("Enter sets it, /system none takes it away, /system edit opens your editor");
}

pub fn system(app: &mut App, text: &str) {
    match text {
        "" => {}
        "none" | "off" => app.chat.system = None,
        text => app.chat.system = Some(text.to_owned()),
    }
    let now = app.chat.system.as_deref().map_or("none".to_owned(), |s| format!("{s:?}"));
    let when = if text.is_empty() { "" } else { ", from the next message on" };
    app.chat.note(Level::Info, format!("system prompt: {now}{when}"));
}

fn set_named(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    let split = arguments.split_once([' ', '=']).map(|(name, value)| (name, value.trim()));
    let (name, value) = split.unwrap_or((arguments, ""));
    if let Some(spec) = SchedulingSpec::find(name) {
        return scheduling::set_or_tell(app, spec, value, effects);
    }
    match (name, ParamSpec::find(name)) {
        ("", _) => {
            let table = format!("{}\n\n{}", params_table(app), scheduling::table(app));
            app.chat.note(Level::Info, table);
        }
        (_, Some(spec)) if value.is_empty() => {
            let now = (spec.get)(&app.params);
            app.chat.note(Level::Info, format!("{} is {now}: {}", spec.name, spec.help));
        }
        (_, Some(spec)) => set(app, spec, value, effects),
        (name, None) => {
            let known = PARAMS.iter().map(|s| s.name).chain(SCHEDULING.iter().map(|s| s.name));
            let nearest = nearest(name, known);
            let hint = nearest.map_or("/set lists them".into(), |n| format!("did you mean {n}?"));
            app.chat.note(Level::Bad, format!("no parameter {name:?}; {hint}"));
        }
    }
}

fn params_table(app: &App) -> String {
    let built_in = crate::protocol::SamplingParams::default();
    let row = |spec: &ParamSpec| {
        let (now, default) = ((spec.get)(&app.params), (spec.get)(&built_in));
        let origin = scheduling::origin(app, spec.name);
        let default = if now == default { String::new() } else { format!(" (built-in {default})") };
        format!("{:<26}  {:<6}  {origin:<8}  {}{default}", spec.name, now.to_string(), spec.help)
    };
    PARAMS.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// `4`, `4 PROMPT`, or several prompts split by ` | ` or line breaks.
fn parallel(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if app.ready().is_none() {
        app.say("no model is ready");
        return;
    }
    let (first, rest) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let (n, text) = match first.parse::<u32>() {
        Ok(n) => (n, rest.trim()),
        Err(_) => (0, arguments),
    };
    let separator = if text.contains('\n') { "\n" } else { " | " };
    let mut prompts: Vec<String> =
        text.split(separator).map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    if prompts.is_empty() {
        prompts.extend(app.chat.turns().rev().find(|t| !t.side).map(|t| t.text.clone()));
    }
    let each = if prompts.len() > 1 { 1 } else { n };
    match (prompts.len(), each) {
        (0, _) => app.chat.note(Level::Bad, "/parallel 4 PROMPT, or /parallel A | B for several prompts"),
        (1, 0 | 1) => {
            app.chat.note(Level::Bad, "/parallel needs a number from 2, or several prompts: /parallel A | B")
        }
        (m, k) if m as u32 > MAX_PARALLEL || k > MAX_PARALLEL => {
            app.chat.note(Level::Bad, format!("at most {MAX_PARALLEL} answers side by side"));
        }
        _ => engine::parallel(app, &prompts, each, effects),
    }
}

/// `4`, `4 0.6 never`, `off`; without arguments it says what holds.
fn beam(app: &mut App, arguments: &str) {
    match BeamSearch::parse(arguments, app.beam) {
        Ok(beam) => app.beam = beam,
        Err(why) => return app.chat.note(Level::Bad, why.to_string()),
    }
    let now = match app.beam {
        None => "off: answers are sampled".to_owned(),
        Some(beam) => format!("{beam}, from the next message on; panel 4 shows the tree"),
    };
    app.chat.note(Level::Info, format!("beam search: {now}"));
}

fn panel(app: &mut App, arguments: &str) {
    if arguments.is_empty() {
        let row = |p: &Panel| format!("{} {}", *p as u8, p.title());
        let all: Vec<String> = Panel::ALL.iter().map(row).collect();
        app.chat.note(Level::Info, format!("panels: {}; /panel 2 shows or hides one", all.join(" · ")));
        return;
    }
    for word in arguments.split_whitespace() {
        match Panel::ALL.into_iter().find(|p| (*p as u8).to_string() == word || p.title() == word) {
            Some(panel) => keys::toggle_panel(app, panel),
            None => app.chat.note(Level::Bad, format!("no panel {word:?}; there are 1, 2, 3, 5 and 6")),
        }
    }
    // Typed from the input: the input keeps the focus.
    app.focus = Focus::Input;
}

fn mouse(app: &mut App, typed: &str, effects: &mut Vec<Effect>) {
    app.mouse = match typed {
        "" => !app.mouse,
        "on" => true,
        "off" => false,
        other => return app.chat.note(Level::Bad, format!("/mouse takes on or off, not {other:?}")),
    };
    app.pointer = Default::default();
    effects.push(Effect::Mouse(app.mouse));
    app.say(match app.mouse {
        true => "the mouse is glassbox's; with Shift it marks text as the terminal does",
        false => "the mouse is the terminal's; /mouse on takes it again",
    });
}

fn kv(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if arguments == "reset" {
        effects.push(Effect::Send(Command::ResetPrefixCache));
        app.say("the prefix cache is dropped");
        return;
    }
    let class = app.class();
    if class != SizeClass::Tiny && !app.panels.open(class).contains(&Panel::Kv) {
        app.panels.toggle(class, Panel::Kv);
    }
    let (kv, counters) = (&app.snapshot.kv, &app.snapshot.counters);
    let text = format!(
        "KV cache: {} blocks of {} tokens · owned {} · cached {} · free {} · {} evictions · {} copies on write",
        format::count(kv.blocks.len() as u64),
        kv.block_size,
        kv.owned,
        kv.cached,
        kv.free,
        counters.evictions,
        counters.copies_on_write,
    );
    app.chat.note(Level::Info, text);
}

fn stats(app: &mut App) {
    let Some(last) = &app.meter.last else {
        app.chat.note(Level::Info, format!("no answer yet{}", memory(app)));
        return;
    };
    let (t, u) = (&last.timings, &last.usage);
    let text = format!(
        "last answer: {} · {} tokens, after a prompt of {} ({} cached) · seed {}\nTTFT {} · ITL {} · TPOT {} · {} tok/s · prompt {} tok/s · queued {} · in all {}",
        last.reason.name(),
        u.completion_tokens,
        u.prompt_tokens,
        u.cached_tokens,
        last.seed,
        format::millis(t.ttft_ms),
        format::millis(t.itl_ms_mean),
        format::millis(t.tpot_ms),
        format::rate_in_full(t.tokens_per_second),
        format::rate(t.prompt_tokens_per_second),
        format::millis(t.queue_ms),
        format::millis(t.e2el_ms),
    );
    app.chat.note(Level::Info, text + &memory(app));
}

fn context(app: &mut App) {
    let Some(limit) = app.ready().map(|info| info.context_length) else {
        app.say("no model is ready");
        return;
    };
    let used = app.context_used();
    let left = limit.saturating_sub(used);
    let share = format::percent(used as f64 / limit.max(1) as f64);
    let text = format!(
        "context: {} of {} tokens ({share}), {} left; /clear starts anew",
        format::count(used as u64),
        format::count(limit as u64),
        format::count(left as u64)
    );
    app.chat.note(Level::Info, text + &memory(app));
}

/// What was planned before anything was allocated, on a line of its own.
fn memory(app: &App) -> String {
    let plan = &app.snapshot.memory;
    if plan.available == 0 {
        return String::new();
    }
    let host = match plan.host_kv_cache {
        0 => String::new(),
        bytes => format!(" · KV cache on the host {}", format::bytes(bytes)),
    };
    format!(
        "\nmemory: weights {} · KV cache {} · workspace {} · left {} of {}{host}",
        format::bytes(plan.weights),
        format::bytes(plan.kv_cache),
        format::bytes(plan.workspace),
        format::bytes(plan.left),
        format::bytes(plan.available),
    )
}

fn copy(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    let Some(answer) = app.chat.last_answer().filter(|a| !a.text.is_empty()) else {
        app.say("no answer to copy");
        return;
    };
    match arguments {
        "" => effects.push(Effect::Copy(answer.text.trim().to_owned())),
        other => match other.strip_prefix("code").map(str::trim) {
            Some(which) => transcript::copy_code(app, which, effects),
            None => app
                .chat
                .note(Level::Bad, format!("/copy copies the answer, /copy code its code, not {other:?}")),
        },
    }
}

/// How thoughts are shown, and from the next message on how the model thinks.
fn think(app: &mut App, arguments: &str) {
    match arguments {
        "" => transcript::fold_all(app),
        "fold" | "show" => {
            app.parse_reasoning = true;
            app.chat.thoughts_open = arguments == "show";
        }
        "raw" => app.parse_reasoning = false,
        other => return think_next(app, other),
    }
    app.say(match (app.parse_reasoning, app.chat.thoughts_open) {
        (false, _) => "thoughts stay in the text, tags and all, from the next message on",
        (true, true) => "thoughts are shown",
        (true, false) => "thoughts are folded",
    });
}

fn think_next(app: &mut App, typed: &str) {
    let mut thinking = app.thinking.clone();
    let set = match typed.strip_prefix("budget").map(str::trim) {
        Some("none" | "off") => {
            thinking.budget = None;
            Ok(())
        }
        Some(n) => n
            .parse()
            .map(|n| thinking.budget = Some(n))
            .map_err(|_| "budget takes a number of tokens, or none"),
        None => thinking.set(typed),
    };
    if let Err(why) = set {
        let text = format!("/think {typed}: {why}; /think fold, show or raw is how thoughts are shown");
        return app.chat.note(Level::Bad, text);
    }
    app.thinking = thinking;
    let Thinking { enabled, effort, budget } = &app.thinking;
    let how = match (enabled, effort) {
        (_, Some(level)) => level.clone(),
        (Some(on), None) => if *on { "on" } else { "off" }.into(),
        (None, None) => "as the model does by itself".into(),
    };
    let most = budget.map_or(String::new(), |n| format!(", {n} tokens at most"));
    app.say(format!("thinking: {how}{most}, from the next message on"));
}
