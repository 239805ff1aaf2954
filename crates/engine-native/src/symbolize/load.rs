//! Finding the symbols of one module.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use pe::{ExportTarget, ImageSourceExt, Pe};
use symbol_store::{Settings, SymbolPath, Verdict, Wanted, find, isf_candidates};
use symbols::{ExportSymbols, ImageSymbols, IsfFile, PdbFile, SymbolFile};
use target::{Machine, Module, PdbIdentity, SymbolState, SymbolStatus, base_name};

use super::{LOOKUP_BUDGET, ModuleSymbols, Symbolizer};
use crate::core::ModuleImage;

/// PDB names of kernel images; the image itself is always installed as ntoskrnl.exe.
const KERNEL_PDBS: [&str; 4] = ["ntkrnlmp.pdb", "ntoskrnl.pdb", "ntkrla57.pdb", "ntkrnlpa.pdb"];

struct Found {
    file: Box<dyn SymbolFile>,
    path: PathBuf,
    unmatched: bool,
    note: Option<String>,
}

/// What a look-up came to, for the module's status.
#[derive(Default)]
struct Report {
    /// Why there is nothing better.
    note: Option<String>,
    /// A PDB of the right name and another identity was there.
    mismatched: bool,
    /// The call's time ran out: look again next time.
    cut_short: bool,
}

impl Symbolizer {
    /// The module's symbols, and whether the look-up ran to its end.
    pub(super) fn load(&self, module: &Module) -> (ModuleSymbols, bool) {
        let mut report = Report::default();
        let identity = module.pdb.clone().or_else(|| self.recorded_pdb(module));
        let found = match &identity {
            Some(identity) => self.by_identity(module, identity, &mut report),
            None => None,
        };
        let found = found.or_else(|| self.isf(module, identity.as_ref(), &mut report));
        let found = found.or_else(|| self.in_image(module));
        // Headers that record no PDB are an answer; only where there are none a name may do.
        let nameless = identity.is_none() && self.core.pe_of(module).is_none();
        let found = found.or_else(|| if nameless { self.by_name(module, &mut report) } else { None });
        let exports = match &found {
            None => self.core.pe_of(module).and_then(|pe| self.exports(module, &pe)),
            Some(_) => None,
        };
        let status = match (&found, &exports) {
            (Some(found), _) => SymbolStatus {
                state: found.file.state(),
                pdb: found.file.identity().cloned().or(identity),
                file: Some(found.path.display().to_string()),
                unmatched: found.unmatched,
                note: found.note.clone(),
            },
            (None, exports) => SymbolStatus {
                state: if exports.is_some() { SymbolState::Export } else { SymbolState::None },
                pdb: identity,
                file: exports.as_ref().map(|_| module.image_path.clone()),
                unmatched: report.mismatched,
                note: report.note,
            },
        };
        (ModuleSymbols { status, file: found.map(|f| f.file), exports }, !report.cut_short)
    }

    /// The identity in the module's debug directory: from memory, else from the image file.
    fn recorded_pdb(&self, module: &Module) -> Option<PdbIdentity> {
        let source = self.image_source(module);
        self.core.pe_of(module).and_then(|pe| pe.pdb(&source)).or_else(|| {
            let image = self.core.images.of(module)?;
            image.file.pe().pdb(&image.file)
        })
    }

    pub(super) fn image_source(&self, module: &Module) -> ModuleImage {
        ModuleImage { core: std::rc::Rc::clone(&self.core), base: module.base }
    }

    /// Where PDBs are looked for: the symbol path, the image path, the dump's own folder, the folder
    /// of the image file.
    fn search_path(&self, module: &Module) -> SymbolPath {
        let paths = self.paths.borrow();
        let mut path = SymbolPath::parse(&paths.symbols);
        if let Some(folder) = &self.own_folder {
            path.push_folder(folder);
        }
        for folder in SymbolPath::parse(&paths.images).folders() {
            path.push_folder(folder);
        }
        // Not worth a search (and a download) of its own: a local image's folder is on the paths.
        let image = self.core.images.known(module);
        if let Some(folder) = image.as_ref().and_then(|i| i.path.parent()) {
            path.push_folder(folder);
        }
        path
    }

