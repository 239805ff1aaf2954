//! The full test command: every check in one list, in the order that fails soonest.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{cargo, root, run};
use crate::windows::{self, Arch};
use crate::{drivers, lab, live, prerequisite};

/// Tells tests that the lab is there, so that its absence fails.
const LAB: &str = "WINDBG_MCP_LAB";

/// Property tests draw the same cases in every full run, so that it says of a change and not of luck;
/// a plain `cargo test` draws new ones.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261129");

type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 13] = [
    ("fmt", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("lab", || {
        lab::set_up()?;
        live::build()?;
        windows::wine_worker(false, false)
    }),
    ("test", || run(cargo().args(["test", "--workspace", "--locked"]).env(LAB, "1").env(SEED.0, SEED.1))),
    ("windows", on_windows),
    ("release", || run(cargo().args(["build", "--release", "--locked", "--bin", "windbg-mcp"]))),
    ("drivers", drivers::check),
    ("python", python),
    ("node", node),
    ("mutate", || mutate(2000, 1)),
    ("clippy", || {
        run(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
    }),
    ("doc", || {
        run(cargo().args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("fuzz", || {
        prerequisite::cxx()?;
        run(cargo().args(["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]))
    }),
    ("deny", || {
        run(Command::new(prerequisite::cargo_deny()?)
            .args(["check", "licenses", "bans", "sources"])
            .current_dir(root()))
    }),
];

/// Runs the steps of these names, all of them when there are none.
pub(crate) fn run_steps(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|(known, _)| known == name)) {
        bail!("no step {unknown}; there are {}", STEPS.map(|(known, _)| known).join(", "));
    }
    for (name, step) in STEPS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)) {
        println!("\n== {name}");
        let started = Instant::now();
        step()?;
        println!("== {name}: ok in {} s", started.elapsed().as_secs());
    }
    println!("\nAll steps passed.");
    Ok(())
}

/// The official Python client drives the release binary over stdio.
fn python() -> Result<()> {
    let interpreter = prerequisite::python()?;
    run(Command::new(interpreter)
        .args(["-m", "pytest", "-q", "tests/python"])
        .env("WINDBG_MCP_BINARY", release_binary())
        .env(LAB, "1")
        .current_dir(root()))
}

/// Both official TypeScript clients drive the release binary over stdio.
fn node() -> Result<()> {
    let (node, folder) = prerequisite::node()?;
    run(Command::new(node)
        .args(["--test", "--test-concurrency=1"])
        .current_dir(folder)
        .env("WINDBG_MCP_BINARY", release_binary()))
}

/// The DbgEng engine's own tests under Wine, DbgEng attached to the simulated kernel, and that the 32-bit Windows program builds; 32-bit Wine is
/// not everywhere to be had, so it is not run.
fn on_windows() -> Result<()> {
    let target = Arch::X64.target();
    run(cargo()
        .args(["test", "--locked", "-p", "engine-dbgeng", "--target", target])
        .args(["--target-dir", "target/windows"])
        .env(LAB, "1")
        .env(SEED.0, SEED.1))?;
    run(cargo()
        .args(["test", "--locked", "-p", "kd-sim", "--test", "dbgeng", "--target", target])
        .args(["--target-dir", "target/windows"])
        .env(LAB, "1"))?;
    Arch::X86.build(false)?;
    println!("not run: the 32-bit worker, for want of 32-bit Wine");
    Ok(())
}

/// What the docs and the golden say of the surface, from a running server.
pub(crate) fn surface() -> Result<()> {
    run(cargo()
        .args(["test", "--locked", "-p", "windbg-mcp", "--test", "figures", "--test", "budget"])
        .args(["--", "every_documented_figure", "the_golden_says"])
        .env("WINDBG_MCP_RECORD", "1"))
}

/// The mutation run of the binary's own harness, on the release build.
pub(crate) fn mutate(count: u32, seed: u64) -> Result<()> {
    run(cargo()
        .args(["test", "--locked", "-p", "windbg-mcp", "--test", "mutation", "--", "--nocapture"])
        .env("WINDBG_MCP_BINARY", release_binary())
        .env("WINDBG_MCP_MUTATIONS", count.to_string())
        .env("WINDBG_MCP_MUTATION_SEED", seed.to_string()))
}

fn release_binary() -> std::path::PathBuf {
    root().join("target/release/windbg-mcp")
}

/// Benchmarks of the release binary, side by side; only the harness is a debug build.
pub(crate) fn bench() -> Result<()> {
    if lab::folder().join("prefix/system.reg").is_file() {
        windows::wine_worker(true, false)?;
    }
    drivers::for_benches()?;
    run(cargo().args([
        "bench",
        "--locked",
        "-p",
        "transcript",
        "-p",
        "redaction",
        "--bench",
        "append",
        "--bench",
        "filter",
    ]))?;
    run(cargo().args(["build", "--release", "--locked", "--bin", "windbg-mcp"]))?;
    run(cargo()
        .args(["bench", "--locked", "--profile", "dev", "-p", "windbg-mcp"])
        .env("WINDBG_MCP_BINARY", release_binary()))
}
