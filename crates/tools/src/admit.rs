//! Admission: arguments are checked here once for every caller (MCP, command line, batch), before
//! any engine hears of them.

use serde_json::{Map, Value};

use crate::error::ToolError;
use crate::tool::{Group, Hints, Run, ToolEntry};

/// A call that may run.
pub struct Admission {
    pub entry: &'static ToolEntry,
    /// The arguments, nulls dropped, integral floats made integers.
    pub args: Value,
    /// The session the caller named.
    pub session_id: Option<String>,
    /// Running it can replace the target.
    pub retires_handle: bool,
}

impl Admission {
    /// Whether this call is queued on a session's worker.
    #[must_use]
    pub fn is_worker(&self) -> bool {
        matches!(self.entry.run, Run::Worker(_))
    }
}

/// Checks `args` against the tool's schema and its own rules; all problems in one message.
///
/// # Errors
/// `invalid_argument` naming every problem, the accepted keys and the nearest one.
pub fn admit(entry: &'static ToolEntry, args: Option<Map<String, Value>>) -> Result<Admission, ToolError> {
    let mut args = args.unwrap_or_default();
    (entry.loosen)(&mut args);
    let mut args = Value::Object(args);
    let schema = entry.input_schema();
    let mut problems = Vec::new();
    normalise(&mut args, schema, "", entry.name, &mut problems);
    if problems.is_empty()
        && let Err(more) = (entry.check)(&args)
    {
        problems = more;
    }
    if !problems.is_empty() {
        let error = ToolError::invalid(told(&problems));
        let error = if is_opener(entry) { error.with("target", "no") } else { error };
        let operand = problems.iter().any(|problem| problem.contains(expression::NOT_IN_AN_OPERAND));
        return Err(if operand {
            error.when_served(&["execute"], "whole commands are for execute")
        } else {
            error
        });
    }
    let retires_handle = (entry.retires)(&args);
    let session_id = match &args {
        Value::Object(map) => map.get("session_id").and_then(Value::as_str).map(ToOwned::to_owned),
        _ => None,
    };
    Ok(Admission { entry, args, session_id, retires_handle })
}

/// Every failure of an opener says what exists now.
fn is_opener(entry: &ToolEntry) -> bool {
    entry.group == Group::Session && entry.hints == Hints::OPEN
}

/// Problems told in one message; a hostile call can have a hundred thousand.
const TOLD: usize = 16;
/// Characters of a string whose schema sets no bound of its own.
const LONGEST: u64 = 4096;

fn told(problems: &[String]) -> String {
    let mut text = problems.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join("; ");
    if let Some(more) = problems.len().checked_sub(TOLD).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more problems"));
    }
    text
}

fn field(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Validates `value` and makes it what serde expects: nulls dropped, integral floats integers.
fn normalise(value: &mut Value, schema: &Value, path: &str, tool: &str, problems: &mut Vec<String>) {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => object(value, schema, path, tool, problems),
        Some("array") => array(value, schema, path, tool, problems),
        Some("string") => string(value, schema, path, problems),
        Some("integer") => integer(value, schema, path, problems),
        Some("number") if !value.is_number() => problems.push(format!("{path} must be a number")),
        Some("boolean") if !value.is_boolean() => problems.push(format!("{path} must be true or false")),
        _ => {}
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        problems.push(format!("{path} must be one of {}", allowed.join(", ")));
    }
}

fn object(value: &mut Value, schema: &Value, path: &str, tool: &str, problems: &mut Vec<String>) {
    let Value::Object(map) = value else {
        problems.push(format!("{} must be an object", if path.is_empty() { "arguments" } else { path }));
        return;
    };
    map.retain(|_, v| !v.is_null());
    let empty = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    for (key, inner) in map.iter_mut() {
        match known.get(key) {
            Some(inner_schema) => normalise(inner, inner_schema, &field(path, key), tool, problems),
            None => problems.push(unknown_argument(key, path, tool, known)),
        }
    }
    if let Some(Value::Array(required)) = schema.get("required") {
        for key in required.iter().filter_map(Value::as_str).filter(|key| !map.contains_key(*key)) {
            problems.push(format!("missing argument \"{}\" for {tool}", field(path, key)));
        }
    }
}

