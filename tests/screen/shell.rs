//! What is around the panels: layouts, mouse, themes, palette, help, notices.

use super::*;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use glassbox::config::Notify;
use glassbox::tui::Arrangement;
use ratatui::style::Color;

/// At a point in the middle of an answer.
fn streaming(size: (u16, u16)) -> Desk {
    let mut desk = Desk::ready(size);
    desk.say("Why is the sky blue?");
    desk.steps(75);
    desk
}

impl Desk {
    fn mouse(&mut self, kind: MouseEventKind, (column, row): (u16, u16)) {
        self.buffer();
        self.tell(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
    }

    fn click(&mut self, at: (u16, u16)) {
        self.mouse(MouseEventKind::Down(MouseButton::Left), at);
        self.mouse(MouseEventKind::Up(MouseButton::Left), at);
    }

    /// Presses at one place, goes over another, and lets go there.
    fn drag(&mut self, from: (u16, u16), to: (u16, u16)) {
        self.mouse(MouseEventKind::Down(MouseButton::Left), from);
        self.mouse(MouseEventKind::Drag(MouseButton::Left), to);
        self.mouse(MouseEventKind::Up(MouseButton::Left), to);
    }

    /// Where a text is on the screen.
    fn find(&self, text: &str) -> (u16, u16) {
        let picture = self.picture();
        let found = picture.lines().enumerate().find_map(|(y, line)| {
            line.find(text).map(|at| (unicode_width::UnicodeWidthStr::width(&line[..at]), y))
        });
        let (x, y) = found.unwrap_or_else(|| panic!("no {text:?} in\n{picture}"));
        (x as u16, y as u16)
    }

    fn modified(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        self.tell(Message::Key(KeyEvent::new(code, modifiers)));
    }
}

fn open_all(desk: &mut Desk) {
    desk.press(KeyCode::Tab);
    for panel in Panel::ALL {
        if !desk.app.panels.open(desk.app.class()).contains(&panel) {
            desk.type_text(&(panel as u8).to_string());
        }
    }
    desk.press(KeyCode::Esc);
}

#[test]
fn all_panels_at_once_are_readable_or_folded_up_to_their_titles() {
    for size in [(120, 40), (200, 60)] {
        let mut desk = streaming(size);
        open_all(&mut desk);
        let picture = desk.picture();
        for panel in Panel::ALL {
            assert!(
                picture.contains(&format!(" {} {} ", panel as u8, panel.title())),
                "{panel:?}\n{picture}"
            );
        }
        snapshot("all_panels", &desk);
    }
}

#[test]
fn a_folded_panel_opens_when_it_gets_the_focus_and_stays_open_when_it_is_left() {
    let mut desk = streaming((120, 30));
    open_all(&mut desk);
    desk.press(KeyCode::Tab);
    let next = |desk: &mut Desk| desk.press(KeyCode::Tab);
    while desk.app.focus != Focus::Panel(Panel::Reasoning) {
        next(&mut desk);
    }
    assert!(desk.picture().contains("→ content"), "{}", desk.picture());
    let open = desk.picture();
    desk.press(KeyCode::Esc);
    let row = |picture: &str| picture.lines().position(|l| l.contains("5 reasoning"));
    assert_eq!(row(&desk.picture()), row(&open));
}

#[test]
fn layouts_are_chosen_by_name_and_kept_for_the_size_of_the_window() {
    let mut desk = streaming((200, 60));
    desk.say("/layout balanced");
    assert_eq!(desk.app.panels.layout(desk.app.class()).arrangement, Arrangement::Balanced);
    snapshot("layout_balanced", &desk);
    desk.say("/layout compact");
    snapshot("layout_compact", &desk);
    desk.tell(Message::Resize(120, 40));
    desk.say("/layout wide");
    snapshot("layout_wide", &desk);
    desk.tell(Message::Resize(200, 60));
    assert_eq!(desk.app.panels.layout(desk.app.class()).arrangement, Arrangement::Compact);
    desk.say("/layout reset");
    assert_eq!(desk.app.panels.layout(desk.app.class()).arrangement, Arrangement::Wide);
    desk.say("/layout sideways");
    assert!(desk.picture().contains("compact, balanced, wide, reset or present"), "{}", desk.picture());
}

#[test]
fn panels_are_moved_and_resized_with_keys() {
    let mut desk = streaming((200, 60));
    desk.press(KeyCode::Tab);
    desk.type_text("}");
    let (sampling, kv) = (desk.find("1 sampling").1, desk.find("2 kv blocks").1);
    assert!(kv < sampling, "{}", desk.picture());
    desk.modified(KeyCode::Left, KeyModifiers::SHIFT);
    assert!(desk.find("1 sampling").0 < 10, "{}", desk.picture());
    let chat = desk.find("─ chat").0;
    desk.type_text(">>");
    assert_eq!(desk.find("─ chat").0, chat + 4);
    desk.type_text("<<<");
    assert_eq!(desk.find("─ chat").0, chat - 2);
    let below = desk.find("3 batch").1;
    desk.type_text("))");
    assert_eq!(desk.find("3 batch").1, below + 2, "{}", desk.picture());
    desk.type_text("(");
    assert_eq!(desk.find("3 batch").1, below + 1);
    snapshot("moved_and_resized", &desk);
}

#[test]
fn what_changed_is_kept_and_nothing_else_is_written() {
    let options = ScreenOptions { layout: Some("/state/layout.toml".into()), ..ScreenOptions::default() };
    let mut desk = Desk::with(options, (120, 40));
    desk.type_text("hello");
    let kept = |desk: &Desk| -> Vec<String> {
        desk.effects
            .iter()
            .filter_map(|e| if let Effect::Keep(t) = e { Some(t.clone()) } else { None })
            .collect()
    };
    assert!(kept(&desk).is_empty());
    desk.press(KeyCode::Tab);
    desk.type_text("2");
    let [text] = &kept(&desk)[..] else { panic!("{:?}", desk.effects) };
    assert!(text.contains("[medium]") && !text.contains("[wide]") && !text.contains("\"kv\""), "{text}");
    desk.type_text("2");
    assert!(!kept(&desk)[1].contains("[medium]"), "as it comes again");
    // While a line is drawn nothing is written; when it is let go, once.
    let line = (120 - 44, 10);
    desk.mouse(MouseEventKind::Down(MouseButton::Left), line);
    desk.mouse(MouseEventKind::Drag(MouseButton::Left), (70, 10));
    desk.mouse(MouseEventKind::Drag(MouseButton::Left), (60, 10));
    assert_eq!(kept(&desk).len(), 2);
    desk.mouse(MouseEventKind::Up(MouseButton::Left), (60, 10));
    assert!(kept(&desk).len() == 3 && kept(&desk)[2].contains("right_width = 60"), "{:?}", kept(&desk));
}

#[test]
fn lines_and_titles_are_drawn_with_the_mouse() {
    let mut desk = streaming((120, 40));
    let title = desk.find("2 kv blocks");
    desk.drag((title.0 + 4, title.1), (title.0 + 4, title.1 - 4));
    assert_eq!(desk.find("2 kv blocks").1, title.1 - 4, "{}", desk.picture());
    desk.drag((120 - 44, 20), (66, 20));
    assert_eq!(desk.find("2 kv blocks").0, 69);
    // Beyond what there is room for, the chat keeps its part.
    desk.drag((66, 20), (2, 20));
    assert!(desk.find("2 kv blocks").0 >= 40, "{}", desk.picture());
    desk.drag((10, 10), (500, 500));
    desk.buffer();
}

#[test]
fn titles_are_clicked_zoomed_and_hidden() {
    let mut desk = streaming((120, 40));
    let title = desk.find("2 kv blocks");
    desk.click((title.0 + 4, title.1));
    assert_eq!(desk.app.focus, Focus::Panel(Panel::Kv));
    desk.click((title.0 + 4, title.1));
    assert!(desk.app.panels.zoomed);
    desk.press(KeyCode::Esc);
    desk.click(desk.find("2 kv blocks"));
    assert!(!desk.picture().contains("2 kv blocks"), "{}", desk.picture());
    desk.click((5, 38));
    assert_eq!(desk.app.focus, Focus::Input);
}

#[test]
fn the_wheel_moves_what_is_under_it() {
    let mut desk = streaming((120, 40));
    desk.finish();
    for _ in 0..4 {
        desk.say("Why?");
        desk.finish();
    }
    let sampling = desk.app.panels.sampling.param;
    let at = desk.find("1 sampling");
    desk.mouse(MouseEventKind::ScrollDown, (at.0, at.1 + 3));
    assert_eq!(desk.app.panels.sampling.param, sampling + 1);
    assert!(desk.app.chat.scroll.is_none() && desk.app.focus == Focus::Input);
    desk.mouse(MouseEventKind::ScrollUp, (10, 10));
    assert!(desk.app.chat.scroll.is_some());
    desk.ctrl('p');
    desk.mouse(MouseEventKind::ScrollDown, (10, 10));
    assert!(desk.picture().lines().nth(desk.find("▸ ").1.into()).is_some_and(|l| !l.contains("send")));
}

#[test]
fn what_is_dragged_over_is_copied_without_its_gutter_and_in_whole_lines() {
    for size in SIZES {
        let mut desk = Desk::ready(size);
        desk.say("Why?");
        desk.finish();
        desk.buffer();
        desk.modified(KeyCode::Home, KeyModifiers::CONTROL);
        let from = desk.find("The sky is blue");
        desk.drag(from, (30, from.1 + 2));
        let Some(Effect::Copy(text)) = desk.effects.last() else { panic!("{:?}", desk.effects) };
        assert!(text.starts_with("The sky is blue") && !text.contains("  "), "{text:?}");
        let told = text.lines().count();
        desk.tell(Message::Copied(Ok(())));
        assert!(desk.picture().contains(&format!("copied {told} line")), "{}", desk.picture());
        let marked = desk.app.theme.style(glassbox::tui::Role::Selection).bg.unwrap();
        assert_eq!(desk.buffer()[from].bg, marked);
        snapshot("marked", &desk);
        desk.press(KeyCode::Char('x'));
        assert_ne!(desk.buffer()[from].bg, marked);
    }
}

#[test]
fn the_mouse_is_given_back_to_the_terminal_when_asked() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.say("/mouse off");
    assert_eq!(desk.effects.last(), Some(&Effect::Mouse(false)));
    desk.press(KeyCode::F(1));
    desk.type_text("mouse");
    assert!(desk.picture().contains("/mouse on"), "{}", desk.picture());
}

