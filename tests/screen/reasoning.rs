//! The reasoning panel: tokens and their channels, what is held back, calls as they form, other sequences.

use super::*;

const SEQ: SeqId = SeqId { request: RequestId(1), choice: 0 };

/// With the keys in the panel; zoomed where it is not open by itself.
fn desk(size: (u16, u16), say: &str, steps: usize) -> Desk {
    let mut desk = Desk::ready(size);
    desk.say(say);
    desk.steps(steps);
    focus(&mut desk);
    desk
}

fn focus(desk: &mut Desk) {
    desk.app.focus = Focus::Panel(Panel::Reasoning);
    if !desk.app.panels.open(desk.app.class()).contains(&Panel::Reasoning) {
        desk.press(KeyCode::Char('5'));
    }
    desk.app.focus = Focus::Panel(Panel::Reasoning);
}

fn says(desk: &Desk, texts: &[&str]) {
    let picture = desk.picture();
    for text in texts {
        assert!(picture.contains(text), "no {text:?} in\n{picture}");
    }
}

/// A token as the parser took it, with what it holds back.
fn token(desk: &mut Desk, text: &str, channel: Channel, held: Option<(&str, HeldBack)>) {
    let token = TokenInfo {
        id: 27,
        text: text.into(),
        bytes: text.into(),
        logprob: -0.1,
        rank: 1,
        entropy: 0.4,
        top: vec![],
        forced: false,
        channel,
        held: held.map_or(String::new(), |(text, _)| text.into()),
        why: held.map(|(_, why)| why),
    };
    desk.tell(Message::Engine(vec![Event::Token { seq: SEQ, token: Box::new(token) }]));
}

fn call(desk: &mut Desk, delta: ToolCallDelta) {
    desk.tell(Message::Engine(vec![Event::Delta { seq: SEQ, part: Part::ToolCall(delta) }]));
}

#[test]
fn before_the_first_token_the_parsers_are_named() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        focus(&mut desk);
        says(&desk, &["parser think · calls hermes", "no token yet"]);
        for code in [KeyCode::Char('j'), KeyCode::Char('k'), KeyCode::Char('g'), KeyCode::Char('f')] {
            desk.press(code);
        }
        assert_eq!(desk.app.token, None);
        snapshot("reasoning_empty", &desk);
    }
}

#[test]
fn unfinished_thoughts_show_their_time_and_what_is_left_of_the_budget() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/think budget 64");
        desk.say("Why?");
        desk.steps(20);
        focus(&mut desk);
        says(&desk, &["thinking 19 tok, 144 ms", "45 of 64 left", "in reasoning"]);
        desk.wait(2_000);
        says(&desk, &["thinking 19 tok, 2.1 s"]);
        snapshot("reasoning_thinking", &desk);
    }
}

#[test]
fn a_token_is_selected_for_both_panels_and_the_newest_followed_again() {
    for size in SIZES {
        let mut desk = desk(size, "Why?", 60);
        desk.press(KeyCode::Char('k'));
        desk.press(KeyCode::Up);
        assert_eq!(desk.app.token, Some((SEQ, 57)));
        desk.press(KeyCode::Char('j'));
        assert_eq!(desk.app.token, Some((SEQ, 58)));
        says(&desk, &["▸    59 "]);
        snapshot("reasoning_selected", &desk);
        desk.press(KeyCode::Enter);
        assert_eq!(desk.app.focus, Focus::Panel(Panel::Sampling));
        says(&desk, &["token 59 of 60"]);
        focus(&mut desk);
        desk.press(KeyCode::Char('g'));
        assert_eq!(desk.app.token, Some((SEQ, 0)));
        says(&desk, &["▸     1 \"<think>\""]);
        desk.press(KeyCode::Char('G'));
        assert_eq!(desk.app.token, None);
        desk.press(KeyCode::Char('k'));
        desk.press(KeyCode::Down);
        desk.press(KeyCode::Down);
        assert_eq!(desk.app.token, None);
    }
}

#[test]
fn a_tag_over_several_tokens_is_caught_and_the_panel_says_what_would_have_leaked() {
    for size in SIZES {
        let mut desk = desk(size, "Why?", 10);
        token(&mut desk, "</", Channel::Reasoning, Some(("</", HeldBack::Tag)));
        says(&desk, &["holds \"</\" a tag?"]);
        token(&mut desk, "think", Channel::Reasoning, Some(("</think", HeldBack::Tag)));
        token(&mut desk, ">", Channel::Marker, None);
        token(&mut desk, " Well", Channel::Content, None);
        // What turns out to be no tag is no catch.
        token(&mut desk, " <", Channel::Content, Some(("<", HeldBack::Tag)));
        token(&mut desk, "3", Channel::Content, None);
        desk.press(KeyCode::Char('z'));
        says(&desk, &["\"</think\"", "caught 1"]);
        snapshot("reasoning_caught", &desk);
    }
}

#[test]
fn a_hundred_arguments_show_their_end_and_a_call_that_was_none_is_said() {
    for size in SIZES {
        let mut desk = desk(size, "Why?", 10);
        let name = |index: usize, name: &str| ToolCallDelta {
            index,
            id: Some(format!("call_{index}")),
            name: Some(name.into()),
            ..ToolCallDelta::default()
        };
        call(&mut desk, name(0, "get_weather"));
        for i in 0..100 {
            let arguments = format!("\"argument {i}\": {i}, ");
            call(&mut desk, ToolCallDelta { index: 0, arguments: arguments.clone(), ..Default::default() });
            token(&mut desk, &arguments, Channel::Tool, None);
        }
        says(&desk, &["call 1 get_weather", "\"argument 99\": 99", "in tool call"]);
        snapshot("reasoning_arguments", &desk);
        call(&mut desk, name(1, "evil\x1b[31m"));
        call(&mut desk, ToolCallDelta { index: 1, retracted: true, ..Default::default() });
        says(&desk, &["retracted: evil\\x1b[31m was no call"]);
        clean(&desk);
    }
}

#[test]
fn one_sequence_is_listed_at_a_time_and_f_goes_to_the_next() {
    let mut desk = desk(SIZES[1], "/parallel 3 Why?", 20);
    says(&desk, &["A 1 · in"]);
    desk.press(KeyCode::Char('f'));
    says(&desk, &["B 1.1 · in"]);
    let second = SeqId { choice: 1, ..SEQ };
    assert!(desk.sent().contains(&&Command::Focus(Some(second))));
    desk.press(KeyCode::Char('z'));
    snapshot("reasoning_second", &desk);
    desk.finish();
    desk.press(KeyCode::Char('f'));
    says(&desk, &["C 1.2 · ended: stop"]);
    desk.press(KeyCode::Char('f'));
    says(&desk, &["A 1 · ended: stop"]);
    // A new answer takes its place.
    desk.app.focus = Focus::Input;
    desk.say("and now?");
    desk.steps(3);
    focus(&mut desk);
    says(&desk, &["B 2 · in"]);
}

#[test]
fn paused_and_back_in_steps_the_tokens_of_then_are_listed() {
    let mut desk = desk(SIZES[2], "Why?", 60);
    desk.press(KeyCode::F(5));
    desk.app.focus = Focus::Panel(Panel::Batch);
    for _ in 0..10 {
        desk.press(KeyCode::Char('j'));
    }
    desk.app.focus = Focus::Panel(Panel::Reasoning);
    desk.press(KeyCode::Char('z'));
    says(&desk, &["     50 "]);
    assert!(!desk.picture().contains("     51 "), "{}", desk.picture());
    snapshot("reasoning_back", &desk);
}
