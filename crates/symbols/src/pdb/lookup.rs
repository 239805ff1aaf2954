//! Addresses and names to symbols, lines and inline frames.

use std::rc::Rc;

use target::{SourceLine, SymbolKind, TypeRef};

use super::PdbFile;
use super::bytes::{Bytes, Record};
use super::globals::{Global, literal_of, matches};
use super::layout::Layouts;
use super::lines::{self, InlineRange};
use super::module::Module;
use super::scopes::{Procedure, ProcedureKind, is_inline_site, procedure_name, walk};
use super::{globals, ids};
use crate::glob::Glob;
use crate::literal::literal_size;
use crate::table::shortest;
use crate::{InlineFrame, Result, Sym};

/// A symbol further below an address than this says nothing about it.
const MAX_DISPLACEMENT: u32 = 16 << 20;
/// Answers of an exact look-up.
const MAX_NAMED: usize = 256;

/// A procedure found by address, with what it was found through.
pub(super) struct Found {
    pub(super) module: Rc<Module>,
    pub(super) procedure: Procedure,
    /// As symbols name the address.
    pub(super) section: u16,
    pub(super) offset: u32,
}

/// An inline site, seen from an address.
#[derive(Clone)]
struct Site {
    id: u32,
    /// The range that covers the address, or the nearest before it.
    range: InlineRange,
    /// Start of the inlined body.
    start: u32,
    live: bool,
}

impl PdbFile {
    pub(super) fn find_procedure(&self, rva: u64) -> Result<Option<Found>> {
        let Ok(rva) = u32::try_from(rva) else { return Ok(None) };
        let Some((section, offset)) = self.addresses()?.place(rva) else { return Ok(None) };
        let Some(index) = self.debug.module_at(section, offset) else { return Ok(None) };
        let Some(module) = self.module(index)? else { return Ok(None) };
        let Some(&procedure) = module.procedure_at(section, offset) else { return Ok(None) };
        Ok(Some(Found { module, procedure, section, offset }))
    }

    pub(super) fn find_symbol(&self, rva: u64) -> Result<Option<Sym>> {
        if let Some(found) = self.find_procedure(rva)? {
            let displacement = u64::from(found.offset - found.procedure.offset);
            if let Some(mut symbol) = self.procedure_symbol(&found.module, &found.procedure)? {
                // Reordered blocks may lie before their function: keep the displacement true.
                if rva.checked_sub(symbol.rva) != Some(displacement) {
                    symbol.rva = rva.saturating_sub(displacement);
                }
                return Ok(Some(symbol));
            }
        }
        let Ok(rva) = u32::try_from(rva) else { return Ok(None) };
        let Some((at, global)) = self.globals()?.nearest(rva) else { return Ok(None) };
        let addresses = self.addresses()?;
        let same_section = match (addresses.place(at), addresses.place(rva)) {
            (Some((a, _)), Some((b, _))) => a == b,
            _ => addresses.has_omap(),
        };
        if rva - at >= MAX_DISPLACEMENT || !same_section {
            return Ok(None);
        }
        // A string literal names its own bytes and nothing behind them.
        let is_literal = literal_size(global.name()).is_some();
        Ok(self.global_symbol(&global)?.filter(|symbol| !is_literal || symbol.covers(u64::from(rva))))
    }

    fn procedure_symbol(&self, module: &Module, procedure: &Procedure) -> Result<Option<Sym>> {
        let Some(rva) = self.addresses()?.rva(procedure.section, procedure.offset) else { return Ok(None) };
        let name = match procedure.kind {
            ProcedureKind::Separated { section, offset } => {
                let parent = module.function_starting(section, offset);
                parent.and_then(|p| procedure_name(&module.symbols, p)).map(|name| format!("{name}$cold"))
            }
            _ => procedure_name(&module.symbols, procedure),
        };
        let Some(name) = name.filter(|n| !n.is_empty()) else { return Ok(None) };
        let public = self.globals()?.public_at(rva).map(|raw| String::from_utf8_lossy(raw).into_owned());
        Ok(Some(Sym {
            raw_name: public.filter(|raw| *raw != name),
            name,
            rva: u64::from(rva),
            size: Some(u64::from(procedure.size)),
            kind: SymbolKind::Function,
        }))
    }

