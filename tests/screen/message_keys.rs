//! What is done with the selected message: said differently, answered again, its versions, one of several.

use super::*;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

fn told(desk: &Desk) -> Vec<Vec<String>> {
    let prompt = |command: &&Command| match command {
        Command::Submit(request) => match &request.prompt {
            Prompt::Chat(messages) => Some(messages.iter().map(|m| m.content.clone()).collect()),
            _ => None,
        },
        _ => None,
    };
    desk.sent().iter().filter_map(prompt).collect()
}

fn alt(desk: &mut Desk, code: KeyCode) {
    desk.tell(Message::Key(KeyEvent::new(code, KeyModifiers::ALT)));
}

/// Three messages, each answered, and the transcript in focus.
fn talked() -> Desk {
    let mut desk = Desk::ready(SIZES[2]);
    for text in ["one", "two", "three"] {
        desk.say(text);
        desk.finish();
    }
    desk.press(KeyCode::Tab);
    assert_eq!(desk.app.focus, Focus::Transcript);
    desk
}

#[test]
fn e_puts_the_selected_message_into_the_input() {
    let mut desk = talked();
    desk.press(KeyCode::Char('k'));
    desk.press(KeyCode::Char('k'));
    desk.press(KeyCode::Char('e'));
    assert_eq!((desk.app.composer_text().as_str(), desk.app.focus), ("two", Focus::Input));
    desk.say(" again");
    let last = told(&desk).pop().unwrap();
    assert_eq!((last.len(), last[0].as_str(), last[2].as_str()), (3, "one", "two again"));
}

#[test]
fn r_answers_the_selected_answer_again_and_the_arrows_go_through_its_versions() {
    let mut desk = talked();
    desk.press(KeyCode::Char('g'));
    desk.press(KeyCode::Char('j'));
    desk.press(KeyCode::Char('r'));
    assert_eq!(told(&desk).pop().unwrap(), ["one"]);
    desk.finish();
    assert!(!desk.picture().contains("› three"), "{}", desk.picture());
    alt(&mut desk, KeyCode::Left);
    let picture = desk.picture();
    assert!(picture.contains("› three") && picture.contains("‹ 1/2 ›"), "{picture}");
    // The last turn gets a version too; the arrows still turn over those of the selected one.
    desk.press(KeyCode::F(3));
    desk.finish();
    desk.press(KeyCode::Char('g'));
    alt(&mut desk, KeyCode::Right);
    let picture = desk.picture();
    assert!(picture.contains("‹ 2/2 ›") && !picture.contains("› three"), "{picture}");
}

#[test]
fn one_of_several_answers_is_selected_with_the_mouse_and_the_chat_goes_on_from_it() {
    let mut desk = Desk::ready(SIZES[2]);
    desk.say("/compare temp=0.2 | greedy : Why?");
    desk.finish();
    let picture = desk.picture();
    let (row, line) = picture.lines().enumerate().find(|(_, line)| line.contains("2) ■")).unwrap();
    let column = line[..line.find("2) ■").unwrap()].chars().count();
    let (column, row) = (column as u16 + 4, row as u16 + 3);
    let kind = MouseEventKind::Down(MouseButton::Left);
    desk.tell(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
    let picture = desk.picture();
    assert!(picture.contains("2) ▸") && picture.contains("c go on from it"), "{picture}");
    desk.press(KeyCode::Char('c'));
    assert!(desk.picture().contains("the chat goes on from answer 2"), "{}", desk.picture());
    desk.press(KeyCode::Char('c'));
    assert!(desk.picture().contains("select one of several answers"), "{}", desk.picture());
    desk.press(KeyCode::Esc);
    desk.say("and then?");
    let last = told(&desk).pop().unwrap();
    assert_eq!((last.len(), last[0].as_str(), last[2].as_str()), (3, "Why?", "and then?"));
}

#[test]
fn hints_in_the_transcript_name_the_keys_in_force() {
    let text = "[anywhere]\ntoggle_thoughts = 'f10'\ntoggle_pause = 'f11'\nnext_version = 'none'\n\
                previous_version = 'alt-p'\nscroll_bottom = 'f12'\n";
    let mut desk = Desk::ready(SIZES[0]);
    desk.app.keymap = glassbox::tui::Keymap::with_file("keymap.toml", text);
    desk.say("Why?");
    desk.finish();
    desk.wait(60_000);
    let picture = desk.picture();
    assert!(picture.contains("F10 thoughts") && !picture.contains("Ctrl+O"), "{picture}");
    desk.press(KeyCode::F(3));
    desk.press(KeyCode::F(11));
    desk.steps(1);
    let picture = desk.picture();
    assert!(
        picture.contains("‹ 2/2 ›  Alt+P") && picture.contains("paused: F11 resumes, F6 steps"),
        "{picture}"
    );
    desk.press(KeyCode::F(11));
    desk.finish();
    desk.tell(Message::Resize(120, 40));
    for _ in 0..4 {
        desk.say("And then?");
        desk.finish();
    }
    desk.picture();
    desk.press(KeyCode::PageUp);
    assert!(desk.picture().contains("F12 follows"), "{}", desk.picture());
}

#[test]
fn the_footer_says_where_tab_leads_and_keeps_the_key_of_the_help() {
    for (size, there) in [(SIZES[0], "Tab chat, panels"), (SIZES[1], "Tab transcript, panels")] {
        let mut desk = Desk::ready(size);
        let footer = |desk: &Desk| desk.picture().lines().last().unwrap().to_owned();
        desk.wait(60_000);
        assert!(footer(&desk).contains("Tab panels ·"), "{}", footer(&desk));
        desk.say("Why?");
        desk.steps(3);
        let live = footer(&desk);
        assert!(
            ["Enter send", "Esc stop", there, "F1 help"].iter().all(|hint| live.contains(hint)),
            "{live}"
        );
        // In the transcript and in every panel, until the input has the focus again.
        loop {
            desk.press(KeyCode::Tab);
            desk.wait(60_000);
            let line = footer(&desk);
            assert!(
                line.contains("F1 help") || (line.contains("Esc back") && line.ends_with("? help")),
                "{line}"
            );
            if desk.app.focus == Focus::Input {
                break;
            }
        }
    }
}
