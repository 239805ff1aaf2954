#![no_main]
//! Any bytes as a target: opened, walked, read.

#[path = "../support/watch.rs"]
mod watch;

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use target::{ContextOf, Halt, View};

fuzz_target!(init: watch::watch(), |bytes: &[u8]| {
    let options = engine_native::OpenOptions::default();
    let Ok(target) = engine_native::open_bytes(bytes.to_vec(), "fuzzed.dmp", &options) else { return };
    let halt = Halt::within(Duration::from_secs(5));
    let _ = target.stored_event();
    let _ = target.bug_check();
    let _ = target.processes(&halt);
    for module in target.modules().iter().flat_map(|m| m.iter()).take(8) {
        let _ = target.symbol_status(module.base, true);
    }
    if let Ok(Some(context)) = target.context(ContextOf::Selected, View::Default) {
        let _ = target.stack(&context, 64, &halt);
        let _ = target.scan_stack(&context, 16, &halt);
        let _ = target.disassemble(context.ip(), 4);
        let _ = target.region(context.sp());
    }
});
