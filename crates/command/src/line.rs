//! Splitting a line into commands as WinDbg does.

use target::{Result, TargetError};

/// Bytes of a line.
const LENGTH_LIMIT: usize = 65_536;

/// The commands of a line: separated by `;` and line breaks outside quotes, comments dropped.
pub(crate) fn split(line: &str) -> Result<Vec<&str>> {
    if line.len() > LENGTH_LIMIT {
        return Err(TargetError::InvalidArgument(format!("a command line has at most {LENGTH_LIMIT} bytes")));
    }
    let mut commands = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        rest = rest.trim_start();
        if rest.starts_with('*') {
            // A comment to the end of the line, `;` included.
            rest = rest.split_once(['\n', '\r']).map_or("", |(_, after)| after);
            continue;
        }
        let end = command_end(rest);
        let command = rest[..end].trim();
        let comment = command.starts_with("$$") && !command.starts_with("$$>") && !command.starts_with("$$<");
        if !command.is_empty() && !comment {
            commands.push(command);
        }
        rest = rest.get(end + 1..).unwrap_or("");
    }
    Ok(commands)
}

fn command_end(text: &str) -> usize {
    let mut quoted = false;
    for (index, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ';' if !quoted => return index,
            '\n' | '\r' => return index,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_line() {
        assert_eq!(split("k; r ;;lm").unwrap(), ["k", "r", "lm"]);
        assert_eq!(split("s -a 0 L10 \"a;b\"; k").unwrap(), ["s -a 0 L10 \"a;b\"", "k"]);
        assert_eq!(split("* k; r\nlm").unwrap(), ["lm"]);
        assert_eq!(split("$$ nothing; k").unwrap(), ["k"]);
        assert_eq!(split("$$><x").unwrap(), ["$$><x"]);
        assert_eq!(split("é;é").unwrap(), ["é", "é"]);
        assert!(split(" ;\n").unwrap().is_empty());
        assert!(split(&"k".repeat(70_000)).is_err());
    }
}
