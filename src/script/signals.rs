use super::status::{Quit, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What the user's shell may send meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, SIGHUP.
    Terminate,
}

impl From<Signal> for Status {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Interrupt => Status::Interrupted,
            Signal::Terminate => Status::Terminated,
        }
    }
}

/// For work to put away what it holds: to end another program, to close a file.
const GRACE: Duration = Duration::from_secs(1);

/// Ctrl-C and requests to end, as messages. Must be called inside a runtime.
pub fn signals() -> UnboundedReceiver<Signal> {
    let (sender, receiver) = unbounded_channel();
    let interrupts = sender.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && interrupts.send(Signal::Interrupt).is_ok() {}
    });
    #[cfg(unix)]
    for kind in [tokio::signal::unix::SignalKind::terminate(), tokio::signal::unix::SignalKind::hangup()] {
        let sender = sender.clone();
        tokio::spawn(async move {
            let Ok(mut signal) = tokio::signal::unix::signal(kind) else { return };
            while signal.recv().await.is_some() && sender.send(Signal::Terminate).is_ok() {}
        });
    }
    receiver
}

/// Work that blocks, on another thread, until it ends or a signal comes: then the flag that it looks
/// at is set. The outer error says that there was no thread for it.
pub fn unless_signalled<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<Result<T, Signal>, Quit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Quit::new(Status::Failed, format!("cannot start: {e}")))?;
    let ended = runtime.block_on(async {
        let mut signals = signals();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let mut working = tokio::task::spawn_blocking(move || work(&seen));
        let signal = tokio::select! {
            biased;
            done = &mut working => {
                return Ok(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
            }
            Some(signal) = signals.recv() => signal,
        };
        stop.store(true, Ordering::Relaxed);
        // One that is stuck, as a read from a silent server, is left behind.
        let _ = tokio::time::timeout(GRACE, working).await;
        Err(signal)
    });
    runtime.shutdown_background();
    Ok(ended)
}
