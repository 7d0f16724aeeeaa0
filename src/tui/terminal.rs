//! The terminal, taken and given back: raw mode, alternate screen, bracketed paste, mouse and focus
//! reports, title, cursor. It is given back on every way out: return, error, panic, signal, suspension.

use super::app::App;
use super::view;
use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{SetCursorStyle, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange,
    KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::style::{Print, ResetColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::UnboundedSender;

/// Presses, releases and drags, with coordinates that have no limit. Not every movement: what moves
/// without a button held means nothing here, and would wake us.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l";
/// The title is put on the terminal's stack, and taken from there again.
const TITLE_SAVED: &str = "\x1b[22;0t";
const TITLE_BACK: &str = "\x1b[23;0t";

/// Owns the terminal while the screen is open.
pub struct Screen<W: Write> {
    terminal: Terminal<CrosstermBackend<W>>,
    /// Shared with the panic hook, so that the terminal is given back once.
    taken: Arc<Taken>,
    /// As it stands in the terminal.
    title: String,
    mouse: bool,
    /// The cursor must not blink.
    steady: bool,
}

/// What is ours at the moment.
#[derive(Default)]
struct Taken {
    inside: AtomicBool,
    titled: AtomicBool,
    cursor: AtomicBool,
}

impl<W: Write> Screen<W> {
    /// Takes the terminal that `out` leads to.
    ///
    /// # Errors
    /// The terminal refuses raw mode or cannot be written to; it is then as it was.
    pub fn open(out: W, viewport: Viewport) -> io::Result<Self> {
        let terminal = Terminal::with_options(CrosstermBackend::new(out), TerminalOptions { viewport })?;
        let mut screen =
            Self { terminal, taken: Arc::default(), title: String::new(), mouse: false, steady: false };
        screen.enter()?;
        Ok(screen)
    }

    /// Also after the process was stopped: whatever the terminal has become, it is ours again.
    pub fn enter(&mut self) -> io::Result<()> {
        self.taken.inside.store(true, Ordering::SeqCst);
        // Raw mode is remembered per process; after a stop the shell has undone it behind our back.
        let _ = disable_raw_mode();
        enable_raw_mode().or_else(without_a_terminal)?;
        execute!(
            self.terminal.backend_mut(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableFocusChange,
            // Shift+Enter where the terminal can tell it; ignored elsewhere.
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES),
        )?;
        self.title.clear();
        self.report_mouse(self.mouse)?;
        if self.steady {
            self.hold_cursor_still()?;
        }
        self.forget()
    }

    /// Whether the mouse is ours, from now on and after every return.
    pub fn report_mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        execute!(self.terminal.backend_mut(), Print(if on { MOUSE_ON } else { MOUSE_OFF }))
    }

    /// The cursor does not blink, from now on and after every return.
    pub fn hold_cursor_still(&mut self) -> io::Result<()> {
        self.steady = true;
        self.taken.cursor.store(true, Ordering::SeqCst);
        execute!(self.terminal.backend_mut(), SetCursorStyle::SteadyBlock)
    }

    /// Names the window. The text is foreign to us: it is written without what a terminal would obey.
    pub fn entitle(&mut self, title: String) -> io::Result<()> {
        if title == self.title {
            return Ok(());
        }
        if !self.taken.titled.swap(true, Ordering::SeqCst) {
            queue!(self.terminal.backend_mut(), Print(TITLE_SAVED))?;
        }
        execute!(self.terminal.backend_mut(), Print(format!("\x1b]2;{}\x07", harmless(&title))))?;
        self.title = title;
        Ok(())
    }

    pub fn bell(&mut self) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), Print('\x07'))
    }

    /// To the desktop, where the terminal passes it on (OSC 9).
    pub fn notify(&mut self, text: &str) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), Print(format!("\x1b]9;{}\x07", harmless(text))))
    }

    pub fn leave(&mut self) -> io::Result<()> {
        if !self.taken.inside.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        restore(self.terminal.backend_mut(), &self.taken)
    }

    /// One frame: everything that changed, shown at once.
    pub fn draw(&mut self, app: &App) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            if let Some(position) = view::draw(app, frame.buffer_mut()) {
                frame.set_cursor_position(position);
            }
        })?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// The next frame draws every cell.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`: it asks the terminal where the cursor is, and waits for the answer.
        self.terminal.swap_buffers();
        execute!(self.terminal.backend_mut(), Clear(ClearType::All))
    }

    pub fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|s| (s.width, s.height))
    }

    /// Through the terminal itself (OSC 52), which also works over ssh.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), CopyToClipboard::to_clipboard_from(text))
    }

    /// A panic of this thread gives the terminal back before its message is printed; one of another
    /// thread goes to `others`, because the screen goes on. Returns what undoes this.
    pub fn catch_panics(&self, others: UnboundedSender<String>) -> impl FnOnce() + use<W> {
        let before: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = Arc::from(std::panic::take_hook());
        let taken = self.taken.clone();
        let (ours, previous) = (std::thread::current().id(), before.clone());
        std::panic::set_hook(Box::new(move |info| {
            let elsewhere = std::thread::current().id() != ours;
            if elsewhere && others.send(info.to_string()).is_ok() {
                return;
            }
            if taken.inside.swap(false, Ordering::SeqCst) {
                // The message is to be read even if the terminal cannot be written to any more.
                let _ = restore(&mut io::stdout(), &taken);
            }
            previous(info);
        }));
        move || std::panic::set_hook(Box::new(move |info| before(info)))
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

/// Without control characters, of which an escape sequence would be made.
fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn restore(out: &mut impl Write, taken: &Taken) -> io::Result<()> {
    let titled = taken.titled.swap(false, Ordering::SeqCst);
    let shaped = taken.cursor.swap(false, Ordering::SeqCst);
    // All of it, also where one part fails; a failure is told.
    let parts = [
        execute!(out, EndSynchronizedUpdate),
        execute!(out, Print(MOUSE_OFF)),
        execute!(out, DisableFocusChange),
        execute!(out, Print(if titled { TITLE_BACK } else { "" })),
        if shaped { execute!(out, SetCursorStyle::DefaultUserShape) } else { Ok(()) },
        execute!(out, PopKeyboardEnhancementFlags),
        execute!(out, DisableBracketedPaste),
        execute!(out, ResetColor),
        execute!(out, LeaveAlternateScreen),
        execute!(out, Show),
        disable_raw_mode().or_else(without_a_terminal),
    ];
    parts.into_iter().collect()
}

/// Tests draw into memory, where there is no mode to change.
fn without_a_terminal(error: io::Error) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tui::theme::{Depth, Theme};
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Memory that refuses the n-th write.
    #[derive(Clone, Default)]
    struct Faulty {
        written: Rc<RefCell<Vec<u8>>>,
        writes: Rc<RefCell<usize>>,
        fails_at: usize,
    }

    impl Write for Faulty {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.writes.borrow_mut() += 1;
            if *self.writes.borrow() == self.fails_at {
                return Err(io::Error::other("gone"));
            }
            self.written.borrow_mut().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn app() -> App {
        App::new(Default::default(), Theme::load("dark", None, Depth::Sixteen).unwrap(), vec![])
    }

    /// BUGLOG X06, X09: an error in the middle of a frame must not leave the terminal behind.
    #[test]
    fn whichever_write_fails_the_terminal_is_given_back() {
        for fails_at in 1..200 {
            let out = Faulty { fails_at, ..Faulty::default() };
            let viewport = Viewport::Fixed(Rect::new(0, 0, 40, 16));
            let drawn = Screen::open(out.clone(), viewport).and_then(|mut screen| screen.draw(&app()));
            let written = String::from_utf8_lossy(&out.written.borrow()).into_owned();
            if drawn.is_err() && written.contains("\x1b[?1049h") {
                for end in ["\x1b[?1049l", "\x1b[?2004l", "\x1b[?25h", MOUSE_OFF, "\x1b[?1004l"] {
                    assert!(written.contains(end), "write {fails_at}: no {end:?}");
                }
            }
        }
    }

    #[test]
    fn frames_are_synchronized_and_left_once() {
        let out = Faulty::default();
        let mut screen = Screen::open(out.clone(), Viewport::Fixed(Rect::new(0, 0, 40, 16))).unwrap();
        screen.entitle("a\x1b]0;b\x07c".into()).unwrap();
        screen.draw(&app()).unwrap();
        screen.leave().unwrap();
        drop(screen);
        let written = String::from_utf8_lossy(&out.written.borrow()).into_owned();
        assert!(written.contains("\x1b[?2026h") && written.contains("\x1b[?2026l"));
        assert_eq!(written.matches("\x1b[?1049l").count(), 1);
        assert!(written.contains("\x1b]2;a]0;bc\x07"), "{written:?}");
        assert_eq!((written.matches(TITLE_SAVED).count(), written.matches(TITLE_BACK).count()), (1, 1));
    }

    /// BUGLOG X10: a joined emoji drawn over narrow text leaves nothing of that text.
    #[test]
    fn an_emoji_with_joiners_leaves_no_stale_cells() {
        let line = |text: &str| Buffer::with_lines([text.to_owned()]);
        let (before, after) = (line("aaaaa"), line("\u{1F469}\u{200D}\u{1F52C}b  "));
        let changes: Vec<(u16, &str)> =
            before.diff(&after).iter().map(|(x, _, c)| (*x, c.symbol())).collect();
        // Cell 1 lies under the emoji; every other one is written anew.
        let visible: Vec<_> = changes.into_iter().filter(|(x, _)| *x != 1).collect();
        assert_eq!(visible, [(0, "\u{1F469}\u{200D}\u{1F52C}"), (2, "b"), (3, " "), (4, " ")]);
    }
}
