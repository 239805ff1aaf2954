//! Stacks as text: one form for the backtrace and both triages.

use target::{Found, FrameInfo};

use crate::table::fenced;

/// How a frame was found, when a reader must know: everything that is no proof.
fn mark(frame: &FrameInfo) -> &'static str {
    match frame.found {
        _ if frame.inline => "inline",
        Found::Context | Found::Unwind | Found::Leaf | Found::Fpo => "",
        Found::FramePointer => "frame pointer",
        Found::Scan => "scan (a guess)",
    }
}

/// `module!symbol+0x1c [file @ 12]` and what else a frame says.
#[must_use]
pub fn place(frame: &FrameInfo) -> String {
    let mut text = frame.place();
    if let Some(name) = &frame.unloaded_module {
        text.push_str(&format!(" <unloaded {name}>"));
    }
    if let Some(source) = &frame.source {
        text.push_str(&format!(" [{} @ {}]", source.file, source.line));
    }
    text
}

/// The frames in a fenced table.
#[must_use]
pub fn table(frames: &[FrameInfo]) -> String {
    let rows: Vec<[String; 4]> = frames
        .iter()
        .map(|frame| {
            [format!("{:02}", frame.index), frame.address.to_string(), mark(frame).to_owned(), place(frame)]
        })
        .collect();
    fenced(["#", "address", "found", "where"], &rows)
}
