//! Running a Windows program under Wine in a prefix of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::{exists, root};

/// Runs `words` (a program and its arguments, Windows paths) with `folder` as `C:\fx`, with nothing
/// of this machine in its environment, Microsoft's debugger DLLs preferred to Wine's. Its exit code.
pub(crate) fn run_in(folder: &Path, words: &[&str]) -> Result<i32> {
    if !exists("wine") {
        bail!("Wine is missing: apt-get install -y --no-install-recommends wine wine64");
    }
    let prefix = root().join("target/wine-prefix");
    std::fs::create_dir_all(&prefix)?;
    let wine = |words: &[&str]| {
        let mut command = Command::new("wine");
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &prefix)
            .env("WINEPREFIX", &prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "dbgeng,dbghelp,symsrv,srcsrv,dbgmodel=n;mscoree,mshtml=")
            .env("_NT_SYMBOL_PATH", "C:\\fx");
        command
    };
    if !prefix.join("system.reg").exists() {
        wine(&["wineboot", "-i"]).output()?;
    }
    let mapped = prefix.join("drive_c/fx");
    let _ = std::fs::remove_file(&mapped);
    std::os::unix::fs::symlink(folder.canonicalize()?, &mapped)?;
    Ok(wine(words).status()?.code().unwrap_or(-1))
}
