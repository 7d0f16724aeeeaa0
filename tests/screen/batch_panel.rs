//! Panel 3: the budget as a bar, the row cursor, and what can be done to a request from there.

use super::*;

fn seq(request: u64) -> SeqId {
    SeqId { request: RequestId(request), choice: 0 }
}

/// The batch panel in focus.
fn desk(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    if size == SIZES[0] {
        desk.say("/panel 3");
        desk.press(KeyCode::Esc);
    }
    desk
}

fn focus(desk: &mut Desk) {
    while desk.app.focus != Focus::Panel(Panel::Batch) {
        desk.press(KeyCode::Tab);
    }
}

fn keys(desk: &mut Desk, keys: &str) {
    for c in keys.chars() {
        let modifiers = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
        desk.tell(Message::Key(KeyEvent::new(KeyCode::Char(c), modifiers)));
    }
}

/// A hundred requests of which four run, the first with a long prompt.
fn hundred(size: (u16, u16)) -> Desk {
    let mut desk = desk(size);
    desk.say("/set max_num_seqs 4");
    for i in 0..100 {
        let prompt = Prompt::Text("word ".repeat(if i == 0 { 800 } else { 9 }));
        let request = Request::new(RequestId(i + 1), prompt, SamplingParams::default());
        let events = desk.engine.command(Command::Submit(Box::new(request)));
        desk.tell(Message::Engine(events));
    }
    desk.look();
    desk.steps(2);
    focus(&mut desk);
    desk
}

#[test]
fn the_bar_shows_every_row_in_the_budget() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("/parallel 3 Why?");
        desk.steps(3);
        let prompt = Prompt::Text("word ".repeat(800));
        let request = Request::new(RequestId(9), prompt, SamplingParams::default());
        let events = desk.engine.command(Command::Submit(Box::new(request)));
        desk.tell(Message::Engine(events));
        desk.steps(1);
        focus(&mut desk);
        let picture = desk.picture();
        assert!(picture.contains("ABCI▓▓▓▓▓"), "{picture}");
        assert!(picture.contains("259/512"), "{picture}");
        snapshot("batch_bar", &desk);
    }
}

#[test]
fn a_budget_that_is_used_up_says_who_got_nothing_for_it() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("Why?");
        desk.steps(3);
        let mut snapshot_now = desk.engine.snapshot();
        let row = |request, tokens, kind| RowRecord {
            seq: seq(request),
            kind,
            tokens,
            computed: 64,
            sampled: None,
        };
        let decoding = (1..=12).map(|request| row(request, 1, RowKind::Decode));
        let rows: Vec<RowRecord> = decoding.chain([row(13, 500, RowKind::Prefill)]).collect();
        let reason = Reason::Budget { tokens: 512 };
        let step = StepRecord {
            step: 3,
            started_ms: 30.0,
            phases: Phases { schedule_ms: 0.2, forward_ms: 41.0, sample_ms: 3.0, output_ms: 0.4 },
            tokens: 512,
            token_budget: 512,
            rows,
            waiting: vec![Waiting { seq: seq(14), reason }],
            ..StepRecord::default()
        };
        snapshot_now.steps.push(Arc::new(step));
        desk.tell(Message::Snapshot(Arc::new(snapshot_now)));
        focus(&mut desk);
        let picture = desk.picture();
        assert!(picture.contains("512/512"), "{picture}");
        assert!(picture.contains("waits 14: the step"), "{picture}");
        snapshot("batch_full", &desk);
    }
}

#[test]
fn a_hundred_wait_and_the_cursor_reaches_the_last() {
    for size in SIZES {
        let mut desk = hundred(size);
        assert!(desk.picture().contains("96 waiting"), "{}", desk.picture());
        snapshot("batch_hundred", &desk);
        keys(&mut desk, "K");
        assert_eq!(desk.app.panels.batch.chosen, Some(seq(100)));
        assert!(desk.picture().contains("waits 100: behind 95 in the queue"), "{}", desk.picture());
        assert!(desk.picture().contains("more waiting before"), "{}", desk.picture());
        keys(&mut desk, "K");
        assert_eq!(desk.app.panels.batch.chosen, Some(seq(99)));
        snapshot("batch_hundred_last", &desk);
        desk.app.panels.batch.chosen = None;
        keys(&mut desk, "JJ");
        assert_eq!(desk.app.panels.batch.chosen, Some(seq(2)));
    }
}

#[test]
fn a_request_is_cancelled_by_the_same_key_twice() {
    let mut desk = hundred(SIZES[1]);
    keys(&mut desk, "JJx");
    assert!(desk.picture().contains("x again cancels request 2"), "{}", desk.picture());
    desk.wait(2_000);
    keys(&mut desk, "x");
    assert!(!desk.sent().iter().any(|c| matches!(c, Command::Abort(_))), "too late");
    keys(&mut desk, "x");
    assert!(desk.sent().contains(&&Command::Abort(RequestId(2))));
    desk.steps(1);
    assert!(desk.picture().contains("request 2 is cancelled"), "{}", desk.picture());
    keys(&mut desk, "x");
    assert!(desk.picture().contains("request 2 has ended"), "{}", desk.picture());
    snapshot("batch_cancelled", &desk);
}

