//! The sampling panel: any token's waterfall, its stages, other values tried on it, and parameters
//! changed, undone and taken back.

use super::*;

/// An answer that streams, with the keys in the sampling panel.
fn desk(size: (u16, u16), steps: usize) -> Desk {
    let mut desk = Desk::ready(size);
    desk.say("Why is the sky blue?");
    desk.steps(steps);
    focus(&mut desk);
    desk
}

fn focus(desk: &mut Desk) {
    while desk.app.focus != Focus::Panel(Panel::Sampling) {
        desk.press(KeyCode::Tab);
    }
}

fn questions(desk: &Desk) -> Vec<&WhatIf> {
    desk.sent()
        .into_iter()
        .filter_map(|c| if let Command::WhatIf(asked) = c { Some(&**asked) } else { None })
        .collect()
}

fn says(desk: &Desk, texts: &[&str]) {
    let picture = desk.picture();
    for text in texts {
        assert!(picture.contains(text), "no {text:?} in\n{picture}");
    }
}

#[test]
fn before_the_first_token_the_panel_says_what_will_stand_there() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        focus(&mut desk);
        snapshot("sampling_empty", &desk);
        for key in [',', '.', 't', 'w', 'a'] {
            desk.press(KeyCode::Char(key));
        }
        assert!(desk.app.token.is_none() && questions(&desk).is_empty());
    }
}

#[test]
fn any_token_is_looked_at_and_the_newest_is_followed_again() {
    for size in SIZES {
        let mut desk = desk(size, 60);
        let newest = desk.engine.snapshot().sampling.unwrap();
        desk.press(KeyCode::Char(','));
        desk.press(KeyCode::Char('['));
        assert_eq!(desk.app.token, Some((newest.seq, newest.index - 2)));
        desk.steps(10);
        says(&desk, &["token 58 of 70"]);
        snapshot("sampling_earlier", &desk);
        desk.press(KeyCode::Char('.'));
        assert_eq!(desk.app.token, Some((newest.seq, newest.index - 1)));
        desk.press(KeyCode::End);
        assert_eq!(desk.app.token, None);
        desk.press(KeyCode::Char(','));
        desk.press(KeyCode::Char(']'));
        desk.press(KeyCode::Char(']'));
        assert_eq!(desk.app.token, None, "after the last the newest is followed");
    }
}

#[test]
fn a_token_without_a_waterfall_says_why() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/parallel 2 Why?");
    desk.steps(30);
    focus(&mut desk);
    desk.app.token = Some((SeqId { request: RequestId(1), choice: 1 }, 3));
    says(&desk, &["token 4 of", "no waterfall: sequence 1.1"]);
    snapshot("sampling_untraced", &desk);
    desk.press(KeyCode::Char('w'));
    assert!(questions(&desk).is_empty());
}

#[test]
fn stages_are_walked_through_and_say_what_they_cut() {
    for size in SIZES {
        let mut desk = desk(size, 60);
        if size != SIZES[1] {
            desk.press(KeyCode::Char('z'));
        }
        desk.press(KeyCode::Char('t'));
        desk.press(KeyCode::Char('t'));
        assert_eq!(desk.app.panels.sampling.stage, Some(Stage::TopK));
        says(&desk, &["top-k 40", "49,152 → 40 left", "H 0.82→0.80", "✂ 2 of 10 shown"]);
        snapshot("sampling_stage", &desk);
        desk.press(KeyCode::Char('T'));
        says(&desk, &["temperature 0.8", "none of those shown fell here"]);
        desk.press(KeyCode::Char('T'));
        assert_eq!(desk.app.panels.sampling.stage, None);
        desk.press(KeyCode::Char('T'));
        assert_eq!(desk.app.panels.sampling.stage, Some(Stage::MinP));
    }
}

#[test]
fn with_room_every_candidate_falls_through_the_stages_as_columns() {
    for size in SIZES {
        let mut desk = desk(size, 60);
        desk.press(KeyCode::Char('z'));
        says(&desk, &["left", "49,152", "min-p", "━✂"]);
        snapshot("sampling_table", &desk);
    }
}