fn unknown_argument(key: &str, path: &str, tool: &str, known: &Map<String, Value>) -> String {
    let shown: String = key.chars().take(64).collect();
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let mut text = format!("unknown argument \"{}\" for {tool}; it takes ", field(path, &shown));
    text.push_str(&if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    if let Some(near) = nearest(&shown, &names) {
        text.push_str(&format!(" (did you mean \"{near}\"?)"));
    }
    text
}

fn array(value: &mut Value, schema: &Value, path: &str, tool: &str, problems: &mut Vec<String>) {
    let Value::Array(items) = value else {
        problems.push(format!("{path} must be an array"));
        return;
    };
    let count = items.len() as u64;
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let (min, max) = (bound("minItems").unwrap_or(0), bound("maxItems"));
    if count < min || max.is_some_and(|max| count > max) {
        let most = max.map_or_else(|| " or more".to_owned(), |max| format!(" to {max}"));
        problems.push(format!("{path} has {count} entries; it takes {min}{most}"));
    }
    if let Some(item_schema) = schema.get("items") {
        for (index, item) in items.iter_mut().enumerate() {
            normalise(item, item_schema, &format!("{path}[{index}]"), tool, problems);
        }
    }
}

fn string(value: &Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
    let Value::String(text) = value else {
        problems.push(format!("{path} must be a string"));
        return;
    };
    let length = text.chars().count() as u64;
    if let Some(min) = schema.get("minLength").and_then(Value::as_u64)
        && length < min
    {
        problems.push(if min == 1 {
            format!("{path} must not be empty")
        } else {
            format!("{path} is too short")
        });
    }
    let max = schema.get("maxLength").and_then(Value::as_u64).unwrap_or(LONGEST);
    if length > max {
        problems.push(format!("{path} is {length} characters long; at most {max}"));
    } else if let Some(form) =
        schema.get("pattern").and_then(Value::as_str).and_then(|form| misfit(form, text))
    {
        problems.push(format!("{path} must be {form}"));
    }
}

/// What `text` should look like, if it does not fit one of the forms values have.
fn misfit(pattern: &str, text: &str) -> Option<&'static str> {
    let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = |length: std::ops::RangeInclusive<usize>| {
        text.strip_prefix("0x").is_some_and(|digits| length.contains(&digits.len()) && hex(digits))
    };
    let (fits, form) = match pattern {
        "^0x[0-9a-f]{16}$" => (number(1..=16), "0x and up to 16 hex digits"),
        "^0x[0-9a-f]+$" => (number(1..=16), "0x and hex digits"),
        "^0x[0-9a-f]{8}$" => (number(1..=8), "0x and up to 8 hex digits"),
        "^([0-9a-f]{2})*$" => (hex(text) && text.len().is_multiple_of(2), "hex digits, two a byte"),
        "^[0-9A-F]{32}$" => (target::Guid::parse(text).is_some(), "a GUID's 32 hex digits"),
        _ => return None,
    };
    (!fits).then_some(form)
}

fn integer(value: &mut Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
    // A client may write 64.0 for 64.
    if let Some(float) = value.as_f64()
        && value.as_i64().is_none()
        && value.as_u64().is_none()
        && float.fract() == 0.0
        && float.abs() < 9.0e15
    {
        *value = Value::from(float as i64);
    }
    let wide = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let Some(number) = wide else {
        problems.push(format!("{path} must be an integer"));
        return;
    };
    let bound = |key: &str| {
        let limit = schema.get(key)?;
        limit.as_i64().map(i128::from).or_else(|| limit.as_u64().map(i128::from))
    };
    let (min, max) = (bound("minimum"), bound("maximum"));
    if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
        let range = match (min, max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "in range".to_owned(),
        };
        // Why there is a bound is often what the field is about.
        let about = schema.get("description").and_then(Value::as_str);
        let about = about.map(|about| format!(" ({})", about.trim_end_matches('.'))).unwrap_or_default();
        problems.push(format!("{path} is {number}; it must be {range}{about}"));
    }
}

/// The candidate closest to `word`, if one is close enough to be a slip.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    nearest_few(word, candidates).first().copied()
}

/// Up to three candidates close enough to `word` for it to be a slip, the closest first.
#[must_use]
pub fn nearest_few<'a>(word: &str, candidates: &[&'a str]) -> Vec<&'a str> {
    let word = word.to_ascii_lowercase();
    let mut near: Vec<(usize, &'a str)> = candidates
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(d, candidate)| *d <= candidate.len().max(word.len()) / 3 + 1)
        .collect();
    near.sort_by_key(|(d, _)| *d);
    near.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Levenshtein distance over at most 64 bytes each.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<u8> = a.bytes().take(64).collect();
    let b: Vec<u8> = b.bytes().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
