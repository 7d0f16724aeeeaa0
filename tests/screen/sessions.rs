//! Sessions and tabs: what is sent to the keeper, what comes back, what is seen of it.

use super::*;
use std::path::PathBuf;

fn options() -> ScreenOptions {
    let sessions = SessionOptions { on: true, file: Some("/data/sessions.db".into()), resume: None };
    ScreenOptions { sessions, ..ScreenOptions::default() }
}

fn desk(size: (u16, u16)) -> Desk {
    let mut desk = Desk::with(options(), size);
    desk.tell(Message::Models(catalogue(true)));
    desk.tell(Message::Engine(vec![Event::Ready(Box::new(model_info()))]));
    desk.look();
    desk
}

fn commands(desk: &Desk) -> Vec<SessionCommand> {
    let of_sessions = |e: &Effect| if let Effect::Sessions(c) = e { Some(c.clone()) } else { None };
    desk.effects.iter().filter_map(of_sessions).collect()
}

/// What a keeper would have on disk, of each key.
fn on_disk(desk: &Desk, key: u64) -> StoredSession {
    let mut session = StoredSession::default();
    for command in commands(desk) {
        let SessionCommand::Save { key: of, changes } = command else { continue };
        if of == SessionKey(key) {
            changes.into_iter().for_each(|change| apply(&mut session, change));
        }
    }
    session.turns.sort_by_key(|turn| turn.number);
    session
}

fn apply(session: &mut StoredSession, change: SessionChange) {
    let at = |session: &StoredSession, number| session.turns.iter().position(|t| t.number == number);
    match change {
        SessionChange::Meta(meta) => session.meta = *meta,
        SessionChange::Turn(turn) => match at(session, turn.number) {
            Some(at) => {
                let answers = std::mem::take(&mut session.turns[at].answers);
                session.turns[at] = StoredTurn { answers, ..*turn };
            }
            None => session.turns.push(*turn),
        },
        SessionChange::TurnGone(number) => session.turns.retain(|turn| turn.number != number),
        SessionChange::Answer { turn, index, answer } => {
            let at = at(session, turn).unwrap();
            let answers = &mut session.turns[at].answers;
            answers.resize_with(answers.len().max(index + 1), StoredAnswer::default);
            answers[index] = *answer;
        }
        SessionChange::Answers { turn, count } => {
            let at = at(session, turn).unwrap();
            session.turns[at].answers.truncate(count);
        }
        SessionChange::More { turn, index, text, reasoning } => {
            let at = at(session, turn).unwrap();
            session.turns[at].answers[index].text += &text;
            session.turns[at].answers[index].reasoning += &reasoning;
        }
        SessionChange::ToolCalls { turn, index, calls } => {
            let at = at(session, turn).unwrap();
            session.turns[at].answers[index].tool_calls = calls;
        }
    }
}

fn load(desk: &mut Desk, key: u64, id: Option<i64>, session: StoredSession) {
    let loaded = LoadedSession { id: id.map(SessionId), session, note: None };
    let event = SessionEvent::Loaded { key: SessionKey(key), loaded: Box::new(loaded) };
    desk.tell(Message::Sessions(event));
}

/// A conversation with a version that is not in view.
fn stored() -> StoredSession {
    let mut params = SamplingParams::default();
    params.temperature = 0.3;
    let meta = SessionMeta {
        title: "Why is the sky blue?".into(),
        model: "smollm2-135m".into(),
        system: Some("Be brief.".into()),
        params,
        set: vec!["temperature".into()],
        ..SessionMeta::default()
    };
    let outcome = Outcome {
        reason: FinishReason::Stop,
        usage: Usage { completion_tokens: 4, ..Usage::default() },
        timings: Timings::default(),
        seed: 7,
        params: SamplingParams::default(),
        beam: None,
    };
    let answer = |text: &str| StoredAnswer {
        text: text.into(),
        reasoning: "Let me think.".into(),
        tokens: 4,
        outcome: Some(Box::new(outcome.clone())),
        ..StoredAnswer::default()
    };
    let turn = |number, parent, place, in_view, text: &str, said: &str| StoredTurn {
        number,
        parent,
        place,
        in_view,
        text: text.into(),
        answers: vec![answer(said)],
        ..StoredTurn::default()
    };
    let turns = vec![
        turn(1, None, 0, true, "Why is the sky blue?", "Because of Rayleigh."),
        turn(2, Some(1), 0, false, "Who?", "John William Strutt."),
        turn(3, Some(1), 1, true, "Who was that?", "Lord Rayleigh."),
    ];
    StoredSession { meta, turns, ..StoredSession::default() }
}

