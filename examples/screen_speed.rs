//! What the screen costs, measured on the real program in a pseudo-terminal:
//!
//! `cargo run --release --example screen_speed -- target/release/glassbox MODEL [ROUNDS]`
//!
//! - the engine slowed by the screen: tokens a second of one prompt at 200x60, all panels but the beams, against
//!   `glassbox run`, one after the other in each round, both as the engine measures them
//! - processor time of the idle screen
//! - from a key to its glyph while the engine is saturated
//! - from the start to the first frame, with the model's load going on
//!
//! The reader here only looks for bytes: a terminal emulator would take the engine's processor.

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::error::Error;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const COLUMNS: u16 = 200;
const ROWS: u16 = 60;
const TOKENS: &str = "256";
const KEYS: usize = 100;
const PROMPT: &str = "Explain in detail, step by step, why the sky is blue and sunsets are red.";
/// No model says these, so their bytes are the typed key's. They take turns, and stay.
const TYPED: [&str; 2] = ["ж", "ф"];
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, model, rest @ ..] = &arguments[..] else {
        return Err("usage: screen_speed GLASSBOX MODEL [ROUNDS]".into());
    };
    let rounds: usize = rest.first().map_or(Ok(5), |n| n.parse())?;
    let (mut ratios, mut alone, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    let (mut idle, mut first, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Whoever comes second finds a warmer machine: they take turns.
        let (run, seen) = if round % 2 == 0 {
            let run = run(program, model)?;
            (run, sit(program, model)?)
        } else {
            let seen = sit(program, model)?;
            (self::run(program, model)?, seen)
        };
        eprintln!("round {}: run {run:.1} tok/s, screen {:.1} tok/s", round + 1, seen.rate);
        ratios.push(1.0 - seen.rate / run);
        alone.push(run);
        beside.push(seen.rate);
        idle.push(seen.idle);
        first.push(seen.first_ms);
        keys.extend(seen.keys_ms);
    }
    println!("median of {rounds} rounds, {COLUMNS}x{ROWS}, {TOKENS} tokens, {model}");
    println!("glassbox run            {:8.1} tok/s", at(&mut alone, 0.5));
    println!("with the screen         {:8.1} tok/s", at(&mut beside, 0.5));
    println!("slowed by the screen    {:8.2} %   (pairs)", at(&mut ratios, 0.5) * 100.0);
    println!("idle processor share    {:8.2} %", at(&mut idle, 0.5) * 100.0);
    println!(
        "key to glyph, saturated {:8.1} ms  P99 {:.1} ms  n={}",
        at(&mut keys, 0.5),
        at(&mut keys, 0.99),
        keys.len()
    );
    println!("first frame             {:8.1} ms  worst {:.1} ms", at(&mut first, 0.5), at(&mut first, 1.0));
    Ok(())
}

