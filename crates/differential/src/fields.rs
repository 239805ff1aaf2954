//! Two structured answers, field by field.

use serde_json::Value;

use crate::Answer;
use crate::stacks;

/// One field that is not the same on both sides; `None`: that side does not have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub question: String,
    /// `frames[3].symbol`; rows of lists that have a key are named by it.
    pub field: String,
    pub native: Option<Value>,
    pub other: Option<Value>,
}

/// What is about the session or the engine and not about the target, or prose for people that is
/// made of the other fields.
const NOT_OF_THE_TARGET: [&str; 9] = [
    "session_id",
    "engine",
    "engine_reason",
    "report",
    "target",
    "can",
    "limitation",
    "limitations",
    "message",
];

/// What a row of a list is known by, best first.
const KEYS: [&str; 4] = ["start", "system_id", "name", "offset"];

/// The differences of one question and how many single values were looked at.
#[derive(Debug, Default)]
pub struct Compared {
    pub looked_at: usize,
    pub differences: Vec<Difference>,
}

pub(crate) struct Walk<'a> {
    pub(crate) question: &'a str,
    pub(crate) out: Compared,
}

/// Compares two answers to `question`.
#[must_use]
pub fn compare(question: &str, native: &Answer, other: &Answer) -> Compared {
    let mut walk = Walk { question, out: Compared::default() };
    match (native, other) {
        (Answer::Served(native), Answer::Served(other)) => walk.value("", Some(native), Some(other)),
        (native, other) => walk.value("outcome", Some(&outcome(native)), Some(&outcome(other))),
    }
    walk.out
}

fn outcome(answer: &Answer) -> Value {
    match answer {
        Answer::Served(_) => Value::from("served"),
        Answer::Refused { category, reason: None, .. } => Value::from(category.as_str()),
        Answer::Refused { category, reason: Some(reason), .. } => {
            Value::from(format!("{category}: {reason}"))
        }
    }
}

impl Walk<'_> {
    pub(crate) fn differ(&mut self, field: &str, native: Option<&Value>, other: Option<&Value>) {
        self.out.differences.push(Difference {
            question: self.question.to_owned(),
            field: field.to_owned(),
            native: native.cloned(),
            other: other.cloned(),
        });
    }

    pub(crate) fn value(&mut self, field: &str, native: Option<&Value>, other: Option<&Value>) {
        match (native, other) {
            (Some(Value::Object(_)), Some(Value::Object(_))) => self.object(field, native, other),
            (Some(Value::Array(native)), Some(Value::Array(other))) => self.list(field, native, other),
            (native, other) => {
                self.out.looked_at += 1;
                if native != other {
                    self.differ(field, native, other);
                }
            }
        }
    }

    pub(crate) fn object(&mut self, field: &str, native: Option<&Value>, other: Option<&Value>) {
        let entries = |side: Option<&Value>| side.and_then(Value::as_object).cloned().unwrap_or_default();
        let (native, other) = (entries(native), entries(other));
        let mut names: Vec<&String> = native.keys().collect();
        names.extend(other.keys().filter(|name| !native.contains_key(*name)));
        for name in names {
            if NOT_OF_THE_TARGET.contains(&name.as_str()) {
                continue;
            }
            let below = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
            self.value(&below, native.get(name), other.get(name));
        }
    }

    fn list(&mut self, field: &str, native: &[Value], other: &[Value]) {
        if stacks::is_stack(native) || stacks::is_stack(other) {
            return stacks::compare(self, field, native, other);
        }
        let Some(key) = KEYS.into_iter().find(|key| is_key(key, native) && is_key(key, other)) else {
            for index in 0..native.len().max(other.len()) {
                self.value(&format!("{field}[{index}]"), native.get(index), other.get(index));
            }
            return;
        };
        let named = |rows: &[Value]| -> Vec<(String, Value)> {
            rows.iter()
                .map(|row| (row[key].as_str().map_or(row[key].to_string(), str::to_owned), row.clone()))
                .collect()
        };
        let (native, other) = (named(native), named(other));
        let find = |rows: &[(String, Value)], name: &str| {
            rows.iter().find(|(n, _)| n == name).map(|(_, r)| r.clone())
        };
        let mut names: Vec<&String> = native.iter().map(|(name, _)| name).collect();
        names.extend(other.iter().map(|(name, _)| name).filter(|name| find(&native, name).is_none()));
        for name in names {
            let (native, other) = (find(&native, name), find(&other, name));
            self.value(&format!("{field}[{name}]"), native.as_ref(), other.as_ref());
        }
    }
}

/// Whether every row has the field and no two the same.
fn is_key(key: &str, rows: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::new();
    rows.iter().all(|row| row.get(key).is_some_and(|value| seen.insert(value.to_string())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(native: Value, other: Value) -> Vec<String> {
        let compared = compare("q", &Answer::Served(native), &Answer::Served(other));
        compared.differences.into_iter().map(|d| d.field).collect()
    }

    #[test]
    fn rows_are_paired_by_key_and_not_by_place() {
        let native = json!({ "modules": [{ "start": "0x1", "size": 1 }, { "start": "0x2", "size": 2 }] });
        let other = json!({ "modules": [{ "start": "0x2", "size": 3 }, { "start": "0x1", "size": 1 }] });
        assert_eq!(differences(native, other), ["modules[0x2].size"]);
    }

    #[test]
    fn what_only_one_side_has_is_a_difference() {
        assert_eq!(differences(json!({ "a": 1 }), json!({ "b": 1 })), ["a", "b"]);
        assert_eq!(differences(json!([1, 2]), json!([1])), ["[1]"]);
    }

    #[test]
    fn what_is_about_the_engine_is_left_out() {
        assert!(differences(json!({ "engine": "native" }), json!({ "engine": "dbgeng" })).is_empty());
    }

    #[test]
    fn a_refusal_and_an_answer_differ() {
        let refused = Answer::Refused { category: "debugger".into(), reason: None, message: String::new() };
        let compared = compare("q", &Answer::Served(json!({})), &refused);
        assert_eq!(compared.differences[0].field, "outcome");
        assert!(compare("q", &refused, &refused).differences.is_empty());
    }
}