#[test]
fn what_is_said_is_saved_at_once_and_an_answer_as_it_streams() {
    let mut desk = desk(SIZES[0]);
    assert!(commands(&desk).is_empty(), "nothing was said yet");
    desk.tell(Message::Paste("Why is the sky blue?\nReally".into()));
    desk.press(KeyCode::Enter);
    let asked = on_disk(&desk, 1);
    assert_eq!((&*asked.meta.title, asked.turns.len()), ("Why is the sky blue?", 1));
    for _ in 0..12 {
        desk.steps(5);
        let saved = on_disk(&desk, 1);
        let shown = &desk.app.chat.last_answer().unwrap();
        assert_eq!(saved.turns[0].answers[0].text, shown.text);
        assert_eq!(saved.turns[0].answers[0].reasoning, shown.reasoning);
    }
    assert_eq!(on_disk(&desk, 1).turns[0].answers[0].outcome, None);
    desk.finish();
    let saved = on_disk(&desk, 1);
    let answer = &saved.turns[0].answers[0];
    assert_eq!(answer.outcome.as_ref().unwrap().reason, FinishReason::Stop);
    assert!(answer.tokens > 10 && answer.model == "smollm2-135m");
    // Every piece was sent once.
    let before = commands(&desk).len();
    desk.look();
    desk.press(KeyCode::F(5));
    assert_eq!(commands(&desk).len(), before);
}

#[test]
fn answering_again_and_taking_back_are_saved_too() {
    let mut desk = desk(SIZES[0]);
    desk.say("one");
    desk.say("two");
    assert!(on_disk(&desk, 1).turns[1].queued);
    desk.press(KeyCode::Esc);
    desk.finish();
    assert_eq!(on_disk(&desk, 1).turns.len(), 1, "the second is back in the input");
    let stopped = on_disk(&desk, 1).turns[0].answers[0].clone();
    assert_eq!(stopped.outcome.unwrap().reason, FinishReason::Abort);
    desk.press(KeyCode::F(3));
    desk.finish();
    let session = on_disk(&desk, 1);
    let shown = session.turns.iter().filter(|turn| turn.in_view).next_back().unwrap();
    assert_eq!(shown.answers[0].outcome.as_ref().unwrap().reason, FinishReason::Stop);
}

#[test]
fn a_resumed_chat_shows_everything_and_goes_on() {
    let mut desk = desk(SIZES[1]);
    load(&mut desk, 1, Some(5), stored());
    snapshot("sessions_resumed", &desk);
    assert!(commands(&desk).is_empty(), "nothing of it is new");
    assert_eq!(desk.app.chat.system.as_deref(), Some("Be brief."));
    assert_eq!((desk.app.params.temperature, &desk.app.set_here[..]), (0.3, &["temperature"][..]));
    let turns: Vec<_> = desk.app.chat.turns().collect();
    assert_eq!((turns.len(), turns[1].versions.before.len()), (2, 1));
    desk.say("And when?");
    let [Command::Submit(request)] = desk.sent()[..] else { panic!("{:?}", desk.sent()) };
    let Prompt::Chat(messages) = &request.prompt else { panic!() };
    let told: Vec<_> = messages.iter().map(|m| &*m.content).collect();
    let expected =
        ["Be brief.", "Why is the sky blue?", "Because of Rayleigh.", "Who was that?", "Lord Rayleigh."];
    assert_eq!((&told[..5], told[5]), (&expected[..], "And when?"));
    let changes = on_disk(&desk, 1);
    let new: Vec<_> = changes.turns.iter().map(|t| (t.number, t.parent)).collect();
    assert_eq!(new, [(4, Some(3))], "only what is new is saved, behind what was there");
}

