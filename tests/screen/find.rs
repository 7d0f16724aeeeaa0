//! Finding text in the conversation.

use super::*;

fn talked(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    for question in ["Why is the sky blue?", "And at sunset?", "Who was Rayleigh?"] {
        desk.say(question);
        desk.finish();
    }
    desk.frame();
    desk
}

#[test]
fn matches_are_counted_and_walked_as_one_types() {
    for size in SIZES {
        let mut desk = talked(size);
        desk.ctrl('f');
        desk.type_text("rayleigh");
        desk.frame();
        snapshot("find", &desk);
        let picture = desk.picture();
        assert!(picture.contains("find rayleigh▍"), "{picture}");
        let field = picture.split("find rayleigh▍").nth(1).unwrap();
        let all: usize = field.split_whitespace().nth(2).unwrap().parse().unwrap();
        assert!(picture.contains(&format!("{all} of {all}")), "{picture}");
        desk.press(KeyCode::Enter);
        assert!(desk.picture().contains(&format!("1 of {all}")), "{}", desk.picture());
        desk.press(KeyCode::Up);
        assert!(desk.picture().contains(&format!("{all} of {all}")));
        // A capital is meant.
        for _ in 0..8 {
            desk.press(KeyCode::Backspace);
        }
        desk.type_text("RAYLEIGH");
        assert!(desk.picture().contains("nothing found"));
        desk.press(KeyCode::Esc);
        assert!(!desk.picture().contains("find "));
        assert_eq!(desk.app.focus, Focus::Input);
    }
}

#[test]
fn what_is_folded_is_unfolded_and_the_place_comes_back() {
    let mut desk = talked(SIZES[0]);
    let before = desk.picture();
    desk.ctrl('f');
    desk.type_text("user asks");
    desk.press(KeyCode::Enter);
    desk.frame();
    let picture = desk.picture();
    assert!(picture.contains("The user asks about the sky"), "{picture}");
    desk.press(KeyCode::Esc);
    desk.frame();
    let last = |picture: &str| picture.lines().nth(12).map(str::to_owned);
    assert_eq!(last(&desk.picture()), last(&before));
}

#[test]
fn a_command_finds_and_n_goes_on() {
    let mut desk = talked(SIZES[1]);
    desk.say("/find sunset");
    assert_eq!(desk.app.focus, Focus::Transcript);
    let count = |desk: &Desk| {
        let picture = desk.picture();
        let field = picture.split("find sunset").nth(1).unwrap();
        field.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let at = count(&desk);
    desk.press(KeyCode::Char('N'));
    assert_eq!(count(&desk), at - 1);
    desk.press(KeyCode::Char('n'));
    assert_eq!(count(&desk), at);
    desk.press(KeyCode::Esc);
    assert!(!desk.picture().contains("find sunset"));
}

#[test]
fn a_match_that_is_broken_over_two_lines_is_marked_in_both() {
    use ratatui::style::Modifier;
    let mut desk = talked(SIZES[1]);
    // Wherever the lines are broken, the last word of one and the first of the next are found.
    let picture = desk.picture();
    let answer: Vec<&str> = picture.lines().map(|line| line.split('│').next().unwrap().trim()).collect();
    let at = answer.iter().position(|line| line.contains("The sky is blue because")).unwrap();
    let (end, start) =
        (answer[at].split(' ').next_back().unwrap(), answer[at + 1].split(' ').next().unwrap());
    let query = format!("{end} {start}");
    assert!(!end.is_empty() && !start.is_empty(), "{picture}");
    desk.ctrl('f');
    desk.type_text(&query);
    desk.frame();
    desk.frame();
    let buffer = desk.buffer();
    let marked = |y: u16| {
        let is_marked =
            |x: &u16| buffer[(*x, y)].modifier.contains(Modifier::UNDERLINED | Modifier::REVERSED);
        (0..buffer.area.width).filter(is_marked).map(|x| buffer[(x, y)].symbol()).collect::<String>()
    };
    let rows: Vec<String> = (0..buffer.area.height).map(marked).filter(|text| !text.is_empty()).collect();
    assert_eq!(rows, [end, start], "{query}: {}", desk.picture());
}
