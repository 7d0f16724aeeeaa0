//! Guided answers, from a random model: what it would never say by itself.

use super::{Home, TINY};

fn run(home: &Home, arguments: &[&str]) -> super::Ran {
    home.run(&[&["run", TINY, "-t", "1", "the rain", "--temp", "1", "--seed", "3"], arguments].concat())
}

#[test]
fn answers_follow_what_the_flags_ask_for() {
    let home = Home::new();
    let yes = run(&home, &["--choice", "yes", "--choice", "no"]).good();
    assert!(["yes\n", "no\n"].contains(&yes.as_str()), "{yes}");
    let date = run(&home, &["--regex", "[0-9]{4}-[0-9]{2}"]).good();
    assert!(date.len() == 8 && date.as_bytes()[4] == b'-', "{date}");
    let schema = r#"{"type": "object", "properties": {"age": {"type": "integer", "minimum": 3, "maximum": 9}},
        "required": ["age"], "additionalProperties": false}"#;
    let object = run(&home, &["--schema", schema, "--json"]).json();
    let answer: serde_json::Value = serde_json::from_str(object["text"].as_str().unwrap()).unwrap();
    assert!((3..=9).contains(&answer["age"].as_u64().unwrap()), "{answer}");
    assert!(object["usage"]["forced_tokens"].as_u64().unwrap() > 0, "{object}");
    assert_eq!(object["finish_reason"], "stop");
    let slow = run(&home, &["--schema", schema, "--json", "--no-fast-forward"]).json();
    assert_eq!((&slow["text"], &slow["usage"]["forced_tokens"]), (&object["text"], &0.into()));
    let file = home.write("s.json", schema);
    assert_eq!(run(&home, &["--schema", &file, "--json"]).json()["text"], object["text"]);
}

#[test]
fn grammars_are_told_apart_by_what_is_in_them() {
    let home = Home::new();
    let lark = home.write("pair", "start: \"<\" WORD \">\"\nWORD: /[a-f]{3}/\n");
    let gbnf = home.write("pair.txt", "root ::= \"<\" [a-f]{3} \">\"\n");
    for file in [lark, gbnf] {
        let text = run(&home, &["--grammar", &file]).good();
        assert!(text.len() == 6 && text.starts_with('<') && text.ends_with(">\n"), "{text}");
    }
}

// BUGLOG G12.
#[test]
fn what_is_wrong_with_a_grammar_is_said_with_its_place() {
    let home = Home::new();
    let schema = r#"{"properties": {"a": {"type": "nonsense"}}}"#;
    let why = run(&home, &["--schema", schema]).refused(65);
    assert!(why.contains("JSON schema: at #/properties/a: Invalid type: nonsense"), "{why}");
    let gbnf = home.write("g.gbnf", "root ::= a\na ::= b");
    assert!(run(&home, &["--grammar", &gbnf]).refused(65).contains("rule `a`: there is no rule `b`"));
    run(&home, &["--grammar", "/nonexistent.lark"]).refused(66);
    run(&home, &["--regex", "a", "--choice", "b"]).refused(2);
    run(&home, &["--grammar-in-reasoning"]).refused(2);
}

#[test]
fn a_grammar_can_be_looked_into() {
    let home = Home::new();
    let schema = r#"{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
        "additionalProperties": false}"#;
    let look = |more: &[&str]| home.run(&[&["inspect", "grammar", TINY, "--schema", schema], more].concat());
    let begin = look(&["--json"]).json();
    assert_eq!((&begin["state"], &begin["forced"]), (&"open".into(), &"{".into()));
    let end = look(&["{\"age\": 3}", "--json"]).json();
    let ends: Vec<&str> =
        end["tokens"].as_array().unwrap().iter().map(|t| t["text"].as_str().unwrap()).collect();
    assert_eq!((&end["state"], &ends[..]), (&"ended".into(), &["<|eos|>", "<|im_end|>"][..]));
    assert!(look(&["{\"a"]).good().contains("must follow  \"ge\\\""));
    assert!(look(&["{\"b"]).refused(65).contains("does not allow"));
    home.run(&["inspect", "grammar", TINY]).refused(2);
}
