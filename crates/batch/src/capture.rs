//! Captures: a value bound by an `eval` step, inserted as a number into later text (spec 20 section
//! 2.3). Only a number is ever inserted, so no insertion can hold what a guard would refuse.

use std::collections::BTreeMap;

use crate::step::{Check, Step};

/// Longest name of a capture.
pub(crate) const LONGEST_NAME: usize = 64;

/// Whether `name` may be bound.
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= LONGEST_NAME
}

/// A piece of text with references in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Reference(&'a str),
    /// `{{` that is no reference: unclosed, or not a name.
    Malformed(&'a str),
}

/// The pieces of `text`. `{{` always opens a reference.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find("{{") {
        if at > 0 {
            out.push(Piece::Text(&rest[..at]));
        }
        let inside = &rest[at + 2..];
        let Some(end) = inside.find("}}") else {
            out.push(Piece::Malformed(&rest[at..]));
            return out;
        };
        let name = inside[..end].trim();
        let whole = &rest[at..at + 2 + end + 2];
        out.push(if is_name(name) { Piece::Reference(name) } else { Piece::Malformed(whole) });
        rest = &inside[end + 2..];
    }
    if !rest.is_empty() {
        out.push(Piece::Text(rest));
    }
    out
}

/// Values bound so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures(pub(crate) BTreeMap<String, u64>);

impl Captures {
    /// `text` with its references replaced.
    ///
    /// # Errors
    /// The name that was never bound.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Malformed(text) => return Err(text.to_owned()),
                Piece::Reference(name) => {
                    let value = self.0.get(name).ok_or_else(|| name.to_owned())?;
                    out.push_str(&format!("{value:#x}"));
                }
            }
        }
        Ok(out)
    }

    fn fill_optional(&self, text: Option<&String>) -> Result<Option<String>, String> {
        text.map(|text| self.fill(text)).transpose()
    }

    /// The step as it is to be run.
    ///
    /// # Errors
    /// The name that was never bound.
    pub(crate) fn fill_step(&self, step: &Step) -> Result<Step, String> {
        let mut expect = Vec::with_capacity(step.expect.len());
        for check in &step.expect {
            expect.push(Check {
                check: check.check,
                text: self.fill_optional(check.text.as_ref())?,
                expr: self.fill_optional(check.expr.as_ref())?,
                equals: self.fill_optional(check.equals.as_ref())?,
            });
        }
        Ok(Step {
            name: self.fill_optional(step.name.as_ref())?,
            command: self.fill_optional(step.command.as_ref())?,
            address: self.fill_optional(step.address.as_ref())?,
            expr: self.fill_optional(step.expr.as_ref())?,
            expect,
            ..step.clone()
        })
    }
}

/// The strings of a step that may hold references, each with its field.
pub(crate) fn texts(step: &Step) -> Vec<(String, &str)> {
    let own =
        [("name", &step.name), ("command", &step.command), ("address", &step.address), ("expr", &step.expr)];
    let mut out: Vec<(String, &str)> =
        own.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text.as_deref()?))).collect();
    for (index, check) in step.expect.iter().enumerate() {
        let own = [("text", &check.text), ("expr", &check.expr), ("equals", &check.equals)];
        out.extend(
            own.into_iter()
                .filter_map(|(field, text)| Some((format!("check {} {field}", index + 1), text.as_deref()?))),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn references_are_found_and_filled() {
        let captures = Captures(BTreeMap::from([("orig".to_owned(), 0x41), ("a_1".to_owned(), 0)]));
        assert_eq!(captures.fill("eq X {{orig}}").unwrap(), "eq X 0x41");
        assert_eq!(captures.fill("{{a_1}}{{ orig }}}").unwrap(), "0x00x41}");
        assert_eq!(captures.fill("no { reference } }}").unwrap(), "no { reference } }}");
        assert_eq!(captures.fill("{{x}}").unwrap_err(), "x");
        for malformed in ["{{", "a {{b", "{{}}", "{{1x}}", "{{a b}}", "{{a}"] {
            assert!(captures.fill(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn names() {
        assert!(["a", "_", "A9_z"].iter().all(|name| is_name(name)));
        assert!(["", "9a", "a-b", "é", "a b"].iter().all(|name| !is_name(name)));
        assert!(!is_name(&"a".repeat(65)));
    }

    proptest! {
        #[test]
        fn pieces_never_lose_text(text in "[a{}x ]{0,40}") {
            let whole: usize = pieces(&text).iter().map(|piece| match piece {
                Piece::Text(t) | Piece::Malformed(t) => t.len(),
                Piece::Reference(_) => 0,
            }).sum();
            prop_assert!(whole <= text.len());
            prop_assert!(text.contains("{{") || pieces(&text).iter().all(|p| matches!(p, Piece::Text(_))));
        }
    }
}
