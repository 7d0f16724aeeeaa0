#![allow(clippy::unwrap_used)]
use super::*;
use crate::protocol::Grammar;
use crate::text::TextModel;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn compiler() -> Compiler {
    Compiler::new(Arc::new(TextModel::bytes()))
}

fn schema(text: &str) -> Grammar {
    Grammar::JsonSchema(text.into())
}

fn ebnf(text: &str) -> Grammar {
    Grammar::Ebnf(text.into())
}

fn lark(text: &str) -> Grammar {
    Grammar::Lark(text.into())
}

/// Whether the text, byte by byte, is one that the grammar allows as a whole.
fn takes(compiler: &Compiler, grammar: &Grammar, text: &str) -> bool {
    let mut guide = compiler.compile(grammar).unwrap();
    for byte in text.bytes() {
        if guide.state().unwrap() == State::Ended || guide.try_commit(&[u32::from(byte)]).unwrap() == 0 {
            return false;
        }
    }
    guide.state().unwrap() != State::Open
}

/// The grammar takes exactly those in front.
fn check(grammar: &Grammar, good: &[&str], bad: &[&str]) {
    let compiler = compiler();
    for text in good {
        assert!(takes(&compiler, grammar, text), "{grammar:?} refuses {text:?}");
    }
    for text in bad {
        assert!(!takes(&compiler, grammar, text), "{grammar:?} takes {text:?}");
    }
}

fn refusal(grammar: &Grammar) -> String {
    let begun = Instant::now();
    let refused = compiler().compile(grammar).err().unwrap_or_else(|| panic!("accepted: {grammar:?}"));
    assert!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
    refused.to_string()
}

/// The first answer that comes of always taking the first of `liked` that is allowed.
fn follow(grammar: &Grammar, liked: &str, most: usize) -> (String, State) {
    let mut guide = compiler().compile(grammar).unwrap();
    let mut text = Vec::new();
    while guide.state().unwrap() != State::Ended && text.len() < most {
        let mask = guide.mask().unwrap();
        let allowed = |id: u32| mask[id as usize / 32] >> (id % 32) & 1 == 1;
        let id = liked.bytes().map(u32::from).chain([256]).chain(0..256).find(|id| allowed(*id)).unwrap();
        guide.commit(id).unwrap();
        text.extend(u8::try_from(id));
    }
    (String::from_utf8(text).unwrap(), guide.state().unwrap())
}

const SQL: &str = r#"?start: select_statement
?select_statement: "SELECT " column_list " FROM " table_name
?column_list: column_name ("," column_name)*
?table_name: identifier
?column_name: identifier
?identifier: /[a-zA-Z_][a-zA-Z0-9_]*/
"#;

#[test]
fn the_sql_subset_word_for_word() {
    check(
        &lark(SQL),
        &["SELECT a FROM b", "SELECT a,b_2,C FROM _t"],
        &["SELECT  FROM b", "SELECT a FROM", "select a FROM b", "SELECT a, b FROM c", "SELECT 1 FROM b", ""],
    );
}

#[test]
fn a_regular_expression_matches_the_whole_answer() {
    let regex = Grammar::Regex(r"^[a-c]{2}/\d$".into());
    check(&regex, &["ab/1", "cc/9"], &["ab/", "ab/12", "xab/1", ""]);
}

#[test]
fn a_choice_is_one_of_them_also_where_one_begins_another() {
    let choice = Grammar::Choice(vec!["a".into(), "ab".into(), "line\nbreak \"\u{7f}é".into()]);
    check(&choice, &["a", "ab", "line\nbreak \"\u{7f}é"], &["b", "abc", "", "line"]);
}

