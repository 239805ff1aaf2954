//! The operand guard (spec 20 section 6.4): what may not appear in a string that becomes part of an
//! engine expression. Refusing here is one contract for both engines.

/// How every refusal of an operand ends.
pub const NOT_IN_AN_OPERAND: &str = "is not allowed in an operand";

/// A refused operand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what} at position {position} {}", NOT_IN_AN_OPERAND)]
pub struct GuardError {
    pub field: String,
    /// The offending characters, as they can be shown.
    pub what: String,
    /// Byte offset.
    pub position: usize,
}

impl From<GuardError> for target::TargetError {
    fn from(error: GuardError) -> Self {
        Self::InvalidArgument(error.to_string())
    }
}

fn refuse(field: &str, what: impl Into<String>, position: usize) -> Result<(), GuardError> {
    Err(GuardError { field: field.to_owned(), what: what.into(), position })
}

/// Separators, quotes, control characters, the C++ evaluator and alias expansion.
pub fn guard(text: &str, field: &str) -> Result<(), GuardError> {
    check(text, field, |c| matches!(c, ';' | '"'))?;
    for (pattern, what) in [("@@", "'@@' (the C++ evaluator)"), ("${", "'${' (alias expansion)")] {
        if let Some(position) = text.find(pattern) {
            return refuse(field, what, position);
        }
    }
    Ok(())
}

/// A data-model expression (`dx`): quotes are legitimate there.
pub fn guard_data_model(text: &str, field: &str) -> Result<(), GuardError> {
    check(text, field, |c| c == ';')
}

/// The argument of a reload: one module name with switches, nothing that ends it.
pub fn guard_reload(text: &str, field: &str) -> Result<(), GuardError> {
    guard(text, field)
}

/// A symbol or image path: `;` separates its elements and is welcome.
pub fn guard_path(text: &str, field: &str) -> Result<(), GuardError> {
    check(text, field, |c| c == '"')
}

fn check(text: &str, field: &str, refused: impl Fn(char) -> bool) -> Result<(), GuardError> {
    for (position, c) in text.char_indices() {
        // U+2028 and U+2029 break lines for many readers of a report.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            let what = match c {
                '\r' | '\n' => "a line break".to_owned(),
                '\0' => "a NUL".to_owned(),
                _ => format!("the control character U+{:04X}", u32::from(c)),
            };
            return refuse(field, what, position);
        }
        if refused(c) {
            return refuse(field, format!("'{c}'"), position);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operand_may_not_hold() {
        for (text, position) in [
            ("rip; .opendump x", 3),
            ("a\nb", 1),
            ("a\rb", 1),
            ("a\"b", 1),
            ("\0", 0),
            ("a\u{7f}", 1),
            ("@@c++(x)", 0),
            ("1+@@(2)", 2),
            ("${foo}", 0),
            ("é;", 2),
        ] {
            let error = guard(text, "address").unwrap_err();
            assert_eq!((error.position, error.field.as_str()), (position, "address"), "{text:?}");
        }
        for text in ["nt!KeBugCheckEx+0x14", "@rip", "poi(@rsp+8) & 0n10", "$t0", "a!b<c>::d"] {
            assert_eq!(guard(text, "address"), Ok(()));
        }
        assert_eq!(
            guard("rip;", "address").unwrap_err().to_string(),
            "address: ';' at position 3 is not allowed in an operand"
        );
    }

    #[test]
    fn the_variants_allow_what_they_need() {
        assert!(guard_data_model("@$cursession.Processes.Where(p => p.Name == \"x\")", "expression").is_ok());
        assert!(guard_data_model("a;b", "expression").is_err());
        assert!(guard_data_model("a\nb", "expression").is_err());
        assert!(guard_reload("/f driver.sys", "reload").is_ok());
        assert!(guard_reload("/f x;q", "reload").is_err());
        assert!(guard_path("srv*C:\\a b*https://h;/x", "path").is_ok());
        assert!(guard_path("a\"b", "path").is_err());
        assert!(guard_path("a\tb", "path").is_err());
    }
}
