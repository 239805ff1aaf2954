#![no_main]
//! Any bytes as a dump, triaged and reported both ways.

#[path = "../support/watch.rs"]
mod watch;

use std::time::Duration;

use analysis_crash::{
    CrashParams, ExceptionParams, crash_triage, exception_triage, render_crash, render_exception,
};
use libfuzzer_sys::fuzz_target;
use target::Halt;

fuzz_target!(init: watch::watch(), |bytes: &[u8]| {
    let options = engine_native::OpenOptions::default();
    let Ok(target) = engine_native::open_bytes(bytes.to_vec(), "fuzzed.dmp", &options) else { return };
    let halt = Halt::within(Duration::from_secs(5));
    if let Ok(triage) = crash_triage(target.as_ref(), &CrashParams::default(), &halt) {
        let _ = render_crash(&triage);
    }
    if let Ok(triage) = exception_triage(target.as_ref(), &ExceptionParams::default(), &halt) {
        let _ = render_exception(&triage);
    }
});
