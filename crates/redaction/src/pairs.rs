//! The net for secrets nobody handed over: `key=`, `password=` and their JSON spellings (spec 20
//! section 4.4).

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use crate::secret::MASK;

/// How a connection string is shown, its key gone already.
const HIDDEN: &str = "***";
const NAMES: [&str; 2] = ["password", "key"];
/// Members of arguments that are masked whole.
const MEMBERS: [&str; 4] = ["key", "password", "token", "secret"];

/// `text` with the values of `key=` and `password=` masked.
///
/// ```
/// assert_eq!(redaction::mask_pairs("net:port=1,key=a.b.c.d"), "net:port=1,key=<redacted>");
/// assert_eq!(redaction::mask_pairs("pubkey=1 Key: x"), "pubkey=1 Key: x");
/// ```
#[must_use]
pub fn mask_pairs(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for range in values(text) {
        if [MASK, HIDDEN].contains(&&text[range.clone()]) {
            continue;
        }
        out.push_str(&text[copied..range.start]);
        out.push_str(MASK);
        copied = range.end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Where the values are, in order, none empty, none overlapping.
pub(crate) fn values(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(found) = bytes.get(from..)?.iter().position(|b| matches!(b, b'=' | b':')) {
            let separator = from + found;
            from = separator + 1;
            let logged = logged(bytes, separator);
            // In a value as a log prints it, what is secret by name in arguments is one too.
            let names: &[&str] = if logged.is_some() { &MEMBERS } else { &NAMES };
            if !named(text, separator, names) {
                continue;
            }
            let value = value(bytes, logged.unwrap_or(separator + 1));
            if !value.is_empty() {
                from = value.end;
                return Some(value);
            }
        }
        None
    })
}

fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Where the quotes begin in `"password": String("...")`: protocol libraries log requests like this
/// before anybody has looked at them.
fn logged(bytes: &[u8], separator: usize) -> Option<usize> {
    let rest = bytes[separator + 1..].trim_ascii_start();
    rest.starts_with(b"String(").then(|| bytes.len() - rest.len() + b"String(".len())
}

/// Whether a secret's name ends before the separator: bare before `=`, quoted before `:`.
fn named(text: &str, separator: usize, names: &[&str]) -> bool {
    let bytes = text.as_bytes();
    let mut end = separator;
    while end > 0 && blank(bytes[end - 1]) {
        end -= 1;
    }
    let quoted = end > 0 && matches!(bytes[end - 1], b'"' | b'\'');
    if quoted {
        end -= 1;
        if end > 0 && bytes[end - 1] == b'\\' {
            end -= 1;
        }
    } else if bytes[separator] == b':' {
        return false;
    }
    let Some(name) = names.iter().find(|name| {
        end.checked_sub(name.len())
            .is_some_and(|start| bytes[start..end].eq_ignore_ascii_case(name.as_bytes()))
    }) else {
        return false;
    };
    let before = text[..end - name.len()].chars().next_back();
    if quoted && !matches!(before, Some('"' | '\'')) {
        return false;
    }
    before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-'))
}

/// The value that begins after the separator, without its quotes.
fn value(bytes: &[u8], mut at: usize) -> Range<usize> {
    while bytes.get(at).copied().is_some_and(blank) {
        at += 1;
    }
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\\'), Some(&quote @ (b'"' | b'\''))) => {
            let start = at + 2;
            let close = bytes[start..].windows(2).position(|pair| pair == [b'\\', quote]);
            start..close.map_or_else(|| line_end(bytes, start), |length| start + length)
        }
        (Some(&quote @ (b'"' | b'\'')), _) => {
            let start = at + 1;
            start..closing(bytes, start, quote).unwrap_or_else(|| line_end(bytes, start))
        }
        _ => {
            let stops = |b: &u8| b.is_ascii_whitespace() || matches!(b, b',' | b';' | b'"' | b'}' | b']');
            at..bytes[at..].iter().position(stops).map_or(bytes.len(), |length| at + length)
        }
    }
}

/// A quoted value that never closes was cut; what is left of it is its line.
fn line_end(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|b| matches!(b, b'\r' | b'\n')).map_or(bytes.len(), |n| start + n)
}

fn closing(bytes: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            _ if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// Whether a member of request arguments is secret by its name.
#[must_use]
pub fn is_secret_member(name: &str) -> bool {
    MEMBERS.iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// Masks members of request arguments that are secret by name, whole, at any depth. Not for
/// results: a module's PDB identity has a member `key`.
pub fn mask_arguments(args: &mut Value) {
    match args {
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                if is_secret_member(name) {
                    *value = Value::from(MASK);
                } else {
                    mask_arguments(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_arguments),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hits() {
        for (text, masked) in [
            ("key=abc", "key=<redacted>"),
            ("KEY\t= abc,port=1", "KEY\t= <redacted>,port=1"),
            ("(password=abc;x)", "(password=<redacted>;x)"),
            (r#"{"key":"a b","n":1}"#, r#"{"key":"<redacted>","n":1}"#),
            (r#"{"key" : "a\"b"}"#, r#"{"key" : "<redacted>"}"#),
            (r#"{\"Password\":\"a b\"}"#, r#"{\"Password\":\"<redacted>\"}"#),
            (r#"key="a;b c" d"#, r#"key="<redacted>" d"#),
            (r#"{"key": 12345}"#, r#"{"key": <redacted>}"#),
            ("'password': 'x y'", "'password': '<redacted>'"),
            ("key=\"never closed\nnext", "key=\"<redacted>\nnext"),
            ("key=a.b.c.d]", "key=<redacted>]"),
            ("key=a=b", "key=<redacted>"),
            (
                r#"{"token": String("a b"), "n": Number(1)}"#,
                r#"{"token": String("<redacted>"), "n": Number(1)}"#,
            ),
            (r#"\"key\": String(\"a\")"#, r#"\"key\": String(\"<redacted>\")"#),
            ("key=1\npassword=2", "key=<redacted>\npassword=<redacted>"),
            ("é,key=ü", "é,key=<redacted>"),
        ] {
            assert_eq!(mask_pairs(text), masked, "{text}");
            assert_eq!(mask_pairs(masked), masked, "masking twice changes nothing: {masked}");
        }
    }

    #[test]
    fn near_misses() {
        for text in [
            "pubkey=1",
            "keyring=1",
            "my_key=1",
            "a-key=1",
            "9key=1",
            "ékey=1",
            r"Key: \REGISTRY\MACHINE",
            "key: value",
            r#"{"token": "a"}"#,
            "key=\nvalue",
            "key= ;x",
            r#""key":"","n":1"#,
            "key",
            "==:=",
            "",
        ] {
            assert_eq!(mask_pairs(text), text, "{text}");
        }
    }

    #[test]
    fn members_of_arguments_by_name() {
        let mut args = json!({
            "Key": { "deep": 1 }, "path": "x", "items": [{ "token": "t", "tokens": 3 }], "pdb_key": "k"
        });
        mask_arguments(&mut args);
        let masked =
            json!({ "Key": MASK, "path": "x", "items": [{ "token": MASK, "tokens": 3 }], "pdb_key": "k" });
        assert_eq!(args, masked);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_masked_once_and_for_all(text in ".{0,200}", tail in "(key|password)[ =:\"\\\\]{0,5}.{0,20}") {
            let text = format!("{text}{tail}");
            let once = mask_pairs(&text).into_owned();
            proptest::prop_assert_eq!(mask_pairs(&once).into_owned(), once);
        }
    }
}
