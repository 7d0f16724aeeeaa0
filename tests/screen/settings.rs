//! The scheduler's settings: from `/set` and from the batch panel, live.

use super::*;

fn configured(desk: &Desk) -> Option<&SchedulerSettings> {
    desk.sent().into_iter().rev().find_map(|c| if let Command::Configure(s) = c { Some(&**s) } else { None })
}

#[test]
fn set_changes_the_scheduler_and_shows_what_is_in_force() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/set batching static");
    assert_eq!(configured(&desk).unwrap().batching, Batching::Static);
    assert_eq!(desk.engine.scheduler.batching, Batching::Static);
    desk.say("/set max-num-seqs 2");
    let both = configured(&desk).unwrap();
    assert_eq!((both.max_num_seqs, both.batching), (2, Batching::Static));
    desk.say("/set max_num_seqs");
    assert!(desk.picture().contains("max_num_seqs is 2: most sequences in one step"), "{}", desk.picture());
}

#[test]
fn what_the_engine_cannot_do_comes_back_as_a_note_and_is_not_shown_as_done() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/set max_num_seqs 100");
    assert!(desk.picture().contains("this engine was started for 32"), "{}", desk.picture());
    desk.say("/set max_num_seqs");
    assert!(desk.picture().contains("max_num_seqs is 8"), "{}", desk.picture());
}

#[test]
fn wrong_values_and_names_are_answered_with_what_would_be_right() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.say("/set preemption_mode kill");
    assert!(desk.picture().contains("one of recompute swap retract, not"), "{}", desk.picture());
    desk.say("/set watermrk 1");
    assert!(desk.picture().contains("did you mean watermark?"), "{}", desk.picture());
    assert!(configured(&desk).is_none());
}

#[test]
fn set_alone_lists_every_setting_with_where_it_is_from() {
    let origins = [("batching", "/home/me/.config/glassbox/config.toml:7".to_owned())].into();
    let mut desk = Desk::with(ScreenOptions { origins, ..ScreenOptions::default() }, SIZES[1]);
    desk.tell(Message::Models(catalogue(true)));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    desk.look();
    desk.say("/set schedule_policy lpm");
    desk.look();
    desk.press(KeyCode::Tab);
    desk.press(KeyCode::Esc);
    desk.say("/panel 1 2 3");
    desk.say("/set");
    snapshot("set", &desk);
    let picture = desk.picture();
    assert!(picture.contains("session  (built-in fcfs)") && picture.contains("config.toml:7"), "{picture}");
}

#[test]
fn settings_and_their_values_complete() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.type_text("/set sched");
    snapshot("set_completion", &desk);
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.composer_text(), "/set schedule_policy ");
    desk.type_text("lp");
    desk.press(KeyCode::Enter);
    assert_eq!(configured(&desk).unwrap().schedule_policy, SchedulePolicy::Lpm);
}

#[test]
fn the_batch_panel_edits_settings_in_place() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        if size == SIZES[0] {
            desk.say("/panel 3");
        }
        desk.say("/parallel 3 Why?");
        desk.steps(2);
        while desk.app.focus != Focus::Panel(Panel::Batch) {
            desk.press(KeyCode::Tab);
        }
        desk.press(KeyCode::Char('e'));
        desk.press(KeyCode::Down);
        desk.press(KeyCode::Left);
        assert_eq!(configured(&desk).unwrap().max_num_seqs, 7);
        desk.press(KeyCode::Enter);
        desk.type_text("2");
        desk.press(KeyCode::Enter);
        assert_eq!(desk.engine.scheduler.max_num_seqs, 2);
        desk.press(KeyCode::Char('G'));
        desk.press(KeyCode::Up);
        desk.press(KeyCode::Right);
        assert!(desk.engine.scheduler.async_scheduling);
        snapshot("scheduler", &desk);
        desk.press(KeyCode::Char('e'));
        assert!(desk.picture().contains("async"), "{}", desk.picture());
    }
}
