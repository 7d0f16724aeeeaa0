use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Numbers of things: 2.0 is as good as 2.
const COUNTS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// Keywords that have other schemas say what is evaluated.
const ELSEWHERE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "dependentSchemas", "dependencies"];

/// Between two lexemes a line break with its indentation, or a few blanks: a model that likes white
/// space cannot go on with it for ever.
const SPACE: &str = r"\r?\n[ \t]{0,40}|[ \t]{1,4}";
/// Parts of a schema tried on their own when the whole is refused.
const MOST_BLAMED: usize = 300;

/// Keywords whose values are schemas: by name, in a list, or alone.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
const LISTED: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
const ALONE: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

pub fn any_object() -> Value {
    with_options(json!({ "type": "object" }))
}

/// A schema as the parser wants it.
///
/// # Errors
/// No JSON, no schema, or a `$ref` that only leads back to itself. What the parser cannot do it
/// refuses by itself: [`blame`] says where that stands.
pub fn read(source: &str) -> Result<Value, String> {
    let mut schema: Value = serde_json::from_str(source).map_err(|e| format!("not JSON: {e}"))?;
    match schema {
        Value::Bool(true) => schema = json!({}),
        Value::Bool(false) => return Err("`false` allows no answer at all".into()),
        Value::Object(_) => {}
        _ => return Err("a schema is an object, or true".into()),
    }
    simplify(&mut schema);
    let reachable = reachable(&schema);
    match reachable.iter().find(|path| leads_nowhere(&schema, path)) {
        Some(path) => Err(format!("at {}: its $ref only leads back to itself", shown(path))),
        None => Ok(with_options(schema)),
    }
}

/// Where in the schema the error is: the deepest part that `refuses` on its own.
pub fn blame(schema: &Value, error: &str, refuses: impl Fn(Value) -> Option<String>) -> String {
    let id = schema.get("$id").and_then(Value::as_str).unwrap_or("json-schema:///whole");
    let mut whole = schema.clone();
    if let Some(map) = whole.as_object_mut() {
        map.shift_remove("x-guidance");
        map.insert("$id".into(), id.into());
    }
    let paths = reachable(schema);
    for path in paths.iter().skip(1).take(MOST_BLAMED).rev() {
        let part = json!({ "$ref": format!("{id}#{}", escaped(path)), "$defs": { "whole": whole } });
        if let Some(why) = refuses(with_options(part)) {
            return format!("at {}: {}", shown(path), worded(&why));
        }
    }
    format!("at {}: {}", shown(""), worded(error))
}

/// The parser's options go with the schema; whoever wrote it has no say in them.
fn with_options(mut schema: Value) -> Value {
    if let Some(map) = schema.as_object_mut() {
        let options = json!({ "whitespace_pattern": SPACE, "json_allow_general_unicode_escapes": true });
        map.insert("x-guidance".into(), options);
    }
    schema
}

fn worded(error: &str) -> String {
    let first = error.lines().next().unwrap_or_default();
    match first.split_once("Unimplemented keys: ") {
        Some((_, keys)) => format!("not supported: {}", keys.trim_matches(['[', ']']).replace('"', "")),
        None if first.starts_with("oneOf constraints") => {
            "oneOf is supported only where its options cannot overlap".into()
        }
        None if first == "NoExtensionBias" => "it allows no answer at all".into(),
        None => first.to_owned(),
    }
}

fn shown(path: &str) -> String {
    format!("#{path}")
}

/// Percent signs and what a URI may not have.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~$".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Where nothing else evaluates, what is left unevaluated is what is additional; where all is
/// evaluated, nothing is left.
fn evaluate(map: &mut Map<String, Value>, unevaluated: &str, additional: &str, unless: &[&str]) {
    let elsewhere =
        |map: &Map<String, Value>| ELSEWHERE.iter().chain(unless).any(|key| map.contains_key(*key));
    // A list is of the first few only, in older drafts.
    if map.get(additional).is_some_and(|value| !value.is_array()) {
        map.shift_remove(unevaluated);
    } else if !elsewhere(map)
        && !map.contains_key(additional)
        && let Some(schema) = map.shift_remove(unevaluated)
    {
        map.insert(additional.into(), schema);
    }
}

