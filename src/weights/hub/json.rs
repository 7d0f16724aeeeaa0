//! The JSON files of a hub's folder: parsed strictly, read with the name of the field in every error.

use crate::weights::CheckpointError;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// No configuration is longer; one that is would only fill memory.
const MOST_BYTES: usize = 4 << 20;

/// An object of a JSON file. A field that is `null` is as one that is not there.
#[derive(Clone, Debug)]
pub(in crate::weights) struct Json {
    path: PathBuf,
    /// Of this object in the file: `rope_scaling.`, empty for the whole.
    at: String,
    fields: Map<String, Value>,
}

impl Json {
    /// Parses a file's bytes; `path` is what errors call it.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Json, CheckpointError> {
        let wrong = |problem: String| CheckpointError::Hub { path: path.to_owned(), problem };
        if bytes.len() > MOST_BYTES {
            return Err(wrong(format!("{} bytes; at most {MOST_BYTES} are read", bytes.len())));
        }
        match serde_json::from_slice(&python_numbers(bytes)) {
            Ok(Strict(Value::Object(fields))) => {
                Ok(Json { path: path.to_owned(), at: String::new(), fields })
            }
            Ok(Strict(other)) => Err(wrong(format!("it is {}, an object is needed", describe(&other)))),
            Err(error) => Err(wrong(format!("not JSON: {error}"))),
        }
    }

    /// This object, with the fields of `over` in place of its own: a text model's part of a larger
    /// configuration.
    pub fn overlaid(&self, over: &Json) -> Json {
        let mut fields = self.fields.clone();
        fields.extend(over.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        Json { fields, ..self.clone() }
    }

    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// An error about a field.
    pub fn wrong(&self, name: &str, problem: impl fmt::Display) -> CheckpointError {
        CheckpointError::Hub { path: self.path.clone(), problem: format!("{}{name} {problem}", self.at) }
    }

    pub fn object(&self, name: &str) -> Result<Option<Json>, CheckpointError> {
        let inner = self.get(name, "an object", |value| value.as_object().cloned())?;
        Ok(inner.map(|fields| Json { path: self.path.clone(), at: format!("{}{name}.", self.at), fields }))
    }

    /// A whole number from 0; `2.0` is one too.
    pub fn u64(&self, name: &str) -> Result<Option<u64>, CheckpointError> {
        self.get(name, "a whole number from 0", whole)
    }

    pub fn i64(&self, name: &str) -> Result<Option<i64>, CheckpointError> {
        self.get(name, "a whole number", Value::as_i64)
    }

    pub fn f32(&self, name: &str) -> Result<Option<f32>, CheckpointError> {
        self.get(name, "a number", number)
    }

    pub fn bool(&self, name: &str) -> Result<Option<bool>, CheckpointError> {
        self.get(name, "true or false", Value::as_bool)
    }

    pub fn str(&self, name: &str) -> Result<Option<&str>, CheckpointError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.unfit(name, "a string", value))
    }

    /// `Infinity`, as Python writes it, is a number here.
    pub fn f32s(&self, name: &str) -> Result<Option<Vec<f32>>, CheckpointError> {
        self.get(name, "a list of numbers", |value| {
            value.as_array()?.iter().map(|v| number(v).or_else(|| infinite(v))).collect()
        })
    }

    pub fn u64s(&self, name: &str) -> Result<Option<Vec<u64>>, CheckpointError> {
        self.get(name, "a list of whole numbers from 0", |value| {
            value.as_array()?.iter().map(whole).collect()
        })
    }

    pub fn strs(&self, name: &str) -> Result<Option<Vec<String>>, CheckpointError> {
        self.get(name, "a list of strings", |value| {
            value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
        })
    }

    /// The first of several spellings that is there.
    pub fn u64_of(&self, names: &[&str]) -> Result<Option<u64>, CheckpointError> {
        self.first(names).map_or(Ok(None), |name| self.u64(name))
    }

    pub fn f32_of(&self, names: &[&str]) -> Result<Option<f32>, CheckpointError> {
        self.first(names).map_or(Ok(None), |name| self.f32(name))
    }

    fn first<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| self.has(name))
    }

    pub fn require_u64(&self, name: &str) -> Result<u64, CheckpointError> {
        self.u64(name)?.ok_or_else(|| self.wrong(name, "is missing, a whole number is needed"))
    }

    pub fn require_str(&self, name: &str) -> Result<&str, CheckpointError> {
        self.str(name)?.ok_or_else(|| self.wrong(name, "is missing, a string is needed"))
    }

    fn get<T>(
        &self,
        name: &str,
        wanted: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| self.unfit(name, wanted, value))
    }

    fn unfit(&self, name: &str, wanted: &str, value: &Value) -> CheckpointError {
        self.wrong(name, format_args!("is {}, {wanted} is needed", describe(value)))
    }
}

