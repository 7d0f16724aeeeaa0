//! A whole request against an engine that says what it is told.
#![allow(clippy::unwrap_used)]

use super::answer::Answer;
use super::fake::{self, REQUEST, finished, reasoning, text, token};
use super::json;
use super::output::{Printer, View};
use super::run::{answer, wait_until_ready};
use super::signals::Signal;
use super::status::{Quit, Status};
use crate::config::{Format, ShowReasoning};
use crate::protocol::*;
use serde_json::Value;
use std::io::{self, Write};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

struct Ran {
    status: Result<Status, Quit>,
    out: String,
    err: String,
    commands: Vec<Command>,
}

/// Runs one request against an engine that answers it with `events`.
fn ran(view: View, n: u32, events: Vec<Vec<Event>>) -> Ran {
    let mut out = Vec::new();
    let (status, err, commands) = run_into(view, n, events, &mut out);
    Ran { status, out: String::from_utf8(out).unwrap(), err, commands }
}

fn run_into(
    view: View,
    n: u32,
    events: Vec<Vec<Event>>,
    out: &mut impl Write,
) -> (Result<Status, Quit>, String, Vec<Command>) {
    let (mut handle, engine) = fake::engine(events);
    let (_signal, mut signals) = unbounded_channel();
    let mut err = Vec::new();
    let mut printer = Printer::new(view, out, &mut err);
    let request = Request { n, ..request() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let status = runtime.block_on(async {
        let info = wait_until_ready(&mut handle, &mut printer, &mut signals).await?;
        answer(&mut handle, info, request, &mut printer, &mut signals).await
    });
    drop(printer);
    drop(handle);
    (status, String::from_utf8(err).unwrap(), engine.join().unwrap())
}

fn request() -> Request {
    Request::new(REQUEST, Prompt::Text("hi".into()), SamplingParams::default())
}

fn view(format: Format) -> View {
    View { format, stream: true, ..View::default() }
}

fn hello() -> Vec<Vec<Event>> {
    vec![
        vec![fake::accepted(3), token(0, 7, "Hel"), text(0, "Hel")],
        vec![token(0, 8, "lo"), text(0, "lo"), finished(0, FinishReason::Stop)],
    ]
}

#[test]
fn text_output_is_the_answer_and_a_line_end() {
    let ran = ran(view(Format::Text), 1, hello());
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("Hello\n", ""));
    assert_eq!(ran.status, Ok(Status::Done));
}

#[test]
fn without_streaming_the_text_is_the_same() {
    let unstreamed = View { stream: false, ..View::default() };
    assert_eq!(ran(unstreamed, 1, hello()).out, "Hello\n");
}

#[test]
fn json_output_is_one_object_with_every_promised_field() {
    let tokens = View { tokens: true, ..view(Format::Json) };
    let ran = ran(tokens, 1, hello());
    assert_eq!(ran.out.lines().count(), 1);
    let object: Value = serde_json::from_str(&ran.out).unwrap();
    let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "model",
            "device",
            "device_reason",
            "seed",
            "text",
            "reasoning",
            "tool_calls",
            "finish_reason",
            "usage",
            "timings",
            "params",
            "tokens"
        ]
    );
    assert_eq!(object["text"], "Hello");
    assert_eq!(object["seed"], 42);
    assert_eq!(object["finish_reason"], "stop");
    for key in ["prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"] {
        assert!(object["usage"][key].is_u64(), "{key}");
    }
    for key in ["load_ms", "ttft_ms", "itl_ms_mean", "tpot_ms", "e2el_ms", "tokens_per_second"] {
        assert!(object["timings"][key].is_f64(), "{key}");
    }
    assert_eq!(object["params"]["top_k"], 40);
    let first = &object["tokens"][0];
    assert_eq!((&first["id"], &first["text"], &first["rank"]), (&7.into(), &"Hel".into(), &1.into()));
    assert_eq!(first["bytes"], serde_json::json!([72, 101, 108]));
    let top = first["top"][0].as_object().unwrap();
    assert_eq!(top.keys().collect::<Vec<_>>(), ["id", "text", "logprob"]);
}

#[test]
fn several_choices_are_one_object_or_parts_in_order() {
    let both = || {
        vec![
            vec![fake::accepted(3), text(1, "two"), text(0, "one")],
            vec![finished(1, FinishReason::Length), finished(0, FinishReason::Stop)],
        ]
    };
    let object: Value = serde_json::from_str(&ran(view(Format::Json), 2, both()).out).unwrap();
    assert_eq!((&object["text"], &object["choices"][1]["text"]), (&"one".into(), &"two".into()));
    assert_eq!(object["choices"][1]["finish_reason"], "length");
    assert_eq!(
        (&object["usage"]["prompt_tokens"], &object["usage"]["completion_tokens"]),
        (&3.into(), &4.into())
    );
    let unstreamed = View { stream: false, ..View::default() };
    assert_eq!(ran(unstreamed, 2, both()).out, "one\n---\ntwo\n");
}

