use super::answer::Answer;
use super::output::Printer;
use super::signals::Signal;
use super::status::{Quit, Status};
use crate::protocol::{Command, Event, Failure, FailureKind, Handle, ModelInfo, Request};
use std::io::{self, Write};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

/// An interrupted engine may be inside a long step; the person at the keyboard does not wait for it.
const GRACE: Duration = Duration::from_millis(150);

/// Waits for the model, and shows that it loads.
pub async fn wait_until_ready<O: Write, E: Write>(
    handle: &mut Handle,
    printer: &mut Printer<O, E>,
    signals: &mut UnboundedReceiver<Signal>,
) -> Result<ModelInfo, Quit> {
    loop {
        let events = tokio::select! {
            biased;
            Some(signal) = signals.recv() => return Err(Quit::new(signal.into(), "interrupted while loading")),
            events = handle.events.recv() => events.ok_or_else(engine_gone)?,
        };
        for event in events {
            match event {
                Event::Loading { stage, done, total } => printer.loading(stage, done, total),
                Event::Ready(info) => {
                    printer.loaded();
                    return Ok(*info);
                }
                Event::LoadFailed(failure) => {
                    printer.loaded();
                    // A reader of ndjson that has gone is told nothing; the error still is on stderr.
                    let _ = printer.failure(&failure);
                    return Err(failure.into());
                }
                _ => {}
            }
        }
    }
}

/// Sends one request and writes what comes back, until its end.
///
/// A signal ends it early: what was written stays, the request is aborted, and the result says so.
/// A reader of stdout that went away is no error, and the request is aborted as well.
pub async fn answer<O: Write, E: Write>(
    handle: &mut Handle,
    info: ModelInfo,
    request: Request,
    printer: &mut Printer<O, E>,
    signals: &mut UnboundedReceiver<Signal>,
) -> Result<Status, Quit> {
    let mut answer = Answer::new(info, &request);
    handle.commands.send(Command::Submit(Box::new(request))).map_err(|_| engine_gone())?;

    let end = follow(handle, &mut answer, printer, signals).await;
    conclude(handle, end, &answer, printer)
}

/// Whatever is shown only at the end, and how it was.
pub(super) fn conclude<O: Write, E: Write>(
    handle: &Handle,
    end: io::Result<End>,
    answer: &Answer,
    printer: &mut Printer<O, E>,
) -> Result<Status, Quit> {
    if !answer.is_finished() {
        // A dead engine has nothing left to abort.
        let _ = handle.commands.send(Command::Abort(answer.request));
    }
    match end.and_then(|end| printer.finish(answer).map(|()| end)) {
        Ok(End::Signal(signal)) => Ok(signal.into()),
        Ok(End::EngineGone) => Err(engine_gone()),
        Ok(End::Finished) => answer.failure().map_or(Ok(Status::Done), |f| Err(advise(f, &answer.info))),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Status::Done),
        Err(e) => Err(Quit::new(Status::Failed, format!("cannot write the answer: {e}"))),
    }
}

pub(super) enum End {
    Finished,
    Signal(Signal),
    EngineGone,
}

pub(super) async fn follow<O: Write, E: Write>(
    handle: &mut Handle,
    answer: &mut Answer,
    printer: &mut Printer<O, E>,
    signals: &mut UnboundedReceiver<Signal>,
) -> io::Result<End> {
    let mut stopped: Option<(Signal, Instant)> = None;
    let before = handle.snapshot.load().counters;
    while !answer.is_finished() {
        let deadline = stopped.map_or_else(Instant::now, |(_, at)| at);
        let events = tokio::select! {
            biased;
            Some(signal) = signals.recv() => {
                if stopped.is_some() {
                    return Ok(End::Signal(signal));
                }
                // The abort's own end comes back as an event, with the last of the text before it.
                let _ = handle.commands.send(Command::Abort(answer.request));
                stopped = Some((signal, Instant::now() + GRACE));
                continue;
            }
            () = sleep_until(deadline), if stopped.is_some() => break,
            events = handle.events.recv() => events,
        };
        let Some(events) = events else { return Ok(End::EngineGone) };
        // An engine publishes a step before it sends what came of it.
        let snapshot = handle.snapshot.load();
        for event in &events {
            printer.steps(&snapshot)?;
            answer.take(event);
            printer.event(event, answer)?;
        }
        answer.worked(before, snapshot.counters);
        printer.flush()?;
    }
    Ok(stopped.map_or(End::Finished, |(signal, _)| End::Signal(signal)))
}

pub(super) fn engine_gone() -> Quit {
    Quit::new(Status::Failed, "the engine ended before the answer did")
}

fn advise(failure: &Failure, info: &ModelInfo) -> Quit {
    let quit = Quit::from(failure.clone());
    match failure.kind {
        FailureKind::Template if !info.has_chat_template => quit.advise("--raw sends the prompt as it is"),
        FailureKind::TooLong => {
            quit.advise("a larger context: --ctx and --kv-memory, where the model allows it")
        }
        _ => quit,
    }
}
