//! Stores on disk: `FILE/KEY/FILE`, two-tier roots, compressed members, `file.ptr`, and copying a hit
//! into the stores nearer to the user (spec 80 section 11.3).

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::folder::entry_named;
use crate::path::Store;
use crate::search::{Hunt, Outcome};
use crate::unpack;

/// Bytes of a `file.ptr` that are read.
pub(crate) const POINTER_LIMIT: u64 = 4096;

/// `ntkrnlmp.pdb` as `ntkrnlmp.pd_`.
pub(crate) fn compressed_name(name: &str) -> String {
    let mut text: String = name.to_owned();
    text.pop();
    text.push('_');
    text
}

/// Where a file lies below a store's root, two-tier roots with the first two letters before it.
pub(crate) fn relative(name: &str, key: &str, two_tier: bool) -> Vec<String> {
    let mut parts = Vec::with_capacity(3);
    if two_tier {
        parts.push(name.chars().take(2).collect());
    }
    parts.push(name.to_owned());
    parts.push(key.to_owned());
    parts
}

/// What a `file.ptr` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Path(String),
    Message(String),
}

impl Pointer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0' || c == '\u{feff}');
        let shown = |text: &str| text.trim().chars().filter(|c| !c.is_control()).take(512).collect();
        match text.get(..4).map(str::to_ascii_uppercase).as_deref() {
            Some("MSG:") => Self::Message(shown(&text[4..])),
            _ => Self::Path(shown(
                text.get(..5).filter(|h| h.eq_ignore_ascii_case("PATH:")).map_or(text, |_| &text[5..]),
            )),
        }
    }
}

impl Hunt<'_> {
    /// A chain of stores, nearest first; `caches` lie to its left.
    pub(crate) fn look_in_chain(&mut self, stores: &[Store], caches: &[PathBuf]) -> bool {
        let mut left: Vec<PathBuf> = caches.to_vec();
        for store in stores {
            if self.stopped() {
                return false;
            }
            let found = match store {
                Store::Folder(folder) => {
                    let found = self.look_in_store_folder(folder, &left);
                    left.push(folder.clone());
                    found
                }
                Store::Server(url) => self.look_on_server(url, &left),
            };
            if found {
                return true;
            }
        }
        false
    }

    pub(crate) fn look_in_store_folder(&mut self, root: &Path, left: &[PathBuf]) -> bool {
        let before = self.search.tried.len();
        if self.look_for_store_layout(root, left) {
            return true;
        }
        if self.search.tried.len() == before {
            self.note(root.display(), Outcome::Absent);
        }
        false
    }

    /// Only `FILE/KEY/` below `root`; notes nothing when there is none.
    pub(crate) fn look_for_store_layout(&mut self, root: &Path, left: &[PathBuf]) -> bool {
        let (name, key) = (self.wanted.file_name(), self.wanted.key());
        let two_tier = root.join("index2.txt").is_file();
        let folder = relative(name, &key, two_tier)
            .iter()
            .try_fold(root.to_owned(), |at, part| entry_named(&at, part));
        let Some(folder) = folder.filter(|f| f.is_dir()) else { return false };
        for name in [name, &compressed_name(name)] {
            let file = entry_named(&folder, name).filter(|f| f.is_file());
            if file.is_some_and(|file| self.offer_local(&file, left)) {
                return true;
            }
        }
        match entry_named(&folder, "file.ptr").filter(|f| f.is_file()) {
            Some(pointer) => self.follow_local_pointer(root, &pointer, left),
            None => false,
        }
    }

    /// A local `file.ptr` may point into its own store only: elsewhere is somebody else's choice.
    fn follow_local_pointer(&mut self, root: &Path, pointer: &Path, left: &[PathBuf]) -> bool {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(pointer).and_then(|f| f.take(POINTER_LIMIT).read_to_end(&mut bytes));
        if let Err(error) = read {
            self.note(pointer.display(), Outcome::Failed(error.to_string()));
            return false;
        }
        match Pointer::parse(&bytes) {
            Pointer::Message(text) => {
                self.note(pointer.display(), Outcome::Message(text));
                false
            }
            Pointer::Path(text) if crate::server::is_http(&text) => self.fetch_pointed(&text, None, left),
            Pointer::Path(text) => {
                let file = root.join(text.replace('\\', "/"));
                let inside = match (file.canonicalize(), root.canonicalize()) {
                    (Ok(file), Ok(root)) => file.starts_with(root),
                    _ => false,
                };
                if inside && file.is_file() {
                    return self.offer_local(&file, left);
                }
                let why = if inside { "is not there" } else { "is not inside the store" };
                self.note(pointer.display(), Outcome::Failed(format!("it points to {text}, which {why}")));
                false
            }
        }
    }

    /// Shows a local file, unpacked if its name says it is compressed; a hit is copied to the left.
    pub(crate) fn offer_local(&mut self, file: &Path, left: &[PathBuf]) -> bool {
        if file.to_string_lossy().ends_with('_') {
            if left.is_empty() && self.was_kept() {
                return true;
            }
            return self
                .keep(file.display().to_string(), left, |part, halt| unpack::unpack(file, part, halt));
        }
        if !self.offer(file) {
            return false;
        }
        for folder in left.iter().rev() {
            // A store that cannot be written to is no reason to refuse the hit.
            if let Ok(copy) = self.copy_into(folder, file) {
                self.search.found = Some(copy);
            }
        }
        true
    }

    /// Whether an earlier look-up put the file into the default store, where hits go that have no
    /// nearer folder.
    pub(crate) fn was_kept(&mut self) -> bool {
        let kept = self.settings.default_store.clone();
        self.look_for_store_layout(&kept, &[])
    }

    fn copy_into(&self, root: &Path, file: &Path) -> std::io::Result<PathBuf> {
        let place = Place::make(root, self.wanted)?;
        let mut part = place.part()?;
        unpack::copy(&mut std::fs::File::open(file)?, &mut part, self.halt)?;
        place.put(part)
    }

    /// Makes a file by `fill`, in the leftmost writable folder, shows it to the check, and keeps it
    /// there (and copies it to the folders between) only when it is the one.
    pub(crate) fn keep(
        &mut self,
        origin: String,
        left: &[PathBuf],
        fill: impl FnOnce(&mut tempfile::NamedTempFile, &target::Halt) -> std::io::Result<()>,
    ) -> bool {
        let default = [self.settings.default_store.clone()];
        let made = left.iter().chain(&default).find_map(|root| {
            let place = Place::make(root, self.wanted).ok()?;
            Some((place.part().ok()?, place, root.clone()))
        });
        let Some((mut part, place, first)) = made else {
            self.note(origin, Outcome::Failed("no store of the path can be written to".to_owned()));
            return false;
        };
        if let Err(error) = fill(&mut part, self.halt) {
            self.stopped();
            self.note(origin, Outcome::Failed(error.to_string()));
            return false;
        }
        let outcome = self.judge(part.path());
        if outcome != Outcome::Match {
            self.note(origin, outcome);
            return false;
        }
        match place.put(part) {
            Ok(file) => {
                for other in left.iter().filter(|root| **root != first) {
                    // As above: the hit stands without this copy.
                    let _ = self.copy_into(other, &file);
                }
                self.search.found = Some(file);
                self.note(origin, Outcome::Match);
                true
            }
            Err(error) => {
                self.note(origin, Outcome::Failed(error.to_string()));
                false
            }
        }
    }
}

