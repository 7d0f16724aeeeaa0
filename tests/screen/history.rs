//! Long conversations: scrolling, keeping one's place, and what stays in view.

use super::*;

fn long(size: (u16, u16), turns: usize) -> Desk {
    let mut desk = Desk::ready(size);
    for turn in 0..turns {
        desk.say(&format!("question {turn}"));
        desk.finish();
    }
    desk.frame();
    desk
}

fn alt(desk: &mut Desk, code: KeyCode) {
    desk.tell(Message::Key(KeyEvent::new(code, KeyModifiers::ALT)));
    desk.frame();
}

#[test]
fn a_resize_keeps_the_message_at_the_top() {
    let mut desk = long(SIZES[1], 8);
    for _ in 0..4 {
        alt(&mut desk, KeyCode::Up);
    }
    let top = |desk: &Desk| {
        let picture = desk.picture();
        picture.lines().find_map(|line| line.split("› ").nth(1).map(|l| l[..10].to_owned()))
    };
    assert_eq!(top(&desk).as_deref(), Some("question 3"), "{}", desk.picture());
    for size in [(90, 30), (200, 60), (62, 20), (120, 40)] {
        desk.tell(Message::Resize(size.0, size.1));
        desk.frame();
        assert_eq!(top(&desk).as_deref(), Some("question 3"), "{size:?}\n{}", desk.picture());
    }
}

#[test]
fn messages_are_walked_from_the_input_too() {
    for size in SIZES {
        let mut desk = long(size, 5);
        alt(&mut desk, KeyCode::Up);
        alt(&mut desk, KeyCode::Up);
        assert_eq!(desk.app.focus, Focus::Input);
        snapshot("scrolled", &desk);
        alt(&mut desk, KeyCode::Down);
        alt(&mut desk, KeyCode::Down);
        alt(&mut desk, KeyCode::Down);
        assert!(!desk.picture().contains("Ctrl+End follows"), "{}", desk.picture());
    }
}

#[test]
fn the_scrollbar_is_a_place_to_point_at() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let mut desk = long(SIZES[1], 6);
    let kind = MouseEventKind::Down(MouseButton::Left);
    let column = desk.picture().lines().find_map(|line| line.chars().position(|c| c == '┃')).unwrap() as u16;
    desk.tell(Message::Mouse(MouseEvent { kind, column, row: 2, modifiers: KeyModifiers::NONE }));
    desk.frame();
    assert!(desk.picture().contains("ready in"), "{}", desk.picture());
    let row = 35;
    desk.tell(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
    desk.frame();
    assert!(desk.picture().contains("tok/s"), "{}", desk.picture());
}

#[test]
fn every_line_is_passed_going_up_and_down() {
    let mut desk = long((70, 18), 4);
    let mut seen = vec![desk.picture()];
    for _ in 0..400 {
        desk.tell(Message::Key(KeyEvent::from(KeyCode::PageUp)));
        desk.frame();
        if seen.last() == Some(&desk.picture()) {
            break;
        }
        seen.push(desk.picture());
    }
    assert!(seen.len() > 5 && seen.last().unwrap().contains("ready in"), "{}", seen.last().unwrap());
    for turn in 0..4 {
        assert!(seen.iter().any(|picture| picture.contains(&format!("question {turn}"))), "{turn}");
    }
    for _ in 0..400 {
        desk.tell(Message::Key(KeyEvent::from(KeyCode::PageDown)));
        desk.frame();
    }
    assert_eq!(desk.picture(), seen[0]);
}

#[test]
fn no_size_and_no_mode_panics() {
    for (width, height) in [(1, 1), (12, 4), (13, 5), (20, 6), (60, 15), (61, 16), (300, 9)] {
        let mut desk = Desk::ready((120, 40));
        desk.say("Why?");
        desk.steps(60);
        desk.press(KeyCode::Tab);
        desk.press(KeyCode::Enter);
        desk.tell(Message::Resize(width, height));
        desk.frame();
        desk.press(KeyCode::Char('j'));
        desk.frame();
        desk.press(KeyCode::Enter);
        desk.finish();
        desk.frame();
        desk.press(KeyCode::Char('='));
        desk.frame();
        desk.ctrl('f');
        desk.type_text("sky");
        desk.frame();
    }
}
