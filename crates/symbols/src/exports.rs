//! Names from an export table, the fallback without a PDB (spec 80 section 11.5).

use target::{PdbIdentity, SymbolState, TypeLayout};

use crate::{Result, Sym, SymbolError, SymbolFile};

/// The exports of one image.
#[derive(Debug, Default)]
pub struct ExportSymbols {
    exports: Vec<(u64, String)>,
    functions: Vec<(u64, u64)>,
}

/// The nearest export and what its distance is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestExport {
    /// What DbgEng names: the nearest export at any displacement.
    pub nearest: Sym,
    /// Whether we stand by it: the function that holds the address starts at the export, or no
    /// function bounds are known and the displacement is at most 0x1000.
    pub trusted: bool,
}

impl ExportSymbols {
    /// From `(rva, name)` of named exports (forwarders left out) and `(begin, end)` of the
    /// functions of `.pdata` (empty when there is none), both in any order.
    #[must_use]
    pub fn new(exports: Vec<(u64, String)>, functions: Vec<(u64, u64)>) -> Self {
        Self { exports, functions }
    }
    /// The nearest export at or before `rva`, trusted or not.
    #[must_use]
    pub fn nearest(&self, _rva: u64) -> Option<NearestExport> {
        let _ = (&self.exports, &self.functions);
        None
    }
}

impl SymbolFile for ExportSymbols {
    fn state(&self) -> SymbolState {
        SymbolState::Export
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        None
    }
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>> {
        Ok(self.nearest(rva).filter(|n| n.trusted).map(|n| n.nearest))
    }
    fn by_name(&self, _name: &str) -> Result<Vec<Sym>> {
        Ok(Vec::new())
    }
    fn matching(&self, _pattern: &str, _limit: usize) -> Result<Vec<Sym>> {
        Ok(Vec::new())
    }
    fn type_layout(&self, _name: &str) -> Result<TypeLayout> {
        Err(SymbolError::NoTypes("export"))
    }
}
