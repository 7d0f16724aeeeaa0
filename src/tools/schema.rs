use crate::base::nearest;
use serde_json::{Map, Value, json};

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// The schema of a tool's `parameters`: a JSON Schema as it is, or one made of the short form
/// `{ city = "string", days = "integer?" }`, where `?` marks what may be left out.
///
/// # Errors
/// What is wrong, with the path to it.
pub fn of_parameters(given: Value) -> Result<Value, String> {
    let Value::Object(mut given) = given else { return Err("parameters must be a table".into()) };
    let is_long = given.get("type").is_some_and(|t| t == "object")
        || given.get("properties").is_some_and(Value::is_object);
    if !is_long {
        return short(given);
    }
    given.entry("type").or_insert_with(|| "object".into());
    if given["type"] != "object" {
        return Err("parameters.type must be \"object\"".into());
    }
    given.entry("properties").or_insert_with(|| json!({}));
    let schema = Value::Object(given);
    check_types(&schema, "parameters")?;
    check_required(&schema)?;
    Ok(schema)
}

/// The names of the parameters.
pub fn names(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn short(given: Map<String, Value>) -> Result<Value, String> {
    let mut required = Vec::new();
    let mut properties = Map::new();
    for (name, kind) in given {
        let property = match kind {
            Value::String(kind) => {
                let bare = kind.strip_suffix('?').unwrap_or(&kind);
                check_name(bare, &format!("parameters.{name}"))?;
                if bare == kind {
                    required.push(name.clone());
                }
                json!({ "type": bare })
            }
            property @ Value::Object(_) => {
                check_types(&property, &format!("parameters.{name}"))?;
                required.push(name.clone());
                property
            }
            other => return Err(format!("parameters.{name} must be a type's name or a table, not {other}")),
        };
        properties.insert(name, property);
    }
    Ok(
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false }),
    )
}

fn check_name(name: &str, path: &str) -> Result<(), String> {
    if TYPES.contains(&name) {
        return Ok(());
    }
    let hint = match nearest(name, TYPES) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("types are {}", TYPES.join(", ")),
    };
    Err(format!("{path}: no type {name:?}; {hint}"))
}

/// Type names, in all properties and items.
fn check_types(schema: &Value, path: &str) -> Result<(), String> {
    match schema.get("type") {
        None => {}
        Some(Value::String(name)) => check_name(name, path)?,
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            names.iter().filter_map(Value::as_str).try_for_each(|name| check_name(name, path))?;
        }
        Some(other) => return Err(format!("{path}.type must be a type's name, not {other}")),
    }
    if let Some(properties) = schema.get("properties") {
        let properties =
            properties.as_object().ok_or_else(|| format!("{path}.properties must be a table"))?;
        for (name, property) in properties {
            if !property.is_object() {
                return Err(format!("{path}.{name} must be a table"));
            }
            check_types(property, &format!("{path}.{name}"))?;
        }
    }
    schema.get("items").map_or(Ok(()), |items| check_types(items, &format!("{path}.items")))
}

fn check_required(schema: &Value) -> Result<(), String> {
    let Some(required) = schema.get("required") else { return Ok(()) };
    let all = required.as_array().ok_or("parameters.required must be a list of names")?;
    let known = names(schema);
    for name in all {
        match name.as_str() {
            Some(name) if known.contains(&name) => {}
            _ => return Err(format!("parameters.required names {name}, which is no parameter")),
        }
    }
    Ok(())
}

/// Whether a value is what the schema's basic words allow: `type`, `enum`, `required`, `properties`,
/// `items` and `additionalProperties = false`. Other words are for the model only.
///
/// # Errors
/// For the model: which argument is wrong, and what it should be.
pub fn check(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    let name = if path.is_empty() { "the arguments" } else { path };
    check_type(value, schema, name)?;
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Err(format!("{name} must be one of {}, not {}", allowed.join(", "), brief(value)));
    }
    match value {
        Value::Object(fields) => check_fields(fields, schema, path),
        Value::Array(all) => {
            let Some(items) = schema.get("items").filter(|items| items.is_object()) else { return Ok(()) };
            all.iter().enumerate().try_for_each(|(i, one)| check(one, items, &format!("{path}[{i}]")))
        }
        _ => Ok(()),
    }
}

