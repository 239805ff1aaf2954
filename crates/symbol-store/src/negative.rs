//! What a server said it does not have, kept on disk for 24 hours.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// `ROOT/.absent/HASH`; the file holds the URL, so that a hash collision is noticed.
fn marker(root: &Path, url: &str) -> PathBuf {
    // FNV-1a: stable across builds, and nothing depends on its strength.
    let hash = url
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    root.join(".absent").join(format!("{hash:016x}"))
}

/// Whether the server answered 404 for `url` within the last 24 hours.
pub(crate) fn is_absent(root: &Path, url: &str) -> bool {
    let file = marker(root, url);
    let Ok(modified) = fs::metadata(&file).and_then(|m| m.modified()) else { return false };
    // A clock that went backwards makes the marker look young: harmless.
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    if age > KEPT_FOR {
        let _ = fs::remove_file(&file);
        return false;
    }
    fs::read_to_string(&file).is_ok_and(|text| text == url)
}

/// Remembers a 404. Failing to is no error: the server is asked again.
pub(crate) fn remember(root: &Path, url: &str) {
    let file = marker(root, url);
    if let Some(folder) = file.parent() {
        let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&file, url));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_and_no_longer() {
        let root = tempfile::tempdir().unwrap();
        let url = "http://h/a.pdb/K";
        assert!(!is_absent(root.path(), url));
        remember(root.path(), url);
        assert!(is_absent(root.path(), url));
        assert!(!is_absent(root.path(), "http://h/b.pdb/K"));
        let old = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
        fs::File::options().write(true).open(marker(root.path(), url)).unwrap().set_modified(old).unwrap();
        assert!(!is_absent(root.path(), url));
    }
}
