//! The screen, driven as a person drives it: keys and engine events in, a picture out. No clock, no
//! terminal: time is a number, the engine is stepped by hand.
#![allow(clippy::unwrap_used)]

#[path = "screen/batch_panel.rs"]
mod batch_panel;
#[path = "screen/beams.rs"]
mod beams;
#[path = "screen/branches.rs"]
mod branches;
#[path = "screen/branching.rs"]
mod branching;
#[path = "screen/compare.rs"]
mod compare;
#[path = "screen/composing.rs"]
mod composing;
#[path = "screen/debugger.rs"]
mod debugger;
#[path = "support/fake_engine.rs"]
mod fake_engine;
#[path = "screen/find.rs"]
mod find;
#[path = "screen/guided.rs"]
mod guided;
#[path = "screen/history.rs"]
mod history;
#[path = "screen/kv_panel.rs"]
mod kv_panel;
#[path = "screen/markdown.rs"]
mod markdown;
#[path = "screen/message_keys.rs"]
mod message_keys;
#[path = "screen/metrics.rs"]
mod metrics;
#[path = "screen/reasoning.rs"]
mod reasoning;
#[path = "screen/sampling.rs"]
mod sampling;
#[path = "screen/scripts.rs"]
mod scripts;
#[path = "screen/sessions.rs"]
mod sessions;
#[path = "screen/settings.rs"]
mod settings;
#[path = "screen/shell.rs"]
mod shell;
#[path = "screen/switching.rs"]
mod switching;
#[path = "screen/tokens.rs"]
mod tokens;
#[path = "screen/tools.rs"]
mod tool_calls;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fake_engine::{FakeEngine, model_info};
use glassbox::protocol::*;
use glassbox::tui::{
    App, Depth, Effect, FetchEvent, Focus, Message, ModelChoice, ModelState, Panel, ScreenOptions,
    SessionOptions, Theme, draw, update,
};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::sync::Arc;
use std::time::Duration;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A person at a screen of some size, over an engine without a model.
struct Desk {
    app: App,
    engine: FakeEngine,
    now: Duration,
    effects: Vec<Effect>,
}

impl Desk {
    /// Before anything is known of models.
    fn new((width, height): (u16, u16)) -> Self {
        Self::with(ScreenOptions::default(), (width, height))
    }

    fn with(options: ScreenOptions, (width, height): (u16, u16)) -> Self {
        let theme = Theme::load("dark", None, Depth::Sixteen).unwrap();
        let app = App::new(options, theme, vec![]);
        let mut desk = Self { app, engine: FakeEngine::default(), now: Duration::ZERO, effects: vec![] };
        desk.tell(Message::Resize(width, height));
        desk
    }

    /// With a model that has been loaded.
    fn ready(size: (u16, u16)) -> Self {
        let mut desk = Self::new(size);
        desk.tell(Message::Models(catalogue(true)));
        assert!(desk.effects.contains(&Effect::Open("smollm2-135m".into())));
        desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
        desk.look();
        desk
    }

    /// Handles a message, and lets the engine hear what follows from it.
    fn tell(&mut self, message: Message) {
        let effects = update(&mut self.app, message, self.now);
        for effect in effects {
            if let Effect::Send(command) = &effect {
                let events = self.engine.command(command.clone());
                self.effects.push(effect);
                self.tell(Message::Engine(events));
            } else if let Effect::Open(name) = &effect {
                let opening = Message::Opening(name.clone());
                self.effects.push(effect);
                self.tell(opening);
            } else {
                self.effects.push(effect);
            }
        }
    }

