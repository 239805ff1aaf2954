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
    for line in text.lines().skip(1) {
        let Ok((_, _, mut shown)) = serde_json::from_str::<(f64, String, String)>(line) else {
            panic!("no frame: {line}");
        };
        // The renderer's own colours.
        for colour in ["1;36", "2", "32", "31", "33", "1", "0"] {
            shown = shown.replace(&format!("\u{1b}[{colour}m"), "");
        }
        assert!(!shown.contains(|c: char| c.is_control() && !matches!(c, '\r' | '\n' | '\t')));
    }
    let (page, _) = html(&reading, None);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
});