#[test]
fn a_presentation_shows_one_panel_with_what_it_answers() {
    for size in SIZES {
        let mut desk = streaming(size);
        desk.say("/layout present");
        let picture = desk.picture();
        assert!(picture.contains("S A M P L I N G") && picture.contains("why this token?"), "{picture}");
        snapshot("presenting", &desk);
        desk.press(KeyCode::Tab);
        desk.type_text("3");
        assert!(desk.picture().contains("B A T C H"), "{}", desk.picture());
        desk.type_text("1");
        assert!(desk.picture().contains("S A M P L I N G"), "{}", desk.picture());
        desk.press(KeyCode::Esc);
        desk.say("/layout present");
        assert!(!desk.app.panels.presenting);
    }
}

#[test]
fn themes_are_tried_on_while_the_list_is_gone_through() {
    for size in SIZES {
        let mut desk = streaming(size);
        let plain = desk.picture();
        desk.say("/theme");
        assert!(desk.picture().contains("catppuccin-mocha"));
        desk.press(KeyCode::Down);
        desk.press(KeyCode::Down);
        assert_eq!(desk.app.theme.name, "contrast");
        snapshot("theme_list", &desk);
        desk.press(KeyCode::Esc);
        assert_eq!((desk.app.theme.name.as_str(), desk.picture()), ("dark", plain));
        desk.say("/theme");
        desk.type_text("latte");
        assert_eq!(desk.app.theme.name, "catppuccin-latte");
        desk.press(KeyCode::Enter);
        assert_eq!(desk.app.theme.name, "catppuccin-latte");
        assert!(desk.picture().contains("theme catppuccin-latte"));
    }
}