    fn global_symbol(&self, global: &Global<'_>) -> Result<Option<Sym>> {
        match *global {
            Global::Public { section, offset, name } => {
                let Some(rva) = self.addresses()?.rva(section, offset) else { return Ok(None) };
                Ok(Some(self.globals()?.public_symbol(rva, name)))
            }
            Global::Data { ty, section, offset, name } => {
                let Some(rva) = self.addresses()?.rva(section, offset) else { return Ok(None) };
                let size = self.reference(ty)?.size();
                let name = String::from_utf8_lossy(name).into_owned();
                let public =
                    self.globals()?.public_at(rva).map(|raw| String::from_utf8_lossy(raw).into_owned());
                Ok(Some(Sym {
                    raw_name: public.filter(|raw| *raw != name),
                    name,
                    rva: u64::from(rva),
                    size: (size > 0).then_some(size),
                    kind: SymbolKind::Data,
                }))
            }
            Global::Procedure { module, record, .. } => {
                let Some(module) = self.module(module)? else { return Ok(None) };
                match module.procedure_of_record(record) {
                    Some(procedure) => self.procedure_symbol(&module, procedure),
                    None => Ok(None),
                }
            }
            Global::Typedef { .. } | Global::Constant { .. } => Ok(None),
        }
    }

    pub(super) fn reference(&self, ty: u32) -> Result<TypeRef> {
        Ok(Layouts::new(self.types()?, self.pointer_size()).reference(ty))
    }

    pub(super) fn find_by_name(&self, name: &str) -> Result<Vec<Sym>> {
        let globals = self.globals()?;
        let mut found = Vec::new();
        for global in globals.named(name.as_bytes()) {
            self.add(&mut found, &global)?;
        }
        if found.is_empty() {
            self.add_shown(&mut found, name, |shown| shown == name)?;
        }
        if found.is_empty() {
            let same = globals.iter().filter(|g| g.name().eq_ignore_ascii_case(name.as_bytes()));
            for global in same.take(MAX_NAMED) {
                self.add(&mut found, &global)?;
            }
        }
        if found.is_empty() {
            self.add_shown(&mut found, name, |shown| shown.eq_ignore_ascii_case(name))?;
        }
        let mut found = tidied(found);
        found.truncate(MAX_NAMED);
        Ok(found)
    }

    /// Names of data, publics and the procedure that start exactly at `rva`.
    pub(super) fn find_aliases(&self, rva: u64) -> Result<Vec<String>> {
        let Ok(at) = u32::try_from(rva) else { return Ok(Vec::new()) };
        let mut names = self.globals()?.names_at(at);
        names.extend(self.find_symbol(rva)?.filter(|s| s.rva == rva).map(|s| s.name));
        Ok(shortest(names))
    }

    fn add_shown(&self, found: &mut Vec<Sym>, name: &str, accept: impl Fn(&str) -> bool) -> Result<()> {
        let globals = self.globals()?;
        for (section, offset, raw) in globals.publics_shown_as(literal_of(name), accept).take(MAX_NAMED) {
            if let Some(rva) = self.addresses()?.rva(section, offset) {
                found.push(globals.public_symbol(rva, raw));
            }
        }
        Ok(())
    }

    fn add(&self, found: &mut Vec<Sym>, global: &Global<'_>) -> Result<()> {
        if let Some(symbol) = self.global_symbol(global)? {
            found.push(symbol);
        }
        Ok(())
    }

    pub(super) fn find_matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>> {
        let (globals, glob) = (self.globals()?, Glob::of_symbol(pattern));
        let literal = literal_of(pattern).trim_start_matches('_').as_bytes();
        let mut found = Vec::new();
        for global in globals.iter() {
            // A function is there twice: as a procedure and as a public.
            if found.len() >= limit.saturating_mul(2) {
                break;
            }
            let name = global.name();
            let hit = matches(&glob, name)
                || matches!(global, Global::Public { .. })
                    && (name.starts_with(b"?") || name.starts_with(b"_") || name.starts_with(b"@"))
                    && globals::contains_ignoring_case(name, literal)
                    && glob.matches(&globals.shown(name));
            if hit {
                self.add(&mut found, &global)?;
            }
        }
        let mut found = tidied(found);
        found.truncate(limit);
        Ok(found)
    }

    pub(super) fn find_line(&self, rva: u64) -> Result<Option<SourceLine>> {
        let Ok(rva) = u32::try_from(rva) else { return Ok(None) };
        let Some((section, offset)) = self.addresses()?.place(rva) else { return Ok(None) };
        let Some(index) = self.debug.module_at(section, offset) else { return Ok(None) };
        let Some(module) = self.module(index)? else { return Ok(None) };
        let Some(line) = lines::line_at(&module.lines, section, offset) else { return Ok(None) };
        let Some(file) = self.file_name(&module, line.file)? else { return Ok(None) };
        let displacement = u64::from(offset - line.offset);
        Ok(Some(SourceLine { file, line: line.line, displacement }))
    }

    fn file_name(&self, module: &Module, file: u32) -> Result<Option<String>> {
        let Some(offset) = lines::file_name_offset(&module.lines, file) else { return Ok(None) };
        Ok(self.names()?.get(offset))
    }