#[test]
fn an_answer_that_was_cut_off_is_said_and_what_was_never_sent_is_in_the_input() {
    let mut desk = desk(SIZES[0]);
    let mut session = stored();
    session.turns[2].answers[0].outcome = None;
    let queued =
        StoredTurn { number: 4, parent: Some(3), in_view: true, queued: true, ..session.turns[0].clone() };
    session.turns.push(StoredTurn { text: "a question that waited".into(), answers: vec![], ..queued });
    load(&mut desk, 1, Some(5), session);
    assert!(desk.picture().contains("cut off when the program ended"), "{}", desk.picture());
    assert_eq!(desk.app.composer_text(), "a question that waited");
    assert!(desk.sent().is_empty());
    let [SessionCommand::Save { changes, .. }] = &commands(&desk)[..] else {
        panic!("{:?}", commands(&desk))
    };
    assert!(changes.contains(&SessionChange::TurnGone(4)));
}

#[test]
fn a_copy_is_saved_whole_as_a_session_of_its_own() {
    let mut desk = desk(SIZES[0]);
    load(&mut desk, 1, None, stored());
    assert_eq!(on_disk(&desk, 1).turns, {
        let mut turns = stored().turns;
        turns.iter_mut().flat_map(|t| &mut t.answers).for_each(|a| a.model = "smollm2-135m".into());
        turns
    });
    // A file that was damaged: all of it once more.
    let before = commands(&desk).len();
    desk.tell(Message::Sessions(SessionEvent::SendAgain(SessionKey(1))));
    assert_eq!(commands(&desk).len(), before + 1);
}

fn row(id: i64, title: &str, snippet: Option<&str>) -> SessionRow {
    SessionRow {
        id: SessionId(id),
        title: title.into(),
        model: "smollm2-135m".into(),
        messages: 4,
        created_ms: 0,
        updated_ms: 1_000_000_000_000 - id * 5_000_000,
        snippet: snippet.map(str::to_owned),
    }
}

fn listed(desk: &mut Desk, words: &str, rows: Vec<SessionRow>) {
    let event = SessionEvent::Listed { words: words.into(), now_ms: 1_000_000_000_000, found: Ok(rows) };
    desk.tell(Message::Sessions(event));
}

#[test]
fn sessions_are_listed_searched_and_opened() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("/sessions");
        assert_eq!(commands(&desk), [SessionCommand::List { words: String::new() }]);
        let rows = vec![row(1, "Why is the sky blue?", None), row(20, "Bread \x1b[2J and butter", None)];
        listed(&mut desk, "", rows);
        snapshot("sessions_list", &desk);
        desk.type_text("stru");
        assert_eq!(commands(&desk).last(), Some(&SessionCommand::List { words: "stru".into() }));
        // An answer to what was typed before is of no interest.
        listed(&mut desk, "st", vec![]);
        listed(&mut desk, "stru", vec![row(1, "Why is the sky blue?", Some("John William Strutt."))]);
        snapshot("sessions_search", &desk);
        desk.press(KeyCode::Enter);
        let which = WhichSession::Id(SessionId(1));
        assert_eq!(commands(&desk).last(), Some(&SessionCommand::Load { key: SessionKey(1), which }));
        load(&mut desk, 1, Some(1), stored());
        assert!(desk.picture().contains("Lord Rayleigh."));
        // It is open now: it is gone to, not opened again.
        desk.say("/new");
        desk.say("/load");
        listed(&mut desk, "", vec![row(1, "Why is the sky blue?", None)]);
        let before = commands(&desk).len();
        desk.press(KeyCode::Enter);
        assert_eq!((commands(&desk).len(), desk.app.tabs.active()), (before, 0));
    }
}

