//! Release archives, the same bytes for the same commit: sorted entries, the commit's time, fixed
//! modes, no names of people. No DLL of Microsoft's is in any, and no DLL at all in the Windows one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, output, root, run};
use crate::windows::Arch;

const TEXTS: [&str; 3] = ["LICENSE", "NOTICE", "README.md"];

/// A file of an archive and where it is.
type Entry = (String, PathBuf);

/// Builds the archives of this machine's system and of Windows into `target/dist`.
pub(crate) fn build() -> Result<()> {
    let folder = root().join("target/dist");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let version = version()?;
    let x64 = Arch::X64.build(true)?;
    let x86 = Arch::X86.build(true)?;
    let windows = folder.join(format!("windbg-mcp-v{version}-windows-x64.zip"));
    let entries = with_texts(vec![
        ("windbg-mcp.exe".to_owned(), x64.clone()),
        ("x86/windbg-mcp.exe".to_owned(), x86.clone()),
    ]);
    zip(&windows, &entries)?;
    run(cargo().args(["build", "--release", "--locked", "--bin", "windbg-mcp"]))?;
    let share = folder.join("share/wine");
    Arch::X64.place(&x64, &share)?;
    Arch::X86.place(&x86, &share.join("x86"))?;
    let linux = folder.join(format!("windbg-mcp-v{version}-linux-{}.tar.gz", arch()));
    let mut entries = with_texts(vec![("windbg-mcp".to_owned(), root().join("target/release/windbg-mcp"))]);
    for name in ["windbg-mcp.exe", "bcryptprimitives.dll", "x86/windbg-mcp.exe", "x86/bcryptprimitives.dll"] {
        entries.push((format!("share/wine/{name}"), share.join(name)));
    }
    entries.sort();
    tar(&linux, &entries)?;
    std::fs::remove_dir_all(folder.join("share"))?;
    sums(&folder, &[linux, windows])
}

fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" }
}

fn version() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \"")).context("no version")?;
    Ok(line.trim_end_matches('"').to_owned())
}

fn with_texts(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.extend(TEXTS.map(|name| (name.to_owned(), root().join(name))));
    entries.sort();
    entries
}

/// Seconds since 1970 of the commit.
fn commit_time() -> Result<String> {
    Ok(output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?.trim().to_owned())
}

fn zip(archive: &Path, entries: &[Entry]) -> Result<()> {
    if let Some((name, _)) = entries.iter().find(|(name, _)| name.to_ascii_lowercase().ends_with(".dll")) {
        bail!("{name} does not belong into the Windows archive");
    }
    pack("zip", archive, entries)
}

fn tar(archive: &Path, entries: &[Entry]) -> Result<()> {
    let foreign = |name: &str| name.ends_with(".dll") && !name.ends_with("bcryptprimitives.dll");
    if let Some((name, _)) = entries.iter().find(|(name, _)| foreign(name)) {
        bail!("{name} does not belong into the Linux archive");
    }
    pack("tar", archive, entries)
}

/// Python's own writers take every field that would differ from run to run.
fn pack(kind: &str, archive: &Path, entries: &[Entry]) -> Result<()> {
    let mut command = Command::new("python3");
    command.arg(root().join("xtask/pack.py")).args([kind, &commit_time()?]).arg(archive);
    for (name, path) in entries {
        command.arg(format!("{name}={}", path.display()));
    }
    run(&mut command)
}

fn sums(folder: &Path, archives: &[PathBuf]) -> Result<()> {
    let names = archives.iter().filter_map(|path| path.file_name());
    let text = output(Command::new("sha256sum").args(names).current_dir(folder))?;
    std::fs::write(folder.join("SHA256SUMS.txt"), &text)?;
    print!("{text}");
    Ok(())
}
