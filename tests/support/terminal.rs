//! A program in a PTY, what the terminal shows, and what was written to it.

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up; nothing waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Held while a terminal or a lasting process is made: until it is marked, a terminal is inherited by
/// what another test starts, and then closing it here closes nothing.
pub static STARTING: Mutex<()> = Mutex::new(());

/// A program in a terminal, and what the terminal shows.
pub struct Terminal {
    /// None once it is closed.
    master: Option<Box<dyn MasterPty + Send>>,
    reader: Option<JoinHandle<()>>,
    closed: Arc<AtomicBool>,
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    pub child: Box<dyn Child + Send + Sync>,
    pub seen: Arc<Mutex<Seen>>,
}

pub struct Seen {
    pub parser: vt100::Parser,
    pub raw: Vec<u8>,
}

impl Terminal {
    pub fn demo(arguments: &[&str]) -> Self {
        Self::spawn(Self::command(arguments))
    }

    /// The example, not started yet.
    pub fn command(arguments: &[&str]) -> CommandBuilder {
        let mut command = CommandBuilder::new(demo());
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        command.env_remove("RUST_BACKTRACE");
        command.env_remove("COLORTERM");
        command
    }

    /// A shell that controls jobs, at its prompt.
    pub fn shell(size: (u16, u16)) -> Self {
        let mut command = CommandBuilder::new("/bin/bash");
        command.args(["--norc", "--noprofile", "-i"]);
        command.env("PS1", "shell> ");
        command.env("TERM", "xterm-256color");
        let terminal = Self::of(size, command);
        terminal.wait_for("shell>");
        terminal
    }

    pub fn spawn(command: CommandBuilder) -> Self {
        Self::of((120, 40), command)
    }

    /// Columns and rows of its own.
    pub fn of((columns, rows): (u16, u16), command: CommandBuilder) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let starting = STARTING.lock().unwrap_or_else(|e| e.into_inner());
        let pair = native_pty_system().openpty(size).unwrap();
        let child = pair.slave.spawn_command(command).unwrap();
        // Nor may what leads to it be inherited, until it is marked.
        let mut reader = pair.master.try_clone_reader().unwrap();
        let writer = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        drop(starting);
        let size = |n| NonZeroU16::new(n).unwrap();
        let parser = vt100::Parser::new(size(rows), size(columns), 1_000);
        let seen = Arc::new(Mutex::new(Seen { parser, raw: Vec::new() }));
        let (shared, answers) = (seen.clone(), writer.clone());
        let closed = Arc::new(AtomicBool::new(false));
        let (stop, fd) = (closed.clone(), pair.master.as_raw_fd().unwrap());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !stop.load(Ordering::SeqCst) {
                let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one pollfd is there for the call.
                if unsafe { libc::poll(&mut ready, 1, 20) } == 0 {
                    continue;
                }
                let Ok(n @ 1..) = reader.read(&mut bytes) else { return };
                let mut seen = shared.lock().unwrap();
                seen.parser.process(&bytes[..n]);
                seen.raw.extend(&bytes[..n]);
                if bytes[..n].windows(4).any(|w| w == b"\x1b[6n") {
                    // Where is the cursor? As a terminal answers it.
                    let (row, column) = seen.parser.screen().cursor_position();
                    let answer = format!("\x1b[{};{}R", row + 1, column + 1);
                    drop(seen);
                    let _ = answers.lock().unwrap().write_all(answer.as_bytes());
                }
            }
        });
        Self { master: Some(pair.master), reader: Some(reader), closed, writer, child, seen }
    }

    pub fn ready(arguments: &[&str]) -> Self {
        let terminal = Self::demo(arguments);
        terminal.wait_for("ready in");
        terminal
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let mut writer = self.writer.lock().unwrap();
        writer.write_all(bytes).unwrap();
        writer.flush().unwrap();
    }

    pub fn contents(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |t| t.contents().contains(text));
    }

    /// Whether it comes true in time.
    pub fn try_until(&self, patience: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let start = Instant::now();
        while !condition(self) {
            if start.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "no {what:?} in\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, number: i32) {
        let pid = self.child.process_id().unwrap() as i32;
        // SAFETY: kill takes two integers; the process is our child and not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
    }

    /// The window is closed; what ran in it is still there.
    pub fn close(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Nothing may stay open that leads to it.
        self.reader.take().unwrap().join().unwrap();
        *self.writer.lock().unwrap() = Box::new(std::io::sink());
        self.master.take();
    }

    pub fn master(&self) -> &(dyn MasterPty + Send) {
        &**self.master.as_ref().unwrap()
    }

    pub fn resize(&mut self, (columns, rows): (u16, u16)) {
        let size = |n| NonZeroU16::new(n).unwrap();
        let mut seen = self.seen.lock().unwrap();
        self.master().resize(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).unwrap();
        seen.parser.screen_mut().set_size(size(rows), size(columns));
    }

    pub fn is_alternate(&self) -> bool {
        self.seen.lock().unwrap().parser.screen().alternate_screen()
    }

    /// All that was written to the terminal.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap().raw).into_owned()
    }

    pub fn exit_code(&mut self) -> u32 {
        self.child.wait().unwrap().exit_code()
    }

    pub fn is_raw(&self) -> bool {
        let modes = self.master().get_termios().unwrap();
        modes.local_flags.bits() & (libc::ICANON | libc::ECHO) == 0
    }

    pub fn is_given_back(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        // Modes that the parser does not know: whatever was switched on was switched off after it.
        let off = |on: &str, off: &str| last(&seen.raw, on) <= last(&seen.raw, off);
        let modes = ["1000", "1002", "1003", "1006", "1004", "2004"];
        let modes_off = modes.iter().all(|mode| off(&format!("\x1b[?{mode}h"), &format!("\x1b[?{mode}l")));
        !screen.alternate_screen()
            && !screen.bracketed_paste()
            && !screen.hide_cursor()
            && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
            && screen.mouse_protocol_encoding() == vt100::MouseProtocolEncoding::Default
            && modes_off
            && off("\x1b[22;0t", "\x1b[23;0t")
            && !self.is_raw()
    }

    /// The terminal as a shell would leave it for the next job.
    pub fn make_cooked(&self) {
        let fd = self.master().as_raw_fd().unwrap();
        // SAFETY: fd is the open terminal, and modes is a whole termios that tcgetattr has filled.
        unsafe {
            let mut modes = std::mem::zeroed::<libc::termios>();
            assert_eq!(libc::tcgetattr(fd, &mut modes), 0);
            modes.c_lflag |= libc::ICANON | libc::ECHO;
            assert_eq!(libc::tcsetattr(fd, libc::TCSANOW, &modes), 0);
        }
    }

    pub fn frames(&self) -> usize {
        let begin = b"\x1b[?2026h";
        self.seen.lock().unwrap().raw.windows(begin.len()).filter(|w| w == begin).count()
    }
}

/// Where these bytes come last.
fn last(raw: &[u8], wanted: &str) -> Option<usize> {
    raw.windows(wanted.len()).rposition(|w| w == wanted.as_bytes())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example. `cargo test` builds it beside the tests; `cargo test --test pty` does not.
pub fn demo() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/screen_demo");
    let release = if path.components().any(|part| part.as_os_str() == "release") { " --release" } else { "" };
    assert!(
        path.exists(),
        "{} is missing: `cargo test` as a whole builds it; here, first `cargo build{release} --example screen_demo`",
        path.display()
    );
    path
}
