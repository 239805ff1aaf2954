//! One module of a PDB: its symbols and lines, read when an address of it is asked for.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::debug_info::ModuleEntry;
use super::lines;
use super::scopes::{Procedure, ProcedureKind, procedures};

/// The parsed stream.
pub(super) struct Module {
    /// The symbol records, behind a four-byte signature.
    pub(super) symbols: Vec<u8>,
    /// The C13 line subsections.
    pub(super) lines: Vec<u8>,
    procedures: Vec<Procedure>,
    /// Indices into them, by where their records are.
    by_record: Vec<u32>,
    inlinees: OnceCell<HashMap<u32, (u32, u32)>>,
}

impl Module {
    pub(super) fn new(entry: &ModuleEntry, mut stream: Vec<u8>) -> Self {
        let symbol_end = (entry.symbol_bytes as usize).min(stream.len());
        let line_start = symbol_end.saturating_add(entry.c11_bytes as usize).min(stream.len());
        let line_end = line_start.saturating_add(entry.c13_bytes as usize).min(stream.len());
        let lines = stream[line_start..line_end].to_vec();
        stream.truncate(symbol_end);
        let procedures = procedures(&stream);
        let mut by_record: Vec<u32> = (0..procedures.len() as u32).collect();
        by_record.sort_unstable_by_key(|&i| procedures[i as usize].record);
        Self { symbols: stream, lines, procedures, by_record, inlinees: OnceCell::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.symbols.len() + self.lines.len()
    }

    /// The procedure that covers an address. Separated code nests in no other, so the last start
    /// at or before the address wins; a few are looked at in case it is a shorter thunk.
    pub(super) fn procedure_at(&self, section: u16, offset: u32) -> Option<&Procedure> {
        let after = self.procedures.partition_point(|p| (p.section, p.offset) <= (section, offset));
        let mut covering =
            self.procedures[..after].iter().rev().take(16).filter(|p| p.covers(section, offset));
        let found = covering.next()?;
        // Of folded functions at one start, the first record.
        Some(covering.take_while(|p| p.offset == found.offset).last().unwrap_or(found))
    }

    /// The function that starts exactly there.
    pub(super) fn function_starting(&self, section: u16, offset: u32) -> Option<&Procedure> {
        self.procedures
            .iter()
            .find(|p| p.kind == ProcedureKind::Function && (p.section, p.offset) == (section, offset))
    }

    /// The procedure whose record is at `record`.
    pub(super) fn procedure_of_record(&self, record: u32) -> Option<&Procedure> {
        let at = |&i: &u32| self.procedures[i as usize].record;
        let found = self.by_record.binary_search_by_key(&(record as usize), at).ok()?;
        self.procedures.get(self.by_record[found] as usize)
    }

    /// File and line an inlined function starts at.
    pub(super) fn inlinee(&self, id: u32) -> Option<(u32, u32)> {
        self.inlinees.get_or_init(|| lines::inlinees(&self.lines)).get(&id).copied()
    }
}