    fn press(&mut self, code: KeyCode) {
        self.tell(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn ctrl(&mut self, c: char) {
        self.tell(Message::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)));
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|c| self.press(KeyCode::Char(c)));
    }

    fn say(&mut self, text: &str) {
        self.type_text(text);
        self.press(KeyCode::Enter);
    }

    /// Lets the engine take `n` steps, 8 ms each.
    fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.now += Duration::from_millis(8);
            let events = self.engine.step();
            self.tell(Message::Engine(events));
            self.look();
        }
    }

    fn finish(&mut self) {
        while !self.engine.is_idle() {
            self.steps(1);
        }
    }

    fn look(&mut self) {
        let snapshot = Arc::new(self.engine.snapshot());
        self.tell(Message::Snapshot(snapshot));
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.app.now = self.now;
    }

    /// Draws, and lets the person see it.
    fn frame(&mut self) {
        self.app.now = self.now;
        self.buffer();
        self.app.frame_shown(self.now);
    }

    fn buffer(&self) -> Buffer {
        let (width, height) = self.app.size;
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        draw(&self.app, &mut buffer);
        buffer
    }

    fn picture(&self) -> String {
        let buffer = self.buffer();
        let row = |y: u16| {
            let mut line = String::new();
            let mut hidden = 0;
            for x in 0..buffer.area.width {
                let symbol = buffer[(x, y)].symbol();
                if hidden == 0 {
                    line.push_str(symbol);
                    hidden = unicode_width::UnicodeWidthStr::width(symbol).max(1);
                }
                hidden -= 1;
            }
            line.trim_end().to_owned()
        };
        (0..buffer.area.height).map(row).collect::<Vec<_>>().join("\n")
    }

    /// As [`Self::picture`], without the scrollbar.
    fn text(&self) -> String {
        self.picture().lines().map(|line| line.replace('┃', " ").trim_end().to_owned() + "\n").collect()
    }

    fn sent(&self) -> Vec<&Command> {
        self.effects.iter().filter_map(|e| if let Effect::Send(c) = e { Some(c) } else { None }).collect()
    }
}

fn catalogue(on_disk: bool) -> Vec<ModelChoice> {
    let smollm = ModelChoice {
        name: "smollm2-135m".into(),
        description: "A small instruction-tuned chat model: quick on any processor.".into(),
        bytes: 98_362_432,
        licence: "Apache-2.0".into(),
        target: "/home/me/.local/share/glassbox/models/smollm2-135m.gguf".into(),
        on_disk,
        is_default: true,
        context: 8192,
        need: None,
    };
    let qwen = ModelChoice {
        name: "qwen2.5-coder-0.5b".into(),
        bytes: 491_400_064,
        is_default: false,
        on_disk: false,
        ..smollm.clone()
    };
    vec![smollm, qwen]
}

fn snapshot(name: &str, desk: &Desk) {
    let (width, height) = desk.app.size;
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), desk.picture());
}

#[test]
fn without_a_model_the_default_is_offered_and_one_key_fetches_it() {
    for size in SIZES {
        let mut desk = Desk::new(size);
        desk.tell(Message::Models(catalogue(false)));
        assert_eq!(desk.app.focus, Focus::Input);
        snapshot("first_run", &desk);
        desk.press(KeyCode::Enter);
        assert_eq!(desk.effects, [Effect::Fetch("smollm2-135m".into())]);
    }
}

#[test]
fn what_is_written_during_the_download_is_sent_when_the_model_is_ready() {
    let mut desk = Desk::new(SIZES[1]);
    desk.tell(Message::Models(catalogue(false)));
    desk.press(KeyCode::Enter);
    desk.tell(Message::Fetch(FetchEvent::Progress { done: 0, total: 98_362_432, source: "a mirror".into() }));
    desk.wait(2_000);
    desk.tell(Message::Fetch(FetchEvent::Progress {
        done: 49_181_216,
        total: 98_362_432,
        source: "a mirror".into(),
    }));
    desk.say("hello there");
    snapshot("fetching", &desk);
    desk.tell(Message::Fetch(FetchEvent::Done { path: "/models".into() }));
    assert!(desk.effects.contains(&Effect::Open("smollm2-135m".into())));
    desk.tell(Message::Engine(vec![Event::Loading {
        stage: LoadStage::Reading,
        done: 30_000_000,
        total: 98_362_432,
    }]));
    snapshot("loading", &desk);
    assert!(desk.sent().is_empty());
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    let [Command::Submit(request)] = desk.sent()[..] else { panic!("{:?}", desk.effects) };
    assert_eq!(
        request.prompt,
        Prompt::Chat(vec![glassbox::protocol::Message::new(Role::User, "hello there")])
    );
}