#[test]
fn deleting_a_session_needs_a_second_yes() {
    let mut desk = desk(SIZES[0]);
    desk.press(KeyCode::F(9));
    listed(&mut desk, "", vec![row(1, "one", None), row(2, "two", None)]);
    desk.press(KeyCode::Delete);
    assert!(desk.picture().contains("Del once more deletes for ever: one"), "{}", desk.picture());
    desk.press(KeyCode::Down);
    desk.press(KeyCode::Delete);
    desk.press(KeyCode::Up);
    desk.press(KeyCode::Delete);
    assert!(!commands(&desk).iter().any(|c| matches!(c, SessionCommand::Delete(_))));
    desk.press(KeyCode::Delete);
    assert_eq!(commands(&desk).last(), Some(&SessionCommand::Delete(SessionId(1))));
    desk.tell(Message::Sessions(SessionEvent::Deleted(SessionId(1))));
    assert!(!desk.picture().contains("▸ one") && desk.picture().contains("▸ two"), "{}", desk.picture());
}

#[test]
fn a_chat_is_renamed_duplicated_exported_and_imported() {
    let mut desk = desk(SIZES[1]);
    desk.say("/export");
    assert!(desk.picture().contains("nothing to export yet"));
    desk.say("Why?");
    desk.finish();
    desk.say("/rename The \u{202e}sky");
    assert_eq!(on_disk(&desk, 1).meta.title, "The \u{202e}sky");
    assert!(!desk.picture().contains('\u{202e}'));
    desk.say("/export! json ~/a chat.json");
    let Some(SessionCommand::Export { session, format, file, replace }) = commands(&desk).pop() else {
        panic!()
    };
    let expected = (SessionFormat::Json, Some(PathBuf::from("~/a chat.json")), true);
    assert_eq!((format, file, replace), expected);
    assert_eq!(session.turns, on_disk(&desk, 1).turns);
    desk.say("/export notes.md");
    let Some(SessionCommand::Export { format, replace, .. }) = commands(&desk).pop() else { panic!() };
    assert_eq!((format, replace), (SessionFormat::Markdown, false));
    let why = "notes.md is there already; /export! replaces it".to_owned();
    desk.tell(Message::Sessions(SessionEvent::Exported(Err(why))));
    assert!(desk.picture().contains("/export! replaces it"));
    desk.say("/duplicate");
    assert_eq!((desk.app.tabs.len(), desk.app.tabs.active()), (2, 1));
    let copy = on_disk(&desk, 2);
    assert_eq!(copy.meta.title, "The \u{202e}sky (copy)");
    assert_eq!(copy.turns[0].answers[0].text, session.turns[0].answers[0].text);
    desk.say("/import talk.json");
    let import = SessionCommand::Import { key: SessionKey(3), file: "talk.json".into() };
    assert_eq!(commands(&desk).last(), Some(&import));
    let why = "talk.json: /messages/0/role: this must be …".to_owned();
    desk.tell(Message::Sessions(SessionEvent::NotLoaded { key: SessionKey(3), why }));
    assert!(desk.picture().contains("/messages/0/role"));
}

#[test]
fn trouble_is_said_once_and_where_things_are_saved_when_asked() {
    let mut desk = desk(SIZES[1]);
    desk.say("/save");
    assert!(desk.picture().contains("saved in /data/sessions.db as soon as"), "{}", desk.picture());
    desk.say("Why?");
    desk.tell(Message::Sessions(SessionEvent::Saved { key: SessionKey(1), id: SessionId(42) }));
    desk.say("/save");
    assert!(desk.picture().contains("saved as session 42 in /data/sessions.db"));
    let why = "not saved in /data/sessions.db: database or disk is full\nmake room on that disk".to_owned();
    desk.tell(Message::Sessions(SessionEvent::Trouble(why)));
    desk.finish();
    assert!(desk.picture().contains("disk is full"), "the chat goes on\n{}", desk.picture());
    desk.tell(Message::Sessions(SessionEvent::Recovered));
    assert!(desk.picture().contains("all that was said is saved now"));
}

#[test]
fn without_a_keeper_or_a_file_nothing_is_kept() {
    let mut desk = Desk::ready(SIZES[0]);
    desk.say("Why?");
    desk.say("/sessions");
    desk.say("/save");
    assert!(commands(&desk).is_empty());
    assert!(desk.picture().contains("nothing is saved"), "{}", desk.picture());
}

// ---- tabs ----

