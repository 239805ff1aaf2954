//! A client that holds every result to the contract: its schema, its envelope, its value forms.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::{Client, Era};

pub struct Checked {
    pub client: Client,
    schemas: HashMap<String, Option<Validator>>,
    pub inputs: HashMap<String, Value>,
    pub results: usize,
}

/// Calls `look` on every string in `value` with the key it stands under.
fn strings(value: &Value, key: &str, look: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::String(text) => look(key, text),
        Value::Array(list) => list.iter().for_each(|inner| strings(inner, key, look)),
        Value::Object(map) => map.iter().for_each(|(key, inner)| strings(inner, key, look)),
        _ => {}
    }
}

fn is_backticked(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |part: &[u8]| part.len() == 8 && part.iter().all(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().any(|(at, byte)| {
        *byte == b'`' && at >= 8 && hex(&bytes[at - 8..at]) && bytes.get(at + 1..at + 9).is_some_and(hex)
    })
}

fn is_address(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

impl Checked {
    pub fn start(era: Era) -> Self {
        let mut client = Client::start(era);
        let list = client.result("tools/list", json!({}));
        let mut checked = Self { client, schemas: HashMap::new(), inputs: HashMap::new(), results: 0 };
        for row in list["tools"].as_array().unwrap() {
            let name = row["name"].as_str().unwrap().to_owned();
            let schema = row.get("outputSchema").map(|schema| jsonschema::validator_for(schema).unwrap());
            checked.schemas.insert(name.clone(), schema);
            checked.inputs.insert(name, row["inputSchema"].clone());
        }
        checked
    }

    /// Calls and checks what every answer must be.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let asked = format!("{tool} {arguments}");
        let result = self.client.call(tool, arguments);
        self.results += 1;
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{asked}: no text"));
        assert!(!text.is_empty(), "{asked}: empty text");
        assert!(text.len() <= 1 << 20, "{asked}: {} bytes of text", text.len());
        let structured = &result["structuredContent"];
        let failed = result["isError"] == true;
        if failed {
            assert_eq!(structured["status"], "error", "{asked}: {result}");
            assert_eq!(structured["error"]["message"], text, "{asked}");
        }
        match self.schemas[tool].as_ref() {
            Some(schema) => {
                assert_eq!(structured["status"], if failed { "error" } else { "ok" }, "{asked}: {result}");
                let problems: Vec<String> = schema.iter_errors(structured).map(|e| e.to_string()).collect();
                assert!(problems.is_empty(), "{asked}: {problems:?} in {structured}");
                assert!(structured.to_string().len() <= 1 << 20, "{asked}: the answer is too large");
            }
            None => assert!(failed || structured.is_null(), "{asked}: a raw tool answers text only"),
        }
        forms(structured, &asked);
        result
    }

    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    pub fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone());
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The error object of a call that must fail.
    pub fn err(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"]["error"].clone()
    }
}

/// Addresses in one form, none with a backtick.
fn forms(structured: &Value, asked: &str) {
    let mut wrong = Vec::new();
    let mut look = |key: &str, text: &str| {
        if is_backticked(text) && key != "message" {
            wrong.push(format!("{key}: {text}"));
        }
        if ["address", "start", "end", "ip", "stopped_at", "value", "teb", "sp"].contains(&key)
            && !is_address(text)
            && !is_code(text)
        {
            wrong.push(format!("{key}: {text}"));
        }
    };
    strings(structured, "", &mut look);
    assert!(wrong.is_empty(), "{asked}: {wrong:?}");
}

/// `StatusInfo.value` is a 32-bit code.
fn is_code(text: &str) -> bool {
    text.len() == 10 && text.starts_with("0x")
}
