#![no_main]
//! A transcript holds whatever a target produced, torn or not: every line is a record or counted, and
//! what is rendered acts on no terminal.

use libfuzzer_sys::fuzz_target;
use transcript::Reading;
use transcript::render::{CastOptions, cast, html};

fuzz_target!(|bytes: &[u8]| {
    let mut reading = Reading::default();
    bytes.split(|byte| *byte == b'\n').for_each(|line| reading.line(line));
    let (text, _) = cast(&reading, &CastOptions { max_lines: 0, ..CastOptions::default() });
    // JSON escapes what is left; the renderer's own colours are all there may be.
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    assert!(!text.contains("\\u0007") && !text.contains("\\u009b"));
    let (page, _) = html(&reading, None);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
});