#[test]
fn escape_cancels_the_download_and_typing_goes_on() {
    let mut desk = Desk::new(SIZES[0]);
    desk.tell(Message::Models(catalogue(false)));
    desk.press(KeyCode::Enter);
    desk.type_text("hi");
    desk.press(KeyCode::Esc);
    assert_eq!(desk.effects.last(), Some(&Effect::CancelFetch));
    desk.tell(Message::Fetch(FetchEvent::Cancelled));
    assert!(desk.picture().contains("cancelled"));
    assert_eq!(desk.app.composer_text(), "hi");
}

#[test]
fn an_answer_streams_beside_its_panels() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why is the sky blue?");
        desk.steps(75);
        snapshot("streaming", &desk);
        desk.finish();
        snapshot("answered", &desk);
    }
}

#[test]
fn thoughts_are_folded_until_asked_for() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(20);
    let folded = desk.picture();
    assert!(folded.contains("▸ thinking") && !folded.contains("Rayleigh scattering"), "{folded}");
    desk.ctrl('o');
    assert!(desk.picture().contains("Rayleigh scattering"));
    desk.steps(20);
    snapshot("thoughts", &desk);
}

#[test]
fn four_streams_of_one_batch_stand_side_by_side() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/parallel 4 Tell me about the sky");
        let [Command::Submit(request)] = desk.sent()[..] else { panic!("{:?}", desk.effects) };
        assert_eq!(request.n, 4);
        desk.steps(60);
        snapshot("parallel", &desk);
    }
}

#[test]
fn a_finished_stream_shows_its_whole_seed() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/set seed 4108349267");
        desk.say("/parallel 4 Tell me about the sky");
        desk.finish();
        desk.buffer();
        desk.tell(Message::Key(KeyEvent::new(KeyCode::Home, KeyModifiers::CONTROL)));
        let picture = desk.picture();
        assert!(picture.contains("─ seed 4108349267 ─"), "{picture}");
    }
}

#[test]
fn several_prompts_are_several_requests_and_no_part_of_the_chat() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/parallel one | two | three");
    assert_eq!(desk.sent().len(), 3);
    desk.finish();
    desk.say("and now?");
    let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
    assert_eq!(request.prompt, Prompt::Chat(vec![glassbox::protocol::Message::new(Role::User, "and now?")]));
}

#[test]
fn a_parameter_set_while_streaming_reaches_the_request_and_is_marked() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(50);
    desk.say("/set temp 0.2");
    assert!(desk.sent().iter().any(|c| matches!(c, Command::SetParams(_, p) if p.temperature == 0.2)));
    desk.steps(10);
    assert!(desk.picture().contains("‹temperature 0.8→0.2›"), "{}", desk.picture());
}

#[test]
fn parameters_are_changed_in_the_panel_with_arrows_and_typed_values() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(50);
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.focus, Focus::Transcript);
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.focus, Focus::Panel(Panel::Sampling));
    desk.press(KeyCode::Left);
    assert_eq!(desk.app.params.temperature, 0.7);
    desk.press(KeyCode::Char('j'));
    desk.press(KeyCode::Enter);
    desk.type_text("5");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.params.top_k, 5);
    desk.press(KeyCode::Enter);
    desk.type_text("-1");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.params.top_k, 5);
    desk.steps(2);
    snapshot("sampling_edited", &desk);
}

#[test]
fn the_engine_is_paused_stepped_and_resumed() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(40);
    desk.press(KeyCode::F(5));
    desk.steps(10);
    let held = desk.engine.snapshot().step;
    snapshot("paused", &desk);
    desk.press(KeyCode::F(6));
    desk.steps(10);
    assert_eq!(desk.engine.snapshot().step, held + 1);
    desk.say("/step 3");
    desk.steps(10);
    assert_eq!(desk.engine.snapshot().step, held + 4);
    desk.press(KeyCode::F(5));
    desk.finish();
    assert!(!desk.app.paused);
}

