//! Tool calls: what is asked, which keys answer, what runs, and what the model is told.

use super::*;
use glassbox::tools;

const FILE: &str = "tools.toml";

fn weather() -> OfferedTool {
    let parameters = serde_json::json!({
        "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"],
    });
    let tool = Tool { name: "get_weather".into(), description: "Weather now".into(), parameters };
    OfferedTool { tool, source: "weather {city}".into(), dry_run: false }
}

/// A desk with one tool, and a keeper that is played by hand.
pub fn with_tool(options: ScreenOptions, size: (u16, u16)) -> Desk {
    let mut desk = Desk::with(options, size);
    desk.tell(Message::Models(catalogue(true)));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    desk.look();
    let list = ToolList { file: FILE.into(), tools: vec![weather()], settled: true, ..ToolList::default() };
    desk.tell(Message::Tools(ToolEvent::Tools(Box::new(list))));
    desk
}

fn tool_commands(desk: &Desk) -> Vec<ToolCommand> {
    let of_tools = |e: &Effect| if let Effect::Tools(c) = e { Some(c.clone()) } else { None };
    desk.effects.iter().filter_map(of_tools).collect()
}

pub fn runs(desk: &Desk) -> Vec<(CallId, RunHow)> {
    let run = |c: ToolCommand| if let ToolCommand::Run { id, how } = c { Some((id, how)) } else { None };
    tool_commands(desk).into_iter().filter_map(run).collect()
}

/// Answers every call that waits to be prepared.
pub fn prepare(desk: &mut Desk, dry_run: bool) {
    for command in tool_commands(desk) {
        let ToolCommand::Prepare { id, call } = command else { continue };
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
        let argv = vec!["weather".to_owned(), arguments["city"].as_str().unwrap().to_owned()];
        let action = PlannedAction::Command { argv, cwd: Some("/srv/weather".into()), stdin: None };
        let planned = Ok(PlannedCall { action, dry_run, timeout_s: 30.0 });
        desk.tell(Message::Tools(ToolEvent::Prepared { id, planned }));
    }
}

pub fn give_back(desk: &mut Desk, id: CallId, text: &str) {
    let end = ToolEnd::Exited { exit_status: 0 };
    let result = ToolResult { text: text.into(), end, took_ms: 12.0 };
    desk.tell(Message::Tools(ToolEvent::Finished { id, result }));
}

/// Up to the question, which has just appeared.
fn asked(text: &str, size: (u16, u16)) -> Desk {
    let mut desk = with_tool(ScreenOptions::default(), size);
    desk.say(text);
    desk.finish();
    prepare(&mut desk, false);
    desk
}

/// Looks at the question for as long as it takes.
pub fn read(desk: &mut Desk) {
    desk.frame();
    desk.wait(300);
}

fn requests(desk: &Desk) -> Vec<Request> {
    let submitted = |c: &&Command| if let Command::Submit(r) = c { Some((**r).clone()) } else { None };
    desk.sent().iter().filter_map(submitted).collect()
}

fn told(desk: &Desk) -> Vec<glassbox::protocol::Message> {
    let Some(Prompt::Chat(messages)) = requests(desk).pop().map(|r| r.prompt) else { panic!("a chat") };
    messages
}