#[test]
fn other_values_are_tried_on_a_token_and_nothing_is_changed_until_they_are_applied() {
    for size in SIZES {
        let mut desk = desk(size, 60);
        desk.press(KeyCode::Char(','));
        desk.press(KeyCode::Char('w'));
        says(&desk, &["what if", "would have drawn"]);
        desk.press(KeyCode::Right);
        desk.press(KeyCode::Down);
        desk.press(KeyCode::Enter);
        desk.type_text("2");
        desk.press(KeyCode::Enter);
        assert_eq!(questions(&desk).len(), 3);
        let asked = questions(&desk).last().copied().unwrap().clone();
        assert_eq!((asked.index, asked.params.temperature, asked.params.top_k), (58, 0.9, 2));
        assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (0.8, 40));
        says(&desk, &["temperature 0.8→0.9"]);
        snapshot("sampling_what_if", &desk);
        desk.press(KeyCode::Char('z'));
        says(&desk, &["top_k 40→2", "now", "was"]);
        snapshot("sampling_what_if_table", &desk);
        desk.press(KeyCode::Char('a'));
        assert!(desk.app.panels.sampling.trial.is_none());
        assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (0.9, 2));
        assert!(desk.sent().iter().any(|c| matches!(c, Command::SetParams(_, p) if p.top_k == 2)));
        desk.press(KeyCode::Char('u'));
        assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (0.8, 40));
    }
}

#[test]
fn a_trial_goes_along_to_other_tokens_and_escape_leaves_it() {
    let mut desk = desk(SIZES[1], 60);
    desk.press(KeyCode::Char('w'));
    desk.press(KeyCode::Left);
    desk.press(KeyCode::Char(','));
    let asked = questions(&desk).last().copied().unwrap().clone();
    assert_eq!((asked.index, asked.params.temperature), (58, 0.7));
    desk.press(KeyCode::Char('x'));
    assert_eq!(questions(&desk).last().unwrap().params.temperature, 0.8);
    desk.press(KeyCode::Esc);
    assert_eq!(desk.app.focus, Focus::Panel(Panel::Sampling));
    assert!(desk.app.panels.sampling.trial.is_none() && desk.app.token.is_none());
    desk.press(KeyCode::Esc);
    assert_eq!(desk.app.focus, Focus::Input);
    assert_eq!(desk.app.params.temperature, 0.8);
}

#[test]
fn what_cannot_be_told_says_why_and_answers_to_older_questions_are_ignored() {
    for size in SIZES {
        let mut desk = desk(size, 5);
        desk.press(KeyCode::Char(','));
        desk.press(KeyCode::Char('w'));
        let first = questions(&desk)[0].clone();
        desk.press(KeyCode::Left);
        let late = WhatIfAnswer { asked: first, trace: Err("too late".into()) };
        desk.tell(Message::Engine(vec![Event::WhatIf(Box::new(late))]));
        assert!(!desk.picture().contains("too late"));
        desk.steps(130);
        desk.press(KeyCode::Left);
        says(&desk, &["cannot be told", "logits are not kept"]);
        snapshot("sampling_what_if_error", &desk);
    }
}

#[test]
fn one_candidate_is_enough() {
    for size in SIZES {
        let mut desk = desk(size, 40);
        let mut snap = desk.engine.snapshot();
        let mut trace = (**snap.sampling.as_ref().unwrap()).clone();
        trace.candidates.truncate(1);
        trace.grammar = Some(GrammarView { allowed: 1, may_end: true, first: vec!["{".into()] });
        snap.sampling = Some(Arc::new(trace));
        desk.tell(Message::Snapshot(Arc::new(snap)));
        desk.press(KeyCode::Char('z'));
        says(&desk, &["grammar 1 of 49,152", "may end"]);
        snapshot("sampling_one", &desk);
    }
}

