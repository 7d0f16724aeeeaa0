//! Markdown in answers: everything at once, at every width.

use super::*;
use unicode_segmentation::UnicodeSegmentation;

const TORTURE: &str = include_str!("../support/torture.md");

/// An answer that says this.
fn said(text: &str, size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    desk.say("Show me");
    let seq = SeqId { request: RequestId(1), choice: 0 };
    let delta = Event::Delta { seq, part: Part::Text(text.into()) };
    desk.tell(Message::Engine(vec![delta]));
    desk.frame();
    desk
}

/// All of the transcript, from its beginning.
fn whole(text: &str, width: u16) -> Desk {
    let mut desk = said(text, (width, 400));
    desk.say("/panel 1 2 3 4 5 6");
    desk.say("/panel 4");
    desk.frame();
    desk
}

#[test]
fn a_torture_document_is_readable_at_every_width() {
    for width in [26, 46, 86] {
        let desk = said(TORTURE, (width, 400));
        let picture: String = desk
            .text()
            .lines()
            .skip_while(|line| !line.contains("Show me"))
            .take_while(|line| !line.contains("The end."))
            .map(|line| line.to_owned() + "\n")
            .collect();
        insta::assert_snapshot!(format!("markdown_{width}"), picture);
    }
}

#[test]
fn no_line_is_wider_than_its_place() {
    // Every grapheme is where its cells are: nothing pushes a border.
    for width in [62, 80, 120, 200] {
        let mut desk = said(TORTURE, (width, 60));
        for _ in 0..40 {
            let buffer = desk.buffer();
            for y in 0..buffer.area.height {
                let mut x = 0;
                while x < width {
                    let symbol = buffer[(x, y)].symbol();
                    assert!(symbol.graphemes(true).count() <= 1, "{symbol:?}");
                    x += (unicode_width::UnicodeWidthStr::width(symbol) as u16).max(1);
                }
                assert_eq!(x, width, "row {y} at {width}");
            }
            desk.press(KeyCode::PageUp);
            desk.frame();
        }
    }
}

#[test]
fn code_is_copied_by_its_number() {
    let mut desk = whole("```sh\none\n```\ntext\n~~~\ntwo\n~~~\n", 120);
    desk.say("/copy code 1");
    assert_eq!(desk.effects.last(), Some(&Effect::Copy("one\n".into())));
    desk.say("/copy code");
    assert_eq!(desk.effects.last(), Some(&Effect::Copy("two\n".into())));
    desk.say("/copy code 3");
    assert!(desk.picture().contains("/copy code takes 1 to 2"), "{}", desk.picture());
}
