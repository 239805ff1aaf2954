//! Being written.
use std::path::Path;
use target::{PdbIdentity, SymbolState, TypeLayout};
use crate::{Result, Sym, SymbolError, SymbolFile};
/// See the crate's documentation.
#[derive(Debug)]
pub struct IsfFile {}
impl IsfFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        Err(SymbolError::NotSymbols(path.display().to_string()))
    }
    /// Opens a file held in memory; `name` is for messages and the identity.
    pub fn from_bytes(_bytes: Vec<u8>, name: &str) -> Result<Self> {
        Err(SymbolError::NotSymbols(name.to_owned()))
    }
}
impl SymbolFile for IsfFile {
    fn state(&self) -> SymbolState {
        SymbolState::None
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        None
    }
    fn symbol_at(&self, _rva: u64) -> Result<Option<Sym>> {
        Ok(None)
    }
    fn by_name(&self, _name: &str) -> Result<Vec<Sym>> {
        Ok(Vec::new())
    }
    fn matching(&self, _pattern: &str, _limit: usize) -> Result<Vec<Sym>> {
        Ok(Vec::new())
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        Err(SymbolError::NoSuchType(name.to_owned()))
    }
}
