//! Messages said differently, answered again, gone on with: nothing that was said is lost.

use super::*;

fn prompts(desk: &Desk) -> Vec<Vec<String>> {
    let told = |command: &&Command| match command {
        Command::Submit(request) => match &request.prompt {
            Prompt::Chat(messages) => Some(messages.iter().map(|m| m.content.clone()).collect()),
            _ => None,
        },
        _ => None,
    };
    desk.sent().iter().filter_map(told).collect()
}

fn alt(desk: &mut Desk, code: KeyCode) {
    desk.tell(Message::Key(KeyEvent::new(code, KeyModifiers::ALT)));
}

/// Three messages, each answered.
fn talked(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    for text in ["one", "two", "three"] {
        desk.say(text);
        desk.finish();
    }
    desk
}

#[test]
fn an_earlier_message_is_said_differently_and_both_conversations_stay() {
    for size in SIZES {
        let mut desk = talked(size);
        desk.say("/edit 2");
        assert_eq!(desk.app.composer_text(), "two");
        assert!(desk.picture().contains("editing message 2 · Esc leaves it"), "{}", desk.picture());
        desk.say(" again");
        let told = prompts(&desk).pop().unwrap();
        assert_eq!((told.len(), told[0].as_str(), told[2].as_str()), (3, "one", "two again"));
        desk.steps(3);
        snapshot("edited", &desk);
        desk.finish();
        if size.1 > 24 {
            assert!(!desk.picture().contains("› three"), "{}", desk.picture());
        }
        alt(&mut desk, KeyCode::Left);
        if size.1 > 24 {
            assert!(desk.picture().contains("› three"), "{}", desk.picture());
        }
        desk.say("four");
        let told = prompts(&desk).pop().unwrap();
        assert_eq!((told.len(), told[2].as_str(), told[6].as_str()), (7, "two", "four"));
    }
}

#[test]
fn escape_leaves_the_message_and_brings_back_what_was_being_written() {
    let mut desk = talked(SIZES[1]);
    desk.say("/edit");
    assert_eq!(desk.app.composer_text(), "three");
    desk.press(KeyCode::Esc);
    assert_eq!(desk.app.composer_text(), "");
    assert!(!desk.picture().contains("editing message"));
    desk.say("/edit 7");
    assert!(desk.picture().contains("a message from 1 to 3, not \"7\""), "{}", desk.picture());
    assert_eq!(prompts(&desk).len(), 3);
}

#[test]
fn an_answer_of_a_version_that_is_not_shown_streams_on() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("first");
    desk.steps(3);
    desk.say("/edit 1");
    desk.ctrl('u');
    desk.say("second");
    assert_eq!(prompts(&desk).len(), 2);
    desk.steps(3);
    let picture = desk.picture();
    assert!(picture.contains("‹ 2/2 ›") && picture.contains("1 still answered"), "{picture}");
    assert!(picture.contains("2 live"), "{picture}");
    desk.finish();
    assert!(!desk.picture().contains("still answered"));
    alt(&mut desk, KeyCode::Left);
    let picture = desk.picture();
    assert!(picture.contains("› first") && picture.contains("the sky looks blue"), "{picture}");
    assert!(picture.contains("version 1 of 2"), "{picture}");
    alt(&mut desk, KeyCode::Left);
    assert!(desk.picture().contains("version 1 of 2 is the first"));
    desk.say("/version next");
    assert!(desk.picture().contains("› second"), "{}", desk.picture());
}

#[test]
fn escape_stops_every_version_that_is_being_answered() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("first");
    desk.steps(3);
    desk.press(KeyCode::F(3));
    desk.steps(3);
    desk.press(KeyCode::Esc);
    let aborted = desk.sent().iter().filter(|c| matches!(c, Command::Abort(_))).count();
    assert_eq!((aborted, desk.engine.is_idle()), (2, true));
}

#[test]
fn the_old_answer_is_kept_when_another_is_asked_for() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.say("one");
    desk.finish();
    desk.press(KeyCode::F(3));
    desk.finish();
    desk.say("/regen");
    desk.finish();
    desk.say("/version 1");
    desk.tell(Message::Key(KeyEvent::new(KeyCode::Home, KeyModifiers::CONTROL)));
    desk.wait(60_000);
    assert!(desk.picture().contains("‹ 1/3 ›"), "{}", desk.picture());
    desk.say("/version 4");
    assert!(desk.picture().contains("takes 1 to 3"), "{}", desk.picture());
    let told = prompts(&desk);
    assert_eq!((told.len(), &told[0], &told[1]), (3, &told[1], &told[2]));
}

#[test]
fn an_answer_that_was_cut_goes_on_in_its_place() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/continue");
    assert!(desk.picture().contains("no answer to go on with"), "{}", desk.picture());
    desk.say("/set max_tokens 40");
    desk.say("Why?");
    desk.steps(50);
    desk.press(KeyCode::Esc);
    let before = desk.picture();
    assert!(before.contains("stopped"), "{before}");
    desk.say("/continue");
    let Some(Command::Fork(fork)) = desk.sent().last().copied() else { panic!("{:?}", desk.effects) };
    assert_eq!((fork.then.len(), fork.params.max_tokens), (0, Some(40 + 50)));
    let (parent, keep) = (fork.parent, fork.keep);
    assert_eq!((parent.request, keep), (RequestId(1), 25 + 50));
    desk.finish();
    let picture = desk.picture();
    assert_eq!(picture.matches("› Why?").count(), 1, "{picture}");
    assert!(!picture.contains("stopped") && picture.contains("The sky is blue"), "{picture}");
    desk.say("/continue");
    assert!(desk.picture().contains("came to its own end"), "{}", desk.picture());
}

#[test]
fn an_answer_that_cannot_be_gone_on_with_stays_as_it_was() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why?");
    desk.steps(50);
    desk.press(KeyCode::Esc);
    desk.engine.forget_all();
    desk.say("/continue");
    let picture = desk.picture();
    assert!(picture.contains("is not known any more"), "{picture}");
    assert!(picture.contains("The sky is blue") && picture.contains("stopped"), "{picture}");
}

#[test]
fn a_message_that_was_refused_is_no_version() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.tell(Message::Paste("word ".repeat(8_000)));
    desk.press(KeyCode::Enter);
    desk.say("/edit");
    desk.app.composer_text();
    desk.ctrl('c');
    desk.say("short");
    desk.finish();
    assert!(!desk.picture().contains('‹'), "{}", desk.picture());
}

#[test]
fn a_tool_call_that_is_open_holds_its_branch() {
    let mut desk = talked(SIZES[1]);
    desk.say("/version");
    assert!(desk.picture().contains("no message has versions"), "{}", desk.picture());
}