    pub(super) fn find_inline_chain(&self, rva: u64) -> Result<Vec<InlineFrame>> {
        let Some(found) = self.find_procedure(rva)? else { return Ok(Vec::new()) };
        let mut chain = Vec::new();
        for site in found.sites() {
            let id = self.global_id(&found.module, site.id)?;
            let name = ids::function_name(self.ids()?, self.types()?, id);
            let name = name.unwrap_or_else(|| format!("inlined function {:#x}", site.id));
            let function = rva.saturating_sub(found.distance());
            let start = function.saturating_add(u64::from(site.start));
            chain.push(InlineFrame { name, start, line: self.inline_line(&found, &site)? });
        }
        chain.reverse();
        Ok(chain)
    }

    /// The index in the type or id stream behind one that may be another module's.
    pub(super) fn global_id(&self, module: &Module, id: u32) -> Result<u32> {
        if id & lines::IMPORTED == 0 {
            return Ok(id);
        }
        let Some((name, local)) = lines::import(&module.lines, id) else { return Ok(id) };
        let Some(name) = self.names()?.get(name) else { return Ok(id) };
        let index = self.debug.modules.iter().position(|m| m.name.eq_ignore_ascii_case(&name));
        let Some(index) = index.and_then(|i| u16::try_from(i).ok()) else { return Ok(id) };
        let Some(exporter) = self.module(index)? else { return Ok(id) };
        Ok(lines::export(&exporter.lines, local).unwrap_or(local))
    }

    fn inline_line(&self, found: &Found, site: &Site) -> Result<Option<SourceLine>> {
        let Some((file, first_line)) = found.module.inlinee(site.id) else { return Ok(None) };
        let file = site.range.file.unwrap_or(file);
        let Some(file) = self.file_name(&found.module, file)? else { return Ok(None) };
        let line = first_line.saturating_add_signed(site.range.line_delta);
        let displacement = found.distance().saturating_sub(u64::from(site.range.start));
        Ok(Some(SourceLine { file, line, displacement }))
    }
}

/// By RVA and name, each once; of two the one with a size, which tells more.
fn tidied(mut found: Vec<Sym>) -> Vec<Sym> {
    found.sort_by(|a, b| (a.rva, &a.name, a.size.is_none()).cmp(&(b.rva, &b.name, b.size.is_none())));
    found.dedup_by(|b, a| a.rva == b.rva && a.name == b.name);
    found
}

/// DbgEng counts an inline frame's displacement from the body's first byte, gaps or not.
fn start_of(ranges: &[InlineRange]) -> u32 {
    ranges.iter().map(|r| r.start).min().unwrap_or(0)
}

impl Found {
    /// Bytes from the procedure's start to the address.
    pub(super) fn distance(&self) -> u64 {
        u64::from(self.offset - self.procedure.offset)
    }

    /// Inline sites that are live at the address, outermost first. A site around a live one counts
    /// as live: some compilers leave the inner's bytes out of the outer's ranges.
    fn sites(&self) -> Vec<Site> {
        let mut deepest: Vec<Site> = Vec::new();
        let enter = |record| self.site(record);
        walk(&self.module.symbols, self.procedure.record, enter, |record, scopes: &[Option<Site>]| {
            let live = scopes.last().and_then(Option::as_ref).is_some_and(|site| site.live);
            if is_inline_site(record.kind) && live {
                let chain: Vec<Site> = scopes.iter().flatten().cloned().collect();
                if chain.len() > deepest.len() {
                    deepest = chain;
                }
            }
        });
        deepest
    }

    /// The inline site of a record, if it is one.
    fn site(&self, record: Record<'_>) -> Option<Site> {
        let (id, ranges) = is_inline_site(record.kind).then(|| lines::inline_site(record))??;
        let at = u32::try_from(self.distance()).ok()?;
        let covering = ranges.iter().find(|r| at >= r.start && r.end.is_none_or(|end| at < end));
        let nearest = || ranges.iter().rev().find(|r| r.start <= at).or(ranges.first());
        let range = *covering.or_else(nearest)?;
        Some(Site { id, range, start: start_of(&ranges), live: covering.is_some() })
    }

    /// Whether the block or inline site of a record is live at the address, and if so whether it is
    /// an inline site.
    pub(super) fn live_scope(&self, record: Record<'_>) -> Option<bool> {
        if is_inline_site(record.kind) {
            return self.site(record).filter(|site| site.live).map(|_| true);
        }
        let mut data = Bytes::new(record.data);
        data.take(8)?;
        let (size, offset, section) = (data.u32()?, data.u32()?, data.u16()?);
        let inside = section == self.section && self.offset.checked_sub(offset)? < size;
        inside.then_some(false)
    }
}
