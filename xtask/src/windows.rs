//! The Windows builds: what Wine runs beside the Linux program, and what Windows users get.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::lab;
use crate::process::{cargo, root, run};

/// An architecture of the Windows build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X64,
    X86,
}

impl Arch {
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::X64 => "x86_64-pc-windows-gnu",
            Self::X86 => "i686-pc-windows-gnu",
        }
    }
    fn compiler(self) -> &'static str {
        match self {
            Self::X64 => "x86_64-w64-mingw32-gcc",
            Self::X86 => "i686-w64-mingw32-gcc",
        }
    }
    fn shim(self) -> &'static str {
        match self {
            Self::X64 => "shim-x64",
            Self::X86 => "shim-x86",
        }
    }

    /// Builds the program; its path. A folder of its own keeps it from waiting for other builds.
    pub(crate) fn build(self, release: bool) -> Result<PathBuf> {
        let folder = root().join("target/windows");
        let mut command = cargo();
        command.args(["build", "--locked", "-p", "windbg-mcp", "--target", self.target(), "--target-dir"]);
        command.arg(&folder);
        if release {
            command.arg("--release");
        }
        run(&mut command)?;
        let profile = if release { "release" } else { "debug" };
        Ok(folder.join(self.target()).join(profile).join("windbg-mcp.exe"))
    }

    /// Puts a built program and the shim that Wine before 10 needs into `folder`.
    pub(crate) fn place(self, program: &Path, folder: &Path) -> Result<()> {
        lab::shim(self.compiler(), self.shim())?;
        std::fs::create_dir_all(folder)?;
        let shim = "bcryptprimitives.dll";
        replace(program, &folder.join("windbg-mcp.exe"))?;
        replace(&lab::folder().join(self.shim()).join(shim), &folder.join(shim))
    }
}

/// A running program cannot be written to, but its name can be given to another file.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new).with_context(|| format!("copying {} to {}", from.display(), new.display()))?;
    std::fs::rename(&new, to).with_context(|| format!("renaming to {}", to.display()))
}

/// Builds the worker that the programs under `target` find and Wine runs; the 32-bit one too when asked.
pub(crate) fn wine_worker(release: bool, x86: bool) -> Result<()> {
    let folder = root().join("target/share/wine");
    Arch::X64.place(&Arch::X64.build(release)?, &folder)?;
    if x86 {
        Arch::X86.place(&Arch::X86.build(release)?, &folder.join("x86"))?;
    }
    println!("the worker for Wine is in {}", folder.display());
    Ok(())
}