#[test]
fn escape_stops_and_the_partial_text_stays() {
    // BUGLOG X28
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(50);
    desk.press(KeyCode::Esc);
    assert!(matches!(desk.sent().last(), Some(Command::Abort(_))));
    let picture = desk.picture();
    assert!(picture.contains("stopped") && picture.contains("The sky is blue"), "{picture}");
    desk.say("go on");
    let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
    let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
    assert_eq!(messages.len(), 3);
    assert!(messages[1].content.starts_with("The sky is blue"));
}

#[test]
fn control_c_clears_then_stops_then_quits() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(5);
    desk.type_text("draft");
    desk.ctrl('c');
    assert_eq!(desk.app.composer_text(), "");
    desk.ctrl('c');
    assert!(matches!(desk.sent().last(), Some(Command::Abort(_))));
    desk.ctrl('c');
    assert!(desk.picture().contains("again to quit"));
    assert!(!desk.effects.contains(&Effect::Quit));
    desk.ctrl('c');
    assert!(desk.effects.contains(&Effect::Quit));
}

#[test]
fn control_d_quits_only_on_an_empty_input() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.type_text("x");
    desk.ctrl('d');
    assert!(!desk.effects.contains(&Effect::Quit));
    desk.press(KeyCode::Backspace);
    desk.ctrl('d');
    assert!(desk.effects.contains(&Effect::Quit));
}

#[test]
fn a_message_written_during_an_answer_waits_for_it() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("one");
    desk.steps(5);
    desk.say("two");
    assert_eq!(desk.sent().len(), 1);
    assert!(desk.picture().contains("1 message waits"));
    desk.finish();
    assert_eq!(desk.app.snapshot.sequences.len(), 0);
    assert_eq!(desk.sent().len(), 2);
}

#[test]
fn regenerating_asks_the_same_again() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("one");
    desk.finish();
    desk.press(KeyCode::F(3));
    let prompts: Vec<_> = desk
        .sent()
        .into_iter()
        .filter_map(|c| if let Command::Submit(r) = c { Some(r.prompt.clone()) } else { None })
        .collect();
    assert_eq!(prompts.len(), 2);
    assert_eq!(prompts[0], prompts[1]);
    desk.finish();
    assert_eq!(desk.picture().matches("› one").count(), 1);
}

#[test]
fn a_prompt_over_the_context_is_refused_with_its_numbers_and_the_session_goes_on() {
    // BUGLOG K10
    let mut desk = Desk::ready(SIZES[1]);
    desk.tell(Message::Paste("word ".repeat(8_000)));
    desk.press(KeyCode::Enter);
    let picture = desk.picture();
    assert!(picture.contains("8192") && picture.contains("/clear"), "{picture}");
    desk.say("short");
    desk.steps(2);
    assert_eq!(desk.engine.snapshot().sequences.len(), 1);
}

#[test]
fn errors_are_notes_in_the_transcript() {
    for size in SIZES {
        let mut desk = Desk::new(size);
        desk.tell(Message::Models(catalogue(true)));
        let failure =
            Failure::new(FailureKind::Model, "tensor blk.3.ffn_up.weight ends 12 bytes past the file");
        desk.tell(Message::Engine(vec![Event::LoadFailed(failure)]));
        assert!(matches!(desk.app.model, ModelState::Failed { .. }));
        desk.say("/parralel 4");
        desk.say("/set temperature 2000");
        desk.say("/set tempp 1");
        snapshot("errors", &desk);
    }
}

#[test]
fn help_lists_the_keys_and_commands_there_are() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.press(KeyCode::F(1));
        snapshot("help", &desk);
        desk.press(KeyCode::Esc);
        assert!(desk.app.overlay.is_none());
    }
}