#[test]
fn a_call_is_shown_in_full_and_a_yes_runs_it_once() {
    for size in SIZES {
        let mut desk = asked("What is the weather?", size);
        desk.frame();
        snapshot("tool_question", &desk);
        let picture = desk.picture();
        for part in
            ["tool call: get_weather", "weather Oslo", "/srv/weather", "\"city\": \"Oslo\"", "for real"]
        {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
        assert_eq!(runs(&desk), []);
        desk.wait(300);
        desk.press(KeyCode::Char('y'));
        assert_eq!(runs(&desk), [(CallId(0), RunHow::AsDeclared)]);
        desk.wait(1_500);
        snapshot("tool_running", &desk);
        give_back(&mut desk, CallId(0), "3 °C, light rain\n\u{1b}[31mred");
        desk.finish();
        snapshot("tool_answered", &desk);
        desk.ctrl('o');
        snapshot("tool_result_open", &desk);
        assert!(desk.picture().contains("\\x1b[31mred"), "{}", desk.picture());
        assert_eq!(runs(&desk).len(), 1);
    }
}

#[test]
fn the_next_request_has_the_call_and_its_result() {
    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    give_back(&mut desk, CallId(0), "3 °C");
    let [user, assistant, result] = &told(&desk)[..] else { panic!("{:?}", told(&desk)) };
    assert_eq!((user.role, assistant.role, result.role), (Role::User, Role::Assistant, Role::Tool));
    let call = ToolCall {
        id: "call_0".into(),
        name: "get_weather".into(),
        arguments: "{\"city\": \"Oslo\"}".into(),
    };
    assert_eq!(assistant.tool_calls, [call]);
    assert_eq!((result.content.as_str(), result.tool_call_id.as_deref()), ("3 °C", Some("call_0")));
    assert_eq!(result.name.as_deref(), Some("get_weather"));
    desk.finish();
    // The turn after knows of it too.
    desk.say("Thanks");
    let all = told(&desk);
    let roles: Vec<Role> = all.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::User]);
    assert_eq!(all[3].content, "The tool says: 3 °C");
    assert_eq!(requests(&desk).last().unwrap().tools.tools.len(), 1);
}

/// The keys that could run something by accident.
#[test]
fn nothing_but_a_calm_yes_to_a_question_on_screen_runs_a_call() {
    let nothing_ran = |desk: &Desk| assert_eq!(runs(desk), [], "{}", desk.picture());
    // Enter is no yes, however often.
    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    for _ in 0..3 {
        desk.press(KeyCode::Enter);
        desk.wait(1_000);
    }
    nothing_ran(&desk);
    // Nor is a capital, Ctrl+Y or Alt+Y.
    for key in [
        KeyEvent::new(KeyCode::Char('Y'), KeyModifiers::SHIFT),
        KeyEvent::new(KeyCode::Char('y'), KeyModifiers::CONTROL),
        KeyEvent::new(KeyCode::Char('y'), KeyModifiers::ALT),
    ] {
        desk.tell(Message::Key(key));
        desk.wait(1_000);
    }
    nothing_ran(&desk);

    // A paste goes into the input, and what is typed at once after it is not taken either.
    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    desk.tell(Message::Paste("y\n".into()));
    desk.press(KeyCode::Char('y'));
    nothing_ran(&desk);
    assert!(desk.app.composer_text().starts_with('y'));

    // Typed before the question is there, and while it has been there for less than 300 ms.
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("What is the weather?");
    desk.type_text("y");
    desk.finish();
    prepare(&mut desk, false);
    desk.press(KeyCode::Char('y'));
    desk.frame();
    desk.press(KeyCode::Char('y'));
    desk.wait(299);
    desk.press(KeyCode::Char('y'));
    nothing_ran(&desk);

    // In the middle of a sentence that goes on while the question appears, or by a key held down.
    for _ in 0..20 {
        desk.wait(200);
        desk.press(KeyCode::Char('y'));
        desk.frame();
    }
    nothing_ran(&desk);

    // Before a frame with it was drawn, however late.
    let mut desk = asked("What is the weather?", SIZES[1]);
    desk.wait(10_000);
    desk.press(KeyCode::Char('y'));
    nothing_ran(&desk);
    // After the screen was away, as in an editor, it must be seen again.
    read(&mut desk);
    desk.tell(Message::Resize(SIZES[1].0, SIZES[1].1));
    desk.wait(10_000);
    desk.press(KeyCode::Char('y'));
    nothing_ran(&desk);
    // Under the help it is not seen.
    let mut desk = asked("What is the weather?", SIZES[1]);
    desk.press(KeyCode::F(1));
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    desk.press(KeyCode::Char('y'));
    nothing_ran(&desk);
    // And now it is.
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    assert_eq!(runs(&desk).len(), 1);
}

#[test]
fn panels_do_not_take_the_answer_and_get_their_keys_back() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("What is the weather?");
    desk.finish();
    desk.press(KeyCode::Tab);
    prepare(&mut desk, false);
    read(&mut desk);
    // In a panel n is a step of the engine.
    desk.press(KeyCode::Char('n'));
    assert!(!desk.sent().iter().any(|c| matches!(c, Command::Step(_))));
    assert_eq!(told(&desk).last().unwrap().content, "The user refused this call.");
    desk.finish();
    desk.press(KeyCode::Char('n'));
    assert!(desk.sent().iter().any(|c| matches!(c, Command::Step(_))));
}

