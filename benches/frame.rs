//! `cargo bench --bench frame`: what one frame of the screen costs while an answer streams, at the
//! three sizes, with a short conversation and with a long one. 30 frames a second leave 33 ms each.

#[path = "../tests/support/fake_engine.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod fake_engine;

use divan::Bencher;
use fake_engine::{FakeEngine, model_info};
use glassbox::protocol::Event;
use glassbox::tui::{App, Depth, Effect, Message, ScreenOptions, Theme, draw, update};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::sync::Arc;
use std::time::Duration;

fn main() {
    divan::main();
}

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A screen in the middle of an answer, after `turns` earlier ones.
fn streaming((width, height): (u16, u16), turns: usize) -> (App, FakeEngine) {
    let theme = Theme::load("dark", None, Depth::Sixteen).expect("a built-in theme");
    let mut app = App::new(ScreenOptions::default(), theme, vec![]);
    let mut engine = FakeEngine::default();
    tell(&mut app, &mut engine, Message::Resize(width, height));
    tell(&mut app, &mut engine, Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    for turn in 0..=turns {
        tell(&mut app, &mut engine, Message::Paste(format!("question {turn}")));
        let enter = crossterm::event::KeyCode::Enter;
        tell(&mut app, &mut engine, Message::Key(enter.into()));
        let steps = if turn == turns { 40 } else { usize::MAX };
        for _ in 0..steps {
            if engine.is_idle() {
                break;
            }
            let events = engine.step();
            tell(&mut app, &mut engine, Message::Engine(events));
        }
    }
    let snapshot = Arc::new(engine.snapshot());
    tell(&mut app, &mut engine, Message::Snapshot(snapshot));
    (app, engine)
}

fn tell(app: &mut App, engine: &mut FakeEngine, message: Message) {
    for effect in update(app, message, Duration::ZERO) {
        if let Effect::Send(command) = effect {
            let events = engine.command(command);
            tell(app, engine, Message::Engine(events));
        }
    }
}

#[divan::bench(args = SIZES)]
fn short_conversation(bencher: Bencher, size: (u16, u16)) {
    frame(bencher, size, 1);
}

#[divan::bench(args = SIZES)]
fn hundred_turns(bencher: Bencher, size: (u16, u16)) {
    frame(bencher, size, 100);
}

fn frame(bencher: Bencher, (width, height): (u16, u16), turns: usize) {
    let (app, _) = streaming((width, height), turns);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    bencher.bench_local(|| draw(&app, &mut buffer));
}
