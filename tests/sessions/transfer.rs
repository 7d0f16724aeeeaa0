//! Files of others, and for others.

use super::*;
use std::fs;

fn import(name: &str, text: &str) -> Result<StoredSession, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    sessions::import(&path).map_err(|e| e.to_string().replace(&format!("{}: ", path.display()), ""))
}

#[test]
fn json_reads_back_with_everything_and_is_what_apis_take() {
    let params = SamplingParams { temperature: 0.2, ..SamplingParams::default() };
    let (title, model) = ("t".to_owned(), "m".to_owned());
    let meta = SessionMeta { title, named: true, model, params, ..SessionMeta::default() };
    let mut session = StoredSession { meta, ..StoredSession::default() };
    let answer = StoredAnswer { text: "b".into(), reasoning: "hm".into(), ..StoredAnswer::default() };
    session.turns = vec![StoredTurn { answers: vec![answer], ..stored(1, "a") }];
    session.turns.push(StoredTurn { number: 2, parent: None, place: 1, in_view: false, ..stored(1, "z") });
    let text = sessions::text(&session, SessionFormat::Json);
    assert_eq!(import("x.json", &text), Ok(session));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let roles: Vec<_> = value["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, [Some("user"), Some("assistant")]);
    assert_eq!(value["messages"][1]["reasoning_content"], "hm");
}

#[test]
fn what_is_exported_does_not_say_where_files_lie() {
    let mut session = StoredSession { turns: vec![stored(1, "a")], ..StoredSession::default() };
    session.meta.model_path = "/home/ann/own.gguf".into();
    for format in [SessionFormat::Json, SessionFormat::Markdown] {
        assert!(!sessions::text(&session, format).contains("own.gguf"), "{format:?}");
    }
}

#[test]
fn conversations_of_chat_apis_are_read() {
    let text = r#"{"model": "gpt", "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"},
                                     {"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": {"at": 2}}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "tool", "tool_call_id": "c2", "content": "a dog"},
        {"role": "assistant", "content": "Two animals."},
        {"role": "user", "content": "And now?"}]}"#;
    let session = import("x.json", text).unwrap();
    assert_eq!(session.meta.system.as_deref(), Some("Be brief."));
    let turns = &session.turns;
    assert_eq!(
        turns.iter().map(|t| &*t.text).collect::<Vec<_>>(),
        ["What is this?[image_url]", "", "And now?"]
    );
    assert_eq!(turns[0].answers[0].tool_calls[1].arguments, "{\"at\":2}");
    let calls = &turns[1].calls;
    assert_eq!(
        (calls.len(), &*calls[1].call.name, &*calls[1].result.as_ref().unwrap().text),
        (2, "look", "a dog")
    );
    assert_eq!(turns[1].answers[0].text, "Two animals.");
    assert!(turns[2].queued && turns[2].parent == Some(2));
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (name, text, why) in [
        ("x.json", "{\"messages\": [\n{\"role\": ]}", "expected value at line 2 column 10"),
        (
            "x.json",
            "[{\"role\": \"king\"}]",
            "/0/role: this must be system, user, assistant or tool, not \"king\"",
        ),
        (
            "x.json",
            "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}",
            "/messages/0/content: this must be",
        ),
        ("x.json", "{\"messages\": {}}", "/messages: this must be an array, not {}"),
        ("x.json", "{}", "at the top: there is no \"messages\""),
        ("x.json", "{\"glassbox\": {\"version\": 7}}", "/glassbox/version: this must be 1, not 7"),
        ("x.md", "hello", "line 1: no heading says who speaks"),
        (
            "x.md",
            "\n<!-- glassbox:call {\"id\":\"1\"} -->\n",
            "line 2: this belongs to an assistant's message",
        ),
        ("x.md", "<!-- glassbox:user\n", "line 1: this comment does not end in its line"),
    ] {
        let found = import(name, text).unwrap_err();
        assert!(found.starts_with(why), "{text:?}: {found}");
    }
    assert!(sessions::import(Path::new("/nowhere/x.md")).unwrap_err().to_string().contains("/nowhere/x.md"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_said_survives_both_forms(
        talk in proptest::collection::vec(("[\\PC\n`#<>!\\\\-]{0,60}", "[\\PC\n`#<>!\\\\-]{0,60}", "[\\PC\n]{0,20}"), 1..4)
    ) {
        let turns = talk.into_iter().enumerate().map(|(i, (text, said, thought))| {
            let answer = StoredAnswer { text: said, reasoning: thought, ..StoredAnswer::default() };
            StoredTurn { answers: vec![answer], ..stored(i as u32 + 1, &text) }
        });
        let session = StoredSession { turns: turns.collect(), ..StoredSession::default() };
        let plain = |session: &StoredSession| {
            let turns = session.turns.iter();
            turns.map(|t| (t.text.clone(), t.answers[0].text.clone(), t.answers[0].reasoning.clone())).collect::<Vec<_>>()
        };
        let markdown = import("x.md", &sessions::text(&session, SessionFormat::Markdown)).unwrap();
        proptest::prop_assert_eq!(plain(&markdown), plain(&session));
        let json = import("x.json", &sessions::text(&session, SessionFormat::Json)).unwrap();
        proptest::prop_assert_eq!(json.turns, session.turns);
    }

    #[test]
    fn no_file_brings_an_import_down(text in "(.|\n|\\[|\\{|\"role\"|<!-- glassbox:(call|thoughts|tool|user) |-->|```|## User\n){0,40}") {
        let _ = import("x.md", &text);
        let _ = import("x.json", &text);
    }
}