#[test]
fn a_failed_download_says_why_in_view_and_what_waits_stays_below() {
    let mut desk = Desk::new(SIZES[0]);
    desk.tell(Message::Models(catalogue(false)));
    desk.press(KeyCode::Enter);
    desk.say("hello");
    let why = "no network: pip and the hub were tried in turn, and neither could be reached; \
               put SmolLM2-135M-Instruct.Q4_1.gguf into /home/me/.local/share/glassbox/models/smollm2-135m, \
               or open any other GGUF file by its path";
    desk.tell(Message::Fetch(FetchEvent::Failed(why.into())));
    let picture = desk.picture();
    let at = |text| picture.find(text).unwrap_or_else(|| panic!("no {text:?} in\n{picture}"));
    assert!(at("! smollm2-135m was not fetched: no network") < at("› hello"), "{picture}");
    assert!(at("› hello") < at("Enter fetches smollm2-135m, 98 MB"), "{picture}");
}

#[test]
fn a_download_that_has_hardly_begun_foretells_nothing() {
    let mut desk = Desk::new(SIZES[0]);
    desk.tell(Message::Models(catalogue(false)));
    desk.press(KeyCode::Enter);
    let progress = |done| FetchEvent::Progress { done, total: 98_362_432, source: "a mirror".into() };
    desk.tell(Message::Fetch(progress(0)));
    desk.wait(7_000);
    desk.tell(Message::Fetch(progress(1_000)));
    assert!(!desk.picture().contains("left"), "{}", desk.picture());
    desk.tell(Message::Fetch(progress(14_000_000)));
    assert!(desk.picture().contains("2.0 MB/s · 42 s left"), "{}", desk.picture());
}

#[test]
fn a_model_that_cannot_be_opened_leaves_the_one_in_use() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(5);
    let update = |desk: &mut Desk, message| update(&mut desk.app, message, desk.now);
    let why = "no such file".to_owned();
    update(&mut desk, Message::OpenFailed { name: "/nowhere.gguf".into(), why });
    assert!(desk.picture().contains("/nowhere.gguf cannot be opened: no such file"), "{}", desk.picture());
    desk.finish();
    assert!(desk.app.ready().is_some() && desk.picture().contains("blue"), "{}", desk.picture());
}

#[test]
fn a_long_message_is_shown_by_its_beginning_and_sent_in_full() {
    let mut desk = Desk::ready(SIZES[0]);
    let text = (0..1_000).map(|i| format!("line {i}")).collect::<Vec<_>>().join("\n");
    desk.tell(Message::Paste(text.clone()));
    desk.press(KeyCode::Enter);
    let [Command::Submit(request)] = desk.sent()[..] else { panic!("{:?}", desk.effects) };
    assert_eq!(request.prompt, Prompt::Chat(vec![glassbox::protocol::Message::new(Role::User, text)]));
    let picture = desk.text();
    assert!(picture.contains("line 9\n") && !picture.contains("line 10"), "{picture}");
    assert!(picture.contains("… 1,000 lines, 9 kB in all"), "{picture}");
}

#[test]
fn commands_are_answered_in_view_also_when_scrolled_back() {
    let mut desk = Desk::ready(SIZES[0]);
    for _ in 0..3 {
        desk.say("Why?");
        desk.finish();
    }
    desk.buffer();
    desk.press(KeyCode::PageUp);
    desk.say("/context");
    assert!(desk.picture().contains("of 8,192 tokens"), "{}", desk.picture());
}

#[test]
fn few_used_blocks_of_many_are_a_cell_each() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(60);
    let mut snapshot = desk.engine.snapshot();
    let owned = snapshot.kv.owned;
    snapshot.kv.free += 8_193 - snapshot.kv.blocks.len();
    snapshot.kv.blocks.resize(8_193, BlockView::default());
    desk.tell(Message::Snapshot(Arc::new(snapshot)));
    let picture = desk.picture();
    let cells = picture.matches(['█', '▓', '◆']).count();
    let map = picture.lines().skip_while(|l| !l.contains("2 kv blocks")).skip(1).take(4);
    let in_map: usize = map.map(|l| l.rsplit('│').next().unwrap_or("").matches(['█', '◆']).count()).sum();
    assert!(owned > 1 && cells >= owned, "{picture}");
    assert_eq!(in_map, owned, "{picture}");
    assert!(picture.contains("8,193 blocks of 16"), "{picture}");
}

