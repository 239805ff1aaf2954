//! Volatility ISF files in a folder (spec 80 section 11.6): found by name only.

use std::path::{Path, PathBuf};

use target::{PdbIdentity, base_name};

/// Directory entries looked at per folder.
const ENTRIES_LIMIT: usize = 16_384;
/// Candidates returned.
const CANDIDATES_LIMIT: usize = 64;

/// A file that may hold the types of a PDB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsfCandidate {
    pub path: PathBuf,
    /// The name carries the wanted GUID and age; otherwise only the PDB's name fits.
    pub names_identity: bool,
}

/// ISF files below `folder` for the PDB called `pdb_name` (`ntkrnlmp.pdb`), those that name `identity`
/// first. Looks at `FOLDER/`, `FOLDER/PDB/`, `FOLDER/windows/PDB/` for `NAME*.json`, `GUID-AGE.json`,
/// `NAME_*_GUID-AGE.json`, each also with `.xz`.
#[must_use]
pub fn isf_candidates(folder: &Path, pdb_name: &str, identity: Option<&PdbIdentity>) -> Vec<IsfCandidate> {
    let pdb = base_name(pdb_name).to_ascii_lowercase();
    if pdb.is_empty() || pdb == ".." || pdb == "." {
        return Vec::new();
    }
    let stem = pdb.strip_suffix(".pdb").unwrap_or(&pdb);
    let mut found = Vec::new();
    for (place, named) in
        [(folder.to_owned(), false), (folder.join(&pdb), true), (folder.join("windows").join(&pdb), true)]
    {
        let Ok(entries) = std::fs::read_dir(place) else { continue };
        for entry in entries.take(ENTRIES_LIMIT).flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if let Some(names_identity) = fits(&name, stem, named, identity) {
                found.push(IsfCandidate { path: entry.path(), names_identity });
            }
        }
    }
    found.sort_by(|a, b| (!a.names_identity, &a.path).cmp(&(!b.names_identity, &b.path)));
    found.truncate(CANDIDATES_LIMIT);
    found
}

/// Whether a file name fits, and if so whether it names the identity. In a folder called after the
/// PDB (`named`) any ISF is one of that PDB.
fn fits(name: &str, stem: &str, named: bool, identity: Option<&PdbIdentity>) -> Option<bool> {
    let lower = name.to_ascii_lowercase();
    let bare = lower.strip_suffix(".xz").unwrap_or(&lower).strip_suffix(".json")?;
    if let Some(identity) = identity {
        let guid = identity.guid.to_string().to_ascii_lowercase();
        if let Some(at) = bare.find(&guid) {
            let rest = bare[at + guid.len()..].trim_start_matches('-');
            let age: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
            let same = u32::from_str_radix(&age, 16).is_ok_and(|a| a == identity.age)
                || age.parse::<u32>().is_ok_and(|a| a == identity.age);
            return Some(same || age.is_empty());
        }
    }
    let after = bare.strip_prefix(stem);
    let by_name = after.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-', '.']));
    (by_name || named).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::Guid;

    #[test]
    fn the_file_that_names_the_identity_comes_first() {
        const GUID: &str = "5278AFF86C341677D7D7835C85B7B844";
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        };
        let exact = format!("ntkrnlmp_10.0.19041.804_{GUID}-1.json.xz");
        file(&exact);
        file("ntkrnlmp_10.0.19041.1_00000000000000000000000000000000-1.json");
        file(&format!("windows/ntkrnlmp.pdb/{GUID}-1.json.xz"));
        file(&format!("ntkrnlmp.pdb/{GUID}-2.json"));
        file("ntkrnlmpx.json");
        file("other.json.xz");
        file("ntkrnlmp.pdb.txt");
        let identity = PdbIdentity { guid: Guid::parse(GUID).unwrap(), age: 1, name: "ntkrnlmp.pdb".into() };
        let found = isf_candidates(root.path(), r"x:\nt\NTKRNLMP.pdb", Some(&identity));
        let named: Vec<bool> = found.iter().map(|c| c.names_identity).collect();
        assert_eq!(named, [true, true, false, false], "{found:?}");
        assert!(found.iter().any(|c| c.path.ends_with(&exact) && c.names_identity));
        assert_eq!(isf_candidates(root.path(), "ntkrnlmp.pdb", None).len(), 4);
        assert_eq!(isf_candidates(root.path(), "", None), []);
        assert_eq!(isf_candidates(&root.path().join("none"), "ntkrnlmp.pdb", None), []);
    }
}
