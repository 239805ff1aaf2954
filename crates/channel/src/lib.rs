//! The line protocol between supervisor and worker (spec 10 section 1.4): one JSON object per line,
//! UTF-8, `\n`, at most [`MAX_LINE`] bytes, in each direction. Knows nothing of what the tools say.

mod line;
mod message;

use std::sync::OnceLock;

pub use line::{LineBuffer, LineError, MAX_LINE, encode};
pub use message::{Interrupt, LogLine, Message, OPEN_ID, Op, Outcome, Request};

static BUILD: OnceLock<&'static str> = OnceLock::new();

/// The binary says what build it is, once, first thing.
pub fn identify(build: &'static str) {
    // A second call would say the same.
    let _ = BUILD.set(build);
}

/// Identifies a build. The supervisor refuses a worker that says another one: an executable copied
/// by hand goes stale silently otherwise. The bare version until [`identify`] was called (tests). In
/// debug builds `WINDBG_MCP_TEST_BUILD` stands for another build.
#[must_use]
pub fn build() -> String {
    if cfg!(debug_assertions)
        && let Ok(build) = std::env::var("WINDBG_MCP_TEST_BUILD")
    {
        return build;
    }
    (*BUILD.get().unwrap_or(&env!("CARGO_PKG_VERSION"))).to_owned()
}
