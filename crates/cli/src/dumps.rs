//! Which files are meant: those that were named, and those of their kind below folders that were named.

use std::io::Read as _;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 5] = ["dmp", "mdmp", "hdmp", "kdmp", "cab"];
/// A dump packed by itself: `x.dmp.xz`.
const PACKED: [&str; 3] = ["xz", "gz", "zip"];
/// First bytes of the dump formats.
const SIGNATURES: [&[u8]; 4] = [b"MDMP", b"PAGEDU64", b"PAGEDUMP", b"USERDU"];
/// Folders deeper than this hold no dumps, but links in a circle.
const DEEPEST: usize = 64;
const MOST: usize = 100_000;

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Whether a file found in a folder is a dump, by name or by its first bytes.
fn is_dump(path: &Path) -> bool {
    let own = extension(path);
    if EXTENSIONS.contains(&own.as_str()) {
        return true;
    }
    if PACKED.contains(&own.as_str()) {
        return path
            .file_stem()
            .is_some_and(|stem| EXTENSIONS.contains(&extension(Path::new(stem)).as_str()));
    }
    let mut head = Vec::with_capacity(8);
    let read = std::fs::File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
    read.is_ok() && SIGNATURES.iter().any(|signature| head.starts_with(signature))
}

/// A kind of file looked for in folders.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    is: fn(&Path) -> bool,
}

const DUMPS: Kind = Kind { name: "dump", is: is_dump };
const DRIVERS: Kind = Kind { name: "driver (.sys)", is: |path| extension(path) == "sys" };

fn below(folder: &Path, depth: usize, kind: Kind, found: &mut Vec<PathBuf>, trouble: &mut Vec<String>) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            trouble.push(format!("{}: cannot be listed ({error}); check its permissions", folder.display()));
            return;
        }
    };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if found.len() >= MOST {
            return;
        }
        // Links to folders are not followed; links to files are.
        let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        match path.metadata() {
            Ok(meta) if meta.is_dir() && !is_link && depth < DEEPEST => {
                below(&path, depth + 1, kind, found, trouble)
            }
            Ok(meta) if meta.is_file() && (kind.is)(&path) => found.push(path),
            _ => {}
        }
    }
}

/// The dumps that `paths` mean, in order, and what was wrong with some. A file that was named is
/// taken as it is: whether it is a dump is the engine's to say.
pub(crate) fn find(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    find_kind(paths, DUMPS)
}

/// The same of drivers.
pub(crate) fn find_drivers(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    find_kind(paths, DRIVERS)
}

fn find_kind(paths: &[PathBuf], kind: Kind) -> (Vec<PathBuf>, Vec<String>) {
    let (mut found, mut trouble) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            below(path, 0, kind, &mut found, &mut trouble);
            if found.len() == before {
                let name = kind.name;
                trouble.push(format!("{}: no {name} in this folder; name the file itself", path.display()));
            }
        } else {
            found.push(path.clone());
        }
    }
    (found, trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_known_by_name_or_signature() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for (name, bytes) in [
            ("a.DMP", &b""[..]),
            ("b.dmp.xz", b""),
            ("c.xz", b"no"),
            ("memory", b"PAGEDU64...."),
            ("notes.txt", b"MDM"),
        ] {
            std::fs::write(inner.join(name), bytes).unwrap();
        }
        let (found, trouble) = find(&[folder.path().to_owned(), PathBuf::from("/nonesuch")]);
        let names: Vec<_> = found.iter().map(|p| p.file_name().unwrap().to_string_lossy()).collect();
        assert_eq!(names, ["a.DMP", "b.dmp.xz", "memory", "nonesuch"]);
        assert!(trouble.is_empty());
        std::fs::remove_dir_all(&inner).unwrap();
        assert_eq!(find(&[folder.path().to_owned()]).1.len(), 1);
    }
}
