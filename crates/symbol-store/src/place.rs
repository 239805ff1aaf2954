//! Where the user keeps caches.

use std::path::PathBuf;

/// The user's cache folder: `XDG_CACHE_HOME`, `LOCALAPPDATA`, `~/Library/Caches`, `~/.cache`, else the
/// temporary folder.
#[must_use]
pub fn user_cache_directory() -> PathBuf {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(folder) = named("XDG_CACHE_HOME") {
        return folder;
    }
    if cfg!(windows)
        && let Some(folder) = named("LOCALAPPDATA")
    {
        return folder;
    }
    match home() {
        Some(home) if cfg!(target_os = "macos") => home.join("Library/Caches"),
        Some(home) => home.join(".cache"),
        None => std::env::temp_dir(),
    }
}

/// The default store, what an empty `srv*` means.
#[must_use]
pub fn default_store() -> PathBuf {
    user_cache_directory().join("windbg-mcp").join("symbols")
}

fn home() -> Option<PathBuf> {
    let variable = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// A folder as typed, `~` at its start resolved.
pub(crate) fn expand(text: &str) -> PathBuf {
    match (text, home()) {
        ("~", Some(home)) => home,
        (_, Some(home)) => match text.strip_prefix("~/").or_else(|| text.strip_prefix("~\\")) {
            Some(rest) => home.join(rest),
            None => PathBuf::from(text),
        },
        _ => PathBuf::from(text),
    }
}
