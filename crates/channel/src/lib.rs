//! The line protocol between supervisor and worker (spec 10 section 1.4): one JSON object per line,
//! UTF-8, `\n`, at most [`MAX_LINE`] bytes, in each direction. Knows nothing of what the tools say.

mod line;
mod message;

pub use line::{LineBuffer, LineError, MAX_LINE, encode};
pub use message::{Interrupt, LogLine, Message, OPEN_ID, Op, Outcome, Request};

/// Identifies a build. The supervisor refuses a worker that says another one: an executable copied
/// by hand goes stale silently otherwise. `WINDBG_MCP_REVISION` is set by the release build.
#[must_use]
pub fn build() -> String {
    match option_env!("WINDBG_MCP_REVISION") {
        Some(revision) => format!("{}+{revision}", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