#[test]
fn another_theme_colours_also_what_was_drawn_before() {
    let mut desk = streaming(SIZES[1]);
    desk.finish();
    let text = |desk: &Desk| {
        let at = desk.find("The sky is blue");
        (desk.buffer()[at].fg, desk.buffer()[at].bg)
    };
    assert_eq!(text(&desk), (Color::Reset, Color::Reset));
    desk.say("/theme gruvbox-light");
    assert_eq!(text(&desk), (Color::Black, Color::White));
    desk.say("/theme dark");
    assert_eq!(text(&desk), (Color::Reset, Color::Reset));
}

#[test]
fn a_theme_that_is_not_there_is_looked_for_in_the_folder_and_then_said() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.say("/theme nrd");
    assert_eq!(desk.effects.last(), Some(&Effect::ReadTheme("nrd".into())));
    desk.tell(Message::ThemeRead { name: "nrd".into(), theme: Err("no theme \"nrd\"".into()) });
    assert!(desk.picture().contains("did you mean nord?"), "{}", desk.picture());
    assert_eq!(desk.app.theme.name, "dark");
}

#[test]
fn the_palette_finds_parameters_layouts_themes_and_what_was_chosen_before() {
    let mut desk = Desk::ready(SIZES[1]);
    desk.ctrl('p');
    desk.type_text("set temperature");
    snapshot("palette_parameter", &desk);
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.composer_text(), "/set temperature ");
    desk.ctrl('c');
    desk.ctrl('p');
    assert!(desk.picture().contains("▸ set temperature"), "{}", desk.picture());
    desk.type_text("layout wide");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.panels.layout(desk.app.class()).arrangement, Arrangement::Wide);
    desk.ctrl('p');
    desk.type_text("theme nord");
    assert_eq!(desk.app.theme.name, "dark", "the palette tries nothing on");
    desk.press(KeyCode::Enter);
    assert_eq!(desk.app.theme.name, "nord");
}