#[test]
fn the_sampling_panel_says_rank_and_log_probability_of_the_drawn_token() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.steps(60);
        assert!(desk.picture().contains("H 0.91→0.71 nat · rank 1 · logp -0.34"), "{}", desk.picture());
    }
}

#[test]
fn models_are_listed_and_switched_with_the_keyboard() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.press(KeyCode::F(2));
    assert!(desk.picture().contains("qwen2.5-coder-0.5b"));
    desk.press(KeyCode::Esc);
    desk.say("/model qwen2.5-coder-0.5b");
    assert!(desk.effects.contains(&Effect::Fetch("qwen2.5-coder-0.5b".into())));
    desk.say("/model smolm2-135m");
    assert!(desk.picture().contains("did you mean smollm2-135m?"), "{}", desk.picture());
}

#[test]
fn commands_complete_with_tab_and_run_with_enter() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.type_text("/st");
    snapshot("completion", &desk);
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.composer_text(), "/step ");
    desk.ctrl('c');
    desk.type_text("/paus");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.sent(), [&Command::Pause]);
}

#[test]
fn names_after_a_command_complete_too() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.type_text("/set te");
    assert!(desk.picture().contains("temperature                  0.8"), "{}", desk.picture());
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.composer_text(), "/set temperature ");
    desk.type_text("0.3");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.params.temperature, 0.3);
    desk.say("/set ");
    assert!(desk.picture().contains("min_p"), "{}", desk.picture());
    desk.say("/model qw");
    assert!(desk.effects.contains(&Effect::Fetch("qwen2.5-coder-0.5b".into())));
}

#[test]
fn earlier_inputs_are_found_by_a_part_of_them() {
    let mut desk = Desk::ready(SIZES[0]);
    for text in ["/set temp 1", "/context", "/set top_k 3"] {
        desk.say(text);
    }
    desk.type_text("draft");
    desk.ctrl('r');
    desk.type_text("set");
    assert_eq!(desk.app.composer_text(), "/set top_k 3");
    desk.ctrl('r');
    assert_eq!(desk.app.composer_text(), "/set temp 1");
    assert!(desk.picture().contains("earlier inputs with: set"), "{}", desk.picture());
    desk.press(KeyCode::Esc);
    assert_eq!(desk.app.composer_text(), "draft");
    desk.ctrl('r');
    desk.type_text("con");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.composer_text(), "/context");
}

#[test]
fn a_draft_goes_to_the_editor_with_its_pastes_and_comes_back() {
    let mut desk = Desk::ready(SIZES[0]);
    let paste = "x\n".repeat(30);
    desk.tell(Message::Paste(paste.clone()));
    desk.type_text("why?");
    desk.ctrl('g');
    assert_eq!(desk.effects.last(), Some(&Effect::Edit(format!("{paste}why?"))));
    desk.tell(Message::Edited(Ok("shorter".into())));
    assert_eq!(desk.app.composer_text(), "shorter");
    desk.tell(Message::Edited(Err("vi ended with exit status: 1".into())));
    assert_eq!(desk.app.composer_text(), "shorter");
    assert!(desk.picture().contains("as it was: vi ended"), "{}", desk.picture());
}

#[test]
fn two_slashes_send_one() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("//etc/hosts");
    let [Command::Submit(request)] = desk.sent()[..] else { panic!("{:?}", desk.effects) };
    assert_eq!(
        request.prompt,
        Prompt::Chat(vec![glassbox::protocol::Message::new(Role::User, "/etc/hosts")])
    );
}

