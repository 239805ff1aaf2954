//! The lab of this checkout: Microsoft's DLLs, Wine's prefix, the Windows worker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What makes `engine: dbgeng` work on this machine.
#[derive(Clone, Debug)]
pub struct Lab {
    pub engine_dir: PathBuf,
    /// The Windows build that Wine runs; `WINDBG_MCP_WINE_WORKER` names another.
    pub worker: PathBuf,
    pub prefix: PathBuf,
}

impl Lab {
    /// The lab in `root`'s `.lab`, when `cargo xtask lab` and `cargo xtask wine-worker` have run.
    ///
    /// # Errors
    /// What is missing and the command that gets it.
    pub fn of(root: &Path) -> Result<Self, String> {
        let folder = root.join(".lab");
        let lab = Self {
            engine_dir: folder.join("dbgeng-x64"),
            worker: std::env::var_os("WINDBG_MCP_WINE_WORKER")
                .map_or_else(|| root.join("target/share/wine/windbg-mcp.exe"), PathBuf::from),
            prefix: std::env::var_os("WINDBG_MCP_LAB_PREFIX")
                .map_or_else(|| folder.join("prefix"), PathBuf::from),
        };
        if !lab.engine_dir.join("dbgeng.dll").is_file() || !lab.prefix.join("system.reg").is_file() {
            return Err(format!("no lab in {} (cargo xtask lab)", folder.display()));
        }
        if !lab.worker.is_file() {
            return Err(format!("no {} (cargo xtask wine-worker)", lab.worker.display()));
        }
        Ok(lab)
    }

    /// The server's environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        [
            ("WINDBG_MCP_ENGINE_DIR", &self.engine_dir),
            ("WINDBG_MCP_WINE_WORKER", &self.worker),
            ("WINEPREFIX", &self.prefix),
        ]
        .map(|(name, path)| (name.to_owned(), path.clone().into_os_string()))
        .to_vec()
    }
}
