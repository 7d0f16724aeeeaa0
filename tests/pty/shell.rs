//! Mouse, title and motion in a real terminal.

use super::terminal::Terminal;
use std::time::Instant;

#[test]
fn the_mouse_is_ours_until_it_is_given_back() {
    let mut terminal = Terminal::ready(&[]);
    let mode = |t: &Terminal| t.seen.lock().unwrap().parser.screen().mouse_protocol_mode();
    assert_eq!(mode(&terminal), vt100::MouseProtocolMode::ButtonMotion);
    // A press on the number of a panel hides it.
    let row = terminal.contents().lines().position(|l| l.contains("2 kv blocks")).unwrap() + 1;
    terminal.send(format!("\x1b[<0;80;{row}M\x1b[<0;80;{row}m").as_bytes());
    terminal.wait_until("no kv panel", |t| !t.contents().contains("2 kv blocks"));
    terminal.send(b"/mouse off\r");
    terminal.wait_until("no mouse", |t| mode(t) == vt100::MouseProtocolMode::None);
    // After an absence as well.
    terminal.signal(libc::SIGSTOP);
    terminal.make_cooked();
    terminal.signal(libc::SIGCONT);
    terminal.wait_until("raw mode", Terminal::is_raw);
    assert_eq!(mode(&terminal), vt100::MouseProtocolMode::None);
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn without_a_mouse_none_is_asked_for() {
    let terminal = Terminal::ready(&["--no-mouse"]);
    let raw = String::from_utf8_lossy(&terminal.seen.lock().unwrap().raw).into_owned();
    assert!(!raw.contains("?1000h") && !raw.contains("?1002h"));
}

#[test]
fn the_window_is_named_and_gets_its_name_back() {
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    let raw = String::from_utf8_lossy(&terminal.seen.lock().unwrap().raw).into_owned();
    assert!(raw.contains("\x1b[22;0t") && raw.contains("\x1b]2;smollm2-135m · glassbox\x07"));
}

#[test]
fn motion_is_reduced_while_answers_stream() {
    let mut terminal = Terminal::ready(&["--reduced-motion", "--pace", "10"]);
    // The cursor is a block that does not blink.
    let raw = |t: &Terminal| String::from_utf8_lossy(&t.seen.lock().unwrap().raw).into_owned();
    assert!(raw(&terminal).contains("\x1b[2 q"));
    terminal.send(b"Why?\r");
    // What a person does is seen at once; that is over when the thoughts are.
    terminal.wait_for("The sky is blue");
    let (frames, start) = (terminal.frames(), Instant::now());
    terminal.wait_until("the end", |t| !t.contents().contains("live"));
    let most = start.elapsed().as_millis() as usize / 200 + 2;
    assert!(terminal.frames() - frames <= most, "{} frames, {most} at most", terminal.frames() - frames);
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    assert!(raw(&terminal).contains("\x1b[0 q"));
}
