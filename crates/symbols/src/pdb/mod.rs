//! PDB files. Nothing is read before it is asked for: an address costs the section contributions,
//! the global symbols and the one module that covers it.

mod address;
mod bytes;
mod debug_info;
mod frames;
mod globals;
mod ids;
mod info;
mod layout;
mod lines;
mod locals;
mod lookup;
mod module;
mod primitive;
mod registers;
mod scopes;
mod streams;
mod typed;
mod types;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use target::{Guid, Machine, PdbIdentity, SourceLine, SymbolState, TypeLayout, TypeRef};

use address::AddressMap;
use debug_info::DebugInfo;
use frames::FrameTable;
use globals::Globals;
use info::{Info, Names};
use module::Module;
pub(crate) use primitive::primitive_named;
use streams::Streams;
pub(crate) use typed::described;
use types::TypeStream;

use crate::error::guarded;
use crate::{FrameProgram, InlineFrame, LocalVar, Result, Sym, SymbolFile};

/// Fixed stream numbers (LLVM "The PDB File Format").
const INFO_STREAM: u32 = 1;
const TYPE_STREAM: u32 = 2;
const DEBUG_STREAM: u32 = 3;
const ID_STREAM: u32 = 4;
/// Modules kept parsed; beyond it the oldest answers are worth less than the memory.
const MODULE_CACHE_BYTES: usize = 256 << 20;

/// One PDB.
pub struct PdbFile {
    streams: Streams,
    identity: PdbIdentity,
    info: Info,
    debug: DebugInfo,
    addresses: OnceCell<AddressMap>,
    globals: OnceCell<Globals>,
    types: OnceCell<TypeStream>,
    ids: OnceCell<TypeStream>,
    names: OnceCell<Names>,
    frames: OnceCell<FrameTable>,
    modules: RefCell<HashMap<u16, Option<Rc<Module>>>>,
}

/// `get_or_try_init` of a cell, which the standard library does not have yet.
fn cached<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = make()?;
    Ok(cell.get_or_init(|| value))
}

