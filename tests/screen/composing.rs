//! Writing a message: what fits, files with it, chips, undo.

use super::*;
use glassbox::tui::{FileEntry, Unread};

/// A moment without a key.
fn pause(desk: &mut Desk) {
    desk.wait(200);
    desk.tell(Message::Tick);
}

fn entry(name: &str, is_folder: bool) -> FileEntry {
    FileEntry { name: name.into(), is_folder, bytes: 5_120 }
}

/// Answers the newest listing of a folder.
fn list(desk: &mut Desk, entries: &[(&str, bool)]) {
    let path = desk.effects.iter().rev().find_map(|e| match e {
        Effect::ListFolder(path) => Some(path.clone()),
        _ => None,
    });
    let entries = entries.iter().map(|(name, is_folder)| entry(name, *is_folder)).collect();
    desk.tell(Message::Folder { path: path.unwrap(), entries });
}

fn read(desk: &mut Desk, path: &str, content: Result<&str, Unread>) {
    assert!(desk.effects.contains(&Effect::ReadFile(path.into())), "{:?}", desk.effects);
    desk.tell(Message::FileRead { path: path.into(), content: content.map(str::to_owned) });
}

fn last_prompt(desk: &Desk) -> String {
    let prompt = desk.sent().into_iter().rev().find_map(|c| match c {
        Command::Submit(request) => Some(request.prompt.clone()),
        _ => None,
    });
    match prompt {
        Some(Prompt::Chat(messages)) => messages.last().unwrap().content.clone(),
        other => panic!("{other:?}"),
    }
}

fn counts(desk: &Desk) -> usize {
    desk.sent().iter().filter(|c| matches!(c, Command::Count(_))).count()
}

#[test]
fn the_draft_is_counted_a_moment_after_the_last_key() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.type_text("How many tokens is this?");
        assert_eq!(counts(&desk), 0);
        assert!(!desk.picture().contains("draft"));
        pause(&mut desk);
        assert_eq!(counts(&desk), 2);
        assert!(desk.picture().contains("draft 6 tok · 30/8,192 · fits 8,162"), "{}", desk.picture());
        snapshot("draft", &desk);
        desk.type_text("!");
        assert!(!desk.picture().contains("draft"), "{}", desk.picture());
        desk.press(KeyCode::Backspace);
        pause(&mut desk);
        assert!(desk.picture().contains("draft 6 tok"));
        desk.press(KeyCode::Enter);
        assert!(!desk.picture().contains("draft"), "{}", desk.picture());
    }
}

#[test]
fn only_the_newest_count_is_shown_and_commands_are_not_counted() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.type_text("/set temp 1");
    pause(&mut desk);
    assert_eq!(counts(&desk), 0);
    desk.ctrl('u');
    desk.type_text("hello");
    pause(&mut desk);
    desk.type_text(" there");
    desk.tell(Message::Engine(vec![Event::Counted { ticket: 1, tokens: Ok(vec![999]) }]));
    assert!(!desk.picture().contains("999"), "{}", desk.picture());
}

#[test]
fn while_an_answer_streams_only_the_draft_is_known() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("one");
    desk.steps(5);
    desk.type_text("and then what?");
    pause(&mut desk);
    let picture = desk.picture();
    assert!(picture.contains("draft 4 tok") && !picture.contains("fits"), "{picture}");
    desk.finish();
    pause(&mut desk);
    assert!(desk.picture().contains("fits"), "{}", desk.picture());
}

#[test]
fn what_does_not_fit_is_not_sent_and_nothing_is_cut() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.tell(Message::Paste("word ".repeat(8_000)));
        pause(&mut desk);
        assert!(desk.picture().contains("too many"), "{}", desk.picture());
        desk.press(KeyCode::Enter);
        desk.press(KeyCode::Enter);
        let picture = desk.picture();
        assert!(picture.contains("not sent: the prompt has 10,024 tokens"), "{picture}");
        assert!(picture.contains("/clear starts a new chat"), "{picture}");
        assert!(desk.app.composer_text().starts_with("[paste 1:"), "{}", desk.app.composer_text());
        assert!(!desk.sent().iter().any(|c| matches!(c, Command::Submit(_))));
        snapshot("too_long", &desk);
    }
}

