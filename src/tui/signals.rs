//! Signals as data.

/// What another process, or the shell, asks of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End; by number.
    End(i32),
    /// Go on after having been stopped.
    Continue,
}

#[cfg(unix)]
mod unix {
    use super::Signal;
    use std::io;
    use std::time::Duration;
    use tokio::signal::unix::{SignalKind, signal};

    pub struct Signals {
        interrupt: tokio::signal::unix::Signal,
        terminate: tokio::signal::unix::Signal,
        hang_up: tokio::signal::unix::Signal,
        go_on: tokio::signal::unix::Signal,
    }

    impl Signals {
        pub fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hang_up: signal(SignalKind::hangup())?,
                go_on: signal(SignalKind::from_raw(libc::SIGCONT))?,
            })
        }

        pub async fn next(&mut self) -> Signal {
            tokio::select! {
                _ = self.interrupt.recv() => Signal::End(libc::SIGINT),
                _ = self.terminate.recv() => Signal::End(libc::SIGTERM),
                _ = self.hang_up.recv() => Signal::End(libc::SIGHUP),
                _ = self.go_on.recv() => Signal::Continue,
            }
        }

        /// Stops the whole job, as the terminal's own Ctrl+Z would, and returns when it goes on.
        pub async fn suspend(&mut self) {
            // SAFETY: kill takes two integers and touches no memory of ours. Process 0 is our own
            // process group, so that a wrapper (cargo run) stops with us.
            unsafe { libc::kill(0, libc::SIGTSTP) };
            // A process without a controlling shell is not stopped; it must not wait for ever.
            let _ = tokio::time::timeout(Duration::from_millis(300), self.go_on.recv()).await;
        }
    }
}

#[cfg(unix)]
pub use unix::Signals;

#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// Raw mode delivers Ctrl+C as a key; nothing else comes here.
    pub async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::End(2),
            Err(_) => std::future::pending().await,
        }
    }

    pub async fn suspend(&mut self) {}
}