#[test]
fn the_palette_fits_small_windows() {
    for size in [(80, 24), (40, 12), (20, 6)] {
        let mut desk = Desk::ready(size);
        desk.ctrl('p');
        desk.type_text("pa");
        snapshot("palette", &desk);
    }
}

#[test]
fn help_is_narrowed_by_typing_and_scrolls_no_further_than_its_end() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.press(KeyCode::F(1));
    for _ in 0..40 {
        desk.press(KeyCode::PageDown);
        desk.buffer();
    }
    let end = desk.picture();
    desk.press(KeyCode::Up);
    assert_ne!(desk.picture(), end, "one line back is one line back");
    desk.type_text("pause");
    let picture = desk.picture();
    assert!(picture.contains("help › pause") && picture.contains("pause or resume the engine"), "{picture}");
    assert!(!picture.contains("new line"), "{picture}");
    desk.type_text("xyz");
    assert!(desk.picture().contains("nothing of it is in the help"));
    desk.press(KeyCode::Esc);
    assert!(desk.app.overlay.is_none());
}

#[test]
fn keys_of_ones_own_act_and_are_shown() {
    let mut desk = Desk::ready(SIZES[1]);
    let file = "[input]\nsubmit = 'ctrl-s'\n[anywhere]\ntoggle_pause = 'f12'\nregenerate = 'none'\n";
    desk.app.keymap = glassbox::tui::Keymap::with_file("keymap.toml", file);
    let picture = desk.picture();
    assert!(picture.contains("^S send") && picture.contains("F12 pause"), "{picture}");
    desk.type_text("hello");
    desk.ctrl('s');
    assert_eq!(desk.sent().len(), 1);
    desk.press(KeyCode::F(1));
    assert!(desk.picture().contains("Ctrl+S") && desk.picture().contains("no key"), "{}", desk.picture());
}

#[test]
fn a_long_answer_is_told_to_whoever_looks_elsewhere() {
    let notices = |notify, away: bool, steps_ms: u64| {
        let options = ScreenOptions { notify, ..ScreenOptions::default() };
        let mut desk = Desk::with(options, SIZES[1]);
        desk.tell(Message::Models(catalogue(true)));
        desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
        desk.app.chat.title = Some("a\x1b]0;b\x07c".into());
        desk.say("Why?");
        desk.steps(3);
        desk.tell(Message::WindowFocus(!away));
        let events = std::iter::repeat_with(|| desk.engine.step())
            .find(|events| events.iter().any(|event| matches!(event, Event::Finished { .. })));
        let mut events = events.unwrap();
        for event in &mut events {
            if let Event::Finished { outcome, .. } = event {
                outcome.timings.e2el_ms = steps_ms as f64;
            }
        }
        desk.effects.clear();
        desk.tell(Message::Engine(events));
        desk.effects
    };
    assert_eq!(notices(Notify::Bell, true, 12_000), [Effect::Bell]);
    assert_eq!(notices(Notify::Bell, false, 12_000), []);
    assert_eq!(notices(Notify::Bell, true, 9_000), []);
    assert_eq!(notices(Notify::Off, true, 12_000), []);
    let [Effect::Notify(text)] = &notices(Notify::Desktop, true, 12_000)[..] else { panic!("no notice") };
    assert!(text.contains("after 12.0 s") && !text.chars().any(char::is_control), "{text:?}");
}

#[test]
fn every_layout_can_be_drawn_at_every_size() {
    let mut desk = streaming(SIZES[2]);
    open_all(&mut desk);
    for layout in ["compact", "balanced", "wide", "present"] {
        desk.tell(Message::Resize(200, 60));
        desk.say(&format!("/layout {layout}"));
        for focus in [Focus::Input, Focus::Panel(Panel::Batch)] {
            for class in [(60, 15), (100, 24), (160, 45)] {
                // The layouts of smaller windows too.
                desk.tell(Message::Resize(class.0, class.1));
                if layout != "present" {
                    desk.say(&format!("/layout {layout}"));
                }
            }
            desk.app.focus = focus;
            for width in (1..=60).chain([79, 99, 100, 159, 160]) {
                for height in (1..=15).chain([24, 40]) {
                    desk.app.size = (width, height);
                    desk.buffer();
                }
            }
            desk.app.overlay = None;
        }
    }
    for open in ["/theme", "/help"] {
        desk.tell(Message::Resize(200, 60));
        desk.app.focus = Focus::Input;
        desk.say(open);
        for width in 1..=60 {
            for height in 1..=15 {
                desk.app.size = (width, height);
                desk.buffer();
            }
        }
        desk.press(KeyCode::Esc);
    }
}
