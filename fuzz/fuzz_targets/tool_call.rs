#![no_main]
//! Any arguments to any worker tool, on a crashed program, a crashed kernel and a bare image. A line
//! is a call: which target, the tool's name, its arguments.

#[path = "../support/call.rs"]
mod call;
#[path = "../support/watch.rs"]
mod watch;

use std::path::Path;

use engine_native::OpenOptions;
use target::Target;

thread_local! {
    static TARGETS: Vec<Box<dyn Target>> = ["crash.dmp", "kernel.dmp", "drivers/bin/x64-clang/open.sys"]
        .iter()
        .filter_map(|name| engine_native::open(&Path::new(call::FIXTURES).join(name), &OpenOptions::default()).ok())
        .collect();
}

libfuzzer_sys::fuzz_target!(init: watch::watch(), |text: &str| {
    TARGETS.with(|targets| {
        let mut caller = call::Caller::default();
        for line in text.lines().take(4) {
            let mut words = line.splitn(3, ' ');
            let (Some(which), Some(tool), Some(args)) = (words.next(), words.next(), words.next()) else {
                return;
            };
            let Ok(args) = serde_json::from_str(args) else { return };
            let which = which.bytes().next().map_or(0, |byte| usize::from(byte % 3));
            let Some(target) = targets.get(which) else { return };
            caller.call(target.as_ref(), tool, &args);
        }
    });
});
