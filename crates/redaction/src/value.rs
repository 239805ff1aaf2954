//! The filter over a typed value: strings only, never keys, never vocabulary.

use serde_json::{Map, Value, json};

use crate::bytes;
use crate::counts::Counts;
use crate::filter::Filter;
use crate::secret;
use crate::shape::{Leaf, Shape};

/// One value being filtered.
pub(crate) struct Pass<'a> {
    pub(crate) filter: Option<&'a Filter>,
    pub(crate) shape: &'a Shape,
    pub(crate) counts: Counts,
}

impl Pass<'_> {
    /// Filters the members of an object at `at`.
    pub(crate) fn object(&mut self, members: &mut Map<String, Value>, at: usize) {
        let mut blanked = Vec::new();
        let mut from = 0;
        for (name, value) in members.iter_mut() {
            if matches!(value, Value::Number(_) | Value::Bool(_) | Value::Null) {
                continue;
            }
            let inner = self.shape.field(at, name, &mut from);
            self.value(value, inner, name, &mut blanked);
        }
        if !blanked.is_empty() {
            members.insert("redacted".to_owned(), Value::Array(blanked));
        }
    }

    /// Filters one value in the field `name`; `blanked` are the byte ranges of the row it is in.
    pub(crate) fn value(&mut self, value: &mut Value, at: usize, name: &str, blanked: &mut Vec<Value>) {
        match value {
            Value::String(text) => self.string(text, at, name, blanked),
            Value::Array(items) => {
                let inner = self.shape.items(at);
                for item in items {
                    self.value(item, inner, name, blanked);
                }
            }
            Value::Object(members) => self.object(members, at),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn string(&mut self, text: &mut String, at: usize, name: &str, blanked: &mut Vec<Value>) {
        match self.shape.leaf(at, name) {
            // A secret is one wherever it stands: no vocabulary holds it by right.
            Leaf::Verbatim => self.secrets(text),
            Leaf::Text if is_hex_value(text) => {}
            Leaf::Text => {
                self.secrets(text);
                if let Some(filter) = self.filter
                    && let std::borrow::Cow::Owned(filtered) = filter.text(text, &mut self.counts)
                {
                    *text = filtered;
                }
            }
            Leaf::Bytes => {
                if let Some(filter) = self.filter
                    && let Some(mut memory) = decode(text)
                {
                    let found = bytes::blank(filter, &mut memory, &mut self.counts);
                    if !found.is_empty() {
                        *text = encode(&memory);
                        let rows = found.iter().map(|r| json!({ "offset": r.start, "size": r.len() }));
                        blanked.extend(rows);
                    }
                }
            }
        }
    }

    fn secrets(&mut self, text: &mut String) {
        if let std::borrow::Cow::Owned(masked) = secret::mask_counted(text, &mut self.counts.secrets) {
            *text = masked;
        }
    }
}

/// `0x1f`: the form of addresses, RVAs and codes.
fn is_hex_value(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| {
        (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

fn decode(hex: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(*pair.first()?)? << 4) | digit(*pair.get(1)?)?)).collect()
}

fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}