#[test]
fn ndjson_is_an_event_a_line() {
    let tokens = View { tokens: true, ..view(Format::Ndjson) };
    let out = ran(tokens, 1, hello()).out;
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "token", "delta", "token", "delta", "finish"]);
    assert_eq!((&lines[0]["model"], &lines[0]["prompt_tokens"]), (&"fake".into(), &3.into()));
    assert_eq!((&lines[2]["choice"], &lines[2]["text"]), (&0.into(), &"Hel".into()));
    assert!(lines[2].get("reasoning").is_none());
    assert_eq!((&lines[1]["id"], &lines[5]["finish_reason"]), (&7.into(), &"stop".into()));
}

#[test]
fn ndjson_starts_with_start_and_shows_each_step_once() {
    let steps = View { steps: true, ..view(Format::Ndjson) };
    let out = ran(steps, 1, hello()).out;
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("start", "finish"), "{kinds:?}");
    let steps = lines.iter().filter(|line| line["event"] == "step");
    assert_eq!(steps.map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
}

fn thoughtful() -> Vec<Vec<Event>> {
    vec![
        vec![fake::accepted(3), reasoning(0, "hm"), reasoning(0, "m")],
        vec![text(0, "42"), finished(0, FinishReason::Stop)],
    ]
}

#[test]
fn thoughts_go_where_they_are_wanted() {
    let with = |reasoning| ran(View { reasoning, ..view(Format::Text) }, 1, thoughtful());
    assert_eq!(with(ShowReasoning::Hide).out, "42\n");
    assert_eq!(with(ShowReasoning::Show).out, "<think>\nhmm\n</think>\n42\n");
    let apart = with(ShowReasoning::Stderr);
    assert_eq!((apart.out.as_str(), apart.err.as_str()), ("42\n", "hmm"));
    let object: Value = serde_json::from_str(&ran(view(Format::Json), 1, thoughtful()).out).unwrap();
    assert_eq!((&object["reasoning"], &object["text"]), (&"hmm".into(), &"42".into()));
}

/// BUGLOG R04: an answer cut off inside the thoughts is empty, and that is said.
#[test]
fn an_answer_that_is_only_thoughts_is_explained() {
    let cut = || vec![vec![fake::accepted(3), reasoning(0, "hmm"), finished(0, FinishReason::Length)]];
    let said = ran(view(Format::Text), 1, cut());
    assert_eq!(said.out, "");
    assert!(said.err.contains("only thought") && said.err.contains("length"), "{}", said.err);
    let quiet = View { quiet: true, ..view(Format::Text) };
    assert_eq!(ran(quiet, 1, cut()).err, "");
}

/// BUGLOG X01, X24: escapes reach a pipe unchanged and a terminal never.
#[test]
fn a_terminal_sees_escapes_and_a_pipe_gets_bytes() {
    let evil =
        || vec![vec![fake::accepted(1), text(0, "\x1b]52;c;QQ==\x07"), finished(0, FinishReason::Stop)]];
    assert_eq!(ran(view(Format::Text), 1, evil()).out, "\x1b]52;c;QQ==\x07\n");
    let terminal = View { out_is_terminal: true, ..view(Format::Text) };
    assert_eq!(ran(terminal, 1, evil()).out, "\\x1b]52;c;QQ==\\x07\n");
}

#[test]
fn every_kind_of_failure_has_its_status() {
    for (kind, status) in [
        (FailureKind::BadRequest, Status::Usage),
        (FailureKind::TooLong, Status::Data),
        (FailureKind::Template, Status::Data),
        (FailureKind::Busy, Status::Busy),
        (FailureKind::Model, Status::NoModel),
        (FailureKind::Internal, Status::Failed),
    ] {
        let refusal = || vec![vec![finished(0, FinishReason::Error(Failure::new(kind, "no: 9 > 8")))]];
        let text = ran(view(Format::Text), 1, refusal());
        assert_eq!(text.out, "");
        let quit = text.status.unwrap_err();
        assert_eq!((quit.status, quit.message.as_str()), (status, "no: 9 > 8"));
        assert_eq!(ran(view(Format::Json), 1, refusal()).out, "");
        let line: Value = serde_json::from_str(&ran(view(Format::Ndjson), 1, refusal()).out).unwrap();
        assert_eq!((&line["event"], &line["message"]), (&"error".into(), &"no: 9 > 8".into()));
    }
}