#[test]
fn panels_are_toggled_zoomed_and_left() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(60);
    desk.press(KeyCode::Tab);
    desk.press(KeyCode::Tab);
    desk.press(KeyCode::Char('6'));
    assert_eq!(desk.app.focus, Focus::Panel(Panel::Metrics));
    desk.press(KeyCode::Char('z'));
    snapshot("metrics_zoomed", &desk);
    desk.press(KeyCode::Char('6'));
    desk.press(KeyCode::Char('5'));
    desk.press(KeyCode::Char('z'));
    desk.press(KeyCode::Char('z'));
    snapshot("reasoning_zoomed", &desk);
    desk.press(KeyCode::Esc);
    assert_eq!(desk.app.focus, Focus::Input);
}

#[test]
fn a_call_is_seen_as_it_forms_and_what_is_held_back_says_why() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/think budget 64");
        desk.say("What is the weather?");
        let Some(Command::Submit(request)) = desk.sent().last().copied() else { panic!("nothing sent") };
        assert_eq!(request.thinking.budget, Some(64));
        if size != SIZES[2] {
            desk.press(KeyCode::Tab);
            desk.press(KeyCode::Tab);
            desk.press(KeyCode::Char('5'));
            desk.press(KeyCode::Char('z'));
        }
        desk.steps(37);
        let picture = desk.picture();
        let parts = ["call 1 get_weather", "a tag?", "→ tool call", "34 of 64 left"];
        assert!(parts.iter().all(|part| picture.contains(part)), "{picture}");
    }
}

#[test]
fn think_says_how_the_next_message_is_thought_about() {
    let mut desk = Desk::ready(SIZES[1]);
    for (typed, enabled, effort) in
        [("on", Some(true), None), ("off", Some(false), None), ("high", Some(true), Some("high"))]
    {
        desk.say(&format!("/think {typed}"));
        assert_eq!((desk.app.thinking.enabled, desk.app.thinking.effort.as_deref()), (enabled, effort));
    }
    desk.say("/think budget x");
    assert!(desk.picture().contains("budget takes a number of tokens"));
    desk.say("/think auto");
    desk.say("/think budget none");
    assert_eq!(desk.app.thinking, glassbox::protocol::Thinking::default());
    desk.say("/think fold");
    assert!(desk.app.parse_reasoning);
}

#[test]
fn a_paste_of_many_lines_is_one_insertion_and_no_submission() {
    // BUGLOG X18
    let mut desk = Desk::ready(SIZES[1]);
    desk.tell(Message::Paste("echo\r\n".repeat(50)));
    assert!(desk.sent().is_empty());
    desk.press(KeyCode::Enter);
    assert_eq!(desk.sent().len(), 1);
}

#[test]
fn foreign_escape_sequences_are_drawn_as_text_wherever_they_come_from() {
    // BUGLOG X01, X02, X05: answer, thoughts, prompt, note, error, model name, device, file, paste, token.
    let evil = "a\x1b]52;c;SGVsbG8=\x07b\x1b[31mc\x1b]8;;http://x\x1b\\d\u{9b}2J\u{202e}e";
    for size in SIZES {
        let mut desk = Desk::new(size);
        let mut choices = catalogue(false);
        choices[0].name = evil.into();
        choices[0].target = evil.into();
        desk.tell(Message::Models(choices));
        clean(&desk);
        let info =
            ModelInfo { name: evil.into(), device: evil.into(), quantization: evil.into(), ..model_info() };
        desk.tell(Message::Engine(vec![Event::Ready(Box::new(info)), Event::Note(evil.into())]));
        desk.tell(Message::Paste(evil.into()));
        clean(&desk);
        desk.press(KeyCode::Enter);
        let seq = SeqId { request: RequestId(1), choice: 0 };
        desk.tell(Message::Engine(vec![
            Event::Delta { seq, part: Part::Reasoning(evil.into()) },
            Event::Delta {
                seq,
                part: Part::Text(format!("{evil}\n\n```sh\n{evil}\n```\n| {evil} | b |\n|---|---|\n")),
            },
            Event::LoadFailed(Failure::new(FailureKind::Model, evil)),
        ]));
        desk.ctrl('o');
        desk.steps(3);
        clean(&desk);
    }
}

