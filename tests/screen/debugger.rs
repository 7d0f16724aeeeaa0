//! Stopping the engine, asking it why, going back through its steps, and forking an answer.

use super::*;

fn seq(request: u64, choice: u32) -> SeqId {
    SeqId { request: RequestId(request), choice }
}

/// Batch and KV panels in view, whatever the size: the drawer has room for one.
fn with_panel(size: (u16, u16), panel: Panel) -> Desk {
    let mut desk = Desk::ready(size);
    if size == SIZES[0] {
        desk.say(&format!("/panel {}", panel as u8));
    }
    desk
}

fn focus(desk: &mut Desk, panel: Panel) {
    while desk.app.focus != Focus::Panel(panel) {
        desk.press(KeyCode::Tab);
    }
}

/// What stands in each column of the screen, line breaks read as spaces.
fn words(desk: &Desk) -> String {
    let picture = desk.picture();
    let columns =
        |line: &str| line.split(['│', '├', '┤']).map(str::trim).map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = picture.lines().map(columns).collect();
    let most = lines.iter().map(Vec::len).max().unwrap_or(0);
    let column = |i: usize| lines.iter().filter_map(|l| l.get(i)).cloned().collect::<Vec<_>>().join(" ");
    (0..most).map(column).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_batch_panel_says_why_there_is_not_more_in_the_step() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Batch);
        desk.say("/set max_num_seqs 2");
        desk.say("/parallel one | two | three | four");
        desk.steps(20);
        let picture = desk.picture();
        assert!(picture.contains("waits 3: 2 of 2 sequences are running"), "{picture}");
        assert!(picture.contains("2 of 2"), "{picture}");
        snapshot("waiting", &desk);
    }
}

#[test]
fn static_batching_shows_the_places_it_leaves_idle() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Batch);
        desk.say("/set batching static");
        desk.say("/set max_num_seqs 3");
        desk.say("/parallel one | two | three | four");
        desk.steps(20);
        let ended = desk.engine.command(Command::Abort(RequestId(2)));
        desk.tell(Message::Engine(ended));
        desk.steps(2);
        let picture = desk.picture();
        assert!(picture.contains("██▒ 2 of 3, 1 idle"), "{picture}");
        assert!(words(&desk).contains("waits 4: static batching: 2 of the batch still run"), "{picture}");
        snapshot("idle_slots", &desk);
    }
}

#[test]
fn a_preempted_sequence_says_for_whom_and_what_was_missing() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Batch);
        desk.say("/parallel one | two");
        desk.steps(20);
        desk.engine.preempt(seq(2, 0), seq(1, 0));
        desk.steps(1);
        snapshot("preempted", &desk);
        let said = words(&desk);
        assert!(said.contains("preempted 2: sequence 1 needs 1 block, 0 free, 0 evictable"), "{said}");
        desk.say("/why");
        let said = words(&desk);
        assert!(said.contains("2 gave 3 blocks back in step 20: sequence 1 needs 1 block"), "{said}");
        assert!(said.contains("needs 9 blocks, 4 free, 3 evictable; head of the queue"), "{said}");
        desk.engine.let_in(seq(2, 0));
        desk.steps(2);
        desk.say("/why 2");
        assert!(desk.picture().contains("it runs: "), "{}", desk.picture());
    }
}

#[test]
fn why_says_that_nothing_waits_and_knows_who_there_is() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/why");
    assert!(desk.picture().contains("nothing waits: the engine has no sequence"), "{}", desk.picture());
    desk.say("/parallel 2 Why?");
    desk.steps(3);
    desk.say("/why");
    assert!(desk.picture().contains("nothing waits: step 2 ran 2 of 2 sequences"), "{}", desk.picture());
    desk.say("/why 9");
    assert!(desk.picture().contains("no sequence 9; there are 1, 1.1"), "{}", desk.picture());
    desk.say("/why nine");
    assert!(desk.picture().contains("/why takes a sequence such as 2 or 2.1"), "{}", desk.picture());
}

