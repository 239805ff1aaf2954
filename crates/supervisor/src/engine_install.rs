//! Copying Microsoft's debugger DLLs to where the worker finds them without being told (spec 31
//! sections 2.3 and 2.4). Never downloads.

use std::path::{Path, PathBuf};

use pe::FileImage;

use crate::image_header::{PE_X64, PE_X86, pe_machine};
use crate::wine::{NEEDED, USEFUL, in_folder};

/// Beside those that are looked for when a session opens.
const MORE: [&str; 2] = ["dbgcore.dll", "symsrv.yes"];
/// Extensions, analysis data and time travel, as Microsoft's packages name their folders.
const FOLDERS: [&str; 4] = ["winext", "winxp", "triage", "ttd"];
/// Files of one such folder, and how deep it goes.
const FILES: usize = 2000;
const DEPTH: u32 = 4;

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledEngine {
    pub to: PathBuf,
    pub files: usize,
    /// `a.b.c.d` of the DLLs.
    pub version: Option<String>,
    /// What the source lacks, and what that costs.
    pub missing: Vec<String>,
}

fn version(path: &Path) -> Option<[u16; 4]> {
    let image = FileImage::new(std::fs::read(path).ok()?).ok()?;
    image.pe().version(&image)?.file_version
}

/// One machine and one version for all DLLs; mixed ones load and then fail in ways nobody explains.
fn check(from: &Path) -> Result<(u16, Option<[u16; 4]>), String> {
    let path =
        |dll: &str| in_folder(from, dll).ok_or_else(|| format!("{dll} is missing in {}", from.display()));
    let engine = path(NEEDED[0])?;
    let machine = pe_machine(&engine).filter(|machine| [PE_X64, PE_X86].contains(machine));
    let machine = machine.ok_or_else(|| format!("{} is no DLL for x64 or x86", engine.display()))?;
    let wanted = version(&engine);
    for dll in NEEDED {
        let path = path(dll)?;
        if pe_machine(&path) != Some(machine) {
            return Err(format!("{} is for another architecture than dbgeng.dll beside it", path.display()));
        }
        if version(&path) != wanted {
            return Err(format!("{} is of another version than dbgeng.dll beside it", path.display()));
        }
    }
    Ok((machine, wanted))
}

/// Copies the engine in `from` into `to`, or its `x86` when it is the 32-bit one.
pub(crate) fn install(from: &Path, to: &Path) -> Result<InstalledEngine, String> {
    let (machine, version) = check(from)?;
    let to = if machine == PE_X86 { to.join("x86") } else { to.to_owned() };
    let mut done = InstalledEngine {
        to: to.clone(),
        files: 0,
        version: version.map(|v| v.map(|part| part.to_string()).join(".")),
        missing: Vec::new(),
    };
    std::fs::create_dir_all(&to).map_err(|error| format!("{} cannot be made: {error}", to.display()))?;
    let costs = USEFUL.into_iter().map(|(dll, does)| (dll, Some(does)));
    let plain = NEEDED.into_iter().chain(MORE).map(|dll| (dll, None));
    for (dll, does) in plain.chain(costs) {
        match (in_folder(from, dll), does) {
            (Some(path), _) => done.files += copy(&path, &to.join(dll))?,
            (None, Some(does)) => done.missing.push(format!("{dll}: no {does}")),
            (None, None) => {}
        }
    }
    for folder in FOLDERS {
        if from.join(folder).is_dir() {
            done.files += copy_folder(&from.join(folder), &to.join(folder), DEPTH)?;
        } else {
            done.missing.push(format!("{folder}: {}", cost(folder)));
        }
    }
    Ok(done)
}

fn cost(folder: &str) -> &'static str {
    match folder {
        "winext" => "no !analyze and no other extension",
        "winxp" => "no !drvobj, !devobj, !irp",
        "triage" => "!analyze stays incomplete",
        _ => "no .run traces",
    }
}

fn copy(from: &Path, to: &Path) -> Result<usize, String> {
    if same(from, to) {
        return Ok(0);
    }
    std::fs::copy(from, to)
        .map(|_| 1)
        .map_err(|error| format!("{} cannot be copied to {}: {error}", from.display(), to.display()))
}

/// What is there already is not copied again; it may be in use.
fn same(from: &Path, to: &Path) -> bool {
    match (std::fs::read(from), std::fs::read(to)) {
        (Ok(from), Ok(to)) => from == to,
        _ => false,
    }
}

fn copy_folder(from: &Path, to: &Path, depth: u32) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    let mut files = 0;
    for entry in std::fs::read_dir(from).map_err(failed)?.take(FILES) {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let to = to.join(entry.file_name());
        if kind.is_file() {
            files += copy(&entry.path(), &to)?;
        } else if kind.is_dir() && depth > 0 {
            files += copy_folder(&entry.path(), &to, depth - 1)?;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Just enough of an image to have a machine.
    fn image(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x48];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c] = 0x40;
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        bytes[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    fn source(machine: u16) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for dll in ["dbgeng.dll", "DBGHELP.DLL", "dbgmodel.dll"] {
            std::fs::write(folder.path().join(dll), image(machine)).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_missing_is_said_with_its_cost_and_a_second_time_copies_nothing() {
        let (from, to) = (source(PE_X64), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(from.path().join("winext")).unwrap();
        std::fs::write(from.path().join("winext/ext.dll"), "x").unwrap();
        let done = install(from.path(), to.path()).unwrap();
        assert_eq!((done.files, &*done.to), (4, to.path()), "{done:?}");
        assert!(done.missing.iter().any(|m| m.starts_with("triage: ")), "{done:?}");
        assert!(to.path().join("winext/ext.dll").is_file() && to.path().join("dbghelp.dll").is_file());
        assert_eq!(install(from.path(), to.path()).unwrap().files, 0);
    }

    #[test]
    fn the_32_bit_engine_has_its_own_folder() {
        let (from, to) = (source(PE_X86), tempfile::tempdir().unwrap());
        assert_eq!(install(from.path(), to.path()).unwrap().to, to.path().join("x86"));
    }

    #[test]
    fn a_mixed_or_incomplete_source_is_refused() {
        let (from, to) = (source(PE_X64), tempfile::tempdir().unwrap());
        std::fs::write(from.path().join("dbgmodel.dll"), image(PE_X86)).unwrap();
        assert!(install(from.path(), to.path()).unwrap_err().contains("another architecture"));
        std::fs::remove_file(from.path().join("dbgmodel.dll")).unwrap();
        assert!(install(from.path(), to.path()).unwrap_err().contains("DbgModel.dll is missing"));
        assert!(install(to.path(), to.path()).unwrap_err().contains("dbgeng.dll is missing"));
    }
}
