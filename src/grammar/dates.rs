//! `format: date` and `date-time` as patterns that know leap years, and no year 0 (RFC 3339, appendix C;
//! the parser's own formats let every 29th of February through).

use serde_json::{Map, Value};

const YEAR: &str = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})";
const DAY: &str = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)\
                   |02-(?:0[1-9]|1[0-9]|2[0-8]))";
/// Divisible by 4 and not by 100, or by 400.
const LEAP_YEAR: &str = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
const TIME: &str = r"[tT](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// Where the schema has no pattern of its own.
pub fn as_pattern(schema: &mut Map<String, Value>) {
    let time = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "",
        Some("date-time") => TIME,
        _ => return,
    };
    if !schema.contains_key("pattern") {
        schema.shift_remove("format");
        let date = format!("(?:{YEAR}-{DAY}|{LEAP_YEAR}-02-29)");
        schema.insert("pattern".into(), Value::from(format!("^{date}{time}$")));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::grammar::Compiler;
    use crate::protocol::Grammar;
    use crate::text::TextModel;

    fn takes(compiler: &Compiler, format: &str, text: &str) -> bool {
        let schema = format!("{{\"type\": \"string\", \"format\": \"{format}\"}}");
        let mut guide = compiler.compile(&Grammar::JsonSchema(schema)).unwrap();
        let quoted = format!("{text:?}");
        quoted.bytes().all(|byte| guide.commit(byte.into()).is_ok()) && guide.state().is_ok()
    }

    #[test]
    fn every_day_there_is_and_no_other() {
        let compiler = Compiler::new(TextModel::bytes().into());
        for (date, is) in [
            ("2024-02-29", true),
            ("2023-02-29", false),
            ("1900-02-29", false),
            ("2000-02-29", true),
            ("1354-02-29", false),
            ("0004-02-29", true),
            ("0000-01-01", false),
            ("0001-01-01", true),
            ("2023-04-31", false),
            ("2023-12-31", true),
            ("2023-13-01", false),
        ] {
            assert_eq!(takes(&compiler, "date", date), is, "{date}");
            assert_eq!(takes(&compiler, "date-time", &format!("{date}T23:59:60.5Z")), is, "{date}");
        }
        assert!(!takes(&compiler, "date-time", "2024-02-29T24:00:00Z"));
    }
}
