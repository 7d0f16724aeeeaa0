//! The screen over an engine that says canned answers: to look at the screen without a model.
//!
//! `screen_demo` starts with a model, `screen_demo --fresh` with none (the download is played too).
//! `--sessions FILE` keeps what is said there, and `-c` goes on with it.
//! Asked about the weather the model calls a tool: of `Oslo` (`weather`), of two places (`two`), again
//! and again (`forever`).
//! `--blocks N` gives the KV cache that many.
//! Asked about `markdown` it says all of it.
//! Inputs exist for tests: the model names `./panic` (panics in the screen's thread), `./broken` (does
//! not load), the message `panic` (the engine's thread panics), and the search `/sessions panic` (the
//! thread of the sessions panics).

#[path = "../tests/support/fake_engine.rs"]
#[allow(dead_code)]
mod fake_engine;
#[path = "../tests/support/hostile_engine.rs"]
mod hostile;
#[path = "../tests/support/hostile_server.rs"]
mod hostile_server;
#[path = "../tests/support/hostile.rs"]
#[allow(dead_code)]
mod payloads;

use fake_engine::{FakeEngine, model_info};
use glassbox::protocol::*;
use glassbox::tui::{
    self, Ended, FetchEvent, MemoryNeed, ModelChoice, Models, PresetChoice, ScreenOptions, SessionOptions,
    StartSettings,
};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

struct Demo {
    on_disk: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    /// Milliseconds a step takes.
    pace: u64,
    /// Of the KV cache.
    blocks: usize,
    /// Names in the catalogue are hostile too.
    hostile: bool,
}

