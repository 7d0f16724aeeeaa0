//! The program as a shell meets it: arguments and stdin in, stdout, stderr and an exit status out.
#![allow(clippy::unwrap_used)]

mod commands;
mod guided;
mod real_model;
mod run;
mod sessions;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A home of its own, so that nothing of the user's is read or written.
struct Home {
    dir: TempDir,
    models: Option<PathBuf>,
}

/// What came back.
struct Ran {
    status: i32,
    out: String,
    err: String,
}

/// A random model of 0.6 MB that holds 256 tokens.
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gguf/llama.gguf");

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), models: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_glassbox"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["GLASSBOX_", "XDG_", "HF_", "HUGGINGFACE_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("HOME", self.dir.path())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(models) = &self.models {
            command.env("GLASSBOX_MODELS", models);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.command(arguments).output().unwrap())
    }

    fn run_with_stdin(&self, arguments: &[&str], stdin: &[u8]) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let stdin = stdin.to_owned();
        // A program that ends without reading closes the pipe, which is not what is tested here.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran::new(output)
    }
}

impl Ran {
    fn new(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The output of a command that must work.
    #[track_caller]
    fn good(self) -> String {
        assert_eq!(self.status, 0, "{}", self.err);
        self.out
    }

    #[track_caller]
    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.good()).unwrap()
    }

    /// The message of a command that must fail so, and put nothing on stdout.
    #[track_caller]
    fn refused(self, status: i32) -> String {
        assert_eq!((self.status, self.out.as_str()), (status, ""), "{}", self.err);
        self.err
    }
}
