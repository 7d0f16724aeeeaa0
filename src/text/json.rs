use super::python::is_none;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// How Python's `json.dumps` would be called.
pub(super) struct JsonStyle {
    pub ensure_ascii: bool,
    /// The text of one level; none is all in one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// Byte for byte what `json.dumps` writes.
pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut writer = Writer { out: String::new(), style, depth: 0 };
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer<'s> {
    out: String,
    style: &'s JsonStyle,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            _ if is_none(value) => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.sequence(value)?,
            ValueKind::Map => self.mapping(value)?,
            kind => return Err(not_serializable(kind)),
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value) -> Result<(), Error> {
        let items: Vec<Value> = value.try_iter()?.collect();
        self.container('[', ']', items, |writer, item| writer.value(&item))
    }

    fn mapping(&mut self, value: &Value) -> Result<(), Error> {
        let mut items = Vec::new();
        for key in value.try_iter()? {
            items.push((key_text(&key)?, value.get_item(&key)?));
        }
        if self.style.sort_keys {
            items.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.container('{', '}', items, |writer, (key, item)| {
            writer.string(&key);
            writer.out.push_str(&writer.style.key_separator);
            writer.value(&item)
        })
    }

    fn container<T>(
        &mut self,
        open: char,
        close: char,
        items: Vec<T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        self.depth += 1;
        let is_empty = items.is_empty();
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push_str(&self.style.item_separator);
            }
            self.new_line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !is_empty {
            self.new_line();
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.style.ensure_ascii && c > '~') => self.escape(c),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(self.out, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => Ok(number(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        kind => Err(Error::new(ErrorKind::BadSerialization, format!("keys must be strings, not {kind}"))),
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float_text(float),
        _ => value.to_string(),
    }
}

/// Python's `repr` of a float: the shortest digits that read back as the same number.
fn float_text(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes a whole exponent");
    match exponent {
        -4..16 => format!("{x:?}"),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

fn not_serializable(kind: ValueKind) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("an object of type {kind} is not JSON serializable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style() -> JsonStyle {
        JsonStyle {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            sort_keys: false,
        }
    }

    fn sample() -> Value {
        Value::from_pairs([
            ("z", Value::from("temp > 10 & humidity < 50 (user's choice)")),
            ("a", Value::from(vec![Value::from(1), Value::from(2.0), Value::from(true), Value::from(())])),
            ("e", Value::from(Vec::<Value>::new())),
        ])
    }

    // BUGLOG C06.
    #[test]
    fn keeps_order_and_escapes_nothing_for_html() {
        assert_eq!(
            to_json(&sample(), &style()).expect("serializable"),
            r#"{"z": "temp > 10 & humidity < 50 (user's choice)", "a": [1, 2.0, true, null], "e": []}"#
        );
    }

    #[test]
    fn indents_sorts_and_separates_as_python_does() {
        let pretty =
            JsonStyle { indent: Some("  ".into()), item_separator: ",".into(), sort_keys: true, ..style() };
        assert_eq!(
            to_json(&sample(), &pretty).expect("serializable"),
            "{\n  \"a\": [\n    1,\n    2.0,\n    true,\n    null\n  ],\n  \"e\": [],\n  \"z\": \"temp > 10 & humidity < 50 (user's choice)\"\n}"
        );
    }

    #[test]
    fn strings_and_numbers_as_python_writes_them() {
        let text = Value::from("é\u{1F600}\u{1}\u{7f}\"\\\n\t/");
        assert_eq!(to_json(&text, &style()).expect("a string"), "\"é😀\\u0001\u{7f}\\\"\\\\\\n\\t/\"");
        let ascii = JsonStyle { ensure_ascii: true, ..style() };
        assert_eq!(to_json(&text, &ascii).expect("a string"), r#""\u00e9\ud83d\ude00\u0001\u007f\"\\\n\t/""#);
        let floats = [21.5, 1e16, 1e15, 1e-5, 0.0001, -0.0, 1.5e300, 123456789.125];
        let written =
            ["21.5", "1e+16", "1000000000000000.0", "1e-05", "0.0001", "-0.0", "1.5e+300", "123456789.125"];
        assert_eq!(floats.map(float_text), written);
        assert!(to_json(&Value::UNDEFINED, &style()).is_err());
    }
}
