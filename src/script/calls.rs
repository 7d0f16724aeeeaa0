//! `run --run-tools`: calls are carried out without a question, because a flag said so, and what they
//! give back goes to the model, round after round.

use super::answer::{Answer, ToolRun};
use super::output::Printer;
use super::run::{End, conclude, engine_gone, follow};
use super::signals::Signal;
use super::status::{Quit, Status};
use crate::base::visible;
use crate::protocol::{
    CallId, Command, Handle, Message, ModelInfo, Prompt, Request, RequestId, Role, RunHow, ServerState,
    ToolCall, ToolChoice, ToolCommand, ToolEnd, ToolEvent, ToolHandle, ToolList, ToolResult,
};
use std::io::{self, Write};
use tokio::sync::mpsc::UnboundedReceiver;

type Signals = UnboundedReceiver<Signal>;

/// Who carries out the calls, and how.
pub struct ToolRunner {
    pub keeper: ToolHandle,
    pub how: RunHow,
    /// Answers with calls in a row.
    pub rounds: u32,
}

/// As [`answer`](super::answer()), until an answer asks for no tool any more, or for the last round.
pub async fn answer_with_tools<O: Write, E: Write>(
    handle: &mut Handle,
    info: ModelInfo,
    mut request: Request,
    printer: &mut Printer<O, E>,
    signals: &mut Signals,
    mut tools: ToolRunner,
) -> Result<Status, Quit> {
    let Some(list) = settled(&mut tools.keeper, signals).await? else {
        return Err(Quit::new(Status::Interrupted, "interrupted while the tools start"));
    };
    warn(&list, printer);
    request.tools.tools = list.tools.into_iter().map(|offered| offered.tool).collect();
    let mut runs = Vec::new();
    for round in 0.. {
        let mut answer =
            Answer { tool_results: std::mem::take(&mut runs), ..Answer::new(info.clone(), &request) };
        let submit = Command::Submit(Box::new(request.clone()));
        handle.commands.send(submit).map_err(|_| engine_gone())?;
        let end = follow(handle, &mut answer, printer, signals).await;
        let calls = answer.choices[0].tool_calls.clone();
        let is_last = !matches!(end, Ok(End::Finished)) || answer.failure().is_some() || calls.is_empty();
        if is_last || round == tools.rounds {
            if !is_last {
                printer.say(&format!("stopped after {round} rounds of tool calls in a row"));
            }
            return conclude(handle, end, &answer, printer);
        }
        let wrote = printer.round(&answer);
        let results = match wrote {
            Ok(()) => all(&mut tools, round, &calls, printer, signals).await,
            Err(e) => Err(e),
        };
        let results = match results {
            Ok(Some(results)) => results,
            Ok(None) => return conclude(handle, Ok(End::Signal(Signal::Interrupt)), &answer, printer),
            Err(e) => return conclude(handle, Err(e), &answer, printer),
        };
        go_on(&mut request, &answer, &results);
        runs = answer.tool_results;
        runs.extend(results);
    }
    unreachable!("the loop has no end but its returns")
}

