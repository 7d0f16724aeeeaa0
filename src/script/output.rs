use super::answer::{Answer, Choice, ToolRun};
use super::counted::counted;
use super::json::{self, Line, TimingsJson, TokenJson};
use super::progress::Progress;
use crate::base::visible;
use crate::config::{Format, ShowReasoning};
use crate::protocol::{Event, Failure, FinishReason, LoadStage, Part, Snapshot};
use std::borrow::Cow;
use std::io::{self, Write};

/// What of an answer is shown, and where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub format: Format,
    pub reasoning: ShowReasoning,
    /// Text appears as it comes; not for several choices, which would mix.
    pub stream: bool,
    /// Tokens with their alternatives in JSON.
    pub tokens: bool,
    /// ndjson: a line for every engine step.
    pub steps: bool,
    pub quiet: bool,
    pub stats: bool,
    /// stdout is a terminal: control characters of the model are shown as escapes.
    pub out_is_terminal: bool,
    pub err_is_terminal: bool,
}

/// Writes an answer to stdout and what is said about it to stderr.
pub struct Printer<O, E> {
    view: View,
    out: O,
    err: E,
    /// `<think>` was written and not yet closed.
    thinking: bool,
    /// What was written last ended its line.
    at_line_start: bool,
    /// ndjson: the line that every other follows was written.
    started: bool,
    last_step: Option<u64>,
    progress: Option<Progress>,
}

impl<O: Write, E: Write> Printer<O, E> {
    pub fn new(view: View, out: O, err: E) -> Self {
        Self {
            view,
            out,
            err,
            thinking: false,
            at_line_start: true,
            started: false,
            last_step: None,
            progress: None,
        }
    }

    /// Loading the model, on stderr, while it lasts.
    pub fn loading(&mut self, stage: LoadStage, done: u64, total: u64) {
        let wanted = self.view.err_is_terminal && !self.view.quiet;
        let make = || if wanted { Progress::loading() } else { Progress::hidden() };
        let progress = self.progress.get_or_insert_with(make);
        progress.say(match stage {
            LoadStage::Reading => "reading the model",
            LoadStage::Repacking => "preparing the weights",
        });
        progress.set(done, total);
    }

    pub fn loaded(&mut self) {
        self.progress = None;
    }