/// The value that this share of them does not exceed.
fn at(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Tokens a second without a screen.
fn run(program: &str, model: &str) -> Result<f64> {
    let flags = ["run", model, PROMPT, "--temp", "0", "-n", TOKENS, "--json"];
    let output = Command::new(program).args(flags).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find("\"tokens_per_second\":").ok_or("no tokens_per_second in the answer of run --json")?;
    let number = text[at..].split([':', ',', '}']).nth(1).unwrap_or_default();
    Ok(number.trim().parse()?)
}

struct Seen {
    rate: f64,
    idle: f64,
    first_ms: f64,
    keys_ms: Vec<f64>,
}

fn sit(program: &str, model: &str) -> Result<Seen> {
    let mut screen = Screen::open(program, model)?;
    let first_ms = screen.wait_for("\x1b[?2026l")?.as_secs_f64() * 1e3;
    screen.wait_for("ready in")?;
    screen.still(Duration::from_millis(700))?;
    // Undisturbed first: typing is drawing, too.
    screen.send(&format!("{PROMPT}\r"))?;
    screen.still(Duration::from_millis(1_500))?;
    screen.send("/stats\r")?;
    screen.still(Duration::from_millis(700))?;
    let rate = screen.rate()?;
    let idle = screen.processor_share(Duration::from_secs(3))?;
    // Four long answers at once, which last longer than the typing.
    screen.send("/set max_tokens 4000\r")?;
    screen.still(Duration::from_millis(700))?;
    screen.send(&format!("/parallel 4 {PROMPT}\r"))?;
    std::thread::sleep(Duration::from_millis(500));
    let mut keys_ms = Vec::new();
    for i in 0..KEYS {
        // Not in step with the frames.
        std::thread::sleep(Duration::from_millis(7 + (i as u64 * 13) % 31));
        screen.skip();
        let start = Instant::now();
        screen.send(TYPED[i % 2])?;
        screen.wait_for(TYPED[i % 2])?;
        keys_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    screen.send("\x03\x04")?;
    screen.child.wait()?;
    Ok(Seen { rate, idle, first_ms, keys_ms })
}

/// The program in a terminal whose picture nobody draws.
struct Screen {
    started: Instant,
    _master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    all: Vec<u8>,
    /// Of `all`, what has been looked at.
    read: usize,
}

impl Screen {
    fn open(program: &str, model: &str) -> Result<Self> {
        let size = PtySize { rows: ROWS, cols: COLUMNS, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size)?;
        let mut command = CommandBuilder::new(program);
        command.args([model, "--temp", "0", "-n", TOKENS]);
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        let started = Instant::now();
        let child = pair.slave.spawn_command(command)?;
        let mut reader = pair.master.try_clone_reader()?;
        let writer = pair.master.take_writer()?;
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { started, _master: pair.master, writer, child, output, all: Vec::new(), read: 0 })
    }

    fn send(&mut self, text: &str) -> Result<()> {
        self.writer.write_all(text.as_bytes())?;
        Ok(self.writer.flush()?)
    }

    /// Forgets what came so far.
    fn skip(&mut self) {
        self.all.extend(self.output.try_iter().flatten());
        self.read = self.all.len();
    }

    /// Waits for these bytes; tells when they came, counted from the start.
    fn wait_for(&mut self, text: &str) -> Result<Duration> {
        let wanted = text.as_bytes();
        loop {
            if let Some(at) = self.all[self.read..].windows(wanted.len()).position(|w| w == wanted) {
                self.read += at + wanted.len();
                return Ok(self.started.elapsed());
            }
            self.read = self.all.len().saturating_sub(wanted.len()).max(self.read);
            let more = self.output.recv_timeout(PATIENCE).map_err(|e| format!("no {text:?}: {e}"))?;
            self.all.extend(more);
        }
    }

    /// Waits until nothing was written for so long.
    fn still(&mut self, silence: Duration) -> Result<()> {
        loop {
            match self.output.recv_timeout(silence) {
                Ok(more) => self.all.extend(more),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// What `/stats` says of the last answer.
    fn rate(&self) -> Result<f64> {
        let size = |n| NonZeroU16::new(n).ok_or("a size");
        let mut parser = vt100::Parser::new(size(ROWS)?, size(COLUMNS)?, 0);
        parser.process(&self.all);
        let picture = parser.screen().contents();
        // Its lines stand between those of the panels, and may be wrapped.
        let words: Vec<&str> = picture.split([' ', '\n', '│', '·']).filter(|w| !w.is_empty()).collect();
        let after = words.iter().rposition(|w| *w == "TPOT").ok_or("no answer of /stats")?;
        let last =
            words.iter().enumerate().skip(1).rfind(|(i, w)| **w == "tok/s" && words[i - 1].contains('.'));
        let (i, _) = last.filter(|_| after > 0).ok_or("no tok/s with decimals in the answer of /stats")?;
        Ok(words[i - 1].replace(',', "").parse()?)
    }

    /// Of one processor, all threads together.
    fn processor_share(&self, time: Duration) -> Result<f64> {
        let pid = self.child.process_id().ok_or("it has ended")?;
        let used = || -> Result<f64> {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let fields: Vec<&str> = stat.rsplit_once(") ").ok_or("no such line")?.1.split(' ').collect();
            let ticks: f64 = fields[11..13].iter().filter_map(|t| t.parse::<f64>().ok()).sum();
            Ok(ticks / 100.0)
        };
        let before = used()?;
        std::thread::sleep(time);
        Ok((used()? - before) / time.as_secs_f64())
    }
}