    fn by_identity(&self, module: &Module, identity: &PdbIdentity, report: &mut Report) -> Option<Found> {
        let path = self.search_path(module);
        let wanted = Wanted::Pdb { identity: identity.clone(), image_name: Some(module.image_name.clone()) };
        let opened: RefCell<Option<PdbFile>> = RefCell::default();
        let verify = |candidate: &Path| match PdbFile::open(candidate) {
            Err(_) => Verdict::NotThis,
            Ok(pdb) => match pdb.identity() {
                Some(own) if same_identity(own, identity) => {
                    *opened.borrow_mut() = Some(pdb);
                    Verdict::Match
                }
                Some(own) => Verdict::Mismatch(format!(
                    "the file is {}, the module wants {}",
                    own.key(),
                    identity.key()
                )),
                None => Verdict::NotThis,
            },
        };
        let settings = Settings::with_network(self.paths.borrow().network);
        let halt = self.core.images.bound.lookup(LOOKUP_BUDGET);
        let search = find(&path, &wanted, &settings, &halt, &verify);
        let missing =
            |why: String| format!("{} {} was not found ({why})", identity.file_name(), identity.key());
        report.note = search.reason().map(missing);
        report.mismatched = !search.mismatched.is_empty();
        report.cut_short = search.cut_short;
        let file = opened.into_inner()?;
        Some(Found { file: Box::new(file), path: search.found?, unmatched: false, note: None })
    }

    /// An ISF for the kernel: by the PDB's identity, or by name when its data agrees with the
    /// dump's own pointers.
    fn isf(&self, module: &Module, identity: Option<&PdbIdentity>, report: &mut Report) -> Option<Found> {
        let folders = self.search_path(module).folders();
        let kernel = self.kernel.get().filter(|(base, _)| *base == module.base);
        let names: Vec<&str> = match (identity, kernel) {
            (Some(identity), _) => vec![identity.file_name()],
            (None, Some(_)) => KERNEL_PDBS.to_vec(),
            (None, None) => return None,
        };
        for folder in &folders {
            for name in &names {
                for candidate in isf_candidates(folder, name, identity) {
                    // A name with another identity in it is not worth opening.
                    if identity.is_some() && !candidate.names_identity && names_a_guid(&candidate.path) {
                        continue;
                    }
                    let Ok(file) = IsfFile::open(&candidate.path) else { continue };
                    let matches = match identity {
                        Some(wanted) => file.identity().is_some_and(|own| same_identity(own, wanted)),
                        None => kernel.is_some_and(|(base, anchors)| agrees(&file, base, &anchors)),
                    };
                    if matches {
                        let note = identity.is_none().then(|| {
                            "chosen by name; its PsLoadedModuleList, KdDebuggerDataBlock and \
                             PsActiveProcessHead are where the dump says"
                                .to_owned()
                        });
                        return Some(Found {
                            file: Box::new(file),
                            path: candidate.path,
                            unmatched: false,
                            note,
                        });
                    }
                    report.note = Some(format!("{} is of another build", candidate.path.display()));
                }
            }
        }
        None
    }

