//! Prose that narrows with the surface (spec 20 section 5.4): a sentence that names a tool is sent
//! only to those who are served that tool.

use crate::Surface;

/// A piece of prose.
#[derive(Clone, Copy, Debug)]
pub enum Fragment {
    /// May name only the tool itself and the session group.
    Fixed(&'static str),
    /// Sent when the surface serves all of `needs`.
    If { needs: &'static [&'static str], text: &'static str },
}

/// The fragments `surface` is entitled to, joined by spaces.
#[must_use]
pub fn render(fragments: &[Fragment], surface: &Surface) -> String {
    let parts: Vec<&str> = fragments
        .iter()
        .filter_map(|fragment| match fragment {
            Fragment::Fixed(text) => Some(*text),
            Fragment::If { needs, text } => needs.iter().all(|tool| surface.serves(tool)).then_some(*text),
        })
        .collect();
    parts.join(" ")
}
