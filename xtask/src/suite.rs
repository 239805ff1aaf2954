//! The full test command: every check in one list, in the order that fails soonest.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::prerequisite;
use crate::process::{cargo, root, run};

type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 9] = [
    ("fmt", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("test", || run(cargo().args(["test", "--workspace", "--locked"]))),
    ("release", || run(cargo().args(["build", "--release", "--locked", "--bin", "windbg-mcp"]))),
    ("python", python),
    ("mutate", || mutate(2000, 1)),
    ("clippy", || {
        run(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
    }),
    ("doc", || {
        run(cargo().args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("fuzz", || run(cargo().args(["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]))),
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
        .current_dir(root()))
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
    run(cargo().args(["build", "--release", "--locked", "--bin", "windbg-mcp"]))?;
    run(cargo()
        .args(["bench", "--locked", "--profile", "dev", "-p", "windbg-mcp"])
        .env("WINDBG_MCP_BINARY", release_binary()))
}
