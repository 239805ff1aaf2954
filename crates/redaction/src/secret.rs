//! Secrets as a type: nothing can print one, and what was one once stays masked.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What stands where a secret was.
pub const MASK: &str = "<redacted>";
/// A shorter value would blank unrelated text.
const SHORTEST: usize = 6;

/// Every value to mask, longest first: a secret that contains another must go whole.
static KNOWN: RwLock<Vec<Arc<str>>> = RwLock::new(Vec::new());
/// Most processes never hold one; they pay one load.
static ANY: AtomicBool = AtomicBool::new(false);

/// A value nobody may read: a debug key, a password, a token. Making one registers its value, and
/// from then on [`mask_secrets`] hides it for as long as the process lives.
///
/// ```
/// let key = redaction::Secret::new("9.doc.test.key");
/// assert_eq!(format!("{key} {key:?}"), "<redacted> <redacted>");
/// assert_eq!(redaction::mask_secrets("key=9.doc.test.key!"), "key=<redacted>!");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(value: &str) -> Self {
        let value: Arc<str> = Arc::from(value);
        if value.len() >= SHORTEST {
            remember(&value);
        }
        Self(value)
    }

    /// The value itself, for the one place that uses it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

fn remember(value: &Arc<str>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    // In JSON that is quoted as text, it is spelled so.
    let quoted = Value::from(&**value).to_string();
    let escaped: Arc<str> = Arc::from(&quoted[1..quoted.len() - 1]);
    for form in [Arc::clone(value), escaped] {
        if !known.contains(&form) {
            known.push(form);
        }
    }
    known.sort_by_key(|value| std::cmp::Reverse(value.len()));
    ANY.store(true, Ordering::Release);
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// `text` without any secret this process was handed.
#[must_use]
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    mask_counted(text, &mut 0)
}

/// Whether there is anything to mask.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// The same as [`mask_secrets`]; adds what was masked to `count`.
pub(crate) fn mask_counted<'a>(text: &'a str, count: &mut u64) -> Cow<'a, str> {
    let mut out = Cow::Borrowed(text);
    if !any() {
        return out;
    }
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    for secret in known.iter() {
        let hits = out.matches(&**secret).count();
        if hits > 0 {
            *count += hits as u64;
            out = Cow::Owned(out.replace(&**secret, MASK));
        }
    }
    out
}

/// Remembers the secrets in a call's arguments: `key` and `password` of a `connection` string, and
/// members called `password`, `token` or `secret`.
pub fn learn_arguments(args: &Map<String, Value>) {
    for (name, value) in args {
        match value {
            Value::String(text) if name.eq_ignore_ascii_case("connection") => connection(text),
            Value::String(text) if is_secret(name) => drop(Secret::new(text.trim())),
            inner => learn_value(inner),
        }
    }
}

fn learn_value(value: &Value) {
    match value {
        Value::Object(members) => learn_arguments(members),
        Value::Array(items) => items.iter().for_each(learn_value),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    ["password", "token", "secret"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// Items of a connection string that name a place, which may look like a key.
const PLACES: [&str; 4] = ["port", "target", "path", "targetname"];

/// Four groups of base 36; an IPv4 address is none.
fn is_kdnet_key(text: &str) -> bool {
    let group =
        |group: &str| (1..=13).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_alphanumeric());
    text.split('.').count() == 4 && text.split('.').all(group) && text.parse::<std::net::Ipv4Addr>().is_err()
}

/// `net:port=50000,key=w.x.y.z`: a prefix up to the last `:` before the first `=`, then items.
fn connection(text: &str) {
    let items = text.split_once('=').map_or("", |(head, _)| {
        let start = head.rfind(':').map_or(0, |at| at + 1);
        &text[start..]
    });
    for item in items.split([',', ';']) {
        if let Some((name, value)) = item.split_once('=')
            && ["key", "password"].iter().any(|word| name.trim().eq_ignore_ascii_case(word))
        {
            drop(Secret::new(value.trim()));
        }
    }
    // A key in the wrong place is one all the same.
    let (_, items) = text.split_once(':').unwrap_or_default();
    for item in items.split([',', ';', ' ', '\t']) {
        let (name, value) = item.split_once('=').unwrap_or(("", item));
        if !PLACES.iter().any(|word| name.eq_ignore_ascii_case(word)) && is_kdnet_key(value) {
            drop(Secret::new(value));
        }
    }
    // A string the grammar does not cover still has what the pattern sees.
    for range in crate::pairs::values(text) {
        drop(Secret::new(&text[range]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_prints_a_secret() {
        let secret = Secret::new("printed-nowhere-1");
        assert_eq!(
            format!("{secret} {secret:?} {:#?}", Some(&secret)),
            "<redacted> <redacted> Some(\n    <redacted>,\n)"
        );
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"<redacted>\"");
        assert_eq!(secret.expose(), "printed-nowhere-1");
    }

    #[test]
    fn never_forgotten_and_longest_first() {
        drop(Secret::new("inner-value-7"));
        drop(Secret::new("outer-inner-value-7-outer"));
        assert_eq!(mask_secrets("a outer-inner-value-7-outer inner-value-7 b"), "a <redacted> <redacted> b");
    }

    #[test]
    fn short_values_are_not_masked() {
        drop(Secret::new("abcde"));
        assert_eq!(mask_secrets("abcde"), "abcde");
    }

    #[test]
    fn a_secret_quoted_in_json_is_masked() {
        drop(Secret::new("with\"quote\\1"));
        let text = json!({ "x": "with\"quote\\1" }).to_string();
        assert_eq!(mask_secrets(&text), r#"{"x":"<redacted>"}"#);
    }

    #[test]
    fn arguments_teach_their_secrets() {
        let args = json!({
            "connection": "net:port=50000, KEY = q1.w2.e3.r4 ,target=host",
            "deep": [{ "Password": "hunter2hunter2" }],
            "key": "ntkrnlmp.pdb/1",
        });
        learn_arguments(args.as_object().unwrap());
        for misplaced in ["net:port=1,b7n8.m9k0.j1h2.g3f4", "net:kye=v1c2.x3z4.l5k6.j7h8,port=1.2.3.4"] {
            learn_arguments(json!({ "connection": misplaced }).as_object().unwrap());
        }
        assert_eq!(
            mask_secrets("b7n8.m9k0.j1h2.g3f4 v1c2.x3z4.l5k6.j7h8 1.2.3.4"),
            "<redacted> <redacted> 1.2.3.4"
        );
        assert_eq!(
            mask_secrets("q1.w2.e3.r4 hunter2hunter2 ntkrnlmp.pdb/1 host"),
            "<redacted> <redacted> ntkrnlmp.pdb/1 host"
        );
    }
}
