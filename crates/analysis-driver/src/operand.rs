//! What a caller names a driver or device by: a path of the namespace, a bare name, or an address.

use target::{Halt, Result, Target};

use crate::failure::because;
use crate::namespace::{Found, Namespace};

/// How an operand reads before the target is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand<'a> {
    Path(&'a str),
    Name(&'a str),
    Expression(&'a str),
}

/// `\Driver\x` is a path; a word that is no number, register or symbol is a name; the rest is an
/// expression (bare hexadecimal of eight digits and more is an address).
pub(crate) fn classify(text: &str) -> Operand<'_> {
    let text = text.trim();
    if text.starts_with('\\') {
        return Operand::Path(text);
    }
    let plain =
        text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '{' | '}' | '?' | ':'));
    let number = text.starts_with("0x")
        || text.starts_with("0X")
        || (text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit()));
    if plain && !number { Operand::Name(text) } else { Operand::Expression(text) }
}

/// The object an operand means: its address, and how the namespace led there.
pub(crate) fn resolve(
    target: &dyn Target,
    text: &str,
    directories: &[&str],
    halt: &Halt,
) -> Result<(u64, Option<Found>)> {
    match classify(text) {
        Operand::Expression(expression) => Ok((target.evaluate(expression, halt)?, None)),
        Operand::Path(path) => {
            let found = Namespace::new(target)?.lookup(path, true, halt)?;
            Ok((found.object, Some(found)))
        }
        Operand::Name(name) => {
            let namespace = Namespace::new(target)?;
            let mut said = Vec::new();
            for directory in directories {
                match namespace.lookup(&format!("{directory}\\{name}"), true, halt) {
                    Ok(found) => return Ok((found.object, Some(found))),
                    Err(error) if error.category().1 == Some("not_found") => said.push(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            Err(because(
                "not_found",
                format!("{name} is in none of {}: {}", directories.join(", "), said.join("; ")),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings() {
        assert_eq!(classify("\\Driver\\x"), Operand::Path("\\Driver\\x"));
        assert_eq!(classify("beep"), Operand::Name("beep"));
        assert_eq!(classify("sioctl_x64.sys"), Operand::Name("sioctl_x64.sys"));
        assert_eq!(classify("deadbeef"), Operand::Expression("deadbeef"));
        assert_eq!(classify("0x1000"), Operand::Expression("0x1000"));
        assert_eq!(classify("nt!Foo+8"), Operand::Expression("nt!Foo+8"));
        assert_eq!(classify("@rcx"), Operand::Expression("@rcx"));
        assert_eq!(classify("fffff804`7ba00000"), Operand::Expression("fffff804`7ba00000"));
    }
}
