//! Symbols an image carries itself: the COFF table and DWARF of MinGW builds.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use target::{PdbIdentity, SourceLine, SymbolKind, SymbolState, TypeLayout};

use crate::demangle::display_name;
use crate::error::{guarded, io};
use crate::table::{Entry, Table};
use crate::{InlineFrame, Result, Sym, SymbolError, SymbolFile};

/// A symbol further below an address than this says nothing about it.
const MAX_DISPLACEMENT: u64 = 16 << 20;
/// Inline frames at one address.
const MAX_INLINE: usize = 64;

type Reader = EndianArcSlice<LittleEndian>;

/// COFF symbols, with DWARF when the image has it.
pub struct ImageSymbols {
    table: Table,
    dwarf: Option<addr2line::Context<Reader>>,
    image_base: u64,
    /// `(rva, end)` of the sections, so that a symbol names nothing outside its own.
    sections: Vec<(u64, u64)>,
}

impl ImageSymbols {
    /// Opens an image file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_bytes(std::fs::read(path).map_err(|e| io(path, &e))?)
    }

    /// The symbols in an image file's bytes; an image that has none is refused.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let image = pe::FileImage::new(bytes)
            .map_err(|e| SymbolError::NotSymbols(format!("this is no image with symbols: {e}")))?;
        let (pe, file) = (image.pe(), image.bytes());
        let coff = pe::CoffSymbols::new(pe, file);
        let entries = coff.map(|c| c.symbols(pe)).unwrap_or_default().into_iter().filter_map(|symbol| {
            // Sections and their pieces (`.text`, `.rdata$zzz`) are listed too.
            let name = plain(&symbol.name, pe.is_64);
            let kind = if symbol.function { SymbolKind::Function } else { SymbolKind::Data };
            (!name.starts_with('.')).then(|| Entry {
                rva: symbol.rva,
                kind,
                name: name.into(),
                linkage: None,
            })
        });
        let table = Table::new(entries.collect());
        let section_name = |s: &pe::Section| match s.name.strip_prefix('/').and_then(|n| n.parse().ok()) {
            Some(offset) => coff.and_then(|c| c.string(offset)).unwrap_or_default(),
            None => s.name.clone(),
        };
        let bytes_of = |id: SectionId| {
            let section = pe.sections.iter().find(|s| section_name(s) == id.name())?;
            let start = section.raw_offset as usize;
            // The raw size is padded; DWARF readers stop at the virtual size.
            let size = section.raw_size.min(section.virtual_size.max(1)) as usize;
            file.get(start..start.checked_add(size)?.min(file.len()))
        };
        let dwarf = bytes_of(SectionId::DebugInfo).and_then(|_| dwarf_context(bytes_of));
        if dwarf.is_none() && table.len() == 0 {
            let why = "the image has neither COFF symbols nor DWARF (stripped)";
            return Err(SymbolError::NotSymbols(why.to_owned()));
        }
        let bounds = |s: &pe::Section| {
            let start = u64::from(s.rva);
            (start, start + u64::from(s.virtual_size.max(s.raw_size)))
        };
        let sections = pe.sections.iter().map(bounds).collect();
        Ok(Self { table, dwarf, image_base: pe.image_base, sections })
    }

    /// The frames at `rva`, innermost first: `(function, position)`; the last is the physical one.
    fn frames(&self, rva: u64) -> Result<Vec<(Option<String>, Option<SourceLine>)>> {
        let Some(dwarf) = &self.dwarf else { return Ok(Vec::new()) };
        let address = self.image_base.wrapping_add(rva);
        guarded("DWARF", || {
            let mut frames = dwarf.find_frames(address).skip_all_loads().map_err(SymbolError::damaged)?;
            let mut found = Vec::new();
            while let Some(frame) = frames.next().map_err(SymbolError::damaged)? {
                let raw = frame.function.as_ref().and_then(|f| f.raw_name().ok()).map(Cow::into_owned);
                let name = raw.map(|raw| display_name(&raw).unwrap_or(raw));
                let line = frame.location.and_then(|l| {
                    let (file, line) = (l.file?.to_owned(), l.line?);
                    Some(SourceLine { file, line, displacement: 0 })
                });
                found.push((name, line));
                if found.len() > MAX_INLINE {
                    break;
                }
            }
            Ok(found)
        })
    }
}

fn dwarf_context<'a>(bytes_of: impl Fn(SectionId) -> Option<&'a [u8]>) -> Option<addr2line::Context<Reader>> {
    let load = |id: SectionId| {
        let bytes: Arc<[u8]> = bytes_of(id).unwrap_or_default().into();
        Ok::<_, gimli::Error>(EndianArcSlice::new(bytes, LittleEndian))
    };
    let context = guarded("DWARF", || {
        let dwarf = gimli::Dwarf::load(load).map_err(SymbolError::damaged)?;
        addr2line::Context::from_dwarf(dwarf).map_err(SymbolError::damaged)
    });
    context.ok()
}

/// A COFF name without the underscore 32-bit compilers put before C names.
fn plain(name: &str, is_64: bool) -> &str {
    if is_64 || name.starts_with("__Z") { name } else { crate::demangle::plain_name(name) }
}

impl SymbolFile for ImageSymbols {
    fn state(&self) -> SymbolState {
        if self.dwarf.is_some() { SymbolState::Dwarf } else { SymbolState::Coff }
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        None
    }
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>> {
        let section = |rva: u64| self.sections.iter().position(|s| rva >= s.0 && rva < s.1);
        let near = |s: &Sym| rva - s.rva < MAX_DISPLACEMENT && section(s.rva) == section(rva);
        let Some(mut symbol) = self.table.nearest(rva).filter(near) else { return Ok(None) };
        // The table has no sizes; DWARF knows which function it is, and so that the code is one.
        if self.dwarf.is_some() && symbol.kind == SymbolKind::Function {
            symbol.size = self.table.next_start(symbol.rva).map(|next| next - symbol.rva);
        }
        Ok(Some(symbol))
    }
    fn by_name(&self, name: &str) -> Result<Vec<Sym>> {
        Ok(self.table.by_name(name))
    }
    fn matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>> {
        Ok(self.table.matching(pattern, limit))
    }
    fn line_at(&self, rva: u64) -> Result<Option<SourceLine>> {
        Ok(self.frames(rva)?.pop().and_then(|(_, line)| line))
    }
    /// DWARF's inlined functions. Their `start` is the address itself: no displacement is known.
    fn inline_chain(&self, rva: u64) -> Result<Vec<InlineFrame>> {
        let mut frames = self.frames(rva)?;
        frames.pop();
        let named = |(name, line): (Option<String>, _)| InlineFrame {
            name: name.unwrap_or_else(|| "inlined function".to_owned()),
            start: rva,
            line,
        };
        Ok(frames.into_iter().map(named).collect())
    }
    fn aliases(&self, rva: u64) -> Result<Vec<String>> {
        Ok(self.table.aliases(rva))
    }
    fn type_layout(&self, _name: &str) -> Result<TypeLayout> {
        Err(SymbolError::NoTypes("COFF and DWARF"))
    }
}
