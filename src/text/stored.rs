use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// The filter that [`checked`] puts behind what a template stores in a namespace.
pub(super) const STORABLE: &str = "storable";

/// Levels of lists and objects in each other; whoever prints or drops them uses stack for each.
const DEEPEST: usize = 64;

/// What may be stored in a namespace: nothing that holds one, which could become itself, and nothing that
/// grows deeper and deeper. Printing either would never end, or end with the stack.
pub(super) fn storable(value: Value) -> Result<Value, Error> {
    check(&value, DEEPEST)?;
    Ok(value)
}

fn check(value: &Value, levels: usize) -> Result<(), Error> {
    let refused = |why: &'static str| Err(Error::new(ErrorKind::InvalidOperation, why));
    if value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace")) {
        return refused("a namespace cannot be stored in a namespace");
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    let Ok(items) = value.try_iter() else { return Ok(()) };
    if levels == 0 {
        return refused("lists and objects lie too deep in each other");
    }
    for item in items {
        match value.kind() {
            ValueKind::Map => check(&value.get_item(&item)?, levels - 1)?,
            _ => check(&item, levels - 1)?,
        }
    }
    Ok(())
}

/// The inside of the tag `set a.b = ...` with a check of what is stored; `rest` begins behind `{%`. And how
/// long the inside was. Nothing for other tags.
pub(super) fn checked(rest: &str) -> Option<(String, usize)> {
    let set = rest.trim_start_matches(['-', '+']).trim_start().strip_prefix("set")?;
    let name = set.strip_prefix(char::is_whitespace)?.trim_start();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let behind = name.trim_start_matches(is_name).trim_start();
    let behind = behind.strip_prefix('.')?.trim_start().trim_start_matches(is_name).trim_start();
    let expression = behind.strip_prefix('=').filter(|rest| !rest.starts_with('='))?;
    let ends = expression.match_indices("%}").map(|(end, _)| end);
    let end = ends.into_iter().find(|end| is_whole(&expression[..*end]))?;
    let start = rest.len() - expression.len();
    let stored = expression[..end].trim_end_matches(['-', '+']);
    let inside = format!("{}({stored})|{STORABLE} {}", &rest[..start], &expression[stored.len()..end]);
    Some((inside, start + end))
}

/// Whether no text is open at the end.
fn is_whole(expression: &str) -> bool {
    let (mut open, mut escaped) = (None, false);
    for c in expression.chars() {
        match (open, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (None, '\'' | '"') => open = Some(c),
            (Some(quote), c) if quote == c => open = None,
            _ => {}
        }
    }
    open.is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_namespace_stores_is_checked_and_all_else_stays() {
        let inside = |source| checked(source).map(|(inside, len)| (inside, &source[len..]));
        assert_eq!(inside("- set ns.a = b -%}x").unwrap(), ("- set ns.a =( b )|storable -".into(), "%}x"));
        assert_eq!(inside(" set ns.a='%}' %}x").unwrap(), (" set ns.a=('%}' )|storable ".into(), "%}x"));
        for other in
            [" set a = b %}", " set a.b %}", " if a.b == c %}", " settle.b = c %}", " set a.b = ' %}"]
        {
            assert_eq!(inside(other), None, "{other}");
        }
    }

    #[test]
    fn depth_has_an_end() {
        let nested = |levels: usize| (0..levels).fold(Value::from(1), |value, _| Value::from(vec![value]));
        assert!(storable(nested(60)).is_ok());
        assert!(storable(nested(70)).unwrap_err().to_string().contains("too deep"));
    }
}
