//! Schemas in the one small dialect every client understands (spec 20 section 6.1 and 6.2).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Keywords whose value is one schema.
const ONE: [&str; 4] = ["items", "additionalProperties", "not", "contains"];
/// Keywords whose value is a list of schemas.
const MANY: [&str; 4] = ["oneOf", "anyOf", "allOf", "prefixItems"];
/// Keywords whose value is a map of names to schemas.
const NAMED: [&str; 3] = ["properties", "$defs", "patternProperties"];

/// Calls `edit` on `schema` and every schema inside it, outermost last.
fn each_schema(schema: &mut Value, edit: &dyn Fn(&mut Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    for key in ONE {
        if let Some(inner) = map.get_mut(key) {
            each_schema(inner, edit);
        }
    }
    for key in MANY {
        if let Some(Value::Array(list)) = map.get_mut(key) {
            list.iter_mut().for_each(|inner| each_schema(inner, edit));
        }
    }
    for key in NAMED {
        if let Some(Value::Object(inner)) = map.get_mut(key) {
            inner.values_mut().for_each(|inner| each_schema(inner, edit));
        }
    }
    edit(map);
}

/// `["string","null"]` advertises as `string`: the parser takes null as absent anyway.
fn without_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(variants)) = map.get_mut("anyOf") {
        variants.retain(|v| v.get("type") != Some(&json!("null")));
        if let [Value::Object(only)] = variants.as_slice() {
            let only = only.clone();
            map.remove("anyOf");
            for (key, value) in only {
                map.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
    if map.get("default") == Some(&Value::Null) {
        map.remove("default");
    }
    map.remove("format");
    map.remove("title");
    map.remove("$schema");
}

/// A vocabulary whose words have documentation comes as one schema a word; it is one `enum`.
fn one_enum(map: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = map.get("oneOf") else { return };
    let mut words = Vec::new();
    for variant in variants {
        match (variant.get("const"), variant.get("enum")) {
            (Some(word @ Value::String(_)), None) => words.push(word.clone()),
            (None, Some(Value::Array(list))) if list.iter().all(Value::is_string) => {
                words.extend(list.iter().cloned());
            }
            _ => return,
        }
    }
    map.remove("oneOf");
    map.insert("type".into(), json!("string"));
    map.insert("enum".into(), Value::Array(words));
}

fn generator(inline: bool) -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = inline;
    settings.meta_schema = None;
    SchemaGenerator::new(settings)
}

/// The input schema of `P`: closed objects, everything inline, no nulls.
#[must_use]
pub fn input<P: JsonSchema>() -> Value {
    let mut schema = Value::from(generator(true).into_root_schema_for::<P>());
    each_schema(&mut schema, &|map| {
        without_null(map);
        one_enum(map);
        map.remove("default");
        if map.get("type") == Some(&json!("object")) {
            map.insert("additionalProperties".into(), json!(false));
            map.entry("properties").or_insert_with(|| json!({}));
        }
    });
    if let Value::Object(map) = &mut schema {
        map.remove("description");
    }
    schema
}

/// Leaves out of the descriptions in `schema` what names a tool that `surface` does not serve.
pub(crate) fn narrow(schema: &mut Value, surface: &crate::Surface) {
    each_schema(schema, &|map| {
        let Some(Value::String(text)) = map.get_mut("description") else { return };
        *text = crate::prose::narrowed(text, surface);
        if text.is_empty() {
            map.remove("description");
        }
    });
}

/// The output schema of `O`: the ok and the error branch, constraints only, `$defs` one level deep.
#[must_use]
pub fn output<O: JsonSchema>() -> Value {
    let mut root = Value::from(generator(false).into_root_schema_for::<O>());
    each_schema(&mut root, &|map| {
        without_null(map);
        one_enum(map);
        for prose in ["description", "examples", "default", "x-verbatim"] {
            map.remove(prose);
        }
    });
    let Value::Object(mut ok) = root else { return json!({ "type": "object" }) };
    let definitions = ok.remove("$defs");
    add_status(&mut ok, "ok");
    let mut schema = json!({ "type": "object", "oneOf": [Value::Object(ok), error_branch()] });
    if let (Value::Object(map), Some(definitions)) = (&mut schema, definitions) {
        map.insert("$defs".into(), definitions);
    }
    schema
}

/// The schema of `O` as its type says it, annotations of our own included.
#[must_use]
pub fn typed<O: JsonSchema>() -> Value {
    Value::from(generator(false).into_root_schema_for::<O>())
}

fn add_status(map: &mut Map<String, Value>, status: &str) {
    map.entry("type").or_insert_with(|| json!("object"));
    if let Value::Object(properties) = map.entry("properties").or_insert_with(|| json!({})) {
        properties.shift_insert(0, "status".into(), json!({ "const": status }));
    }
    if let Value::Array(required) = map.entry("required").or_insert_with(|| json!([])) {
        required.insert(0, json!("status"));
    }
}

/// The one compact error branch (at most 520 bytes).
fn error_branch() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": { "const": "error" },
            "error": {
                "type": "object",
                "properties": {
                    "category": { "type": "string" },
                    "reason": { "type": "string" },
                    "message": { "type": "string" },
                    "session_id": { "type": "string" },
                    "next": { "type": "array", "items": { "type": "string" } }
                },
                "required": ["category", "message"]
            }
        },
        "required": ["status", "error"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Params {
        /// Session to route to.
        session_id: Option<String>,
        #[schemars(range(min = 1, max = 128))]
        #[serde(default)]
        frames: Option<u32>,
        path: String,
    }

    #[test]
    fn input_is_closed_and_plain() {
        let schema = input::<Params>();
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["session_id"]["type"], "string");
        assert_eq!(schema["properties"]["frames"]["maximum"], 128);
        assert_eq!(schema["required"], json!(["path"]));
        let text = schema.to_string();
        for absent in ["$schema", "title", "null", "format"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
    }

    #[test]
    fn output_has_both_branches_and_no_prose() {
        let schema = output::<Params>();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["oneOf"][0]["properties"]["status"]["const"], "ok");
        assert!(!schema.to_string().contains("Session to route"));
        assert!(error_branch().to_string().len() <= 520);
    }
}