#[test]
fn a_declared_dry_run_says_that_nothing_will_run() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[0]);
    desk.say("What is the weather?");
    desk.finish();
    prepare(&mut desk, true);
    desk.frame();
    snapshot("tool_dry_run", &desk);
    let picture = desk.picture();
    assert!(
        picture.contains("dry run: nothing will run") && picture.contains("would   weather Oslo"),
        "{picture}"
    );
}

#[test]
fn a_refusal_is_told_and_a_dry_run_gives_back_what_would_run() {
    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    desk.press(KeyCode::Char('n'));
    assert_eq!(runs(&desk), []);
    assert_eq!(told(&desk).last().unwrap().content, "The user refused this call.");

    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    desk.press(KeyCode::Char('d'));
    assert_eq!(runs(&desk), [(CallId(0), RunHow::DryRun)]);
}

#[test]
fn calls_are_asked_about_one_after_the_other_and_go_back_together() {
    for size in SIZES {
        let mut desk = asked("The weather in two cities?", size);
        desk.frame();
        assert!(desk.picture().contains("tool call 1 of 2: get_weather"), "{}", desk.picture());
        desk.wait(300);
        desk.press(KeyCode::Char('y'));
        give_back(&mut desk, CallId(0), "3 °C");
        assert_eq!(requests(&desk).len(), 1);
        desk.frame();
        snapshot("tool_second", &desk);
        assert!(desk.picture().contains("weather \"New York; rm -rf ~\""), "{}", desk.picture());
        // The second question needs its own time.
        desk.press(KeyCode::Char('y'));
        assert_eq!(runs(&desk).len(), 1);
        desk.wait(300);
        desk.press(KeyCode::Char('n'));
        let results: Vec<_> = told(&desk).into_iter().filter(|m| m.role == Role::Tool).collect();
        assert_eq!([&results[0].content, &results[1].content], ["3 °C", "The user refused this call."]);
        assert_eq!(results[1].tool_call_id.as_deref(), Some("call_1"));
    }
}

#[test]
fn always_takes_a_second_yes_and_is_forgotten_when_the_tool_changes() {
    let mut desk = asked("The weather, forever", SIZES[1]);
    read(&mut desk);
    desk.press(KeyCode::Char('a'));
    assert_eq!(runs(&desk), []);
    desk.press(KeyCode::Char('y'));
    assert_eq!(runs(&desk), [], "the second question needs its own time");
    read(&mut desk);
    snapshot("tool_always", &desk);
    desk.press(KeyCode::Char('n'));
    read(&mut desk);
    desk.press(KeyCode::Char('a'));
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    assert_eq!(runs(&desk).len(), 1);
    give_back(&mut desk, CallId(0), "3 °C");
    desk.finish();
    prepare(&mut desk, false);
    assert_eq!(runs(&desk).len(), 2, "asked no more");
    // The tool is another one now: a yes to the old one says nothing about it.
    let changed = OfferedTool { source: "rm {city}".into(), ..weather() };
    let list = ToolList { file: FILE.into(), tools: vec![changed], settled: true, ..ToolList::default() };
    desk.tell(Message::Tools(ToolEvent::Tools(Box::new(list))));
    give_back(&mut desk, CallId(1), "4 °C");
    desk.finish();
    prepare(&mut desk, false);
    assert_eq!(runs(&desk).len(), 2);
    assert!(desk.picture().contains("y run once"), "{}", desk.picture());
}

#[test]
fn esc_refuses_all_and_the_conversation_goes_on() {
    let mut desk = asked("The weather in two cities?", SIZES[1]);
    desk.press(KeyCode::Esc);
    assert_eq!((runs(&desk).len(), requests(&desk).len()), (0, 1));
    let cancelled = |c: &ToolCommand| matches!(c, ToolCommand::Cancel(_));
    assert_eq!(tool_commands(&desk).iter().filter(|c| cancelled(c)).count(), 2);
    desk.say("Never mind the weather");
    let roles: Vec<Role> = told(&desk).iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User]);
    assert_eq!(told(&desk)[1].tool_calls.len(), 2);
}

