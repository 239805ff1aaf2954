//! Standard output of a command: when its reader is gone, so is the command.

use std::io::Write as _;

/// Prints `text` as it is.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        // `windbg-mcp ... | head`: nobody is left to tell. Workers see their channel close.
        std::process::exit(crate::FAILED);
    }
}

/// Prints `text` and ends the line.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}
