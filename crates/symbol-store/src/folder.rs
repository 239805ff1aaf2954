//! A plain folder: flat, `EXT/`, `symbols/EXT/` (as DbgHelp looks), or laid out as a store.

use std::path::{Path, PathBuf};

use crate::search::{Hunt, Outcome};
use crate::store;

/// Directory entries looked at for a name of other case.
const ENTRIES_LIMIT: usize = 8192;

impl Hunt<'_> {
    pub(crate) fn look_in_plain_folder(&mut self, folder: &Path) -> bool {
        if !folder.is_dir() {
            self.note(folder.display(), Outcome::Failed("no such folder".to_owned()));
            return false;
        }
        let before = self.search.tried.len();
        let mut places = vec![folder.to_owned()];
        if let Some(extension) = self.wanted.image_extension() {
            places.push(folder.join(&extension));
            places.push(folder.join("symbols").join(&extension));
        }
        let name = self.wanted.file_name();
        let compressed = store::compressed_name(name);
        for place in places {
            for name in [name, &compressed] {
                let file = entry_named(&place, name).filter(|p| p.is_file());
                if file.is_some_and(|file| self.offer_local(&file, &[])) {
                    return true;
                }
            }
        }
        if self.look_for_store_layout(folder, &[]) {
            return true;
        }
        if self.search.tried.len() == before {
            self.note(folder.display(), Outcome::Absent);
        }
        false
    }
}

/// The entry of that name in a folder; its case as given first, then any.
pub(crate) fn entry_named(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.exists() {
        return Some(exact);
    }
    if cfg!(windows) {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .take(ENTRIES_LIMIT)
        .flatten()
        .find(|e| e.file_name().to_str().is_some_and(|n| n.eq_ignore_ascii_case(name)))
        .map(|e| e.path())
}
