use super::declare::{Limits, Place};
use crate::protocol::{ToolEnd, ToolResult};
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A program to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The program first.
    pub argv: Vec<String>,
    pub place: Place,
    pub limits: Limits,
    /// Written to its stdin, which is closed otherwise.
    pub stdin: Option<String>,
}

/// What a program wrote before it ended may still be on its way; who keeps its pipes open longer than
/// this was left behind by it.
const DRAIN: Duration = Duration::from_millis(200);

/// Runs a program to its end, or to its timeout. Dropped before, it ends the program; either way
/// nothing of the program's process group is left.
pub async fn run(launch: &Launch) -> ToolResult {
    let start = Instant::now();
    let (mut child, mut group) = match spawn(&launch.argv, &launch.place, launch.stdin.is_some()) {
        Ok(started) => started,
        Err(why) => {
            let text = format!("cannot run {}: {why}", launch.argv.first().map_or("", String::as_str));
            return ToolResult::not_run(ToolEnd::Failed, text);
        }
    };
    let limit = launch.limits.max_output;
    let (mut out, mut err) = (Capped::new(limit), Capped::new(limit));
    let ended = {
        let (stdout, stderr, stdin) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
        let feed = async {
            if let (Some(mut pipe), Some(text)) = (stdin, &launch.stdin) {
                // A program that does not read its input is no error.
                let _ = pipe.write_all(text.as_bytes()).await;
            }
        };
        let streams = async { tokio::join!(out.fill(stdout), err.fill(stderr), feed) };
        timeout(launch.limits.timeout, to_the_end(&mut child, &mut group, streams)).await
    };
    group.kill();
    let (end, note) = match ended {
        Ok(Ok(status)) => ending(status),
        Ok(Err(why)) => (ToolEnd::Failed, Some(why.to_string())),
        Err(_) => {
            // It was killed: this only takes it off the system's list.
            let _ = timeout(DRAIN, child.wait()).await;
            (ToolEnd::TimedOut, Some(format!("stopped: it took longer than {:?}", launch.limits.timeout)))
        }
    };
    let text = told(&out, &err, note);
    ToolResult { text, end, took_ms: start.elapsed().as_secs_f64() * 1e3 }
}

async fn to_the_end(child: &mut Child, group: &mut Group, streams: impl Future) -> io::Result<ExitStatus> {
    let mut streams = pin!(streams);
    let mut is_read = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = &mut streams, if !is_read => is_read = true,
        }
    };
    if !is_read && timeout(DRAIN, &mut streams).await.is_err() {
        group.kill();
        let _ = timeout(DRAIN, &mut streams).await;
    }
    Ok(status)
}

fn ending(status: ExitStatus) -> (ToolEnd, Option<String>) {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    match (status.code(), signal) {
        (Some(0), _) => (ToolEnd::Exited { exit_status: 0 }, None),
        (Some(exit_status), _) => {
            (ToolEnd::Exited { exit_status }, Some(format!("exit status {exit_status}")))
        }
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            (ToolEnd::Signalled { signal }, Some(format!("ended by signal {signal}")))
        }
    }
}

/// What the model is told of a program that ran.
fn told(out: &Capped, err: &Capped, note: Option<String>) -> String {
    let mut parts = Vec::new();
    parts.extend(out.text());
    parts.extend(err.text().map(|text| format!("stderr:\n{text}")));
    parts.extend(note);
    if parts.is_empty() { "(no output)".into() } else { parts.join("\n") }
}

/// Starts a program in a process group of its own, with pipes for its output.
///
/// # Errors
/// The system's: no such program, no right to run it, arguments too long.
pub fn spawn(argv: &[String], place: &Place, with_stdin: bool) -> io::Result<(Child, Group)> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let passed = ["PATH"].into_iter().chain(place.env.iter().map(String::as_str));
    command.envs(passed.filter_map(|name| Some((name, std::env::var_os(name)?))));
    if let Some(cwd) = &place.cwd {
        command.current_dir(cwd);
    }
    command.stdin(if with_stdin { Stdio::piped() } else { Stdio::null() });
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = Group(child.id());
    Ok((child, group))
}

/// A program and all that it started, by the program's id. They end with this.
pub struct Group(Option<u32>);

impl Group {
    /// Asks them to end.
    pub fn ask(&self) {
        #[cfg(unix)]
        self.signal(libc::SIGTERM);
    }

    pub fn kill(&mut self) {
        #[cfg(unix)]
        self.signal(libc::SIGKILL);
        self.0 = None;
    }

    #[cfg(unix)]
    fn signal(&self, signal: i32) {
        if let Some(group) = self.0.and_then(|id| id.try_into().ok()) {
            // SAFETY: no memory is involved. The group is the child's own, made when it was started.
            unsafe { libc::killpg(group, signal) };
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The first bytes of a stream, and how many there were in all.
pub struct Capped {
    kept: Vec<u8>,
    limit: usize,
    seen: usize,
}

impl Capped {
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit, seen: 0 }
    }

    /// Reads on when it is full: a program that waits for a reader would never end.
    pub async fn fill(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut buffer = [0; 8192];
        // A stream that cannot be read has ended.
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            self.add(&buffer[..n]);
        }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.seen += bytes.len();
    }

    /// As text; none where nothing came.
    pub fn text(&self) -> Option<String> {
        let mut kept = &self.kept[..];
        let is_cut = self.seen > kept.len();
        if let (true, Err(e)) = (is_cut, std::str::from_utf8(kept))
            && e.error_len().is_none()
        {
            // The cut went through a character.
            kept = &kept[..e.valid_up_to()];
        }
        let mut text = String::from_utf8_lossy(kept).trim_end().to_owned();
        if is_cut {
            text.push_str(&format!("\n[{} of {} bytes left out]", self.seen - kept.len(), self.seen));
        }
        (!text.is_empty()).then_some(text)
    }
}
