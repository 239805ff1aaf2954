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

#[cfg(test)]
mod tests {
    use std::fs;

    use target::{Guid, Halt, PdbIdentity};

    use crate::{Outcome, Search, Settings, SymbolPath, Verdict, Wanted, find};

    fn look(path: &str) -> Search {
        let identity = PdbIdentity { guid: Guid([7; 16]), age: 0x1f, name: r"D:\o\Thing.pdb".into() };
        let wanted = Wanted::Pdb { identity, image_name: Some("thing.DLL".into()) };
        let verify = |file: &std::path::Path| match fs::read(file).unwrap().as_slice() {
            b"right" => Verdict::Match,
            b"other" => Verdict::Mismatch("other".into()),
            _ => Verdict::NotThis,
        };
        find(&SymbolPath::parse(path), &wanted, &Settings::offline(), &Halt::unbounded(), &verify)
    }

    #[test]
    fn the_places_in_a_folder() {
        let key = format!("{}1F", "07".repeat(16));
        for place in ["Thing.pdb", "thing.PDB", "dll/Thing.pdb", "symbols/dll/Thing.pdb"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("thing.pdb/{key}/thing.pdb")])
        {
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join(&place);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "right").unwrap();
            assert_eq!(look(&root.path().display().to_string()).found, Some(file), "{place}");
        }
    }

    #[test]
    fn a_mismatch_is_reported_and_the_search_goes_on() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(first.path().join("Thing.pdb"), "other").unwrap();
        let path = format!("{};{};/no/such", first.path().display(), second.path().display());
        let search = look(&path);
        assert_eq!(search.mismatched.len(), 1);
        assert!(search.reason().unwrap().contains("does not match: other"));
        assert_eq!(search.tried.len(), 3);
        fs::write(second.path().join("Thing.pdb"), "right").unwrap();
        let search = look(&path);
        assert!(search.found.is_some());
        assert_eq!(search.reason(), None);
    }

    #[test]
    fn a_hostile_name_looks_nowhere() {
        for name in ["..", "", "a/..", "a:b.pdb", "x*y"] {
            let wanted = Wanted::Image { name: name.into(), timestamp: 1, size: 1 };
            let search = find(
                &SymbolPath::parse("/;srv*"),
                &wanted,
                &Settings::offline(),
                &Halt::unbounded(),
                &|_| Verdict::Match,
            );
            assert_eq!(search.found, None);
            assert!(matches!(search.tried[0].outcome, Outcome::Failed(_)), "{name}");
        }
    }
}
