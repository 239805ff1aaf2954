//! Live processes under Microsoft's engine: spec 10 section 11.4, a case per row. The engine is one per
//! process, so the program runs itself again for every case: `live [--exact] [PART OF A NAME]`.
//!
//! `cargo test -p engine-dbgeng --target x86_64-pc-windows-gnu --target-dir target/windows`, on Linux
//! after `cargo xtask lab`.

// clippy.toml allows these in #[test] functions, which these cases are by another name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(windows)]
mod breakpoints;
#[cfg(windows)]
mod commands;
#[cfg(windows)]
mod faults;
#[cfg(windows)]
mod harness;
#[cfg(windows)]
mod identity;
#[cfg(windows)]
mod races;
#[cfg(windows)]
mod release;
#[cfg(windows)]
mod running;

#[cfg(windows)]
fn main() {
    harness::main();
}

#[cfg(not(windows))]
fn main() {
    println!("not run: these cases need Microsoft's DbgEng; see the file's head for the command");
}