#[test]
fn several_chats_stream_in_one_batch_and_each_event_goes_home() {
    for size in SIZES {
        let mut desk = desk(size);
        desk.say("Why is the sky blue?");
        desk.steps(10);
        desk.ctrl('n');
        desk.say("What about the sea, and the long way down to the bottom of it?");
        desk.steps(10);
        desk.say("/new");
        snapshot("tabs_streaming", &desk);
        assert_eq!(desk.engine.snapshot().steps.last().unwrap().rows.len(), 2, "one batch");
        desk.finish();
        snapshot("tabs_unread", &desk);
        assert_eq!(on_disk(&desk, 1).meta.title, "Why is the sky blue?");
        assert!(on_disk(&desk, 1).turns[0].answers[0].outcome.is_some());
        assert!(on_disk(&desk, 2).turns[0].answers[0].outcome.is_some());
        desk.press(KeyCode::F(8));
        assert_eq!(desk.app.tabs.active(), 0);
        assert!(desk.picture().contains("Rayleigh") || desk.picture().contains("blue"), "{}", desk.picture());
    }
}

#[test]
fn keys_with_control_are_the_drafts_while_there_is_one() {
    let mut desk = desk(SIZES[0]);
    desk.say("/new");
    let control = |code| Message::Key(KeyEvent::new(code, KeyModifiers::CONTROL));
    desk.tell(control(KeyCode::Left));
    assert_eq!(desk.app.tabs.active(), 0);
    desk.type_text("some words");
    desk.tell(control(KeyCode::Right));
    assert_eq!(desk.app.tabs.active(), 0, "the cursor moved by a word");
    desk.ctrl('w');
    assert_eq!((desk.app.composer_text(), desk.app.tabs.len()), ("some ".into(), 2));
    // F7 and F8 go always, and the draft stays with its chat.
    desk.press(KeyCode::F(8));
    assert_eq!((desk.app.tabs.active(), desk.app.composer_text()), (1, String::new()));
    desk.press(KeyCode::F(7));
    assert_eq!(desk.app.composer_text(), "some ");
    desk.press(KeyCode::F(7));
    desk.ctrl('w');
    assert_eq!(desk.app.tabs.len(), 1);
    desk.say("");
}

#[test]
fn closing_a_chat_that_streams_is_asked_about_and_saved() {
    let mut desk = desk(SIZES[0]);
    desk.ctrl('w');
    assert!(desk.picture().contains("the only chat stays open"));
    desk.say("/new");
    desk.say("Why?");
    desk.steps(20);
    desk.say("/tab close");
    assert!(desk.picture().contains("once more stops it"), "{}", desk.picture());
    assert_eq!(desk.app.tabs.len(), 2);
    desk.say("/tab close");
    assert_eq!(desk.app.tabs.len(), 1);
    assert!(matches!(desk.sent().last(), Some(Command::Abort(_))));
    let saved = on_disk(&desk, 1);
    assert_eq!(saved.turns[0].answers[0].outcome.as_ref().unwrap().reason, FinishReason::Abort);
    assert_eq!(commands(&desk).last(), Some(&SessionCommand::Close(SessionKey(1))));
    desk.finish();
}

#[test]
fn clearing_keeps_the_session_and_starts_another_in_this_tab() {
    let mut desk = desk(SIZES[0]);
    desk.say("Why?");
    desk.steps(20);
    desk.press(KeyCode::F(4));
    assert_eq!(commands(&desk).last(), Some(&SessionCommand::Close(SessionKey(1))));
    assert!(on_disk(&desk, 1).turns[0].answers[0].outcome.is_some());
    desk.finish();
    desk.say("And?");
    assert_eq!((desk.app.tabs.len(), on_disk(&desk, 2).turns.len()), (1, 1));
}

#[test]
fn escape_stops_only_the_chat_in_view() {
    let mut desk = desk(SIZES[0]);
    desk.say("one");
    desk.say("/new");
    desk.say("two");
    desk.steps(5);
    desk.press(KeyCode::Esc);
    let aborted: Vec<_> = desk.sent().into_iter().filter(|c| matches!(c, Command::Abort(_))).collect();
    assert_eq!(aborted, [&Command::Abort(RequestId(2))]);
    assert!(desk.app.tabs.all(&desk.app.chat).next().unwrap().is_running());
}