#[test]
fn files_are_found_as_they_are_typed_and_stand_in_the_message_as_chips() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.type_text("explain @");
        list(&mut desk, &[(".git", true), ("Cargo.toml", false), ("src", true), ("styles.css", false)]);
        assert!(!desk.picture().contains(".git"), "{}", desk.picture());
        desk.type_text("s");
        snapshot("files", &desk);
        desk.press(KeyCode::Enter);
        assert_eq!(desk.app.composer_text(), "explain @src/");
        list(&mut desk, &[("lib.rs", false), ("main.rs", false)]);
        desk.type_text("ma");
        desk.press(KeyCode::Tab);
        read(&mut desk, "src/main.rs", Ok(&"fn main() {}\n".repeat(212)));
        assert_eq!(desk.app.composer_text(), "explain [@src/main.rs 212 lines 689 tok]");
        desk.type_text(" please");
        snapshot("attached", &desk);
        desk.press(KeyCode::Enter);
        let prompt = last_prompt(&desk);
        assert!(prompt.starts_with("src/main.rs:\n```rs\nfn main() {}\n"), "{prompt}");
        assert!(prompt.ends_with("```\n\nexplain src/main.rs please"), "{prompt}");
        assert!(desk.picture().contains("› explain [@src/main.rs 212 lines 689 tok] please"));
        assert!(desk.effects.contains(&Effect::Remember("explain @src/main.rs please".into())));
    }
}

#[test]
fn a_word_that_names_no_file_is_text_and_one_that_does_is_attached() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("mail @bob about @notes.txt and @@home");
    assert!(!desk.sent().iter().any(|c| matches!(c, Command::Submit(_))));
    read(&mut desk, "bob", Err(Unread::Missing));
    read(&mut desk, "notes.txt", Ok("buy milk"));
    let prompt = last_prompt(&desk);
    assert_eq!(prompt, "notes.txt:\n```txt\nbuy milk\n```\n\nmail @bob about notes.txt and @home");
}

#[test]
fn a_file_that_cannot_be_attached_holds_the_message_and_is_named() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("look at @photo.png");
    read(&mut desk, "photo.png", Err(Unread::Because("no text in UTF-8 (byte 0 is not)".into())));
    assert!(desk.picture().contains("photo.png: no text in UTF-8"), "{}", desk.picture());
    assert_eq!(desk.app.composer_text(), "look at @photo.png");
    desk.ctrl('u');
    desk.say("/read none.txt");
    assert_eq!(desk.sent().len(), 0);
    desk.tell(Message::FileRead { path: "none.txt".into(), content: Err(Unread::Missing) });
    assert!(desk.picture().contains("none.txt: no such file"), "{}", desk.picture());
}

#[test]
fn read_and_glob_put_files_into_the_message() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/glob src/*.rs");
    assert!(desk.effects.contains(&Effect::Glob("src/*.rs".into())));
    let found = Ok(vec!["src/a.rs".to_owned(), "src/b.rs".to_owned()]);
    desk.tell(Message::Globbed { pattern: "src/*.rs".into(), found });
    read(&mut desk, "src/a.rs", Ok("a\n"));
    read(&mut desk, "src/b.rs", Ok("b\n"));
    desk.say("/help");
    assert_eq!(desk.app.composer_text(), "");
    assert!(last_prompt(&desk).contains("src/b.rs:\n```rs\nb\n```"));
    let found = Err("40 files match; at most 32 are attached at once".to_owned());
    desk.tell(Message::Globbed { pattern: "**".into(), found });
    assert!(desk.picture().contains("/glob **: 40 files match"), "{}", desk.picture());
}

#[test]
fn a_chip_is_one_thing_that_is_unfolded_deleted_and_brought_back() {
    let mut desk = Desk::ready(SIZES[1]);
    let pasted = "line\n".repeat(20);
    desk.tell(Message::Paste(pasted.clone()));
    let chip = desk.app.composer_text();
    assert_eq!(chip, "[paste 1: 20 lines, 100 B]");
    desk.press(KeyCode::Left);
    desk.type_text("x");
    assert_eq!(desk.app.composer_text(), format!("x{chip}"));
    desk.press(KeyCode::Delete);
    assert_eq!(desk.app.composer_text(), "x");
    desk.tell(Message::Key(KeyEvent::new(KeyCode::Char('z'), KeyModifiers::ALT)));
    assert_eq!(desk.app.composer_text(), format!("x{chip}"));
    desk.tell(Message::Key(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::ALT)));
    assert_eq!(desk.app.composer_text(), "x");
    desk.tell(Message::Key(KeyEvent::new(KeyCode::Char('7'), KeyModifiers::CONTROL)));
    desk.ctrl('e');
    assert_eq!(desk.app.composer_text(), format!("x{}", pasted.trim_end()));
}

#[test]
fn words_are_selected_and_cut() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.type_text("one two");
    for _ in 0..3 {
        desk.tell(Message::Key(KeyEvent::new(KeyCode::Left, KeyModifiers::SHIFT)));
    }
    desk.ctrl('x');
    assert_eq!(desk.app.composer_text(), "one ");
    desk.tell(Message::Key(KeyEvent::new(KeyCode::Char('b'), KeyModifiers::ALT)));
    desk.type_text("zero ");
    assert_eq!(desk.app.composer_text(), "zero one ");
}
