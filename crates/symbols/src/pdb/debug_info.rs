//! The DBI stream: which modules there are, which bytes of the image each contributed, and where
//! the other streams are (LLVM "The PDB DBI Stream").

use super::bytes::Bytes;
use crate::{Result, SymbolError};

/// A stream number that means none.
pub(crate) const NO_STREAM: u16 = u16::MAX;

/// One compiland.
#[derive(Clone, Debug)]
pub(crate) struct ModuleEntry {
    /// Path of the object file, by which other modules import from it.
    pub(crate) name: Box<str>,
    pub(crate) stream: u16,
    pub(crate) symbol_bytes: u32,
    pub(crate) c11_bytes: u32,
    pub(crate) c13_bytes: u32,
}

/// Bytes of a section that came from one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contribution {
    pub(crate) section: u16,
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) module: u16,
}

/// The optional debug header's streams, in its order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DebugStreams {
    pub(crate) fpo: u16,
    pub(crate) omap_to_source: u16,
    pub(crate) omap_from_source: u16,
    pub(crate) sections: u16,
    pub(crate) frame_data: u16,
    pub(crate) original_sections: u16,
}

/// The parsed stream.
#[derive(Debug)]
pub(crate) struct DebugInfo {
    pub(crate) age: u32,
    pub(crate) machine: u16,
    pub(crate) symbol_records: u16,
    pub(crate) modules: Vec<ModuleEntry>,
    /// Sorted by section and offset.
    pub(crate) contributions: Vec<Contribution>,
    pub(crate) streams: DebugStreams,
}

impl DebugInfo {
    pub(crate) fn parse(stream: &[u8]) -> Result<Self> {
        Self::read(stream).ok_or_else(|| SymbolError::damaged("its debug information stream is cut off"))
    }

    fn read(stream: &[u8]) -> Option<Self> {
        let mut header = Bytes::new(stream);
        header.take(8)?;
        let age = header.u32()?;
        header.take(8)?;
        let symbol_records = header.u16()?;
        header.take(2)?;
        let mut sizes = [0usize; 8];
        for (index, size) in sizes.iter_mut().enumerate() {
            let value = header.u32()?;
            // The sixth is an index, not a size.
            *size = if index == 5 { 0 } else { usize::try_from(value.cast_signed()).ok()? };
        }
        header.take(2)?;
        let machine = header.u16()?;
        header.take(4)?;
        // sizes: modules, contributions, section map, sources, type servers, (no size), optional, EC
        let modules = header.take(sizes[0])?;
        let contributions = header.take(sizes[1])?;
        header.take(sizes[2])?;
        header.take(sizes[3])?;
        header.take(sizes[4])?;
        header.take(sizes[7])?;
        let optional = header.take(sizes[6]).unwrap_or_default();
        Some(Self {
            age,
            machine,
            symbol_records,
            modules: read_modules(modules),
            contributions: read_contributions(contributions).unwrap_or_default(),
            streams: read_streams(optional),
        })
    }

    /// The module whose bytes hold `offset` of `section`.
    pub(crate) fn module_at(&self, section: u16, offset: u32) -> Option<u16> {
        let after = self.contributions.partition_point(|c| (c.section, c.offset) <= (section, offset));
        let found = self.contributions.get(after.checked_sub(1)?)?;
        (found.section == section && offset - found.offset < found.size).then_some(found.module)
    }
}

fn read_modules(bytes: &[u8]) -> Vec<ModuleEntry> {
    let mut all = Bytes::new(bytes);
    let mut modules = Vec::new();
    while let Some(module) = read_module(&mut all, bytes.len()) {
        modules.push(module);
    }
    modules
}

fn read_module(all: &mut Bytes<'_>, total: usize) -> Option<ModuleEntry> {
    all.take(4 + 28 + 2)?;
    let stream = all.u16()?;
    let (symbol_bytes, c11_bytes, c13_bytes) = (all.u32()?, all.u32()?, all.u32()?);
    all.take(16)?;
    let name = all.name().into();
    all.name_bytes();
    let used = total - all.rest().len();
    all.take(used.next_multiple_of(4).min(total) - used)?;
    Some(ModuleEntry { name, stream, symbol_bytes, c11_bytes, c13_bytes })
}

fn read_contributions(bytes: &[u8]) -> Option<Vec<Contribution>> {
    let mut all = Bytes::new(bytes);
    let entry = match all.u32()? {
        0xf12e_ba2d => 28,
        0xf131_51e4 => 32,
        _ => return None,
    };
    let mut contributions = Vec::with_capacity(all.rest().len() / entry);
    while let Some(entry) = all.take(entry) {
        let mut fields = Bytes::new(entry);
        let section = fields.u16()?;
        fields.take(2)?;
        let (offset, size) = (fields.u32()?, fields.u32()?);
        fields.take(4)?;
        let module = fields.u16()?;
        if size != 0 {
            contributions.push(Contribution { section, offset, size, module });
        }
    }
    if !contributions.is_sorted() {
        contributions.sort_unstable();
    }
    Some(contributions)
}

fn read_streams(bytes: &[u8]) -> DebugStreams {
    let mut all = Bytes::new(bytes);
    let mut list = [NO_STREAM; 11];
    for stream in &mut list {
        *stream = all.u16().unwrap_or(NO_STREAM);
    }
    DebugStreams {
        fpo: list[0],
        omap_to_source: list[3],
        omap_from_source: list[4],
        sections: list[5],
        frame_data: list[9],
        original_sections: list[10],
    }
}