fn main() -> ExitCode {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    if has("--serve-tools") {
        hostile_server::serve();
        return ExitCode::SUCCESS;
    }
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let demo = Demo {
        on_disk: Arc::new(AtomicBool::new(!has("--fresh"))),
        cancelled: Arc::default(),
        pace: after("--pace").and_then(|p| p.parse().ok()).unwrap_or(30),
        blocks: after("--blocks").and_then(|n| n.parse().ok()).unwrap_or(512),
        hostile: has("--hostile"),
    };
    let file = after("--sessions").map(std::path::PathBuf::from);
    let resume = has("-c").then_some(WhichSession::Newest);
    let sessions = SessionOptions { on: true, file: file.clone(), resume };
    let options = ScreenOptions {
        sessions,
        ascii: has("--ascii"),
        inline: has("--inline"),
        theme: after("--theme"),
        model: after("--model"),
        no_mouse: has("--no-mouse"),
        reduced_motion: has("--reduced-motion"),
        layout: after("--layout").map(Into::into),
        keymap: after("--keymap").map(Into::into),
        themes: after("--themes").map(Into::into),
        ..ScreenOptions::default()
    };
    let sessions = Some(keeper(glassbox::sessions::open(file)));
    match tui::run(options, Box::new(demo), tools(has("--hostile"), has("--served")), sessions) {
        Ok(Ended::Quit) => ExitCode::SUCCESS,
        Ok(Ended::Signal(number)) => ExitCode::from(128 + number as u8),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The keeper of the sessions, by way of a thread that panics when `panic` is looked for.
fn keeper(inner: SessionHandle) -> SessionHandle {
    let (commands, mut inbox) = unbounded_channel();
    let (told, events) = unbounded_channel();
    let SessionHandle { commands: to, events: mut from } = inner;
    let answers = std::thread::spawn(move || {
        while let Some(event) = from.blocking_recv() {
            if told.send(event).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Some(command) = inbox.blocking_recv() {
            if matches!(&command, SessionCommand::List { words } if words == "panic") {
                // The real one saves what it has, and ends too.
                drop(to);
                let _ = answers.join();
                panic!("the keeper was asked to panic");
            }
            let _ = to.send(command);
        }
    });
    SessionHandle { commands, events }
}

/// Tools, for real: one echoes, and an MCP server's are this program's too.
fn tools(hostile: bool, served: bool) -> Option<ToolHandle> {
    let file = std::env::temp_dir().join(format!("glassbox-demo-tools-{}.toml", std::process::id()));
    let mut declared = "[[tool]]\nname = \"get_weather\"\ndescription = \"The weather in a city, now\"\n\
                    parameters = { city = \"string\" }\n\
                    command = [\"echo\", \"{city}: 3 °C, light rain\"]\ndry_run = false\n\n\
                    [[tool]]\nname = \"list_files\"\ndescription = \"What is in a folder\"\n\
                    parameters = { folder = \"string\" }\ncommand = [\"ls\", \"--\", \"{folder}\"]\n"
        .to_owned();
    for (number, payload) in payloads::payloads().into_iter().enumerate().filter(|_| hostile) {
        let text = toml::Value::from(payload.text);
        declared += &format!(
            "\n[[tool]]\nname = \"hostile_{number}\"\ndescription = {text}\ncommand = [\"true\"]\n\
             [[mcp]]\nname = \"server_{number}\"\ncommand = [\"/none\", {text}]\n"
        );
    }
    if let Some(own) = std::env::current_exe().ok().filter(|_| served) {
        let own = toml::Value::from(own.to_str()?);
        declared += &format!("\n[[mcp]]\nname = \"server\"\ncommand = [{own}, \"--serve-tools\"]\n");
    }
    std::fs::write(&file, declared).ok()?;
    Some(glassbox::tools::open(file))
}

/// Of two gigabytes that are free.
fn need(bytes: u64) -> Option<MemoryNeed> {
    Some(MemoryNeed { bytes, context: Some(2048), free: Some(2_000_000_000) })
}

impl Models for Demo {
    fn list(&mut self) -> Vec<ModelChoice> {
        let smollm = ModelChoice {
            name: "smollm2-135m".into(),
            description: "A small instruction-tuned chat model: quick on any processor.".into(),
            bytes: 98_362_432,
            licence: "Apache-2.0".into(),
            target: "~/.local/share/glassbox/models/SmolLM2-135M-Instruct.Q4_1.gguf".into(),
            on_disk: self.on_disk.load(Ordering::Relaxed),
            is_default: true,
            context: 8192,
            need: need(200_000_000),
        };
        let qwen = ModelChoice {
            name: "qwen2.5-coder-0.5b".into(),
            description: "Writes and explains code.".into(),
            bytes: 491_400_064,
            context: 32_768,
            is_default: false,
            on_disk: false,
            ..smollm.clone()
        };
        let named = |payload: payloads::Payload| ModelChoice {
            name: payload.text.clone(),
            description: payload.text.clone(),
            licence: payload.text.clone(),
            target: payload.text,
            is_default: false,
            ..smollm.clone()
        };
        let hostile = payloads::payloads().into_iter().filter(|_| self.hostile).map(named);
        let all: Vec<_> = hostile.collect();
        [smollm, qwen].into_iter().chain(all).collect()
    }

    fn presets(&mut self) -> Vec<PresetChoice> {
        let poet = PresetChoice {
            name: "poet".into(),
            values: vec![("temperature".into(), "1.2".into())],
            system: Some("Answer in rhymes.".into()),
            ..PresetChoice::default()
        };
        let problem = Some("bad.toml:2: unknown key \"temprature\"".to_owned());
        let hostile = |(number, payload): (usize, payloads::Payload)| PresetChoice {
            name: payload.text.clone(),
            values: vec![("stop".into(), payload.text.clone())],
            problem: Some(payload.text).filter(|_| number % 2 == 0),
            ..PresetChoice::default()
        };
        let all = payloads::payloads().into_iter().enumerate().filter(|_| self.hostile);
        let bad = PresetChoice { name: "bad".into(), problem, ..PresetChoice::default() };
        all.map(hostile).chain([bad, poet]).collect()
    }

    fn start_settings(
        &mut self,
        _model: Option<&str>,
        preset: Option<&str>,
    ) -> Result<StartSettings, String> {
        match preset {
            None => Ok(StartSettings::default()),
            Some("poet") => Ok(StartSettings {
                params: SamplingParams { temperature: 1.2, ..SamplingParams::default() },
                system: Some("Answer in rhymes.".into()),
                origins: [("temperature", "preset poet".to_owned())].into(),
                ..StartSettings::default()
            }),
            Some(name) => Err(format!("no preset {name:?}; known are bad, poet")),
        }
    }

    fn fetch(&mut self, _name: &str) -> UnboundedReceiver<FetchEvent> {
        let (sender, receiver) = unbounded_channel();
        let (cancelled, on_disk) = (self.cancelled.clone(), self.on_disk.clone());
        cancelled.store(false, Ordering::Relaxed);
        std::thread::spawn(move || {
            let total = 98_362_432;
            for part in 0..=60 {
                if cancelled.load(Ordering::Relaxed) {
                    return sender.send(FetchEvent::Cancelled);
                }
                let source = "a package mirror".to_owned();
                sender.send(FetchEvent::Progress { done: total * part / 60, total, source })?;
                std::thread::sleep(Duration::from_millis(50));
            }
            on_disk.store(true, Ordering::Relaxed);
            sender.send(FetchEvent::Done { path: "~/.local/share/glassbox/models".into() })
        });
        receiver
    }

    fn cancel_fetch(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn open(&mut self, name: &str) -> Result<Handle, String> {
        assert!(!name.contains("panic"), "asked to panic");
        let (broken, payload) = (name.contains("broken"), hostile::payload(name));
        if let Some(payload) = payload.clone().filter(|_| name.contains("refused")) {
            return Err(payload);
        }
        let (pace, blocks) = (Duration::from_millis(self.pace), self.blocks);
        let (commands, inbox) = channel();
        let (out, events) = EventReceiver::channel();
        let snapshot = SnapshotCell::default();
        let cell = snapshot.clone();
        std::thread::spawn(move || {
            for part in 0..=10 {
                let (done, total) = (part * 9_836_243, 98_362_432);
                out.send(vec![Event::Loading { stage: LoadStage::Reading, done, total }]);
                std::thread::sleep(Duration::from_millis(20));
            }
            if broken {
                let told = "broken.gguf: tensor blk.3.ffn_up.weight ends 12 bytes past the file";
                let failure = Failure::new(FailureKind::Model, payload.as_deref().unwrap_or(told));
                out.send(vec![Event::LoadFailed(failure)]);
                return;
            }
            let info = payload.map_or_else(model_info, |p| hostile::model(model_info(), &p));
            out.send(vec![Event::Ready(Box::new(info))]);
            let mut engine = FakeEngine::of_blocks(blocks);
            let mut trace = None;
            cell.store(engine.snapshot());
            loop {
                let wait = if engine.is_idle() { Duration::from_secs(3600) } else { pace };
                let mut news = match inbox.recv_timeout(wait) {
                    Ok(Command::Shutdown) | Err(RecvTimeoutError::Disconnected) => return,
                    Ok(Command::Submit(request)) => {
                        let asks = format!("{:?}", request.prompt);
                        assert!(!asks.contains("\"panic\""), "the engine was asked to panic");
                        match hostile::asked(&request) {
                            Some((channel, payload)) => {
                                let seq = SeqId { request: request.id, choice: 0 };
                                trace = Some(hostile::trace(seq, &request.params, &payload));
                                hostile::say(&request, &channel, &payload)
                            }
                            None => engine.command(Command::Submit(request)),
                        }
                    }
                    Ok(command) => engine.command(command),
                    Err(RecvTimeoutError::Timeout) => Vec::new(),
                };
                if news.is_empty() {
                    news = engine.step();
                }
                let newest = engine.snapshot();
                cell.store(Snapshot { sampling: trace.clone().or(newest.sampling.clone()), ..newest });
                if !news.is_empty() && !out.send(news) {
                    return;
                }
            }
        });
        Ok(Handle { commands, events, snapshot })
    }
}
