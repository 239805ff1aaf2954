//! Cargo's runner for Windows test programs on Linux: puts the program beside Microsoft's DLLs and
//! the shim, runs it under Wine in the lab's prefix, passes its exit code on, and ends what it left.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::lab;
use crate::process::root;

/// Marks every process of one run, so that only its own are ended.
const MARK: &str = "WINDBG_MCP_WINE_RUN";
/// What a test may be told from outside.
const PASSED: [&str; 5] = ["CI", "RUST_BACKTRACE", "WINDBG_MCP_DATA", "PROPTEST_CASES", "RUST_LOG"];

/// Runs `words`, a Windows program of this machine's path and its arguments. Its exit code.
pub(crate) fn run(words: &[String]) -> Result<i32> {
    let [program, arguments @ ..] = words else {
        bail!("usage: cargo xtask wine-run PROGRAM.exe [ARGUMENTS]")
    };
    let program = Path::new(program);
    let lab = lab::folder();
    let x86 = program.components().any(|c| c.as_os_str().to_string_lossy().starts_with("i686-"));
    let (engine, shim) = if x86 { ("dbgeng-x86", "shim-x86") } else { ("dbgeng-x64", "shim-x64") };
    if !lab.join(engine).is_dir() || !lab.join("prefix/system.reg").is_file() {
        bail!("the lab is not set up; run: cargo xtask lab");
    }
    crate::live::build()?;
    let mark = std::process::id().to_string();
    let folder = lab.join("run").join(&mark);
    lay_out(&folder, program, &[lab.join(engine), lab.join(shim)])?;
    let prefix = std::env::var_os("WINDBG_MCP_LAB_PREFIX").map_or_else(|| lab.join("prefix"), PathBuf::from);
    let mut command = Command::new("wine");
    command
        .arg(folder.join(program.file_name().context("a program has a name")?))
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", root())
        .env("WINEPREFIX", prefix)
        .env("WINEDEBUG", "-all")
        .env("WINEDLLOVERRIDES", overrides(&folder))
        .env(MARK, &mark);
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let status = command.status();
    end_leftovers(&mark);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(status.context("wine")?.code().unwrap_or(1))
}

/// Microsoft's DLLs of `folder` instead of Wine's own, by full path: a debuggee inherits this, and
/// must get Wine's.
fn overrides(folder: &Path) -> String {
    let names = ["dbgeng", "dbghelp", "symsrv", "srcsrv", "dbgmodel"];
    let path = format!("Z:{}", folder.display()).replace('/', "\\");
    let entries: Vec<String> = names.iter().map(|name| format!("{path}\\{name}")).collect();
    format!("{}=n;mscoree,mshtml=", entries.join(","))
}

fn lay_out(folder: &Path, program: &Path, libraries: &[PathBuf]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::copy(program, folder.join(program.file_name().context("a program has a name")?))?;
    for library in libraries {
        for entry in std::fs::read_dir(library)? {
            let entry = entry?;
            std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Kills processes whose environment carries the mark, this one aside.
fn end_leftovers(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for entry in processes.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == std::process::id().to_string() || !name.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let marked = environment.split(|&b| b == 0).any(|v| v == wanted.as_bytes());
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        // Wine's server serves every program of the prefix; it ends by itself.
        if marked && !String::from_utf8_lossy(&line).contains("wineserver") {
            let _ = Command::new("kill").args(["-KILL", &name]).status();
        }
    }
}