/// Takes out keywords that say nothing, and says in others' words what the parser would refuse.
fn simplify(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    super::dates::as_pattern(map);
    evaluate(map, "unevaluatedProperties", "additionalProperties", &[]);
    evaluate(map, "unevaluatedItems", "items", &["contains"]);
    for key in COUNTS {
        let whole =
            map.get(key).and_then(Value::as_f64).filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n));
        if let Some(whole) = whole {
            map.insert(key.into(), Value::from(whole as u64));
        }
    }
    for key in ["deprecated", "$vocabulary", "$recursiveAnchor"] {
        map.shift_remove(key);
    }
    if let Some(anchor) = map.shift_remove("$dynamicAnchor") {
        map.entry("$anchor").or_insert(anchor);
    }
    let has = |map: &Map<String, Value>, key: &str| map.contains_key(key);
    if !has(map, "if") || !(has(map, "then") || has(map, "else")) {
        map.retain(|key, _| !matches!(key.as_str(), "if" | "then" | "else"));
    }
    if !has(map, "contains") {
        map.retain(|key, _| !matches!(key.as_str(), "minContains" | "maxContains"));
    }
    map.retain(|key, value| match key.as_str() {
        "uniqueItems" | "not" => *value != Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" | "propertyNames" => {
            *value != Value::Bool(true) && *value != json!({})
        }
        "dependencies" | "dependentRequired" | "dependentSchemas" => *value != json!({}),
        _ => true,
    });
    for (key, value) in map.iter_mut() {
        let key = key.as_str();
        match value {
            Value::Object(named) if NAMED.contains(&key) => named.values_mut().for_each(simplify),
            Value::Array(listed) if LISTED.contains(&key) => listed.iter_mut().for_each(simplify),
            _ if ALONE.contains(&key) => simplify(value),
            _ => {}
        }
    }
}

/// JSON pointers of all schemas that take part, the whole one first, parts behind what they are of.
fn reachable(schema: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut seen: HashSet<String> = found.iter().cloned().collect();
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        let parts = schema.pointer(&path).and_then(Value::as_object).map(|map| parts(map, &path));
        found.extend(parts.unwrap_or_default().into_iter().filter(|part| seen.insert(part.clone())));
        at += 1;
    }
    found
}

fn parts(map: &Map<String, Value>, path: &str) -> Vec<String> {
    let below = |key: &str, name: &str| {
        format!("{path}/{}/{}", key.replace('~', "~0"), name.replace('~', "~0").replace('/', "~1"))
    };
    let mut parts = Vec::new();
    for (key, value) in map {
        match value {
            _ if matches!(key.as_str(), "$defs" | "definitions") => {}
            Value::Object(inner) if NAMED.contains(&key.as_str()) => {
                parts.extend(inner.keys().map(|name| below(key, name)));
            }
            Value::Array(inner) if LISTED.contains(&key.as_str()) => {
                parts.extend((0..inner.len()).map(|at| below(key, &at.to_string())));
            }
            Value::Object(_) if ALONE.contains(&key.as_str()) => parts.push(format!("{path}/{key}")),
            Value::String(to) if key == "$ref" => parts.extend(local(to)),
            _ => {}
        }
    }
    parts
}

/// The pointer of a reference into the same document.
fn local(reference: &str) -> Option<String> {
    let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let mut bytes = Vec::new();
    let mut rest = pointer.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether a schema's `$ref` leads from reference to reference and back, past nothing.
fn leads_nowhere(schema: &Value, path: &str) -> bool {
    let mut seen = HashSet::new();
    let mut at = path.to_owned();
    loop {
        if !seen.insert(at.clone()) {
            return true;
        }
        let next = schema.pointer(&at).and_then(|part| part.get("$ref")?.as_str().and_then(local));
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
}
