//! Signals as data.

/// What another process, or the shell, asks of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End; by number.
    End(i32),
    /// Give the terminal to the shell until told to go on.
    Stop,
    /// Go on after having been stopped.
    Continue,
}

#[cfg(unix)]
mod unix {
    use super::Signal;
    use std::io;
    use std::time::Duration;
    use tokio::signal::unix::{SignalKind, signal};
    use tokio::sync::oneshot;

    pub struct Signals {
        interrupt: tokio::signal::unix::Signal,
        terminate: tokio::signal::unix::Signal,
        hang_up: tokio::signal::unix::Signal,
        quit: tokio::signal::unix::Signal,
        stop: tokio::signal::unix::Signal,
        go_on: tokio::signal::unix::Signal,
        closed: Option<oneshot::Receiver<()>>,
    }

    impl Signals {
        pub fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hang_up: signal(SignalKind::hangup())?,
                quit: signal(SignalKind::quit())?,
                stop: signal(SignalKind::from_raw(libc::SIGTSTP))?,
                go_on: signal(SignalKind::from_raw(libc::SIGCONT))?,
                closed: Some(closed_terminal()),
            })
        }

        pub async fn next(&mut self) -> Signal {
            tokio::select! {
                _ = self.interrupt.recv() => Signal::End(libc::SIGINT),
                _ = self.terminate.recv() => Signal::End(libc::SIGTERM),
                _ = self.hang_up.recv() => Signal::End(libc::SIGHUP),
                _ = self.quit.recv() => Signal::End(libc::SIGQUIT),
                () = closed(&mut self.closed) => Signal::End(libc::SIGHUP),
                _ = self.stop.recv() => Signal::Stop,
                _ = self.go_on.recv() => Signal::Continue,
            }
        }

        /// Stops the whole job, as the terminal's own Ctrl+Z would, and returns when it goes on.
        pub async fn suspend(&mut self) {
            // SAFETY: both structures are whole and live; a zeroed one is the default action without
            // flags. Process 0 is our own process group, so that a wrapper (cargo run) stops with us.
            unsafe {
                let (mut ours, default) = (std::mem::zeroed(), std::mem::zeroed::<libc::sigaction>());
                libc::sigaction(libc::SIGTSTP, &default, &mut ours);
                libc::kill(0, libc::SIGTSTP);
                libc::sigaction(libc::SIGTSTP, &ours, std::ptr::null_mut());
            }
            // A process without a controlling shell is not stopped; it must not wait for ever.
            let _ = tokio::time::timeout(Duration::from_millis(300), self.go_on.recv()).await;
        }
    }

    async fn closed(terminal: &mut Option<oneshot::Receiver<()>>) {
        let gone = match terminal {
            Some(terminal) => terminal.await.is_ok(),
            None => false,
        };
        *terminal = None;
        if !gone {
            std::future::pending().await
        }
    }

    /// Told when the terminal's other side is gone: a process that leads no session is sent no
    /// SIGHUP, and the key reader never says that there is nothing to read any more.
    fn closed_terminal() -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || if is_closed() { tell.send(()) } else { Ok(()) });
        told
    }

    /// Waits until the terminal is closed; false where that cannot be found out.
    fn is_closed() -> bool {
        // Asked for nothing, it reports only what is always reported.
        let mut terminal = libc::pollfd { fd: libc::STDIN_FILENO, events: 0, revents: 0 };
        loop {
            // SAFETY: one pollfd is there for the call.
            let found = unsafe { libc::poll(&mut terminal, 1, -1) };
            if found >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return found > 0 && terminal.revents & libc::POLLHUP != 0;
            }
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
