//! Where tests find data that is not in the repository, and what its absence means: a test that lacks
//! it says so and passes, except where the full test command or CI promised it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Says that something was not run, on the real standard error: the test harness keeps what a passing
/// test prints to itself.
pub fn not_run(what: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {what}");
}

fn is_true(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "true" || value == "1")
}

/// The shared test data: `WINDBG_MCP_DATA`, else `shared/data` beside the repository. `None`, after
/// saying so, where it is absent.
///
/// # Panics
/// In CI (`CI=true`), where it has to be there.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let folder =
        std::env::var_os("WINDBG_MCP_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    if let Ok(folder) = folder.canonicalize()
        && folder.is_dir()
    {
        return Some(folder);
    }
    assert!(!is_true("CI"), "no test data at {}", folder.display());
    not_run("no ../shared/data");
    None
}

/// A committed fixture.
#[must_use]
pub fn fixture(name: &str) -> PathBuf {
    let path = root().join("fixtures").join(name);
    path.canonicalize().unwrap_or(path)
}

/// Wine's own Windows DLLs as Debian installs them: the images of dumps that were made under it.
/// `None`, after saying so, where they are absent.
///
/// # Panics
/// Under the full test command (`WINDBG_MCP_LAB=1`), which installs them.
#[must_use]
pub fn wine_images() -> Option<PathBuf> {
    let folder = PathBuf::from("/usr/lib/x86_64-linux-gnu/wine/x86_64-windows");
    if folder.join("ntdll.dll").is_file() {
        return Some(folder);
    }
    assert!(!is_true("WINDBG_MCP_LAB"), "no Wine DLLs in {}", folder.display());
    not_run(&format!("no Wine DLLs in {}", folder.display()));
    None
}
