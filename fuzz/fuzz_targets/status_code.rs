#![no_main]
//! Any text as a status code, read every way.

use analysis_status::{StatusSpace, decode, parameter_notes, parse_code, render_status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(code) = parse_code(text) else { return };
    for space in [StatusSpace::Auto, StatusSpace::Hresult, StatusSpace::Ntstatus, StatusSpace::Win32] {
        let _ = render_status(&decode(code, space));
    }
    let _ = parameter_notes(code, &[u64::from(code); 4]);
});
