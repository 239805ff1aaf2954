//! Microsoft's DbgEng attached to the simulator: spec 71 section 12.4, a case per row. The engine is one
//! per process, so the program runs itself again for every case: `dbgeng [PART OF A NAME]`.
//!
//! `cargo test -p kd-sim --test dbgeng --target x86_64-pc-windows-gnu --target-dir target/windows`, on
//! Linux after `cargo xtask lab`.

// clippy.toml allows these in #[test] functions, which these cases are by another name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(windows)]
mod debugger;
#[cfg(windows)]
mod faults;
#[cfg(windows)]
mod link;
#[cfg(windows)]
mod state;
#[cfg(windows)]
mod stops;

#[cfg(windows)]
fn main() {
    debugger::main(&[link::CASES, state::CASES, stops::CASES, faults::CASES].concat());
}

#[cfg(not(windows))]
fn main() {
    test_data::not_run("DbgEng and the simulator: see the head of crates/kd-sim/tests/dbgeng/main.rs");
}
