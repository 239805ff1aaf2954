#![no_main]
//! Command lines on a small target: any text is answered, nothing panics or runs on.

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use target::scripted::ScriptedTarget;
use target::{Context, ContextSource, Halt, Machine, Thread};

fuzz_target!(|line: &str| {
    let mut context = Context::new(Machine::X64, ContextSource::Thread);
    (0..24).for_each(|n| context.set(n, 0x1000 + n as u64));
    let target = ScriptedTarget::new(Machine::X64)
        .with_module("app", 0x1000, 0x1000)
        .with_symbol("app", "main", 0x1010)
        .with_memory(0x1000, vec![0x41; 0x1000])
        .with_thread(Thread { system_id: 1, ..Thread::default() }, Some(context));
    let halt = Halt::within(Duration::from_millis(200));
    let _ = command::Session::new().execute(&target, line, &halt);
});
