#![no_main]
//! Any text as a decorated name: read or not, soon, and of a bounded length.

#[path = "../support/watch.rs"]
mod watch;

libfuzzer_sys::fuzz_target!(init: watch::watch(), |name: &str| {
    let started = std::time::Instant::now();
    for shown in [symbols::demangle::display_name(name), symbols::demangle::full_name(name)].into_iter().flatten() {
        assert!(shown.len() <= 64 << 10, "{} bytes", shown.len());
    }
    let _ = symbols::demangle::plain_name(name);
    assert!(started.elapsed() < std::time::Duration::from_secs(1), "{:?}", started.elapsed());
});
