//! What a command prints: when its reader is gone, so is the command. What no tool answered passes the
//! redactor here; a tool's answer has passed it by its type.

use std::borrow::Cow;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use redaction::Redactor;

static REDACTOR: OnceLock<Redactor> = OnceLock::new();

/// From here on, what is said passes `redactor`.
pub(crate) fn through(redactor: &Redactor) {
    // A second command in one process has the same one.
    let _ = REDACTOR.set(redactor.clone());
}

/// `text` as it may be shown.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    REDACTOR.get().map_or(Cow::Borrowed(text), |redactor| redactor.log_line(text))
}

/// A path as it may be shown.
pub(crate) fn shown_path(path: &Path) -> PathBuf {
    match shown(&path.to_string_lossy()) {
        Cow::Borrowed(_) => path.to_owned(),
        Cow::Owned(text) => PathBuf::from(text),
    }
}

/// Prints `text` as it is.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        // `windbg-mcp ... | head`: nobody is left to tell. Workers see their channel close.
        std::process::exit(crate::FAILED);
    }
}

/// Prints a tool's `text` and ends the line.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Prints a line of the command's own.
pub(crate) fn said(text: &str) {
    line(&shown(text));
}

/// A line on standard error, to a reader that may have left.
pub(crate) fn problem(text: &str) {
    failed(&shown(text));
}

/// A tool's error on standard error.
pub(crate) fn failed(text: &str) {
    let _ = writeln!(std::io::stderr(), "windbg-mcp: {text}");
}