/// The list once every server has started or failed; `None` after a signal.
async fn settled(keeper: &mut ToolHandle, signals: &mut Signals) -> Result<Option<ToolList>, Quit> {
    loop {
        match next(keeper, signals).await? {
            Some(ToolEvent::Tools(list)) if list.settled => {
                return match list.error {
                    Some(why) => Err(Quit::new(Status::Usage, why)),
                    None => Ok(Some(*list)),
                };
            }
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

async fn next(keeper: &mut ToolHandle, signals: &mut Signals) -> Result<Option<ToolEvent>, Quit> {
    tokio::select! {
        biased;
        Some(_) = signals.recv() => Ok(None),
        event = keeper.events.recv() => {
            event.map(Some).ok_or_else(|| Quit::new(Status::Failed, "the keeper of the tools ended"))
        }
    }
}

fn warn<O: Write, E: Write>(list: &ToolList, printer: &mut Printer<O, E>) {
    for server in &list.servers {
        if let ServerState::Failed(why) = &server.state {
            printer.say(&format!("MCP server {}: {why}", server.name));
        }
    }
}

/// Every call of an answer, in its order; `None` after a signal.
async fn all<O: Write, E: Write>(
    tools: &mut ToolRunner,
    round: u32,
    calls: &[ToolCall],
    printer: &mut Printer<O, E>,
    signals: &mut Signals,
) -> io::Result<Option<Vec<ToolRun>>> {
    let mut runs = Vec::new();
    for (nth, call) in calls.iter().enumerate() {
        let id = CallId(u64::from(round) << 32 | nth as u64);
        let name = if call.id.is_empty() { format!("call_{nth}") } else { call.id.clone() };
        let call = ToolCall { id: name, ..call.clone() };
        let Some((plan, result)) = one(tools, id, &call, signals).await? else { return Ok(None) };
        let run = ToolRun { round, call, plan, result };
        printer.tool(&run)?;
        runs.push(run);
    }
    Ok(Some(runs))
}

type Ran = (Option<crate::protocol::PlannedCall>, ToolResult);

async fn one(
    tools: &mut ToolRunner,
    id: CallId,
    call: &ToolCall,
    signals: &mut Signals,
) -> io::Result<Option<Ran>> {
    let send = |tools: &ToolRunner, command| {
        tools.keeper.commands.send(command).map_err(|_| io::Error::other("the keeper of the tools ended"))
    };
    send(tools, ToolCommand::Prepare { id, call: call.clone() })?;
    let mut plan = None;
    loop {
        let event = next(&mut tools.keeper, signals).await.map_err(|quit| io::Error::other(quit.message))?;
        match event {
            None => return Ok(None),
            Some(ToolEvent::Prepared { planned: Ok(planned), .. }) => {
                plan = Some(planned);
                send(tools, ToolCommand::Run { id, how: tools.how })?;
            }
            Some(ToolEvent::Prepared { planned: Err(why), .. }) => {
                return Ok(Some((None, ToolResult::not_run(ToolEnd::Invalid, why))));
            }
            Some(ToolEvent::Finished { result, .. }) => return Ok(Some((plan, result))),
            Some(ToolEvent::Tools(_)) => {}
        }
    }
}

/// The conversation with the calls and what they gave back.
fn go_on(request: &mut Request, answer: &Answer, results: &[ToolRun]) {
    request.id = RequestId(request.id.0 + 1);
    // What had to be called was called.
    if matches!(request.tools.choice, ToolChoice::Required | ToolChoice::Named(_)) {
        request.tools.choice = ToolChoice::Auto;
    }
    let Prompt::Chat(messages) = &mut request.prompt else { return };
    let said = &answer.choices[0];
    let mut message = Message::new(Role::Assistant, &said.text);
    message.reasoning = (!said.reasoning.is_empty()).then(|| said.reasoning.clone());
    message.tool_calls = results.iter().map(|run| run.call.clone()).collect();
    messages.push(message);
    messages.extend(results.iter().map(|run| {
        let mut message = Message::new(Role::Tool, &run.result.text);
        message.tool_call_id = Some(run.call.id.clone());
        message.name = Some(run.call.name.clone());
        message
    }));
}

impl ToolRun {
    /// For people, on one line.
    pub fn line(&self) -> String {
        let first = self.result.text.lines().next().unwrap_or_default();
        let line = format!("{} {}: {first}", self.call.name, self.call.arguments);
        visible(&line.replace('\n', " ")).into_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Format;
    use crate::protocol::*;
    use crate::script::fake::{self, finished};
    use crate::script::output::View;
    use crate::script::run::wait_until_ready;
    use serde_json::Value;
    use tokio::sync::mpsc::unbounded_channel;

    /// A keeper that says what it ran; it knows the tool `weather` only.
    fn keeper() -> ToolHandle {
        let (commands, mut inbox) = unbounded_channel();
        let (events, receiver) = unbounded_channel();
        std::thread::spawn(move || {
            let tool = Tool { name: "weather".into(), description: String::new(), parameters: Value::Null };
            let tools = vec![OfferedTool { tool, source: "weather".into(), dry_run: false }];
            let list = ToolList { tools, settled: true, ..ToolList::default() };
            events.send(ToolEvent::Tools(Box::new(list))).unwrap();
            while let Some(command) = inbox.blocking_recv() {
                let event = match command {
                    ToolCommand::Prepare { id, call } if call.name == "weather" => {
                        let argv = vec!["weather".to_owned(), call.arguments];
                        let action = PlannedAction::Command { argv, cwd: None, stdin: None };
                        let planned = Ok(PlannedCall { action, dry_run: false, timeout_s: 30.0 });
                        ToolEvent::Prepared { id, planned }
                    }
                    ToolCommand::Prepare { id, .. } => {
                        ToolEvent::Prepared { id, planned: Err("there is no such tool".into()) }
                    }
                    ToolCommand::Run { id, how } => {
                        let end = ToolEnd::Exited { exit_status: 0 };
                        let result = ToolResult { text: format!("{how:?}"), end, took_ms: 1.0 };
                        ToolEvent::Finished { id, result }
                    }
                    _ => return,
                };
                events.send(event).unwrap();
            }
        });
        ToolHandle { commands, events: receiver }
    }

    fn calls(request: u64, names: &[&str]) -> Vec<Event> {
        let seq = SeqId { request: RequestId(request), choice: 0 };
        let piece = |(index, name): (usize, &&str)| {
            let (id, name) = (Some(format!("c{index}")), Some((*name).to_owned()));
            let arguments = "{\"city\":\"Oslo\"}".into();
            let call = ToolCallDelta { index, id, name, arguments, ..ToolCallDelta::default() };
            Event::Delta { seq, part: Part::ToolCall(call) }
        };
        let mut events: Vec<Event> = names.iter().enumerate().map(piece).collect();
        events.push(end(seq, FinishReason::ToolCalls));
        events
    }

    fn says(request: u64, text: &str) -> Vec<Event> {
        let seq = SeqId { request: RequestId(request), choice: 0 };
        vec![Event::Delta { seq, part: Part::Text(text.into()) }, end(seq, FinishReason::Stop)]
    }

    fn end(of: SeqId, reason: FinishReason) -> Event {
        let Event::Finished { outcome, .. } = finished(0, reason) else { unreachable!() };
        Event::Finished { seq: of, outcome }
    }

    /// The status, stdout, stderr and what was submitted.
    fn ran(format: Format, rounds: u32, answers: Vec<Vec<Event>>) -> (Status, String, String, Vec<Request>) {
        let (mut handle, engine) = fake::conversation(answers);
        let (_signal, mut signals) = unbounded_channel();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut printer = Printer::new(View { format, stream: true, ..View::default() }, &mut out, &mut err);
        let prompt = Prompt::Chat(vec![Message::new(Role::User, "The weather?")]);
        let request = Request::new(RequestId(1), prompt, SamplingParams::default());
        let runner = ToolRunner { keeper: keeper(), how: RunHow::AsDeclared, rounds };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let status = runtime.block_on(async {
            let info = wait_until_ready(&mut handle, &mut printer, &mut signals).await.unwrap();
            answer_with_tools(&mut handle, info, request, &mut printer, &mut signals, runner).await.unwrap()
        });
        drop(printer);
        drop(handle);
        let submitted = |c| if let Command::Submit(r) = c { Some(*r) } else { None };
        let requests = engine.join().unwrap().into_iter().filter_map(submitted).collect();
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), requests)
    }

    #[test]
    fn results_go_back_until_an_answer_asks_for_nothing() {
        let answers = vec![calls(1, &["weather", "wether"]), says(2, "3 degrees")];
        let (status, out, err, requests) = ran(Format::Json, 8, answers);
        assert_eq!((status, requests.len()), (Status::Done, 2));
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&report["text"], &report["finish_reason"]), (&"3 degrees".into(), &"stop".into()));
        let [good, bad] = &report["tool_results"].as_array().unwrap()[..] else { panic!("{report}") };
        assert_eq!(
            (&good["name"], &good["text"], &good["exit_status"]),
            (&"weather".into(), &"AsDeclared".into(), &0.into())
        );
        assert_eq!(good["command"]["argv"][0], "weather");
        assert_eq!((&bad["ended"], &bad["text"]), (&"invalid".into(), &"there is no such tool".into()));
        assert!(err.contains("note: weather {\"city\":\"Oslo\"}: AsDeclared"), "{err}");

        let Prompt::Chat(messages) = &requests[1].prompt else { panic!() };
        let roles: Vec<Role> = messages.iter().map(|m| m.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
        assert_eq!((messages[1].tool_calls.len(), messages[3].tool_call_id.as_deref()), (2, Some("c1")));
        assert_eq!((requests[0].tools.tools.len(), requests[1].tools.tools.len()), (1, 1));
    }

    #[test]
    fn every_line_of_ndjson_says_what_it_is() {
        let (_, out, ..) = ran(Format::Ndjson, 8, vec![calls(1, &["weather"]), says(2, "3 degrees")]);
        let event =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned();
        let events: Vec<String> = out.lines().map(event).collect();
        assert_eq!(events, ["tool_call", "finish", "tool_result", "delta", "finish"]);
    }

    #[test]
    fn rounds_end_and_what_was_asked_for_last_is_not_run() {
        let answers = vec![calls(1, &["weather"]), calls(2, &["weather"]), calls(3, &["weather"])];
        let (_, out, err, requests) = ran(Format::Json, 2, answers);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((report["tool_results"].as_array().unwrap().len(), requests.len()), (2, 3));
        assert_eq!(report["tool_calls"][0]["name"], "weather");
        assert!(err.contains("stopped after 2 rounds of tool calls in a row"), "{err}");
    }

    #[test]
    fn as_text_the_last_answer_is_what_is_printed() {
        let (_, out, ..) = ran(Format::Text, 8, vec![calls(1, &["weather"]), says(2, "3 degrees")]);
        assert_eq!(out, "3 degrees\n");
    }
}