#[test]
fn a_running_call_is_stopped_by_esc_and_its_late_result_is_nobodys() {
    let mut desk = asked("What is the weather?", SIZES[1]);
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    desk.press(KeyCode::Esc);
    assert_eq!(tool_commands(&desk).last(), Some(&ToolCommand::Cancel(CallId(0))));
    give_back(&mut desk, CallId(0), "too late");
    assert_eq!(requests(&desk).len(), 1);
    desk.say("And now?");
    assert_eq!(told(&desk)[2].content, "The user stopped this call.");
}

#[test]
fn an_answer_stopped_while_it_calls_asks_nothing_and_leaves_no_open_call() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("What is the weather?");
    desk.steps(4);
    desk.press(KeyCode::Esc);
    assert_eq!(tool_commands(&desk), []);
    desk.say("Something else");
    assert!(told(&desk).iter().all(|m| m.tool_calls.is_empty() && m.role != Role::Tool));
}

#[test]
fn what_is_written_meanwhile_waits_for_the_tools() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("What is the weather?");
    desk.say("And tomorrow?");
    desk.finish();
    prepare(&mut desk, false);
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    assert_eq!(requests(&desk).len(), 1);
    give_back(&mut desk, CallId(0), "3 °C");
    assert_eq!(told(&desk).last().unwrap().role, Role::Tool);
    desk.finish();
    assert_eq!(told(&desk).last().unwrap().content, "And tomorrow?");
}

#[test]
fn rounds_have_a_limit_and_it_is_said() {
    let options = ScreenOptions { tool_rounds: Some(2), ..ScreenOptions::default() };
    let mut desk = with_tool(options, SIZES[1]);
    desk.say("The weather, forever");
    for round in 0..2 {
        desk.finish();
        prepare(&mut desk, false);
        read(&mut desk);
        desk.press(KeyCode::Char('y'));
        give_back(&mut desk, CallId(round), "3 °C");
    }
    desk.finish();
    prepare(&mut desk, false);
    assert_eq!((runs(&desk).len(), requests(&desk).len()), (2, 3));
    assert!(desk.picture().contains("stopped after 2 rounds of tool calls"), "{}", desk.picture());
    // A person's word begins anew.
    desk.say("The weather, forever, please");
    desk.finish();
    assert!(tool_commands(&desk).iter().filter(|c| matches!(c, ToolCommand::Prepare { .. })).count() == 3);
}

#[test]
fn what_does_not_fit_is_read_before_it_is_agreed_to() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[0]);
    desk.say("What is the weather?");
    desk.finish();
    let argv =
        std::iter::once("weather".to_owned()).chain((0..200).map(|i| format!("argument-{i}"))).collect();
    let action = PlannedAction::Command { argv, cwd: None, stdin: None };
    let planned = Ok(PlannedCall { action, dry_run: false, timeout_s: 30.0 });
    desk.tell(Message::Tools(ToolEvent::Prepared { id: CallId(0), planned }));
    desk.frame();
    snapshot("tool_long", &desk);
    desk.wait(300);
    desk.press(KeyCode::Char('y'));
    assert_eq!(runs(&desk), []);
    assert!(desk.picture().contains("there is more of it"), "{}", desk.picture());
    for _ in 0..100 {
        desk.press(KeyCode::Down);
        desk.frame();
    }
    read(&mut desk);
    desk.press(KeyCode::Char('y'));
    assert_eq!(runs(&desk).len(), 1);
}

#[test]
fn a_small_window_shows_the_question_or_takes_no_answer() {
    for (size, can_be_read) in [((40, 12), true), ((30, 5), true), ((11, 3), false)] {
        let mut desk = asked("What is the weather?", size);
        for _ in 0..20 {
            desk.frame();
            desk.press(KeyCode::Down);
        }
        if size.0 == 40 {
            snapshot("tool_question", &desk);
        }
        read(&mut desk);
        desk.press(KeyCode::Char('y'));
        assert_eq!(runs(&desk).len(), usize::from(can_be_read), "{size:?}\n{}", desk.picture());
    }
}

