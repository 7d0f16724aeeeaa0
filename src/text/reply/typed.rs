use crate::protocol::Tool;
use serde_json::Value as Json;

/// What a tool's schema says of one argument. Formats without quotes (`<parameter=n>3</parameter>`)
/// need it to tell the number 3 from the text "3".
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Types(Vec<String>);

impl Types {
    /// Empty where tool, argument or type are not known.
    pub fn of(tools: &[Tool], tool: &str, argument: &str) -> Self {
        let mut types = Vec::new();
        let tool = tools.iter().find(|known| known.name == tool);
        if let Some(schema) = tool.and_then(|tool| tool.parameters.get("properties")?.get(argument)) {
            collect(schema, &mut types);
        }
        Self(types)
    }

    fn allows(&self, name: &str) -> bool {
        self.0.iter().any(|kind| kind == name)
    }

    /// Whether any text is a string: its characters can be passed on as they come.
    pub fn is_text(&self) -> bool {
        self.0.iter().all(|kind| kind == "string")
    }

    /// The JSON that `text` stands for. What fits none of the types stays a string; nothing is ever
    /// evaluated.
    pub fn read(&self, text: &str) -> Json {
        let trimmed = text.trim();
        let json = serde_json::from_str::<Json>(trimmed).ok();
        let fits = |json: &Json| match json {
            Json::Null => self.allows("null"),
            Json::Bool(_) => self.allows("boolean"),
            Json::Number(n) => self.allows("number") || (self.allows("integer") && !n.is_f64()),
            Json::Array(_) => self.allows("array"),
            Json::Object(_) => self.allows("object"),
            Json::String(_) => false,
        };
        let as_python = || match trimmed {
            "True" | "False" if self.allows("boolean") => Some(Json::from(trimmed == "True")),
            "None" if self.allows("null") && !self.allows("string") => Some(Json::Null),
            _ if self.allows("number") && trimmed.ends_with('.') => {
                trimmed.parse().ok().filter(|x: &f64| x.is_finite()).map(Json::from)
            }
            _ => None,
        };
        json.filter(fits).or_else(as_python).unwrap_or_else(|| Json::from(text))
    }
}

fn collect(schema: &Json, types: &mut Vec<String>) {
    let mut add = |json: &Json| types.extend(json.as_str().map(str::to_owned));
    match schema.get("type") {
        Some(Json::Array(kinds)) => kinds.iter().for_each(&mut add),
        Some(kind) => add(kind),
        None => {}
    }
    let listed = schema.get("enum").and_then(Json::as_array).into_iter().flatten().chain(schema.get("const"));
    if schema.get("type").is_none() {
        listed.for_each(|value| types.push(kind_of(value).to_owned()));
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema.get(key).and_then(Json::as_array).into_iter().flatten().for_each(|s| collect(s, types));
    }
}

fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(schema: Json, text: &str) -> Json {
        let parameters = json!({ "type": "object", "properties": { "x": schema } });
        let tool = Tool { name: "f".into(), description: String::new(), parameters };
        Types::of(&[tool], "f", "x").read(text)
    }

    #[test]
    fn the_schema_decides_what_a_text_is() {
        assert_eq!(read(json!({ "type": "string" }), "3"), json!("3"));
        assert_eq!(read(json!({ "type": "integer" }), "3"), json!(3));
        assert_eq!(read(json!({ "type": "integer" }), "3.5"), json!("3.5"));
        assert_eq!(read(json!({ "type": "boolean" }), "True"), json!(true));
        assert_eq!(read(json!({ "type": "object" }), " {\"a\": [1]} "), json!({ "a": [1] }));
        assert_eq!(read(json!({ "type": "array" }), "[1"), json!("[1"));
        assert_eq!(read(json!({ "enum": [1, 2] }), "2"), json!(2));
    }

    // vLLM 42047, 39567, 32342.
    #[test]
    fn half_numbers_the_word_none_and_nullable_types() {
        assert_eq!(read(json!({ "type": "number" }), "108."), json!(108.0));
        assert_eq!(read(json!({ "type": "string" }), "none"), json!("none"));
        assert_eq!(read(json!({ "type": "string" }), "null"), json!("null"));
        let nullable = json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] });
        assert_eq!(read(nullable.clone(), "null"), Json::Null);
        assert_eq!(read(nullable, "None"), json!("None"));
        assert_eq!(read(json!({ "type": ["integer", "null"] }), "None"), Json::Null);
    }

    // BUGLOG F07.
    #[test]
    fn a_value_of_unknown_type_is_a_string_and_is_not_evaluated() {
        let code = "__import__('os').system('id')";
        assert_eq!(read(json!({}), code), json!(code));
        assert_eq!(read(json!({ "type": "custom" }), code), json!(code));
        assert_eq!(Types::default().read("1+1"), json!("1+1"));
        assert!(Types::default().is_text());
    }
}