impl PdbFile {
    /// Opens a PDB; reads its directory, identity and module list.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::over(Streams::open(path)?, name)
    }

    /// Opens a PDB held in memory; `name` is its file name.
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        Self::over(Streams::from_bytes(bytes)?, name.to_owned())
    }

    fn over(streams: Streams, name: String) -> Result<Self> {
        let info = Info::parse(&streams.read(INFO_STREAM, "identity stream")?)?;
        let debug = DebugInfo::parse(&streams.read(DEBUG_STREAM, "debug information stream")?)?;
        // The linker writes the image's age into DBI; tools that touch the PDB later raise the
        // other one. All ones is "never set".
        let age = if debug.age == u32::MAX { info.age } else { debug.age };
        let identity = PdbIdentity { guid: Guid(info.guid), age, name };
        Ok(Self {
            streams,
            identity,
            info,
            debug,
            addresses: OnceCell::new(),
            globals: OnceCell::new(),
            types: OnceCell::new(),
            ids: OnceCell::new(),
            names: OnceCell::new(),
            frames: OnceCell::new(),
            modules: RefCell::new(HashMap::new()),
        })
    }

    /// The age in the identity stream, at least that of [`SymbolFile::identity`].
    #[must_use]
    pub fn info_age(&self) -> u32 {
        self.info.age
    }

    /// The machine the image is for; `None` when the PDB says one we do not know.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        Machine::from_image(self.debug.machine)
    }

    /// How many FrameData and FPO records there are.
    pub fn frame_program_counts(&self) -> Result<(usize, usize)> {
        guarded("frame data", || Ok(self.frames()?.counts()))
    }

    fn pointer_size(&self) -> u64 {
        self.machine().map_or(8, |m| u64::from(m.pointer_size()))
    }

    fn addresses(&self) -> Result<&AddressMap> {
        cached(&self.addresses, || {
            let streams = &self.debug.streams;
            let to_source = self.streams.read_optional(streams.omap_to_source, "OMAP")?;
            let from_source = self.streams.read_optional(streams.omap_from_source, "OMAP")?;
            let reordered = !from_source.is_empty() && streams.original_sections != debug_info::NO_STREAM;
            let sections = if reordered { streams.original_sections } else { streams.sections };
            let sections = self.streams.read_optional(sections, "section headers")?;
            Ok(AddressMap::new(&sections, &to_source, &from_source))
        })
    }

    fn globals(&self) -> Result<&Globals> {
        cached(&self.globals, || {
            let records = self.streams.read_optional(self.debug.symbol_records, "global symbols")?;
            Ok(Globals::new(records, self.addresses()?, self.machine() == Some(Machine::X86)))
        })
    }

    fn types(&self) -> Result<&TypeStream> {
        cached(&self.types, || TypeStream::parse(self.streams.read(TYPE_STREAM, "type stream")?))
    }

    fn ids(&self) -> Result<&TypeStream> {
        cached(&self.ids, || TypeStream::parse(self.streams.read(ID_STREAM, "id stream")?))
    }

    fn names(&self) -> Result<&Names> {
        cached(&self.names, || match self.info.named_stream("/names") {
            Some(stream) => Ok(Names::new(self.streams.read(stream, "name table")?)),
            None => Ok(Names::new(Vec::new())),
        })
    }

    fn frames(&self) -> Result<&FrameTable> {
        cached(&self.frames, || {
            let data = self.streams.read_optional(self.debug.streams.frame_data, "frame data")?;
            let fpo = self.streams.read_optional(self.debug.streams.fpo, "FPO data")?;
            let addresses = self.addresses()?;
            Ok(FrameTable::parse(&data, &fpo, |rva| addresses.moved(rva)))
        })
    }

    /// A module's symbols; `None` when it has none.
    fn module(&self, index: u16) -> Result<Option<Rc<Module>>> {
        if let Some(module) = self.modules.borrow().get(&index) {
            return Ok(module.clone());
        }
        let entry = self.debug.modules.get(usize::from(index)).filter(|m| m.stream != debug_info::NO_STREAM);
        let module = match entry {
            Some(entry) => {
                let stream = self.streams.read(u32::from(entry.stream), "module symbols")?;
                Some(Rc::new(Module::new(entry, stream)))
            }
            None => None,
        };
        let mut modules = self.modules.borrow_mut();
        let held: usize = modules.values().flatten().map(|m| m.bytes()).sum();
        if held > MODULE_CACHE_BYTES {
            modules.clear();
        }
        modules.insert(index, module.clone());
        Ok(module)
    }
}

impl SymbolFile for PdbFile {
    fn state(&self) -> SymbolState {
        SymbolState::Pdb
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        Some(&self.identity)
    }
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>> {
        guarded("symbols", || self.find_symbol(rva))
    }
    fn by_name(&self, name: &str) -> Result<Vec<Sym>> {
        guarded("symbols", || self.find_by_name(name))
    }
    fn matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>> {
        guarded("symbols", || self.find_matching(pattern, limit))
    }
    fn line_at(&self, rva: u64) -> Result<Option<SourceLine>> {
        guarded("lines", || self.find_line(rva))
    }
    fn inline_chain(&self, rva: u64) -> Result<Vec<InlineFrame>> {
        guarded("inline sites", || self.find_inline_chain(rva))
    }
    fn frame_program(&self, rva: u64) -> Result<Option<FrameProgram>> {
        guarded("frame data", || {
            let Ok(rva) = u32::try_from(rva) else { return Ok(None) };
            let names = self.names()?;
            Ok(self.frames()?.at(rva, |offset| names.get(offset)))
        })
    }
    fn aliases(&self, rva: u64) -> Result<Vec<String>> {
        guarded("symbols", || self.find_aliases(rva))
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        guarded("types", || self.find_layout(name))
    }
    fn types_matching(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        guarded("types", || self.find_types(pattern, limit))
    }
    fn locals_at(&self, rva: u64) -> Result<Vec<LocalVar>> {
        guarded("locals", || self.find_locals(rva))
    }
    fn type_of(&self, symbol: &str) -> Result<Option<TypeRef>> {
        guarded("types", || self.find_type_of(symbol))
    }
}
