//! Modules and what identifies them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::Guid;

/// What identifies a PDB: GUID and age. `key` in a symbol store is both run together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PdbIdentity {
    pub guid: Guid,
    pub age: u32,
    /// The path or name recorded in the image.
    pub name: String,
}

impl PdbIdentity {
    /// Symbol-store key: 32 uppercase hex digits and the age in hex.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}{:x}", self.guid, self.age)
    }
    /// The recorded name without its folders, either separator.
    #[must_use]
    pub fn file_name(&self) -> &str {
        base_name(&self.name)
    }
}

/// The last component of a Windows or Unix path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit(['\\', '/']).next().unwrap_or(path)
}

/// Symbol state of a module (DbgEng's DEBUG_SYMTYPE_* plus `isf`, which only the native engine has).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SymbolState {
    None,
    Deferred,
    Coff,
    CodeView,
    Pdb,
    Export,
    Sym,
    Dia,
    Dwarf,
    Isf,
    Other,
}

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The name symbols are qualified by (`nt`, `ntdll_771d0000`).
    pub name: String,
    /// File name without folders.
    pub image_name: String,
    /// As recorded: a full path or a bare name.
    pub image_path: String,
    pub base: u64,
    pub size: u64,
    /// PE `TimeDateStamp`, 0 when unknown.
    pub timestamp: u32,
    pub checksum: u32,
    /// CodeView identity already known from the target's own record, without loading anything.
    pub pdb: Option<PdbIdentity>,
    /// Only on kernel targets: whether the module is in user space.
    pub user_mode: Option<bool>,
    /// `VS_FIXEDFILEINFO` file version `a.b.c.d`, if recorded.
    pub file_version: Option<[u16; 4]>,
}

impl Module {
    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        address >= self.base && address < self.end()
    }
}

/// A module that was unloaded: its range explains stray addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnloadedModule {
    pub image_name: String,
    pub base: u64,
    pub size: u64,
    pub timestamp: u32,
    pub checksum: u32,
}

/// What is known of a module's symbols now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolStatus {
    pub state: SymbolState,
    /// The PDB (or ISF) in use, or the identity that was looked for.
    pub pdb: Option<PdbIdentity>,
    /// The file in use.
    pub file: Option<String>,
    /// A candidate was found whose identity differs; it is used only when forced.
    pub unmatched: bool,
    /// Why there are no better symbols, in one sentence, if something was tried.
    pub note: Option<String>,
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// `name` is the module's, `rva` the distance from its base.
    Module { name: String, base: u64, rva: u64 },
    /// In no loaded module: a finding. The unloaded module that once was there, if any.
    NoModule { unloaded: Option<String> },
    /// The lookup itself failed: no information.
    LookupFailed,
}