#[test]
fn a_replay_shows_calls_and_results_and_asks_nothing() {
    let mut live = asked("What is the weather?", SIZES[1]);
    read(&mut live);
    live.press(KeyCode::Char('y'));
    give_back(&mut live, CallId(0), "3 °C");
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.tell(Message::Engine(vec![Event::Replaying { first: 0, last: 9, speed: 1.0 }]));
    for request in requests(&live) {
        let seq = SeqId { request: request.id, choice: 0 };
        let piece = |name: &str| ToolCallDelta { name: Some(name.into()), ..ToolCallDelta::default() };
        let calls = Event::Delta { seq, part: Part::ToolCall(piece("get_weather")) };
        let outcome = Outcome {
            reason: FinishReason::ToolCalls,
            usage: Usage::default(),
            timings: Timings::default(),
            seed: 1,
            params: SamplingParams::default(),
            beam: None,
        };
        let ended = Event::Finished { seq, outcome: Box::new(outcome) };
        let sent = Event::Sent(Box::new(Command::Submit(Box::new(request))));
        desk.tell(Message::Engine(vec![sent, calls, ended]));
    }
    let picture = desk.picture();
    assert!(picture.contains("→ get_weather") && picture.contains("▸ get_weather · answered"), "{picture}");
    assert_eq!(tool_commands(&desk), []);
}

#[test]
fn slash_tools_lists_and_switches_and_reads_again() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("/tools");
    snapshot("tools", &desk);
    desk.say("/tools off");
    desk.say("What is the weather?");
    assert!(requests(&desk)[0].tools.tools.is_empty());
    desk.say("/tools reload");
    assert_eq!(tool_commands(&desk), [ToolCommand::Reload]);
    desk.say("/tools maybe");
    assert!(desk.picture().contains("/tools on, off or reload, not \"maybe\""), "{}", desk.picture());
}

#[test]
fn a_call_that_cannot_be_made_is_told_and_not_asked_about() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("What is the weather?");
    desk.finish();
    let planned = Err("wrong arguments for get_weather: city is missing".to_owned());
    desk.tell(Message::Tools(ToolEvent::Prepared { id: CallId(0), planned }));
    assert_eq!(told(&desk).last().unwrap().content, "wrong arguments for get_weather: city is missing");
    assert!(desk.app.tools.question.is_none());
}

#[test]
fn side_answers_are_offered_no_tools() {
    let mut desk = with_tool(ScreenOptions::default(), SIZES[1]);
    desk.say("/parallel 2 What is the weather?");
    assert!(requests(&desk)[0].tools.tools.is_empty());
}

/// The whole way: a real keeper, and a command that leaves a trace.
#[test]
fn a_refused_call_never_starts_a_process_and_an_accepted_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    std::fs::write(
        &file,
        "[[tool]]\nname = 'get_weather'\nparameters = { city = 'string' }\ncommand = ['touch', '{city}']\n\
         dry_run = false\ncwd = '.'\n",
    )
    .unwrap();
    let mut keeper = tools::open(file);
    let mut desk = Desk::ready(SIZES[1]);
    let mut seen = 0;
    // Commands to the keeper, and what it says to them, until it has said `events` things.
    let mut talk = |desk: &mut Desk, events: usize| {
        let commands = tool_commands(desk);
        commands[seen..].iter().for_each(|c| keeper.commands.send(c.clone()).unwrap());
        seen = commands.len();
        for _ in 0..events {
            let event = keeper.events.blocking_recv().unwrap();
            desk.tell(Message::Tools(event));
        }
    };
    talk(&mut desk, 1);
    let trace = folder.path().join("Oslo");
    for (key, runs) in [('n', false), ('d', false), ('y', true)] {
        desk.say("What is the weather?");
        desk.finish();
        talk(&mut desk, 1);
        read(&mut desk);
        desk.press(KeyCode::Char(key));
        talk(&mut desk, usize::from(key != 'n'));
        desk.finish();
        assert_eq!(trace.exists(), runs, "{key}");
    }
    let said: Vec<_> = told(&desk).into_iter().filter(|m| m.role == Role::Tool).map(|m| m.content).collect();
    assert_eq!(said[0], "The user refused this call.");
    assert!(said[1].contains("It would run [\"touch\", \"Oslo\"]"), "{}", said[1]);
    assert_eq!(said[2], "(no output)");
}
