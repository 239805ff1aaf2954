//! libFuzzer on the targets of `fuzz/`, one after another, from seeds made here.

mod seeds;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::prerequisite;
use crate::process::{root, run};

/// Bytes an input may have at least.
const SHORTEST_BOUND: usize = 4096;

/// Runs `wanted`, every target when there are none, each for `seconds`. Corpora grow in
/// `fuzz/corpus`; what a target fails on stays in `fuzz/artifacts`.
pub(crate) fn run_targets(wanted: &[String], seconds: u32, seeds_only: bool) -> Result<()> {
    let known = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target {unknown}; there are {}", known.join(", "));
    }
    let chosen = if wanted.is_empty() { &known[..] } else { wanted };
    let corpus = |target: &str| root().join("fuzz/corpus").join(target);
    if seeds_only {
        return chosen.iter().try_for_each(|target| seeds::write(target, &corpus(target)).map(drop));
    }
    prerequisite::cxx()?;
    let program = prerequisite::cargo_fuzz()?;
    let mut failed = Vec::new();
    for target in chosen {
        println!("\n== {target}");
        // libFuzzer's own bound is the longest seed, which may be a short line.
        let longest = seeds::write(target, &corpus(target))?.max(SHORTEST_BOUND);
        // The toolchain is stable: the sanitizer's coverage is a flag of the unstable ones, and the
        // runtimes of the sanitizers are not shipped for it.
        let outcome = run(Command::new(&program)
            .args(["run", "--sanitizer", "none", "--target-dir", "target/fuzz", target, "--"])
            .args([format!("-max_total_time={seconds}"), format!("-max_len={longest}")])
            .args(["-timeout=10", "-rss_limit_mb=1500", "-print_final_stats=1"])
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(root()));
        if outcome.is_err() {
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!(
            "failed: {}; the inputs are in fuzz/artifacts (`cargo fuzz tmin` makes one small)",
            failed.join(", ")
        );
    }
    Ok(())
}

/// The targets in `fuzz/fuzz_targets`, in order.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect::<Vec<_>>();
    names.sort();
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    #[test]
    fn every_target_starts_from_seeds() {
        for target in super::targets().unwrap() {
            let seeds = super::seeds::of(&target).unwrap();
            assert!(
                !seeds.is_empty(),
                "{target} starts blind: add fuzz/seeds/{target}.txt (a line is a seed) or a row in seeds.rs"
            );
        }
    }
}
