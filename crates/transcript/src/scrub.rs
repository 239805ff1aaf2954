//! Scrub, then cap: cutting first could leave the front half of a key.

use std::borrow::Cow;

use redaction::{MASK, mask_pairs, mask_secrets};
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Value;

use crate::event::{Event, Text};

/// Longest short word of a record: a tool's name, a session's handle.
const WORD: usize = 512;

pub(crate) fn scrub(text: &str) -> Cow<'_, str> {
    match mask_secrets(text) {
        Cow::Borrowed(text) => mask_pairs(text),
        Cow::Owned(masked) => Cow::Owned(mask_pairs(&masked).into_owned()),
    }
}

/// Scrubs and caps every string of an event; `limit` 0 is no cap.
pub(crate) fn event(event: &mut Event, limit: usize) {
    let (texts, words) = event.strings();
    for text in texts {
        cap(text, limit);
    }
    for word in words {
        let mut text = Text::new(std::mem::take(word));
        cap(&mut text, WORD);
        *word = text.text;
    }
}

fn cap(text: &mut Text, limit: usize) {
    if let Cow::Owned(scrubbed) = scrub(&text.text) {
        text.text = scrubbed;
    }
    if limit == 0 || text.text.len() <= limit {
        return;
    }
    let mut end = limit;
    while !text.text.is_char_boundary(end) {
        end -= 1;
    }
    text.dropped = Some(text.dropped.unwrap_or(0) + text.text.len() - end);
    text.text.truncate(end);
}

/// A JSON value as it is written: every string leaf scrubbed before it is encoded, and in arguments
/// members masked whole that are secret by name.
pub(crate) struct Scrubbed<'a> {
    pub(crate) value: &'a Value,
    pub(crate) arguments: bool,
}

impl Serialize for Scrubbed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let arguments = self.arguments;
        match self.value {
            Value::String(text) => serializer.serialize_str(&scrub(text)),
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    list.serialize_element(&Scrubbed { value, arguments })?;
                }
                list.end()
            }
            Value::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    // Keys too: a caller may have put a secret in one.
                    let key = scrub(name);
                    if arguments && redaction::is_secret_member(name) {
                        map.serialize_entry(&key, MASK)?;
                    } else {
                        map.serialize_entry(&key, &Scrubbed { value, arguments })?;
                    }
                }
                map.end()
            }
            plain => plain.serialize(serializer),
        }
    }
}

/// The value encoded; kept whole or not at all, since half a JSON object is none.
pub(crate) fn json(value: &Value, arguments: bool, limit: usize) -> String {
    let encoded = serde_json::to_string(&Scrubbed { value, arguments }).unwrap_or_else(|_| "null".to_owned());
    if limit == 0 || encoded.len() <= limit {
        return encoded;
    }
    format!("{{\"transcript_dropped_bytes\":{}}}", encoded.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn cut_at_a_character_after_the_scrub() {
        let mut result = Event::WorkerLost { session: "s".into(), detail: Text::new("é".repeat(10)) };
        event(&mut result, 5);
        let expected = Text { text: "éé".into(), dropped: Some(16) };
        assert_eq!(result, Event::WorkerLost { session: "s".into(), detail: expected });
        let mut result = Event::WorkerLost { session: "s".into(), detail: Text::new("key=abcdefghij") };
        event(&mut result, 8);
        let Event::WorkerLost { detail, .. } = result else { unreachable!() };
        assert_eq!(detail.text, "key=<red");
    }

    #[test]
    fn values_are_whole_or_absent() {
        let args = value!({ "path": "x", "password": { "deep": 1 }, "c": "net:key=1.2.3.4" });
        assert_eq!(json(&args, true, 0), r#"{"path":"x","password":"<redacted>","c":"net:key=<redacted>"}"#);
        let data = value!({ "pdb": { "key": "ntkrnlmp.pdb/1" } });
        assert_eq!(json(&data, false, 0), r#"{"pdb":{"key":"ntkrnlmp.pdb/1"}}"#);
        assert_eq!(json(&data, false, 10), r#"{"transcript_dropped_bytes":32}"#);
    }
}