#[test]
fn a_request_moves_in_the_queue_and_the_engine_says_where_it_is() {
    for size in SIZES {
        let mut desk = hundred(size);
        keys(&mut desk, "KK---+");
        let wanted = |priority| Command::SetPriority(Reprioritise { id: RequestId(99), priority });
        let sent: Vec<Command> =
            desk.sent().into_iter().filter(|c| matches!(c, Command::SetPriority(_))).cloned().collect();
        assert_eq!(sent, [-1, -2, -3, -2].map(wanted));
        assert!(desk.picture().contains("request 99 has priority -2"), "{}", desk.picture());
        assert!(desk.picture().contains("of no matter while"), "{}", desk.picture());
        desk.look();
        assert!(desk.picture().contains("priority -2"), "{}", desk.picture());
        keys(&mut desk, "-");
        assert!(desk.picture().contains("request 99 has priority -3"), "{}", desk.picture());
    }
}

#[test]
fn a_request_is_shown_in_full() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("/set top_k 7");
        desk.say("/parallel Why is the sky blue? | And at night?");
        desk.steps(20);
        desk.engine.preempt(seq(2), seq(1));
        desk.steps(1);
        focus(&mut desk);
        keys(&mut desk, "i");
        assert!(desk.picture().contains("choose a sequence first"), "{}", desk.picture());
        keys(&mut desk, "zJi");
        let picture = desk.picture();
        for seen in ["A sequence 1 runs", "Why is the sky blue?", "prompt ", "top_k 7", "priority 0"] {
            assert!(picture.contains(seen), "{seen}\n{picture}");
        }
        snapshot("batch_request", &desk);
        keys(&mut desk, "J");
        let picture = desk.picture();
        for seen in ["B sequence 2 gave way", "And at night?", "gave 3 blocks back", "preempted once"] {
            assert!(picture.contains(seen), "{seen}\n{picture}");
        }
        keys(&mut desk, "f");
        assert_eq!(desk.sent().last(), Some(&&Command::Focus(Some(seq(2)))));
        assert!(desk.picture().contains("traced"), "{}", desk.picture());
        desk.press(KeyCode::Enter);
        assert!(!desk.app.panels.batch.inspecting);
    }
}

#[test]
fn the_strip_of_steps_has_a_cursor_that_arrows_and_pages_move() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("Why?");
        desk.steps(60);
        focus(&mut desk);
        keys(&mut desk, "z");
        desk.press(KeyCode::Left);
        assert!(desk.picture().contains("▲") && desk.picture().contains("step 58"), "{}", desk.picture());
        desk.press(KeyCode::PageUp);
        desk.press(KeyCode::Left);
        desk.press(KeyCode::Right);
        assert_eq!(desk.app.panels.batch.step_back, 11);
        snapshot("batch_strip", &desk);
        desk.press(KeyCode::PageDown);
        desk.press(KeyCode::PageDown);
        assert_eq!(desk.app.panels.batch.step_back, 0);
        assert!(!desk.picture().contains("▲"), "{}", desk.picture());
        (0..9).for_each(|_| desk.press(KeyCode::PageUp));
        assert_eq!(desk.app.panels.batch.step_back, 59);
        desk.picture();
    }
}

#[test]
fn nothing_is_cancelled_or_moved_in_a_replay() {
    let mut desk = desk(SIZES[1]);
    desk.say("Why?");
    desk.steps(9);
    desk.tell(Message::Engine(vec![Event::Replaying { first: 0, last: 90, speed: 1.0 }]));
    focus(&mut desk);
    let sent = desk.sent().len();
    keys(&mut desk, "Jxx");
    assert!(desk.picture().contains("nothing is cancelled here"), "{}", desk.picture());
    keys(&mut desk, "+");
    assert!(desk.picture().contains("a replay is as it was recorded"), "{}", desk.picture());
    keys(&mut desk, "i");
    assert!(desk.picture().contains("A sequence 1 runs"), "{}", desk.picture());
    assert_eq!(desk.sent().len(), sent);
    // Nor is the engine asked what a block holds.
    while desk.app.focus != Focus::Panel(Panel::Kv) {
        desk.press(KeyCode::Tab);
    }
    keys(&mut desk, "t");
    assert!(desk.picture().contains("was not recorded"), "{}", desk.picture());
    assert_eq!(desk.sent().len(), sent);
}

#[test]
fn a_paused_engine_can_be_looked_at_and_told() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.press(KeyCode::F(5));
        desk.say("Why?");
        desk.look();
        focus(&mut desk);
        assert!(desk.picture().contains("no step yet: the engine is paused"), "{}", desk.picture());
        keys(&mut desk, "J");
        snapshot("batch_paused", &desk);
        keys(&mut desk, "xx");
        assert!(desk.sent().contains(&&Command::Abort(RequestId(1))));
        desk.look();
        keys(&mut desk, "J");
        assert!(desk.picture().contains("the engine has none"), "{}", desk.picture());
    }
}
