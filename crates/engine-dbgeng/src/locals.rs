//! What our own PDB reader answers from the file the engine loaded, so that both engines agree on
//! types, locals and function sizes. DbgEng only says which file that is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use symbols::{PdbFile, SymbolFile};
use target::{Found, Frame, Local, Module, Result, TargetError, TargetExt};

use crate::engine::DbgEng;

/// PDBs by path; `None` of one that does not open.
pub(crate) type Pdbs = RefCell<HashMap<String, Option<Rc<PdbFile>>>>;

impl DbgEng {
    /// The PDB the engine uses for the module at `base`.
    pub(crate) fn pdb_of(&self, base: u64) -> Option<Rc<PdbFile>> {
        let status = self.read_symbol_status(base, true).ok()?;
        let file = status.file.filter(|f| f.to_ascii_lowercase().ends_with(".pdb"))?;
        if let Some(known) = self.pdbs.borrow().get(&file) {
            return known.clone();
        }
        let opened = PdbFile::open(Path::new(&file)).ok().map(Rc::new);
        self.pdbs.borrow_mut().insert(file, opened.clone());
        opened
    }

    /// The module, its PDB and the RVA of `address`.
    pub(crate) fn pdb_at(&self, address: u64) -> Option<(Module, Rc<PdbFile>, u64)> {
        let module = self.module_at(address).ok().flatten()?;
        let rva = address - module.base;
        Some((module.clone(), self.pdb_of(module.base)?, rva))
    }

    pub(crate) fn read_locals(&self, frame: &Frame) -> Result<Vec<Local>> {
        let lookup = if frame.found == Found::Context { frame.ip } else { frame.ip.saturating_sub(1) };
        let Some((module, pdb, rva)) = self.pdb_at(lookup) else {
            return match self.module_at(lookup)? {
                None => Ok(Vec::new()),
                Some(module) => Err(TargetError::failed_because(
                    "no_symbols",
                    format!("{} has no symbols that list locals", module.name),
                )),
            };
        };
        let found = pdb
            .locals_at(rva)
            .map_err(|error| TargetError::failed(format!("symbols of {}: {error}", module.name)))?;
        let context = frame.context.as_deref();
        let program = pdb.frame_program(rva).ok().flatten();
        let base = context.and_then(|c| symbols::frame_base(program.as_ref(), c));
        Ok(found.into_iter().map(|var| symbols::place_local(var, module.base, context, base)).collect())
    }
}