    /// Without any identity in the dump: a PDB of the image's name, flagged as unmatched. Local
    /// folders only, and only if it could be the module's.
    fn by_name(&self, module: &Module, report: &mut Report) -> Option<Found> {
        let stem = base_name(&module.image_name).rsplit_once('.').map_or(module.image_name.as_str(), |s| s.0);
        if stem.is_empty() || stem.contains(['/', '\\']) || stem == ".." {
            return None;
        }
        let name = format!("{stem}.pdb");
        for folder in self.search_path(module).folders() {
            let path = folder.join(&name);
            if !path.is_file() {
                continue;
            }
            let Ok(file) = PdbFile::open(&path) else { continue };
            if !plausible(&file, module) {
                report.note = Some(format!("{} does not fit the module's size", path.display()));
                continue;
            }
            let note = "the dump records no PDB identity; this file was chosen by its name alone".to_owned();
            return Some(Found { file: Box::new(file), path, unmatched: true, note: Some(note) });
        }
        None
    }

    /// COFF or DWARF symbols inside the image file (MinGW).
    fn in_image(&self, module: &Module) -> Option<Found> {
        let image = self.core.images.of(module)?;
        let file = ImageSymbols::open(&image.path).ok()?;
        if matches!(file.state(), SymbolState::None) {
            return None;
        }
        Some(Found { file: Box::new(file), path: image.path.clone(), unmatched: false, note: None })
    }

    fn exports(&self, module: &Module, pe: &Pe) -> Option<ExportSymbols> {
        let source = self.image_source(module);
        let named: Vec<(u64, String)> = pe
            .exports(&source)
            .into_iter()
            .filter_map(|export| match (export.name, export.target) {
                (Some(name), ExportTarget::Rva(rva)) => Some((u64::from(rva), name)),
                _ => None,
            })
            .collect();
        if named.is_empty() {
            return None;
        }
        Some(ExportSymbols::new(named, function_ranges(pe, &source)))
    }
}

/// `(begin, end)` of every function in the exception directory, read in one go.
fn function_ranges(pe: &Pe, source: &ModuleImage) -> Vec<(u64, u64)> {
    const MAX_DIRECTORY: usize = 16 << 20;
    let Some((rva, size)) = pe.directory(pe::DirectoryIndex::Exception) else { return Vec::new() };
    let bytes = source.prefix(rva, (size as usize).min(MAX_DIRECTORY));
    let word = |entry: &[u8], at: usize| {
        entry.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, |b| u64::from(u32::from_le_bytes(b)))
    };
    match pe.machine {
        Some(Machine::X64) => bytes.chunks_exact(12).map(|e| (word(e, 0), word(e, 4))).collect(),
        Some(Machine::Arm64) => {
            // The length is in the unwind data; the next function's start bounds it well enough.
            let begins: Vec<u64> = bytes.chunks_exact(8).map(|e| word(e, 0)).collect();
            begins.windows(2).map(|pair| (pair[0], pair[1])).collect()
        }
        _ => Vec::new(),
    }
}

/// GUID and age agree. Tools that rewrite a PDB leave the DBI age unset.
fn same_identity(own: &PdbIdentity, wanted: &PdbIdentity) -> bool {
    own.guid == wanted.guid && (own.age == wanted.age || own.age == u32::MAX || own.age == 0)
}

/// Whether the file's name holds a run of 32 hex digits.
fn names_a_guid(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split(|c: char| !c.is_ascii_hexdigit()).any(|run| run.len() >= 32)
}

fn agrees(file: &IsfFile, base: u64, anchors: &super::KernelAnchors) -> bool {
    let expected = [
        ("PsLoadedModuleList", anchors.loaded_modules),
        ("KdDebuggerDataBlock", anchors.debugger_data),
        ("PsActiveProcessHead", anchors.active_processes),
    ];
    expected.iter().all(|&(name, address)| {
        file.by_name(name)
            .is_ok_and(|hits| hits.iter().any(|s| base.checked_add(s.rva).is_some_and(|a| a == address)))
    })
}

/// Whether every symbol of the PDB could lie inside the module.
fn plausible(file: &PdbFile, module: &Module) -> bool {
    match file.symbol_at(module.size.saturating_sub(1)) {
        Ok(Some(last)) => last.rva < module.size,
        Ok(None) => true,
        Err(_) => false,
    }
}