    /// One event, after `answer` took it.
    pub fn event(&mut self, event: &Event, answer: &Answer) -> io::Result<()> {
        match (event, self.view.format) {
            (Event::Note(note), _) => self.note(note),
            (_, Format::Ndjson) => self.line_of(event, answer),
            (Event::Delta { part, .. }, Format::Text) if self.view.stream => self.part(part),
            _ => Ok(()),
        }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Engine steps since the last call, where they are wanted and the answer has started.
    pub fn steps(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if !self.view.steps || !self.started {
            return Ok(());
        }
        let last = self.last_step;
        for record in snapshot.steps.iter().filter(|record| last.is_none_or(|last| record.step > last)) {
            json::write_line(&mut self.out, &Line::Step(record))?;
            self.last_step = Some(record.step);
        }
        Ok(())
    }

    /// The end: whatever is shown only when all is known.
    pub fn finish(&mut self, answer: &Answer) -> io::Result<()> {
        match self.view.format {
            Format::Ndjson => {}
            Format::Json if answer.failure().is_some() && !answer.has_content() => {}
            Format::Json => json::write_line(&mut self.out, &json::report(answer, self.view.tokens))?,
            Format::Text => self.text_end(answer)?,
        }
        self.out.flush()?;
        if self.view.format == Format::Text {
            self.explain_silence(answer)?;
            self.tell_calls(answer)?;
        }
        if self.view.stats {
            for choice in &answer.choices {
                self.statistics(choice)?;
            }
        }
        Ok(())
    }

    /// The end of an answer that others follow.
    pub fn round(&mut self, answer: &Answer) -> io::Result<()> {
        if self.view.format == Format::Text && answer.choices.iter().any(|c| !c.text.is_empty()) {
            self.text_end(answer)?;
        }
        self.out.flush()
    }

    /// What a call gave back.
    pub fn tool(&mut self, run: &ToolRun) -> io::Result<()> {
        if self.view.format == Format::Ndjson {
            json::write_line(&mut self.out, &Line::ToolResult(run))?;
            self.out.flush()?;
        }
        self.say(&run.line());
        Ok(())
    }

    /// A word to the person, on stderr.
    pub fn say(&mut self, text: &str) {
        // Nobody is left to be told when stderr is closed.
        let _ = self.note(text);
    }

    /// A failure as an event; the message for people is written elsewhere.
    pub fn failure(&mut self, failure: &Failure) -> io::Result<()> {
        if self.view.format == Format::Ndjson {
            let line = Line::Error { kind: failure.kind, message: &failure.message };
            json::write_line(&mut self.out, &line)?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn line_of(&mut self, event: &Event, answer: &Answer) -> io::Result<()> {
        let line = match event {
            Event::Accepted { prompt_tokens, .. } => Line::Start {
                model: &answer.info.name,
                device: &answer.info.device,
                device_reason: &answer.info.device_reason,
                prompt_tokens: *prompt_tokens,
                choices: answer.choices.len(),
            },
            Event::Token { seq, token } if self.view.tokens => {
                Line::Token { choice: seq.choice, token: TokenJson::from(&**token) }
            }
            Event::Delta { seq, part: Part::Text(text) } => {
                Line::Delta { choice: seq.choice, text: Some(text), reasoning: None }
            }
            Event::Delta { seq, part: Part::Reasoning(text) } => {
                Line::Delta { choice: seq.choice, text: None, reasoning: Some(text) }
            }
            Event::Delta { seq, part: Part::ToolCall(piece) } => Line::ToolCall { choice: seq.choice, piece },
            Event::Finished { seq, outcome } => match &outcome.reason {
                FinishReason::Error(failure) => Line::Error { kind: failure.kind, message: &failure.message },
                reason => Line::Finish {
                    choice: seq.choice,
                    finish_reason: reason.name(),
                    seed: outcome.seed,
                    usage: outcome.usage,
                    timings: TimingsJson::new(&answer.info, &outcome.timings),
                    params: &outcome.params,
                },
            },
            _ => return Ok(()),
        };
        self.started = true;
        json::write_line(&mut self.out, &line)
    }

    fn part(&mut self, part: &Part) -> io::Result<()> {
        match (part, self.view.reasoning) {
            (Part::Text(text), _) => {
                self.close_thoughts()?;
                self.write(text)
            }
            (Part::Reasoning(text), ShowReasoning::Show) => {
                if !std::mem::replace(&mut self.thinking, true) {
                    self.write("<think>\n")?;
                }
                self.write(text)
            }
            (Part::Reasoning(text), ShowReasoning::Stderr) => {
                let shown = if self.view.err_is_terminal { visible(text) } else { Cow::Borrowed(&**text) };
                self.err.write_all(shown.as_bytes())?;
                self.err.flush()
            }
            // Calls are in the JSON forms; as text they are no answer.
            (Part::ToolCall(_), _) | (Part::Reasoning(_), ShowReasoning::Hide) => Ok(()),
        }
    }

    fn close_thoughts(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.thinking) {
            self.end_line()?;
            self.write("</think>\n")?;
        }
        Ok(())
    }

    fn text_end(&mut self, answer: &Answer) -> io::Result<()> {
        let unwritten = if self.view.stream { &[][..] } else { &answer.choices };
        for (i, choice) in unwritten.iter().enumerate() {
            if i > 0 {
                self.end_line()?;
                self.write("---\n")?;
            }
            if !choice.reasoning.is_empty() {
                self.part(&Part::Reasoning(choice.reasoning.clone()))?;
            }
            self.close_thoughts()?;
            self.write(&choice.text)?;
        }
        self.close_thoughts()?;
        self.end_line()
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if let Some(last) = text.chars().last() {
            self.at_line_start = last == '\n';
        }
        let shown = if self.view.out_is_terminal { visible(text) } else { Cow::Borrowed(text) };
        self.out.write_all(shown.as_bytes())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.at_line_start { Ok(()) } else { self.write("\n") }
    }

    fn note(&mut self, note: &str) -> io::Result<()> {
        if self.view.quiet {
            return Ok(());
        }
        writeln!(self.err, "note: {}", visible(note))
    }

    /// An empty answer looks like a fault when the model only thought, or was cut off thinking.
    fn explain_silence(&mut self, answer: &Answer) -> io::Result<()> {
        for choice in answer
            .choices
            .iter()
            .filter(|c| c.text.is_empty() && !c.reasoning.is_empty() && c.tool_calls.is_empty())
        {
            let thought = choice.outcome.as_ref().map_or(0, |o| o.usage.reasoning_tokens);
            self.note(&format!(
                "no answer: the model only thought, for {} (finish reason: {}); \
                 --reasoning show prints the thoughts",
                counted(thought, "token"),
                choice.finish_reason()
            ))?;
        }
        for choice in answer.choices.iter().filter(|c| c.text.is_empty() && !c.tool_calls.is_empty()) {
            let calls = counted(choice.tool_calls.len(), "tool call");
            self.note(&format!("no answer: the model asks for {calls}; --json prints them"))?;
        }
        Ok(())
    }

    /// Calls are no answer; who can run them reads JSON.
    fn tell_calls(&mut self, answer: &Answer) -> io::Result<()> {
        for call in answer.choices.iter().flat_map(|choice| &choice.tool_calls) {
            let arguments = call.arguments.replace(['\n', '\r'], " ");
            self.note(&format!(
                "the model asks for the tool {} {arguments}; --json has its call",
                call.name
            ))?;
        }
        Ok(())
    }

    fn statistics(&mut self, choice: &Choice) -> io::Result<()> {
        let Some(outcome) = &choice.outcome else { return Ok(()) };
        let (usage, t) = (outcome.usage, outcome.timings);
        let forced = match usage.forced_tokens {
            0 => String::new(),
            n => format!(" ({n} forced)"),
        };
        writeln!(
            self.err,
            "prompt {} ({} cached) · first token {:.0} ms · {}{forced} at {:.1} tok/s · {:.2} s · seed {} · {}",
            counted(usage.prompt_tokens, "token"),
            usage.cached_tokens,
            t.ttft_ms,
            counted(usage.completion_tokens, "token"),
            t.tokens_per_second,
            t.e2el_ms / 1e3,
            outcome.seed,
            outcome.reason.name(),
        )
    }
}