fn clean(desk: &Desk) {
    let buffer = desk.buffer();
    let bad = buffer.content.iter().find(|c| c.symbol().chars().any(|c| c.is_control() || c == '\u{202e}'));
    assert!(bad.is_none(), "{bad:?}\n{}", desk.picture());
}

#[test]
fn wide_characters_never_break_a_column() {
    // BUGLOG X13
    let mut desk = Desk::ready(SIZES[1]);
    let info = ModelInfo { name: "Qwen3-日本語🦙".into(), ..model_info() };
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(info))]));
    desk.say("日本語で 👩\u{200d}🔬 e\u{301} مرحبا gpt-5");
    desk.steps(30);
    let picture = desk.picture();
    let columns = |line: &str| unicode_width::UnicodeWidthStr::width(line.split('│').next().unwrap_or(""));
    let lines: Vec<&str> = picture.lines().skip(2).take(8).collect();
    assert!(lines.iter().all(|l| columns(l) == columns(lines[0])), "{picture}");
    snapshot("wide_characters", &desk);
}

#[test]
fn ascii_mode_draws_nothing_else() {
    let mut desk = Desk::with(ScreenOptions { ascii: true, ..ScreenOptions::default() }, SIZES[2]);
    desk.tell(Message::Models(catalogue(true)));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    desk.say("Why?");
    desk.steps(60);
    let picture = desk.picture().replace('空', "?");
    let odd: Vec<char> = picture.chars().filter(|c| !c.is_ascii()).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn no_size_is_too_small_to_draw() {
    // BUGLOG X15
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(60);
    for width in 1..=60 {
        for height in 1..=15 {
            desk.tell(Message::Resize(width, height));
            desk.buffer();
        }
    }
    desk.tell(Message::Resize(10, 3));
    assert!(desk.picture().contains("too small"));
    desk.tell(Message::Resize(59, 14));
    snapshot("tiny", &desk);
}

#[test]
fn a_thousand_resizes_while_streaming_end_in_the_right_picture() {
    // BUGLOG X17
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    let mut random = 12_345_u32;
    for i in 0..1_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        desk.tell(Message::Resize(1 + (random >> 8) as u16 % 240, 1 + (random >> 20) as u16 % 70));
        if i % 10 == 0 {
            desk.steps(1);
        }
        desk.buffer();
    }
    desk.tell(Message::Resize(120, 40));
    let after = desk.picture();
    let mut calm = Desk::ready(SIZES[1]);
    calm.say("Why?");
    calm.steps(100);
    let words =
        |p: &str| p.lines().skip(4).map(|l| l.split('│').next().unwrap_or("").to_owned()).collect::<Vec<_>>();
    assert_eq!(words(&after), words(&calm.picture()));
}

#[test]
fn scrolling_back_stays_put_while_the_answer_grows() {
    let mut desk = Desk::ready(SIZES[0]);
    for _ in 0..3 {
        desk.say("Why?");
        desk.finish();
    }
    desk.buffer();
    desk.press(KeyCode::PageUp);
    desk.press(KeyCode::PageUp);
    let top = |desk: &Desk| desk.text().lines().skip(1).take(10).map(str::to_owned).collect::<Vec<_>>();
    let before = top(&desk);
    desk.tell(Message::Engine(vec![Event::Note("more".into())]));
    assert_eq!(top(&desk), before);
    desk.tell(Message::Key(KeyEvent::new(KeyCode::End, KeyModifiers::CONTROL)));
    assert!(desk.picture().contains("more"));
}

#[test]
fn without_colour_nothing_is_coloured() {
    let theme = Theme::load("dark", None, Depth::None).unwrap();
    let mut desk = Desk::ready(SIZES[2]);
    desk.app.theme = theme;
    desk.say("Why?");
    desk.steps(60);
    let coloured = desk
        .buffer()
        .content
        .iter()
        .any(|c| c.fg != ratatui::style::Color::Reset || c.bg != ratatui::style::Color::Reset);
    assert!(!coloured);
}