fn whole(value: &Value) -> Option<u64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    let float = || value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..EXACT).contains(v)).map(|v| v as u64);
    value.as_u64().or_else(float)
}

fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|v| v as f32).filter(|v| v.is_finite())
}

fn infinite(value: &Value) -> Option<f32> {
    match value.as_str()? {
        "Infinity" => Some(f32::INFINITY),
        "-Infinity" => Some(f32::NEG_INFINITY),
        _ => None,
    }
}

/// For errors: short values whole, others by their kind.
fn describe(value: &Value) -> String {
    const SHORT: usize = 40;
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(fields) => format!("an object of {}", fields.len()),
        short => {
            let text = short.to_string();
            if text.len() > SHORT { "a long string".to_owned() } else { text }
        }
    }
}

/// Python writes infinities and NaN bare, which JSON has not; they become strings.
fn python_numbers(bytes: &[u8]) -> Cow<'_, [u8]> {
    const BARE: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    if !BARE[1..].iter().any(|word| bytes.windows(word.len()).any(|window| window == *word)) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let (mut rest, mut in_string) = (bytes, false);
    while let [first, after @ ..] = rest {
        let word = BARE.iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push(b'"');
            out.extend(*word);
            out.push(b'"');
            rest = &rest[word.len()..];
            continue;
        }
        out.push(*first);
        rest = after;
        match (first, rest) {
            (b'"', _) => in_string = !in_string,
            (b'\\', [escaped, after @ ..]) if in_string => {
                out.push(*escaped);
                rest = after;
            }
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// A value in which no object has a key twice: readers disagree on which of the two counts.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Strict, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Strict(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut fields = Map::new();
        while let Some((key, Strict(value))) = map.next_entry::<String, Strict>()? {
            if fields.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} appears twice")));
            }
            fields.insert(key, value);
        }
        Ok(Strict(Value::Object(fields)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json, String> {
        Json::parse(Path::new("config.json"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_the_field_and_what_is_needed() {
        let config = parse(r#"{"layers": "x", "rope": {"factor": true}, "n": 2.0, "no": null}"#).unwrap();
        assert_eq!(
            config.u64("layers").unwrap_err().to_string(),
            r#"config.json: layers is "x", a whole number from 0 is needed"#
        );
        let rope = config.object("rope").unwrap().unwrap();
        assert_eq!(
            rope.f32("factor").unwrap_err().to_string(),
            "config.json: rope.factor is true, a number is needed"
        );
        assert_eq!((config.u64("n").unwrap(), config.u64("no").unwrap()), (Some(2), None));
    }

    #[test]
    fn a_key_twice_is_refused_at_any_depth() {
        assert!(parse(r#"{"a": 1, "a": 1}"#).unwrap_err().contains("\"a\" appears twice"));
        assert!(parse(r#"{"b": [{"a": 1, "a": 2}]}"#).unwrap_err().contains("twice"));
        assert!(parse(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
    }

    #[test]
    fn python_writes_infinities_bare() {
        let config = parse(r#"{"limit": [0.0, Infinity, -Infinity], "name": "Infinity \" NaN"}"#).unwrap();
        assert_eq!(config.f32s("limit").unwrap().unwrap(), [0.0, f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!(config.str("name").unwrap(), Some("Infinity \" NaN"));
        assert!(parse(r#"{"a": NaN}"#).unwrap().f32("a").is_err());
    }
}
