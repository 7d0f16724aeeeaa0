//! `cargo bench --bench frame`: what one frame of the screen costs while an answer streams, at the
//! three sizes, with a short conversation and with a long one. 30 frames a second leave 33 ms each.

#[path = "../tests/support/fake_engine.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod fake_engine;
#[path = "../tests/support/history.rs"]
mod long;

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

/// 100,000 lines before the answer that streams.
const TURNS: u64 = 4_400;

/// One more token, and the frame that shows it.
#[divan::bench(args = SIZES)]
fn stream_after_100_000_lines(bencher: Bencher, size: (u16, u16)) {
    let (mut app, mut engine) = after_history(size);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    bencher.bench_local(|| {
        let events = engine.step();
        tell(&mut app, &mut engine, Message::Engine(events));
        draw(&app, &mut buffer)
    });
}

/// A page back, and the frame that shows it: at the beginning it goes on from the end.
#[divan::bench(args = SIZES)]
fn scroll_100_000_lines(bencher: Bencher, size: (u16, u16)) {
    let (mut app, mut engine) = after_history(size);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    bencher.bench_local(|| {
        let page = crossterm::event::KeyCode::PageUp;
        tell(&mut app, &mut engine, Message::Key(page.into()));
        draw(&app, &mut buffer)
    });
}

/// The frame after the window became wider or narrower.
#[divan::bench]
fn resize_100_000_lines(bencher: Bencher) {
    let (mut app, mut engine) = after_history(SIZES[1]);
    let mut width = 100;
    bencher.bench_local(|| {
        width = if width == 100 { 120 } else { 100 };
        tell(&mut app, &mut engine, Message::Resize(width, 40));
        draw(&app, &mut Buffer::empty(Rect::new(0, 0, width, 40)))
    });
}

fn after_history(size: (u16, u16)) -> (App, FakeEngine) {
    let (mut app, mut engine) = streaming(size, 0);
    tell(&mut app, &mut engine, Message::Engine(long::history(TURNS)));
    let (width, height) = size;
    draw(&app, &mut Buffer::empty(Rect::new(0, 0, width, height)));
    (app, engine)
}

fn frame(bencher: Bencher, (width, height): (u16, u16), turns: usize) {
    let (app, _) = streaming((width, height), turns);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    bencher.bench_local(|| draw(&app, &mut buffer));
}
