//! Finds the shared test data.

use std::path::PathBuf;

/// The shared data folder. `None`, after saying so, when it is absent; under CI that fails.
pub(crate) fn data() -> Option<PathBuf> {
    let named = std::env::var_os("WINDBG_MCP_DATA").map(PathBuf::from);
    let folder =
        named.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "no shared data at {}", folder.display());
    println!("not run: no ../shared/data");
    None
}
