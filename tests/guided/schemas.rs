//! Schemas as people write them for extraction and tool arguments: made up from a seed, every value
//! bounded, so that an answer to one ends.

use glassbox::base::mix;
use serde_json::{Map, Value, json};

const NAMES: [&str; 24] = [
    "name", "age", "city", "email", "price", "tags", "status", "id", "title", "count", "address", "active",
    "score", "date", "items", "notes", "kind", "unit", "owner", "level", "color", "is_open", "größe", "a b",
];
const WORDS: [&str; 10] =
    ["red", "green", "blue", "small", "large", "open", "closed", "in progress", "n/a", "été \"x\""];

pub struct Maker {
    seed: u64,
    drawn: u64,
}

pub fn schema(at: u64) -> Value {
    let mut maker = Maker { seed: mix(at, 0x005c_4e3a), drawn: 0 };
    let mut schema = maker.object(2);
    if maker.below(4) == 0 {
        let part = maker.object(1);
        let map = schema.as_object_mut().expect("an object's schema is one");
        map.insert("$defs".into(), json!({ "part": part }));
        if let Some(properties) = map["properties"].as_object_mut() {
            properties.insert("part".into(), json!({ "$ref": "#/$defs/part" }));
        }
    }
    schema
}

impl Maker {
    fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn) % n
    }

    fn pick(&mut self, from: &[&str]) -> String {
        from[self.below(from.len() as u64) as usize].to_owned()
    }

    fn object(&mut self, depth: u64) -> Value {
        let mut properties = Map::new();
        for _ in 0..1 + self.below(4) {
            let name = self.pick(&NAMES);
            let value = self.value(depth);
            properties.insert(name, value);
        }
        let required: Vec<String> = properties.keys().filter(|_| self.below(4) > 0).cloned().collect();
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false
        })
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth > 0 { 14 } else { 10 }) {
            0 | 1 => {
                let most = 3 + self.below(12);
                json!({ "type": "string", "minLength": self.below(3), "maxLength": most })
            }
            2 => {
                let least = self.below(50) as i64 - 20;
                json!({ "type": "integer", "minimum": least, "maximum": least + self.below(3000) as i64 })
            }
            3 => json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 + self.below(100) }),
            4 => json!({ "type": "boolean" }),
            5 => {
                let first = self.below(7) as usize;
                json!({ "enum": &WORDS[first..first + 3] })
            }
            6 => json!({ "type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$" }),
            7 => json!({ "type": "string", "format": "date" }),
            8 => json!({ "const": self.pick(&WORDS) }),
            9 => json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 9, "multipleOf": 2 }),
            10 | 11 => {
                let items = self.value(depth - 1);
                let least = self.below(2);
                json!({ "type": "array", "items": items, "minItems": least, "maxItems": least + 2 })
            }
            12 => {
                let (one, two) = (self.value(depth - 1), self.value(depth - 1));
                json!({ "anyOf": [one, two, { "type": "null" }] })
            }
            _ => self.object(depth - 1),
        }
    }
}