#[test]
fn a_breakpoint_holds_the_engine_and_says_which_and_why() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Batch);
        desk.say("/break step 12");
        desk.say("/break copy_on_write");
        desk.say("Why?");
        desk.steps(40);
        assert_eq!(desk.engine.snapshot().step, 13);
        assert!(desk.app.paused);
        let picture = desk.picture();
        assert!(picture.contains("held at breakpoint 1, step 12: step 12 was taken"), "{picture}");
        snapshot("broke", &desk);
        desk.press(KeyCode::F(6));
        desk.steps(1);
        if size == SIZES[2] {
            assert!(desk.picture().contains("●    12"), "{}", desk.picture());
        }
        desk.wait(5_000);
        desk.say("/break");
        assert!(desk.picture().contains("met 1 time"), "{}", desk.picture());
        desk.say("/break step 3");
        assert!(desk.picture().contains("step 3 is past: the engine is at 14"), "{}", desk.picture());
        desk.say("/unbreak 7");
        assert!(desk.picture().contains("no breakpoint \"7\"; breakpoints"), "{}", desk.picture());
        desk.say("/unbreak 1");
        desk.say("/break clear");
        desk.look();
        assert!(desk.engine.snapshot().breakpoints.is_empty());
        desk.press(KeyCode::F(5));
        desk.finish();
    }
}

#[test]
fn a_condition_that_is_none_is_answered_and_not_sent() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.say("/break premption");
    assert!(desk.sent().is_empty());
    assert!(desk.picture().contains("/break: "), "{}", desk.picture());
}

#[test]
fn conditions_complete_and_those_with_numbers_wait_for_theirs() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.type_text("/break ");
    snapshot("break_completion", &desk);
    desk.type_text("ste");
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.composer_text(), "/break step 120 ");
    desk.ctrl('c');
    desk.say("/break evi");
    assert_eq!(desk.sent(), [&Command::Break(Breakpoint::Eviction)]);
}

#[test]
fn b_begins_a_breakpoint_and_space_holds() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(5);
    focus(&mut desk, Panel::Batch);
    desk.press(KeyCode::Char(' '));
    assert!(desk.engine.paused);
    desk.press(KeyCode::Char('n'));
    let held = desk.engine.snapshot().step;
    desk.steps(4);
    assert_eq!(desk.engine.snapshot().step, held + 1);
    desk.press(KeyCode::Char('b'));
    assert_eq!((desk.app.focus, desk.app.composer_text()), (Focus::Input, "/break ".into()));
}

#[test]
fn every_panel_goes_back_with_the_step_that_is_looked_at() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Batch);
        desk.say("/parallel 3 Why?");
        let mut past = Vec::new();
        for _ in 0..60 {
            desk.steps(1);
            past.push(desk.engine.snapshot());
        }
        focus(&mut desk, Panel::Batch);
        (0..40).for_each(|_| desk.press(KeyCode::Down));
        assert_eq!(desk.app.panels.batch.step_back, 40);
        let picture = desk.picture();
        assert!(picture.contains(" at step 19, 40 back "), "{picture}");
        let then = &past[19];
        snapshot("back", &desk);
        if size == SIZES[2] {
            let c = &then.counters;
            assert!(
                picture.contains(&format!("{} in, {} out", c.prompt_tokens, c.generated_tokens)),
                "{picture}"
            );
            let owned = format!("█ {} owned", then.kv.owned);
            assert!(picture.contains(&owned), "{owned}\n{picture}");
            assert_eq!(picture.matches(" at step 19, 40 back ").count(), 5, "{picture}");
        }
        // New steps do not move what is looked at.
        desk.steps(5);
        assert!(desk.picture().contains(" at step 19, 45 back "), "{}", desk.picture());
        desk.press(KeyCode::Char('g'));
        assert!(!desk.picture().contains(" at step "), "{}", desk.picture());
    }
}

#[test]
fn the_map_of_an_earlier_step_is_the_map_as_it_was_also_after_answers_ended() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/panel 1 3 5 6");
    desk.say("/parallel 4 Why?");
    let map = |desk: &Desk| {
        let picture = desk.picture();
        let rows = picture.lines().skip_while(|l| !l.contains("2 kv blocks")).skip(1);
        let cells = |l: &str| l.rsplit('│').next().unwrap_or("").trim().replace(['◆'], "█").replace('◇', "▒");
        rows.take(10).map(cells).collect::<Vec<_>>()
    };
    desk.steps(30);
    let then = desk.engine.snapshot();
    let before = map(&desk);
    desk.finish();
    desk.say("another question");
    desk.steps(10);
    let back = desk.app.meter.steps.iter().filter(|s| s.step >= then.step).count();
    desk.app.panels.batch.step_back = back;
    let after = map(&desk);
    assert!(
        desk.picture().contains(&format!(" at step {}, {back} back ", then.step - 1)),
        "{}",
        desk.picture()
    );
    let plain = |rows: Vec<String>| rows.concat().replace('▓', "█");
    assert_eq!(plain(before), plain(after), "{}", desk.picture());
}

