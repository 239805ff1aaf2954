//! Type layouts: our own PDB reader on the file the engine loaded, so that both engines answer alike.

use std::path::Path;

use symbols::SymbolFile;
use target::{Result, Target, TargetError, TargetExt, TypeLayout};

use crate::engine::DbgEng;

impl DbgEng {
    fn pdb_of(&self, base: u64) -> Option<symbols::PdbFile> {
        let file = self.read_symbol_status(base, true).ok()?.file?;
        symbols::PdbFile::open(Path::new(&file)).ok()
    }

    fn search<T>(&self, name: &str, find: impl Fn(&symbols::PdbFile, &str, &str) -> Option<T>) -> Result<Option<T>> {
        let (module, bare) = name.split_once('!').map_or((None, name), |(module, bare)| (Some(module), bare));
        let modules = match module {
            Some(module) => self.module_named(module)?.into_iter().collect::<Vec<_>>(),
            None => self.modules()?.to_vec(),
        };
        Ok(modules.iter().find_map(|m| self.pdb_of(m.base).and_then(|pdb| find(&pdb, &m.name, bare))))
    }

    pub(crate) fn layout(&self, name: &str) -> Result<TypeLayout> {
        let found = self.search(name, |pdb, module, bare| {
            pdb.type_layout(bare).ok().map(|layout| TypeLayout { module: module.to_owned(), ..layout })
        })?;
        found.ok_or_else(|| TargetError::failed(format!("no loaded PDB defines the type {name}")))
    }

    pub(crate) fn match_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        Ok(self
            .search(pattern, |pdb, _, bare| pdb.types_matching(bare, limit).ok().filter(|names| !names.is_empty()))?
            .unwrap_or_default())
    }
}