fn check_type(value: &Value, schema: &Value, name: &str) -> Result<(), String> {
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is = |kind: &&str| match *kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        // 3.0 is an integer to JSON Schema.
        "integer" => value.as_f64().is_some_and(|x| x.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    };
    if types.iter().any(is) {
        return Ok(());
    }
    Err(format!("{name} must be of type {}, not {}", types.join(" or "), brief(value)))
}

fn check_fields(fields: &Map<String, Value>, schema: &Value, path: &str) -> Result<(), String> {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{} is missing", join(name)));
        }
    }
    let known = names(schema);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (name, value) in fields {
        match schema.get("properties").and_then(|p| p.get(name)) {
            Some(property) => check(value, property, &join(name))?,
            None if is_closed => {
                let near = nearest(name, known.iter().copied());
                let hint = near.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default();
                return Err(format!("there is no argument {:?}{hint}", join(name)));
            }
            None => {}
        }
    }
    Ok(())
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_a_closed_object_of_required_parameters() {
        let schema = of_parameters(json!({ "city": "string", "days": "integer?" })).unwrap();
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
                "required": ["city"],
                "additionalProperties": false,
            })
        );
        let mixed = of_parameters(json!({ "unit": { "type": "string", "enum": ["c", "f"] } })).unwrap();
        assert_eq!(mixed["required"], json!(["unit"]));
        assert_eq!(of_parameters(json!({})).unwrap()["properties"], json!({}));
        // A parameter may be called type.
        assert_eq!(names(&of_parameters(json!({ "type": "string" })).unwrap()), ["type"]);
    }

    #[test]
    fn a_wrong_schema_is_named_with_its_path() {
        for (given, wanted) in [
            (json!({ "city": "sting" }), "parameters.city: no type \"sting\"; did you mean \"string\"?"),
            (json!({ "city": 3 }), "parameters.city must be a type's name or a table"),
            (
                json!({ "properties": { "a": { "type": "text" } } }),
                "parameters.a: no type \"text\"; types are",
            ),
            (json!({ "type": "object", "required": ["b"] }), "parameters.required names \"b\""),
            (json!({ "type": "object", "properties": 3 }), "parameters.properties must be a table"),
            (json!({ "type": "array", "properties": {} }), "parameters.type must be"),
            (
                json!({ "properties": { "a": { "type": "array", "items": { "type": "x" } } } }),
                "parameters.a.items: no type \"x\"",
            ),
        ] {
            let said = of_parameters(given.clone()).unwrap_err();
            assert!(said.starts_with(wanted), "{given}: {said}");
        }
    }

    #[test]
    fn values_are_checked_where_a_model_gets_them_wrong() {
        let schema = of_parameters(json!({
            "type": "object",
            "properties": {
                "city": { "type": "string" },
                "days": { "type": ["integer", "null"] },
                "unit": { "enum": ["c", "f"] },
                "stops": { "type": "array", "items": { "type": "object", "required": ["at"],
                           "properties": { "at": { "type": "string" } } } },
            },
            "required": ["city"],
            "additionalProperties": false,
        }))
        .unwrap();
        check(&json!({ "city": "Oslo", "days": 3.0, "unit": "c", "stops": [{ "at": "x" }] }), &schema, "")
            .unwrap();
        for (value, wanted) in [
            (json!({}), "city is missing"),
            (json!([]), "the arguments must be of type object, not []"),
            (json!({ "city": 5 }), "city must be of type string, not 5"),
            (json!({ "city": "a", "days": 1.5 }), "days must be of type integer or null, not 1.5"),
            (json!({ "city": "a", "unit": "k" }), "unit must be one of \"c\", \"f\", not \"k\""),
            (json!({ "city": "a", "stops": [{ "at": "x" }, {}] }), "stops[1].at is missing"),
            (json!({ "city": "a", "units": "c" }), "there is no argument \"units\"; did you mean \"unit\"?"),
        ] {
            assert_eq!(check(&value, &schema, "").unwrap_err(), wanted);
        }
    }
}