#[test]
fn the_kv_panel_shows_tiers_memory_sharing_and_what_just_happened() {
    for size in SIZES {
        let mut desk = with_panel(size, Panel::Kv);
        let host = TierView {
            medium: Medium::Host,
            blocks: 4096,
            used: 1234,
            queries: 50,
            hits: 40,
            stored: 2000,
            evicted: 3,
        };
        desk.engine.tiers = vec![host, TierView { medium: Medium::Disk, blocks: 65_536, used: 9000, ..host }];
        desk.engine.memory = MemoryPlan {
            available: 8 << 30,
            weights: 96_400_000,
            kv_cache: 755_000_000,
            workspace: 40_000_000,
            host_kv_cache: 1 << 30,
            own_memory: false,
            left: 6_500_000_000,
        };
        desk.say("/parallel 3 Why?");
        desk.steps(60);
        focus(&mut desk, Panel::Kv);
        desk.press(KeyCode::Char('z'));
        let picture = desk.picture();
        for wanted in [
            "host 1,234/4,096 · hits 80.0% · stored 2,000 · evicted 3",
            "disk 9,000/65,536",
            "by sharing 2 blocks",
            "weights 96 MB · KV 755 MB · left 6.50 GB · workspace 40 MB",
            "shared by 3",
            "1 #0 of ",
            "1.2 #0 of ",
            "tokens 0-15",
            "events stored 1",
        ] {
            assert!(picture.contains(wanted), "{wanted}\n{picture}");
        }
        desk.press(KeyCode::Char('z'));
        snapshot("kv", &desk);
        desk.press(KeyCode::Esc);
        desk.say("/context");
        assert!(desk.picture().contains("memory: weights 96 MB"), "{}", desk.picture());
    }
}

#[test]
fn a_block_of_drawn_tokens_tells_its_hash() {
    let mut desk = with_panel(SIZES[1], Panel::Kv);
    desk.say("Why?");
    desk.steps(60);
    let snapshot = desk.engine.snapshot();
    let drawn_from = snapshot.sequences[0].prompt_tokens.div_ceil(16);
    let block = snapshot.sequences[0].blocks[drawn_from];
    focus(&mut desk, Panel::Kv);
    desk.press(KeyCode::Char('z'));
    (0..block).for_each(|_| desk.press(KeyCode::Right));
    let hash = format!("hash {:016x}", 0xa1b2_c3d4_0000_0000_u64 + u64::from(block));
    assert!(desk.picture().contains(&hash), "{hash}\n{}", desk.picture());
}

#[test]
fn a_fork_goes_on_beside_its_parent_from_the_token_that_was_named() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.steps(60);
        let prompt = desk.engine.snapshot().sequences[0].prompt_tokens;
        desk.say("/fork @50");
        let Some(Command::Fork(request)) = desk.sent().last().copied() else { panic!("{:?}", desk.sent()) };
        assert_eq!((request.parent, request.keep), (seq(1, 0), prompt + 50));
        desk.steps(20);
        let picture = desk.picture();
        assert!(picture.contains("from 1 at token 50"), "{picture}");
        snapshot("fork", &desk);
        desk.finish();
        desk.say("and now?");
        let Some(Command::Submit(next)) = desk.sent().last().copied() else { panic!("{:?}", desk.sent()) };
        let Prompt::Chat(messages) = &next.prompt else { panic!("not a chat") };
        // The chat goes on with the first answer.
        assert_eq!(messages.len(), 3);
    }
}

#[test]
fn a_replayed_fork_stands_beside_its_parent_too() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(60);
    let keep = desk.engine.snapshot().sequences[0].prompt_tokens + 55;
    let parent = seq(1, 0);
    let fork =
        ForkRequest { id: RequestId(7), parent, keep, then: vec![], params: SamplingParams::default() };
    desk.tell(Message::Engine(vec![Event::Sent(Box::new(Command::Fork(Box::new(fork))))]));
    assert!(desk.picture().contains("from 1 at token 55"), "{}", desk.picture());
    assert!(desk.sent().iter().all(|c| !matches!(c, Command::Fork(_))));
}

#[test]
fn a_fork_that_cannot_be_is_refused_with_the_reason() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/fork");
    assert!(desk.picture().contains("no answer to fork"), "{}", desk.picture());
    desk.say("Why?");
    desk.steps(20);
    for (typed, wanted) in [
        ("/fork 9", "no answer 9 to fork"),
        ("/fork @500", "it cannot be forked at 500"),
        ("/fork x", "/fork takes a sequence and a token"),
        ("/fork 1 2 3", "/fork takes a sequence and a token"),
    ] {
        desk.say(typed);
        assert!(desk.picture().contains(wanted), "{typed}: {}", desk.picture());
    }
    assert!(!desk.sent().iter().any(|c| matches!(c, Command::Fork(_))));
}