/// The folder and name a wanted file has in a store.
struct Place {
    folder: PathBuf,
    name: String,
}

impl Place {
    /// Creates the folder.
    fn make(root: &Path, wanted: &crate::Wanted) -> std::io::Result<Self> {
        let two_tier = root.join("index2.txt").is_file();
        let name = wanted.file_name();
        let mut folder = root.to_owned();
        folder.extend(relative(name, &wanted.key(), two_tier));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, name: name.to_owned() })
    }
    fn part(&self) -> std::io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(&format!("{}.", self.name)).suffix(".part").tempfile_in(&self.folder)
    }
    /// Renames over whatever was there: readers see the old file or the new, never half of one.
    fn put(&self, part: tempfile::NamedTempFile) -> std::io::Result<PathBuf> {
        let file = self.folder.join(&self.name);
        part.persist(&file).map_err(|e| e.error)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers() {
        assert_eq!(Pointer::parse(b"PATH:http://x/y \r\n"), Pointer::Path("http://x/y".into()));
        assert_eq!(Pointer::parse(b"path:a\\b"), Pointer::Path("a\\b".into()));
        assert_eq!(Pointer::parse(b"MSG: gone\n"), Pointer::Message("gone".into()));
        assert_eq!(Pointer::parse(b"\\\\srv\\x"), Pointer::Path("\\\\srv\\x".into()));
        assert_eq!(Pointer::parse(b""), Pointer::Path(String::new()));
        assert_eq!(Pointer::parse("MSGé".as_bytes()), Pointer::Path("MSGé".into()));
    }

    #[test]
    fn names() {
        assert_eq!(compressed_name("a.pdb"), "a.pd_");
        assert_eq!(compressed_name("é"), "_");
        assert_eq!(relative("nt.pdb", "K", true), ["nt", "nt.pdb", "K"]);
    }
}
