//! Tool calls as the screen sees them: what is offered, what a model asked for, what the person is asked.

use super::sanitize;
use super::transcript::Document;
use crate::protocol::{CallId, PlannedCall, Tool, ToolCall, ToolEnd, ToolList, ToolResult};
use std::cell::Cell;
use std::time::Duration;

/// A question takes no answer before it has been on screen, and the keyboard silent, for so long.
const READ: Duration = Duration::from_millis(300);

/// The tools, and what the person decided about them.
#[derive(Default)]
pub struct Toolbox {
    pub list: ToolList,
    /// The model is not told of them.
    pub off: bool,
    /// Run without a question, for as long as the program runs. Never kept on disk.
    pub always: Vec<String>,
    pub question: Option<Question>,
    pub next_call: u64,
}

impl Toolbox {
    /// What the model is told of.
    pub fn offered(&self) -> Vec<Tool> {
        if self.off { Vec::new() } else { self.list.tools.iter().map(|t| t.tool.clone()).collect() }
    }
}

/// A call of an answer, and what came of it.
pub struct Call {
    pub id: CallId,
    pub call: ToolCall,
    pub state: CallState,
    /// What would run, once that is known.
    pub plan: Option<PlannedCall>,
    /// The result's text.
    pub shown: Document,
    /// Its result is shown, or not, whatever holds for all.
    pub open: Option<bool>,
}

#[derive(Debug, PartialEq)]
pub enum CallState {
    /// Its arguments are being checked.
    Checking,
    /// Ready to run; nobody said yes yet.
    Planned,
    /// Since then.
    Running(Duration),
    Done(ToolResult),
}

impl Call {
    pub fn new(id: CallId, call: ToolCall) -> Self {
        Self { id, call, state: CallState::Checking, plan: None, shown: Document::plain(""), open: None }
    }

    pub fn end(&mut self, result: ToolResult) {
        self.shown = Document::plain(&result.text);
        self.state = CallState::Done(result);
    }

    /// Whether its result is shown.
    pub fn is_open(&self, all: bool) -> bool {
        self.open.unwrap_or(all)
    }

    /// The same call with the same result.
    pub fn again(&self) -> Self {
        let mut call = Self::new(self.id, self.call.clone());
        call.plan = self.plan.clone();
        if let CallState::Done(result) = &self.state {
            call.end(result.clone());
        }
        call
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, CallState::Done(_))
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, CallState::Running(_))
    }

    /// What the model is told.
    pub fn told(&self) -> &str {
        match &self.state {
            CallState::Done(result) => &result.text,
            _ => "This call was not run.",
        }
    }

    /// `get_weather {"city":"Oslo"}`, on one line.
    pub fn line(call: &ToolCall) -> String {
        sanitize::one_line(format!("{} {}", call.name, call.arguments).trim_end())
    }

    /// How it ended, in two words.
    pub fn ending(end: &ToolEnd) -> String {
        match end {
            ToolEnd::Exited { exit_status } => format!("exit status {exit_status}"),
            ToolEnd::Signalled { signal } => format!("ended by signal {signal}"),
            ToolEnd::TimedOut => "timed out".into(),
            ToolEnd::Answered { is_error: false } => "answered".into(),
            ToolEnd::Answered { is_error: true } => "answered with an error".into(),
            ToolEnd::DryRun => "dry run".into(),
            ToolEnd::Refused => "refused".into(),
            ToolEnd::Cancelled => "stopped".into(),
            ToolEnd::Invalid => "not a valid call".into(),
            ToolEnd::Failed => "failed".into(),
        }
    }
}

/// What the person is asked about a call.
#[derive(Debug, Default)]
pub struct Question {
    pub call: CallId,
    /// The second question, before a tool runs without one.
    pub always: bool,
    /// The last frame had it in view.
    pub drawn: Cell<bool>,
    /// All of it has been in view.
    pub read: Cell<bool>,
    /// Lines under those in view, in the last frame.
    pub below: Cell<usize>,
    /// Since when it is on screen and no key came.
    quiet: Option<Duration>,
    pub scroll: usize,
}

impl Question {
    pub fn new(call: CallId) -> Self {
        Self { call, ..Self::default() }
    }

    /// The first question, or the second; either must be seen anew.
    pub fn ask(&mut self, always: bool) {
        *self = Self { call: self.call, always, ..Self::default() };
    }

    /// A frame is on screen.
    pub fn shown(&mut self, now: Duration) {
        if self.drawn.get() {
            self.quiet.get_or_insert(now);
        }
    }

    /// A key or a paste came that was no answer.
    pub fn disturbed(&mut self, now: Duration) {
        if self.quiet.is_some() {
            self.quiet = Some(now);
        }
    }

    /// The screen was away, or has another size.
    pub fn unseen(&mut self) {
        self.drawn.set(false);
        self.quiet = None;
    }

    pub fn takes_answers(&self, now: Duration) -> bool {
        self.quiet.is_some_and(|since| now >= since + READ)
    }
}

/// What a key says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Once,
    Refuse,
    DryRun,
    Always,
    Up,
    Down,
}
