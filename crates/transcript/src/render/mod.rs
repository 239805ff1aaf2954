//! Showing transcripts: an asciicast to play, one HTML page to read.
//!
//! Text in a transcript is whatever a target produced, so nothing of it reaches a terminal or a
//! browser as anything but visible characters.

mod cast;
mod html;
mod line;
mod timeline;
mod visible;

pub use cast::{CastOptions, cast};
pub use html::html;

/// What was rendered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    pub records: usize,
    /// Frames of a cast, rows of a page.
    pub frames: usize,
    pub runs: usize,
    pub unreadable: usize,
    /// Seconds from the first record to the last, runs laid end to end.
    pub seconds: f64,
}

impl Report {
    /// `12 records, 9 frames, 1 run, 0 unreadable lines, 3.2 s`.
    #[must_use]
    pub fn words(&self) -> String {
        let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        [
            many(self.records, "record"),
            many(self.frames, "frame"),
            many(self.runs, "run"),
            many(self.unreadable, "unreadable line"),
            format!("{:.1} s", self.seconds),
        ]
        .join(", ")
    }
}