#[test]
fn a_model_that_does_not_load_is_the_error() {
    let failed = vec![vec![Event::LoadFailed(Failure::new(FailureKind::Model, "x.gguf: cut off"))]];
    let (mut handle, _engine) = fake::silent(failed);
    let (_signal, mut signals) = unbounded_channel();
    let mut printer = Printer::new(View::default(), Vec::new(), Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let quit = runtime.block_on(wait_until_ready(&mut handle, &mut printer, &mut signals)).unwrap_err();
    assert_eq!((quit.status, quit.message.as_str()), (Status::NoModel, "x.gguf: cut off"));
}

/// A choice that never got to its end is reported with what was seen of it.
#[test]
fn an_interrupted_answer_is_reported_as_far_as_it_came() {
    let request =
        Request { params: SamplingParams { seed: Some(9), ..SamplingParams::default() }, n: 2, ..request() };
    let mut answer = Answer::new(ModelInfo::default(), &request);
    for event in [fake::accepted(3), token(1, 7, "Hel"), text(1, "Hel")] {
        answer.take(&event);
    }
    let mut out = Vec::new();
    json::write_line(&mut out, &json::report(&answer, false)).unwrap();
    let object: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&object["seed"], &object["params"]["seed"]), (&9.into(), &9.into()));
    assert_eq!(
        object["usage"],
        serde_json::json!({
            "prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 1, "reasoning_tokens": 0,
            "forced_tokens": 0
        })
    );
    let second = &object["choices"][1];
    assert_eq!(
        (&second["seed"], &second["text"], &second["finish_reason"]),
        (&10.into(), &"Hel".into(), &"abort".into())
    );
}

/// BUGLOG X28, X30: Ctrl-C keeps what was written, aborts the request and does not wait for a
/// step that takes long.
#[test]
fn an_interrupt_keeps_the_text_and_aborts_the_request() {
    /// Presses Ctrl-C when it sees the first of the answer.
    struct Impatient(UnboundedSender<Signal>, Vec<u8>);
    impl Write for Impatient {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(Signal::Interrupt).unwrap();
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut handle, engine) = fake::engine(vec![vec![fake::accepted(1), text(0, "partial\n")]]);
    let (signal, mut signals) = unbounded_channel();
    let mut out = Impatient(signal, Vec::new());
    let mut printer = Printer::new(view(Format::Text), &mut out, Vec::new());
    let request = request();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let status = runtime.block_on(async {
        let info = wait_until_ready(&mut handle, &mut printer, &mut signals).await?;
        answer(&mut handle, info, request, &mut printer, &mut signals).await
    });
    assert_eq!(status, Ok(Status::Interrupted));
    drop(printer);
    drop(handle);
    assert!(engine.join().unwrap().contains(&Command::Abort(REQUEST)));
    assert_eq!(out.1, b"partial\n");
}

/// BUGLOG X23.
#[test]
fn a_closed_pipe_is_quiet_and_stops_the_request() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let endless = vec![vec![fake::accepted(1), text(0, "y\n")], vec![text(0, "y\n")]];
    let (status, err, commands) = run_into(view(Format::Text), 1, endless, &mut Closed);
    assert_eq!((status, err.as_str()), (Ok(Status::Done), ""));
    assert!(commands.contains(&Command::Abort(REQUEST)));
}

#[test]
fn an_engine_that_dies_is_an_error_and_the_text_stays() {
    let (mut handle, engine) = fake::mortal(vec![vec![fake::accepted(1), text(0, "half")]]);
    let (_signal, mut signals) = unbounded_channel();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut printer = Printer::new(view(Format::Text), &mut out, &mut err);
    let request = request();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let status = runtime.block_on(async {
        let info = wait_until_ready(&mut handle, &mut printer, &mut signals).await?;
        answer(&mut handle, info, request, &mut printer, &mut signals).await
    });
    engine.join().unwrap();
    assert_eq!(status.unwrap_err().status, Status::Failed);
    assert_eq!(out, b"half\n");
}

#[test]
fn statistics_and_notes_are_on_stderr() {
    let stats = View { stats: true, ..view(Format::Text) };
    let mut events = hello();
    events[0].insert(0, Event::Note("context shortened to 2048".into()));
    let ran = ran(stats, 1, events);
    assert_eq!(ran.out, "Hello\n");
    assert!(ran.err.starts_with("note: context shortened to 2048\n"), "{}", ran.err);
    assert!(ran.err.contains("2 tokens at") && ran.err.contains("seed 42"), "{}", ran.err);
    assert!(matches!(&ran.commands[0], Command::Submit(r) if r.id == REQUEST));
}
