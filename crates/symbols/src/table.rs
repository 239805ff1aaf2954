//! Names at addresses and nothing more: what exports, COFF tables and ISF files have.

use target::SymbolKind;

use crate::Sym;
use crate::demangle::display_name;
use crate::glob::Glob;
use crate::literal::literal_size;

/// Most answers of an exact look-up.
const MAX_NAMED: usize = 256;

/// One named address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) rva: u32,
    pub(crate) kind: SymbolKind,
    /// As stored.
    pub(crate) name: Box<str>,
    /// As the linker saw it, when the file tells both.
    pub(crate) linkage: Option<Box<str>>,
}

/// Entries by RVA, and an index by name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    by_name: Vec<u32>,
}

impl Entry {
    fn symbol(&self) -> Sym {
        let shown = display_name(&self.name);
        let raw = match (&shown, &self.linkage) {
            (_, Some(linkage)) => Some(linkage.to_string()),
            (Some(_), None) => Some(self.name.to_string()),
            (None, None) => None,
        };
        let name = shown.unwrap_or_else(|| self.name.to_string());
        let size = literal_size(self.name.as_bytes());
        let kind = if size.is_some() { SymbolKind::Data } else { self.kind };
        Sym { raw_name: raw.filter(|r| *r != name), name, rva: u64::from(self.rva), size, kind }
    }
}

/// The four shortest of some names, none twice.
pub(crate) fn shortest(mut names: Vec<String>) -> Vec<String> {
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names.dedup();
    names.truncate(4);
    names
}

impl Table {
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| (a.rva, &a.name).cmp(&(b.rva, &b.name)));
        entries.dedup_by(|a, b| a.rva == b.rva && a.name == b.name);
        let mut by_name: Vec<u32> = (0..entries.len() as u32).collect();
        by_name.sort_by(|&a, &b| entries[a as usize].name.cmp(&entries[b as usize].name));
        Self { entries, by_name }
    }

    /// The nearest entry at or before `rva`: functions before data, then the shortest name, of
    /// equally short ones the last (`ZwClose`, not `NtClose`, as DbgEng has it). A string literal
    /// names its own bytes and nothing behind them.
    pub(crate) fn nearest(&self, rva: u64) -> Option<Sym> {
        let rva = u32::try_from(rva).ok()?;
        let after = self.entries.partition_point(|e| e.rva <= rva);
        let at = self.entries.get(after.checked_sub(1)?)?.rva;
        let same = self.entries[..after].iter().rev().take_while(|e| e.rva == at).take(4096);
        let is_literal = |e: &Entry| literal_size(e.name.as_bytes()).is_some();
        let key = |e: &&Entry| {
            let weak = (is_literal(e), e.kind != SymbolKind::Function);
            (weak, e.name.len(), std::cmp::Reverse(e.name.clone()))
        };
        let best = same.min_by_key(key)?;
        let symbol = best.symbol();
        (!is_literal(best) || symbol.covers(u64::from(rva))).then_some(symbol)
    }

    /// Shown names at exactly `rva`, shortest first.
    pub(crate) fn aliases(&self, rva: u64) -> Vec<String> {
        let start = self.entries.partition_point(|e| u64::from(e.rva) < rva);
        let here = self.entries[start..].iter().take_while(|e| u64::from(e.rva) == rva).take(4096);
        shortest(here.map(|e| e.symbol().name).collect())
    }

    /// The first entry above `rva`.
    pub(crate) fn next_start(&self, rva: u64) -> Option<u64> {
        let after = self.entries.partition_point(|e| u64::from(e.rva) <= rva);
        self.entries.get(after).map(|e| u64::from(e.rva))
    }

    pub(crate) fn by_name(&self, name: &str) -> Vec<Sym> {
        let start = self.by_name.partition_point(|&i| *self.entries[i as usize].name < *name);
        let exact = self.by_name[start..].iter().map(|&i| &self.entries[i as usize]);
        let mut found: Vec<Sym> =
            exact.take_while(|e| *e.name == *name).take(MAX_NAMED).map(Entry::symbol).collect();
        let checks: [&dyn Fn(&Entry) -> bool; 3] = [
            &|e| e.linkage.as_deref() == Some(name) || display_name(&e.name).as_deref() == Some(name),
            &|e| e.name.eq_ignore_ascii_case(name),
            &|e| display_name(&e.name).is_some_and(|n| n.eq_ignore_ascii_case(name)),
        ];
        for check in checks {
            if found.is_empty() {
                found = self.entries.iter().filter(|e| check(e)).take(MAX_NAMED).map(Entry::symbol).collect();
            }
        }
        found.sort_by_key(|s| s.rva);
        found
    }

    pub(crate) fn matching(&self, pattern: &str, limit: usize) -> Vec<Sym> {
        let glob = Glob::of_symbol(pattern);
        let hit = |e: &&Entry| {
            glob.matches(&e.name) || display_name(&e.name).is_some_and(|shown| glob.matches(&shown))
        };
        self.entries.iter().filter(hit).take(limit).map(Entry::symbol).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
