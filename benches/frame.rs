//! `cargo bench --bench frame`: what one frame of the screen costs while an answer streams, at the
//! three sizes, with a short conversation, a long one, and a KV cache of 100,000 blocks. 30 frames a second leave 33 ms each.

#[path = "../tests/support/fake_engine.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod fake_engine;
#[path = "../tests/support/history.rs"]
mod long;

use divan::Bencher;
use fake_engine::{FakeEngine, model_info};
use glassbox::protocol::{BlockView, Event, RequestId, SeqId};
use glassbox::tui::{App, Depth, Effect, Focus, Message, Panel, ScreenOptions, Theme, draw, update};
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

/// The largest KV cache there is, most of it in use, while its panel fills the screen; and while an
/// earlier step is looked at.
#[divan::bench(args = SIZES)]
fn hundred_thousand_blocks(bencher: Bencher, size: (u16, u16)) {
    let app = crowded(size);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    bencher.bench_local(|| draw(&app, &mut buffer));
}

#[divan::bench(args = SIZES)]
fn hundred_thousand_blocks_back(bencher: Bencher, size: (u16, u16)) {
    let mut app = crowded(size);
    app.panels.batch.step_back = 20;
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    bencher.bench_local(|| draw(&app, &mut buffer));
}

/// All panels that there is room for, over such a cache. 4 ms are the limit in release.
#[divan::bench(args = SIZES)]
fn every_panel(bencher: Bencher, size: (u16, u16)) {
    let mut app = crowded(size);
    (app.focus, app.panels.zoomed) = (Focus::Input, false);
    let class = app.class();
    for panel in Panel::ALL {
        if !app.panels.open(class).contains(&panel) {
            app.panels.toggle(class, panel);
        }
    }
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    bencher.bench_local(|| draw(&app, &mut buffer));
}

/// Two thirds of 100,000 blocks are in use, by a hundred owners.
fn crowded(size: (u16, u16)) -> App {
    let (mut app, mut engine) = streaming(size, 1);
    let mut snapshot = engine.snapshot();
    let owner = |i: u64| Some(SeqId { request: RequestId(i / 700 % 100), choice: 0 });
    let block = |i: u64| match i % 3 {
        0 => BlockView { references: 0, cached: i.is_multiple_of(2), owner: None, used: i % 900 },
        n => BlockView { references: n as u16, cached: n == 2, owner: owner(i), used: i % 900 },
    };
    snapshot.kv.blocks = (0..100_000).map(block).collect();
    tell(&mut app, &mut engine, Message::Snapshot(Arc::new(snapshot)));
    app.focus = Focus::Panel(Panel::Kv);
    app.panels.zoomed = true;
    app
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
