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
