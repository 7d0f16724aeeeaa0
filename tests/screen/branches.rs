//! Panel 4's second half: the conversation as a tree.

use super::*;

fn focus(desk: &mut Desk) {
    while desk.app.focus != Focus::Panel(Panel::Beams) {
        desk.press(KeyCode::Tab);
    }
}

#[test]
fn an_empty_panel_says_how_to_get_beams_and_branches() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("/panel 4");
        let picture = desk.picture();
        assert!(picture.contains("/beam 4") && picture.contains("/fork"), "{picture}");
        snapshot("branches_none", &desk);
    }
}

#[test]
fn forks_stand_under_their_turn_with_what_they_share() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why is the sky blue?");
        desk.steps(60);
        desk.say("/fork @50");
        desk.steps(3);
        desk.say("/panel 4");
        focus(&mut desk);
        let picture = desk.picture();
        for seen in ["branches 1 turn · 1 branch", "● Why is the sky", "├ A 1", "└ B 2", "blk of 1"] {
            assert!(picture.contains(seen), "{seen}\n{picture}");
        }
        snapshot("branches", &desk);
    }
}

#[test]
fn a_version_is_gone_to_and_its_turns_come_back_into_view() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why is the sky blue?");
        desk.finish();
        desk.say("And at night?");
        desk.finish();
        desk.say("/edit 1");
        desk.ctrl('u');
        desk.say("Why is grass green?");
        desk.steps(40);
        desk.say("/panel 4");
        focus(&mut desk);
        let picture = desk.picture();
        for seen in ["● Why is g", "‹ 2/2 ›", "└ ○ Why is the", "+1 turn", "○ And at n"] {
            assert!(picture.contains(seen), "{seen}\n{picture}");
        }
        snapshot("branches_versions", &desk);
        desk.press(KeyCode::Char('j'));
        desk.press(KeyCode::Enter);
        let told: Vec<&str> = desk.app.chat.turns().map(|turn| turn.text.as_str()).collect();
        assert_eq!(told, ["Why is the sky blue?", "And at night?"]);
        assert!(desk.picture().contains("● Why is the"), "{}", desk.picture());
        assert!(desk.picture().contains("version 1 of 2"), "{}", desk.picture());
    }
}