#[test]
fn tabs_are_clicked_and_fit_any_width() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let mut desk = desk((40, 20));
    for i in 0..9 {
        desk.say(&format!("chat {i} with a title"));
        desk.say("/new");
    }
    snapshot("tabs_many", &desk);
    let picture = desk.picture();
    let row = picture.lines().nth(1).unwrap();
    let column = row.chars().position(|c| c == '9').unwrap() as u16;
    let click = MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column,
        row: 1,
        modifiers: KeyModifiers::NONE,
    };
    desk.tell(Message::Mouse(click));
    assert_eq!(desk.app.tabs.active(), 8);
    for width in 1..60 {
        for height in [1, 4, 8, 15, 24] {
            desk.tell(Message::Resize(width, height));
            desk.buffer();
        }
    }
}

#[test]
fn a_call_of_a_chat_that_is_not_in_view_is_asked_about_with_its_name() {
    for size in SIZES {
        let mut desk = super::tool_calls::with_tool(options(), size);
        desk.say("weather in two places");
        desk.say("/new");
        desk.say("Why is the sky blue?");
        desk.finish();
        super::tool_calls::prepare(&mut desk, false);
        let picture = desk.picture();
        assert!(picture.contains("chat 1, weather in two places: tool call 1 of 2"), "{picture}");
        assert!(picture.lines().nth(1).unwrap().contains('!'), "{picture}");
        snapshot("tabs_question", &desk);
        super::tool_calls::read(&mut desk);
        desk.press(KeyCode::Char('y'));
        let [(first, _)] = super::tool_calls::runs(&desk)[..] else { panic!() };
        super::tool_calls::give_back(&mut desk, first, "3 °C");
        // Esc is an answer to the question: it refuses the rest of that chat's.
        super::tool_calls::read(&mut desk);
        desk.press(KeyCode::Esc);
        assert!(desk.app.tools.question.is_none());
        assert_eq!(desk.app.tabs.active(), 1);
        let calls = on_disk(&desk, 1).turns.last().unwrap().calls.clone();
        let ends: Vec<_> = calls.iter().map(|call| call.result.as_ref().map(|r| r.end.clone())).collect();
        assert_eq!(ends, [Some(ToolEnd::Exited { exit_status: 0 }), Some(ToolEnd::Refused)]);
    }
}

#[test]
fn two_chats_may_ask_and_each_gets_its_answer() {
    let mut desk = super::tool_calls::with_tool(options(), SIZES[1]);
    desk.say("weather in Oslo");
    desk.say("/new");
    desk.say("weather in Oslo");
    desk.finish();
    super::tool_calls::prepare(&mut desk, false);
    for _ in 0..2 {
        super::tool_calls::read(&mut desk);
        desk.press(KeyCode::Char('y'));
    }
    let runs = super::tool_calls::runs(&desk);
    assert_eq!(runs.len(), 2, "{runs:?}");
    for (id, _) in runs {
        super::tool_calls::give_back(&mut desk, id, "3 °C");
    }
    desk.finish();
    for key in [1, 2] {
        let last = on_disk(&desk, key).turns.pop().unwrap();
        assert!(last.calls[0].result.is_some() && last.answers[0].outcome.is_some(), "{last:?}");
    }
}

#[test]
fn a_new_model_ends_the_answers_of_every_chat() {
    let mut desk = desk(SIZES[0]);
    desk.say("one");
    desk.say("/new");
    desk.say("two");
    desk.steps(5);
    desk.tell(Message::Opening("another".into()));
    assert!(desk.app.tabs.all(&desk.app.chat).all(|chat| !chat.is_running()));
}

#[test]
fn what_others_wrote_is_not_called_cut_off() {
    let mut desk = desk(SIZES[1]);
    desk.say("/import talk.json");
    let mut session = stored();
    session.turns.retain(|turn| turn.number == 1);
    session.meta.set.clear();
    session.turns[0].answers[0].tokens = 0;
    load(&mut desk, 1, None, session);
    assert!(!desk.picture().contains("cut off"));
    snapshot("sessions_imported", &desk);
    assert_eq!(on_disk(&desk, 1).turns.len(), 1);
}
