//! The transcript with the focus: selecting messages, reading an answer token by token, forking and
//! comparing.

use super::*;

fn fork(desk: &Desk) -> Option<&ForkRequest> {
    desk.sent().into_iter().rev().find_map(|c| if let Command::Fork(fork) = c { Some(&**fork) } else { None })
}

/// An answer under way, read token by token, some tokens back.
fn reading(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    desk.say("Why is the sky blue?");
    desk.steps(55);
    desk.press(KeyCode::Tab);
    desk.press(KeyCode::Enter);
    desk.frame();
    for _ in 0..6 {
        desk.press(KeyCode::Left);
    }
    desk
}

#[test]
fn messages_are_selected_and_left_again() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why is the sky blue?");
        desk.finish();
        desk.say("And at night?");
        desk.finish();
        desk.frame();
        desk.press(KeyCode::Tab);
        assert_eq!(desk.app.focus, Focus::Transcript);
        desk.frame();
        desk.press(KeyCode::Char('k'));
        desk.frame();
        snapshot("selected", &desk);
        desk.press(KeyCode::Char('y'));
        assert_eq!(desk.effects.last(), Some(&Effect::Copy("And at night?".into())));
        desk.press(KeyCode::Char('k'));
        desk.press(KeyCode::Char('Y'));
        assert!(matches!(desk.effects.last(), Some(Effect::Copy(code)) if code.starts_with("/// Rayleigh")));
        desk.press(KeyCode::Esc);
        assert_eq!(desk.app.focus, Focus::Input);
    }
}

#[test]
fn tokens_are_walked_and_the_panel_follows() {
    for size in SIZES {
        let mut desk = reading(size);
        let (seq, at) = desk.app.token.unwrap();
        assert_eq!(seq, SeqId { request: RequestId(1), choice: 0 });
        assert_eq!(at, 54 - 6);
        desk.frame();
        snapshot("tokens", &desk);
        desk.press(KeyCode::Char('c'));
        desk.press(KeyCode::Up);
        desk.frame();
        snapshot("tokens_coloured", &desk);
        assert!(desk.app.token.unwrap().1 < at);
        desk.press(KeyCode::Esc);
        assert_eq!(desk.app.token, None);
        assert_eq!(desk.app.focus, Focus::Transcript);
    }
}

#[test]
fn tokens_keep_their_place_while_the_answer_grows() {
    let mut desk = reading(SIZES[0]);
    desk.frame();
    let at = desk.app.token;
    let row = |desk: &Desk| desk.picture().lines().position(|line| line.contains("token 49"));
    let before = row(&desk);
    desk.steps(40);
    assert_eq!((desk.app.token, row(&desk)), (at, before));
}

#[test]
fn an_alternative_is_taken_and_the_branch_stands_beside_its_parent() {
    for size in SIZES {
        let mut desk = reading(size);
        desk.press(KeyCode::Char('j'));
        desk.frame();
        snapshot("alternatives", &desk);
        desk.press(KeyCode::Enter);
        let request = fork(&desk).unwrap();
        let prompt = 24 + "Why is the sky blue?".len() / 4;
        assert_eq!((request.keep, &request.then[..]), (prompt + 48, &[1][..]));
        desk.steps(10);
        desk.frame();
        snapshot("forked", &desk);
    }
}

#[test]
fn enter_on_the_token_itself_draws_anew() {
    let mut desk = reading(SIZES[1]);
    desk.press(KeyCode::Enter);
    assert!(fork(&desk).unwrap().then.is_empty());
    // The branch is selected, and its kept tokens can be read too.
    desk.steps(3);
    desk.frame();
    desk.press(KeyCode::Char('t'));
    desk.frame();
    let picture = desk.picture();
    assert!(picture.contains("tokens of 2 · 51 of 51"), "{picture}");
    desk.press(KeyCode::Home);
    desk.frame();
    assert!(desk.picture().contains("<think>"), "{}", desk.picture());
    // They were drawn by the parent, and the panel shows its waterfall.
    assert_eq!(desk.app.token, Some((SeqId { request: RequestId(1), choice: 0 }, 0)));
}

#[test]
fn two_forks_are_compared_from_where_they_part() {
    for size in SIZES {
        let mut desk = reading(size);
        desk.press(KeyCode::Char('j'));
        desk.press(KeyCode::Enter);
        desk.finish();
        desk.frame();
        desk.press(KeyCode::Char('='));
        desk.frame();
        snapshot("compared", &desk);
        assert!(desk.picture().contains("the first 48 tokens are shared"), "{}", desk.picture());
        desk.press(KeyCode::Esc);
        assert!(!desk.picture().contains("compared"));
        desk.press(KeyCode::Esc);
        desk.say("/diff 1 2");
        assert!(desk.picture().contains("1 and 2 compared"), "{}", desk.picture());
        desk.say("/diff 1 9");
        assert!(desk.picture().contains("/diff takes two answers"), "{}", desk.picture());
    }
}

#[test]
fn a_click_selects_a_message_and_another_reads_its_tokens() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("Why is the sky blue?");
    desk.finish();
    desk.frame();
    let row = desk.picture().lines().position(|line| line.contains("The sky is blue")).unwrap() as u16;
    let click = |desk: &mut Desk, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        desk.tell(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        desk.frame();
    };
    click(&mut desk, 5, row);
    assert_eq!(desk.app.focus, Focus::Transcript);
    assert!(desk.app.token.is_none());
    click(&mut desk, 5, row);
    assert!(desk.picture().contains("tokens of 1"), "{}", desk.picture());
    let row = desk.picture().lines().position(|line| line.contains("scatters **short")).unwrap() as u16;
    click(&mut desk, 3, row);
    let (_, at) = desk.app.token.unwrap();
    click(&mut desk, 9, row);
    assert!(desk.app.token.unwrap().1 > at);
}

#[test]
fn thoughts_fold_in_one_answer_and_in_all() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("one");
    desk.finish();
    desk.say("two");
    desk.finish();
    desk.frame();
    desk.press(KeyCode::Tab);
    desk.press(KeyCode::Char('o'));
    assert!(desk.picture().contains("this answer has no thoughts"));
    desk.press(KeyCode::Char('k'));
    desk.press(KeyCode::Char('k'));
    desk.press(KeyCode::Char('o'));
    desk.frame();
    assert_eq!(desk.picture().matches("Rayleigh scattering: short").count(), 1, "{}", desk.picture());
    desk.ctrl('o');
    desk.ctrl('o');
    assert_eq!(desk.picture().matches("Rayleigh scattering: short").count(), 0);
}