#[test]
fn changes_are_undone_and_done_again_and_one_is_taken_back() {
    let origins = [("top_p", "flag".to_owned()), ("temperature", "/etc/glassbox/config.toml:3".to_owned())];
    let params = SamplingParams { top_p: 0.5, temperature: 0.6, ..SamplingParams::default() };
    let options = ScreenOptions { params, origins: origins.into(), ..ScreenOptions::default() };
    let mut desk = Desk::with(options, SIZES[2]);
    desk.tell(Message::Models(catalogue(true)));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    desk.look();
    focus(&mut desk);
    says(&desk, &["0.6 c", "0.5 f"]);
    desk.press(KeyCode::Right);
    desk.press(KeyCode::Right);
    assert_eq!(desk.app.params.temperature, 0.8);
    says(&desk, &["0.8 s", "session · 0 to 100 · u undoes (2)"]);
    desk.press(KeyCode::Char('u'));
    assert_eq!(desk.app.params.temperature, 0.7);
    desk.press(KeyCode::Char('u'));
    says(&desk, &["0.6 c", "U redoes (2)", "undone: temperature 0.6"]);
    desk.press(KeyCode::Char('u'));
    assert_eq!(desk.app.params.temperature, 0.6);
    desk.press(KeyCode::Char('U'));
    desk.press(KeyCode::Char('U'));
    desk.press(KeyCode::Char('U'));
    assert_eq!(desk.app.params.temperature, 0.8);
    desk.press(KeyCode::Backspace);
    says(&desk, &["0.6 c", "temperature 0.6 again"]);
    desk.press(KeyCode::Char('z'));
    snapshot("sampling_origins", &desk);
    desk.press(KeyCode::Char('u'));
    assert_eq!(desk.app.params.temperature, 0.8);
}

#[test]
fn presets_are_chosen_from_a_list_and_are_one_change() {
    let mut desk = desk(SIZES[1], 20);
    desk.press(KeyCode::Char('P'));
    snapshot("sampling_presets", &desk);
    desk.type_text("creat");
    desk.press(KeyCode::Enter);
    assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (1.2, 0));
    says(&desk, &["preset creative"]);
    desk.press(KeyCode::Char('u'));
    assert_eq!((desk.app.params.temperature, desk.app.params.top_k), (0.8, 40));
    // While values are tried, a preset is too.
    desk.press(KeyCode::Char('w'));
    desk.press(KeyCode::Char('P'));
    desk.press(KeyCode::Enter);
    assert_eq!(questions(&desk).last().unwrap().params.temperature, 0.0);
    assert_eq!(desk.app.params.temperature, 0.8);
}

#[test]
fn every_parameter_is_reached_with_keys_and_found_by_name() {
    for size in SIZES {
        let mut desk = desk(size, 20);
        desk.press(KeyCode::Char('g'));
        for spec in PARAMS {
            says(&desk, &[&spec.help.split(' ').take(3).collect::<Vec<_>>().join(" ")]);
            desk.press(KeyCode::Char('j'));
        }
        desk.press(KeyCode::Char('o'));
        desk.type_text("mirostau");
        desk.press(KeyCode::Enter);
        assert_eq!(PARAMS[desk.app.panels.sampling.param].name, "mirostat_tau");
        snapshot("sampling_found", &desk);
    }
}

#[test]
fn a_replay_shows_any_token_and_changes_nothing() {
    let mut desk = desk(SIZES[1], 40);
    desk.tell(Message::Engine(vec![Event::Replaying { first: 0, last: 200, speed: 1.0 }]));
    focus(&mut desk);
    desk.press(KeyCode::Char(','));
    desk.press(KeyCode::Char('w'));
    says(&desk, &["a recording keeps no"]);
    desk.press(KeyCode::Esc);
    desk.press(KeyCode::Left);
    desk.press(KeyCode::Char('x'));
    desk.press(KeyCode::Char('P'));
    assert!(desk.app.overlay.is_none() && questions(&desk).is_empty());
    assert_eq!(desk.app.params, SamplingParams::default());
}

#[test]
fn steps_back_show_the_token_of_that_step() {
    let mut desk = desk(SIZES[2], 60);
    desk.app.focus = Focus::Panel(Panel::Batch);
    for _ in 0..5 {
        desk.press(KeyCode::Char('j'));
    }
    focus(&mut desk);
    desk.press(KeyCode::Char(','));
    assert_eq!(desk.app.token.map(|(_, index)| index), Some(53));
    desk.press(KeyCode::F(5));
    desk.steps(3);
    snapshot("sampling_back", &desk);
}