#[test]
fn any_json_is_an_object() {
    check(&Grammar::Json, &["{}", r#"{"a": [1, null, {"b": "c"}]}"#], &["[]", "1", "{", r#"{"a"}"#]);
}

// BUGLOG G01.
#[test]
fn deep_grammars_are_refused_at_once() {
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
    let chain = |backwards: bool| {
        let mut rules: Vec<String> = (0..5000).map(|n| format!("r{n} ::= \"x\" r{}", n + 1)).collect();
        rules.push("r5000 ::= \"y\"".into());
        if backwards {
            rules.reverse();
        }
        format!("root ::= r0\n{}", rules.join("\n"))
    };
    let cyclic = chain(false).replace("r5000 ::= \"y\"", "r5000 ::= r0 | \"y\"");
    for grammar in [nested.clone(), chain(false), chain(true), cyclic.clone()] {
        let begun = Instant::now();
        let error = to_lark(&grammar).unwrap_err();
        assert!(error.contains("too deep"), "{error}");
        // A tenth of a second on an idle machine.
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    let as_lark = |text: &str| text.replace("root ::=", "start:").replace(" ::=", ":");
    for grammar in [nested, chain(false), cyclic] {
        let error = refusal(&lark(&as_lark(&grammar)));
        assert!(error.contains("too deep"), "{error}");
    }
}

// BUGLOG G02.
#[test]
fn nested_repetition_ends() {
    check(&ebnf(r#"root ::= ("a"*)*"#), &["", "a", "aaaa"], &["b", "ab"]);
    check(&ebnf(r#"root ::= (("a"*)+ "b"?)* root2 root2 ::= "c" | "(" root2 ")""#), &["c", "aab(c)"], &["a"]);
    check(&lark(r#"start: (("a"*)*)*"#), &["", "aa"], &["b"]);
}

// BUGLOG G03.
#[test]
fn left_recursion_is_supported_and_a_rule_that_cannot_end_is_named() {
    let sum = "root ::= expr\nexpr ::= int | expr \"+\" expr\nint ::= [0-9]+";
    check(&ebnf(sum), &["1", "1+22", "1+2+3"], &["+1", "1+", "", "a"]);
    let error = refusal(&ebnf("root ::= expr\nexpr ::= expr \"+\" expr"));
    assert!(error.contains("rule `expr`") && error.contains("never end"), "{error}");
}

// BUGLOG G05.
#[test]
fn after_the_end_only_end_tokens_are_allowed() {
    let mut guide = compiler().compile(&ebnf(r#"root ::= "{" "}""#)).unwrap();
    assert!(!guide.commit(b'{'.into()).unwrap());
    assert!(guide.commit(b'}'.into()).unwrap());
    let mask = guide.mask().unwrap();
    let allowed: Vec<usize> = (0..mask.len() * 32).filter(|id| mask[id / 32] >> (id % 32) & 1 == 1).collect();
    assert_eq!(allowed, [256]);
    assert!(guide.forced().is_empty());
}

// BUGLOG G06.
#[test]
fn a_minimum_holds_for_every_digit() {
    let minimum = schema(r#"{"type": "integer", "minimum": 3}"#);
    check(&minimum, &["3", "10", "99"], &["01", "2", "-5", "03", "3.5", "0"]);
}

// BUGLOG G08.
#[test]
fn bounded_strings_take_escapes_as_one_character_and_no_raw_controls() {
    let short = schema(r#"{"type": "string", "maxLength": 8}"#);
    check(
        &short,
        &[
            r#""""#,
            r#""12345678""#,
            r#""a\"b\nc\\d""#,
            r#""\u00e9\u00e9\u00e9\u00e9\u0041\u0041\u0041\u0041""#,
            "\"日本語日本語日本\"",
        ],
        &[r#""123456789""#, "\"a\nb\"", "\"\u{1}\"", "\"\t\"", r#""\x""#, r#""\u12""#],
    );
}

// BUGLOG G10.
#[test]
fn a_model_that_likes_white_space_still_finishes() {
    let pair = r#"{"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
        "required": ["a", "b"], "additionalProperties": false}"#;
    for liked in [" ", "\n ", "\t\n", "\n\t"] {
        let (text, state) = follow(&schema(pair), liked, 1000);
        assert_eq!(state, State::Ended, "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["b"], serde_json::Value::Null);
    }
}

// BUGLOG G11.
#[test]
fn empty_grammars_are_refused() {
    assert_eq!(refusal(&schema("")), "the JSON schema is empty");
    assert_eq!(refusal(&lark("")), "the grammar is empty");
    assert_eq!(refusal(&ebnf("")), "the grammar is empty");
    assert_eq!(refusal(&ebnf(" # nothing\n")), "grammar: the grammar is empty");
    assert_eq!(refusal(&Grammar::Regex(String::new())), "the regular expression is empty");
    assert_eq!(refusal(&Grammar::Choice(Vec::new())), "the list of choices is empty");
    assert_eq!(refusal(&Grammar::Choice(vec!["a".into(), String::new()])), "one of the choices is empty");
    assert_eq!(refusal(&schema("false")), "JSON schema: `false` allows no answer at all");
    assert_eq!(refusal(&schema("[]")), "JSON schema: a schema is an object, or true");
    assert!(refusal(&schema("{")).starts_with("JSON schema: not JSON: "));
}

// BUGLOG G12.
#[test]
fn what_is_wrong_is_named_and_the_next_grammar_works() {
    let compiler = compiler();
    let error = |grammar: &Grammar| compiler.compile(grammar).unwrap_err().to_string();
    assert!(error(&Grammar::Regex("(".into())).starts_with("regular expression: "));
    assert_eq!(error(&schema(r#"{"type": "nonsense"}"#)), "JSON schema: at #: Invalid type: nonsense");
    let deep = schema(
        r##"{"type": "object", "properties": {"a/b": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"type": "array", "items": {"type": "wrong"}}, "unused": {"not": {}}}}"##,
    );
    assert_eq!(error(&deep), "JSON schema: at #/$defs/list/items: Invalid type: wrong");
    assert!(error(&lark("start: missing")).contains("missing"));
    assert!(error(&lark("first: \"a\"")).contains("start"));
    assert_eq!(
        error(&ebnf("root ::= a b\na ::= \"x\"")),
        "grammar: line 1: rule `root`: there is no rule `b`"
    );
    assert_eq!(error(&ebnf("a ::= \"x\"")), "grammar: there is no rule `root`");
    assert_eq!(
        error(&ebnf("root ::= \"x\"\nroot ::= \"y\"")),
        "grammar: line 2: rule `root`: it is defined twice"
    );
    assert_eq!(error(&ebnf("root ::= \"x\"{3,2}")).lines().count(), 1);
    assert!(takes(&compiler, &schema(r#"{"type": "null"}"#), "null"));
}

#[test]
fn keywords_that_cannot_be_kept_are_refused_by_name_and_place() {
    for (keyword, schema_text) in [
        ("not", r#"{"properties": {"a": {"not": {"type": "string"}}}}"#),
        ("uniqueItems", r#"{"properties": {"a": {"uniqueItems": true}}}"#),
        ("if, then", r#"{"properties": {"a": {"if": {}, "then": {"type": "null"}}}}"#),
        ("contains", r#"{"properties": {"a": {"contains": {"type": "null"}}}}"#),
        ("dependentRequired", r#"{"properties": {"a": {"dependentRequired": {"b": ["c"]}}}}"#),
        (
            "unevaluatedProperties",
            r#"{"properties": {"a": {"anyOf": [{}], "unevaluatedProperties": false}}}"#,
        ),
    ] {
        assert_eq!(
            refusal(&schema(schema_text)),
            format!("JSON schema: at #/properties/a: not supported: {keyword}")
        );
    }
    // The same in words that are supported.
    let closed = r#"{"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{"type": "null"}],
        "unevaluatedItems": false, "maxItems": 1.0}}, "unevaluatedProperties": false}"#;
    check(
        &schema(closed),
        &["{}", r#"{"a": [null]}"#],
        &[r#"{"b": 1}"#, r#"{"a": [null, 1]}"#, r#"{"a": [1]}"#],
    );
    // These say nothing.
    check(
        &schema(
            r#"{"type": "null", "uniqueItems": false, "then": {}, "minContains": 2, "deprecated": true}"#,
        ),
        &["null"],
        &["1"],
    );
}

// BUGLOG G14.
#[test]
fn references_may_go_round_as_long_as_something_comes_of_it() {
    let tree = schema(
        r##"{"$ref": "#/$defs/node", "$defs": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/child"}}, "additionalProperties": false},
        "child": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}}"##,
    );
    check(&tree, &["{}", r#"{"next": {"next": null}}"#], &["null", r#"{"next": 1}"#]);
    let empty = schema(r##"{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}"##);
    assert!(refusal(&empty).contains("leads back to itself"));
    let pair = r##"{"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {
        "A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}"##;
    assert_eq!(refusal(&schema(pair)), "JSON schema: at #/properties/a: its $ref only leads back to itself");
}

// BUGLOG G16.
#[test]
fn an_enumeration_behind_a_reference_is_kept() {
    let letters = schema(
        r##"{"type": "object", "properties": {"a": {"$ref": "#/definitions/letter"}}, "required": ["a"],
        "additionalProperties": false, "definitions": {"letter": {"enum": ["a", "b"]}}}"##,
    );
    check(&letters, &[r#"{"a": "a"}"#, r#"{"a":"b"}"#], &[r#"{"a": "c"}"#, r#"{"a": {}}"#, "{}"]);
}

#[test]
fn gbnf_as_llama_cpp_writes_it() {
    let json = r##"
root   ::= object # the whole
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"##;
    check(
        &ebnf(json),
        &["{}", "{\"a\": [1, -2.5e+3, \"x\\n\\u00e9\", true, null, {}]}", "{\n  \"b\":[]}\n"],
        &["[]", "{\"a\"}", "{\"a\":01}", "{\"a\": \"\n\"}", "{  }"],
    );
    let odd = "root ::= [a-]{2} ('x' | \"\\x41\\u00e9\")\n  | [^a-z]+ .\n";
    check(&ebnf(odd), &["a-x", "--Aé", "1日", "12a"], &["ax", "abx", "1", "ab1"]);
    check(&ebnf("root ::= a_b-c? \"!\"\na_b-c ::= \"é\"{0} \"z\"{,2}"), &["!", "z!", "zz!"], &["zzz!", "é!"]);
}

#[test]
fn mistakes_in_ebnf_are_named() {
    for (grammar, error) in [
        ("root ::= (\"a\"", "line 1: rule `root`: a `)` is missing"),
        ("root ::= \"a", "line 1: rule `root`: a quotation mark is missing"),
        ("root ::= [", "line 1: rule `root`: a `]` is missing"),
        ("root ::= []", "line 1: rule `root`: a character class is empty"),
        ("root ::= [z-a]", "line 1: rule `root`: the range 'z' to 'a' is empty"),
        ("root ::= \"\\q\"", "line 1: rule `root`: \\q is not an escape"),
        ("root ::= \"\\ud800\"", "line 1: rule `root`: \"d800\" is not the number of a character"),
        ("root ::= \"a\" )", "line 1: rule `root`: ')' is not expected here"),
        ("root ::= <think>", "line 1: rule `root`: tokens, as <...>, are not supported"),
        ("\nroot = \"a\"", "line 2: a rule is expected, as `root ::= ...`"),
    ] {
        assert_eq!(to_lark(grammar).unwrap_err(), error, "{grammar}");
    }
}

#[test]
fn forced_tokens_are_those_that_a_mask_would_leave_one_by_one() {
    let fixed = schema(
        r#"{"type": "object", "properties": {"name": {"const": "x"}}, "required": ["name"],
        "additionalProperties": false}"#,
    );
    let mut guide = compiler().compile(&fixed).unwrap();
    guide.commit(b'{'.into()).unwrap();
    guide.commit(b'"'.into()).unwrap();
    assert_eq!(guide.forced_text(), "name\"");
    let forced = guide.forced();
    assert_eq!(forced, "name\"".bytes().map(u32::from).collect::<Vec<_>>());
    let mut other = guide.fork();
    for token in forced {
        let mask = other.mask().unwrap();
        assert_eq!(mask.iter().map(|bits| bits.count_ones()).sum::<u32>(), 1);
        other.commit(token).unwrap();
    }
    // The first one stands where it stood; so does one that took steps back.
    assert_eq!(guide.forced_text(), "name\"");
    other.rollback(2).unwrap();
    assert_eq!(other.forced_text(), "e\"");
}

#[test]
fn hostile_grammars_end() {
    let begun = Instant::now();
    let wide: String = (0..1500).map(|n| format!("R{n}: (\"a\"{{0,{}}} \"b\")*\n", n + 1)).collect();
    let all: Vec<String> = (0..1500).map(|n| format!("R{n}")).collect();
    let chain: String = (0..1900).map(|n| format!("R{n}: (R{} \"b\")*\n", n + 1)).collect();
    for grammar in [
        Grammar::Regex("(((a{1,1000}){1,1000}){1,1000})b".into()),
        Grammar::Regex(format!("{}a{}", "(".repeat(5000), ")*".repeat(5000))),
        Grammar::Regex("(a|b)*a(a|b){1000}".into()),
        lark(&format!("start: ({})*\n{wide}", all.join(" | "))),
        lark(&format!("start: R0\n{chain}R1900: \"a\"\n")),
        lark("start: start start | \"a\""),
        ebnf(r#"root ::= (root? root?)+ "a" | "b""#),
        schema(&format!("{}1{}", "{\"items\":".repeat(5000), "}".repeat(5000))),
        schema(r#"{"type": "string", "maxLength": 4000000000}"#),
        schema(r#"{"type": "array", "items": {"type": "integer"}, "minItems": 1000000000}"#),
    ] {
        let (one, about) = (Instant::now(), format!("{grammar:?}").chars().take(60).collect::<String>());
        if let Ok(mut guide) = compiler().compile(&grammar) {
            for _ in 0..200 {
                if guide.mask().is_err() || guide.try_commit(&[b'a'.into()]).unwrap_or(0) == 0 {
                    break;
                }
            }
        }
        println!("{about}: {:?}", one.elapsed());
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
