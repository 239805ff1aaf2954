//! Names from an export table, the fallback without a PDB (spec 80 section 11.5).

use target::{PdbIdentity, SymbolKind, SymbolState, TypeLayout};

use crate::table::{Entry, Table};
use crate::{Result, Sym, SymbolError, SymbolFile};

/// Without function bounds, an export further away names another function more often than not.
const MAX_DISPLACEMENT: u64 = 0x1000;

/// The exports of one image.
#[derive(Debug, Default)]
pub struct ExportSymbols {
    table: Table,
    /// `(begin, end)` of the functions of `.pdata`, by begin.
    functions: Vec<(u64, u64)>,
}

/// The nearest export and what its distance is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestExport {
    /// What DbgEng names: the nearest export at any displacement.
    pub nearest: Sym,
    /// Whether we stand by it: the function that holds the address holds the export too, or no
    /// function is known there and the displacement is at most 0x1000.
    pub trusted: bool,
    /// Start of the function `.pdata` has around the address: the name to give when not trusted.
    pub function: Option<u64>,
}

impl ExportSymbols {
    /// From `(rva, name)` of named exports (forwarders left out) and `(begin, end)` of the
    /// functions of `.pdata` (empty when there is none), both in any order.
    #[must_use]
    pub fn new(exports: Vec<(u64, String)>, mut functions: Vec<(u64, u64)>) -> Self {
        let entry = |(rva, name): (u64, String)| {
            let rva = u32::try_from(rva).ok()?;
            Some(Entry { rva, kind: SymbolKind::Export, name: name.into(), linkage: None })
        };
        functions.sort_unstable();
        Self { table: Table::new(exports.into_iter().filter_map(entry).collect()), functions }
    }

    /// From the image itself. ARM64 functions without an end are taken to reach to the next.
    #[must_use]
    pub fn of_image(pe: &pe::Pe, source: &dyn pe::ImageSource) -> Self {
        let exports = pe.exports(source);
        let named = exports.into_iter().filter_map(|e| Some((u64::from(e.rva()?), e.name?))).collect();
        let mut functions = Vec::new();
        if let Some(table) = pe.exception_table(source) {
            let entries: Vec<_> = (0..table.len()).map_while(|i| table.get(i)).collect();
            for (index, entry) in entries.iter().enumerate() {
                let next = entries.get(index + 1).map_or(entry.begin, |n| n.begin);
                let end = if entry.end == 0 { next } else { entry.end };
                functions.push((u64::from(entry.begin), u64::from(end)));
            }
        }
        Self::new(named, functions)
    }

    /// The nearest export at or before `rva`, trusted or not.
    #[must_use]
    pub fn nearest(&self, rva: u64) -> Option<NearestExport> {
        let nearest = self.table.nearest(rva)?;
        let before = self.functions[..self.functions.partition_point(|f| f.0 <= rva)].last();
        let (trusted, function) = match before {
            Some(&(begin, end)) if rva < end => (begin <= nearest.rva, Some(begin)),
            // Between functions: leaf code has no record, but one that began after the export is another.
            Some(&(begin, _)) if begin > nearest.rva => (false, None),
            _ => (rva - nearest.rva <= MAX_DISPLACEMENT, None),
        };
        Some(NearestExport { nearest, trusted, function })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }
}

impl SymbolFile for ExportSymbols {
    fn state(&self) -> SymbolState {
        SymbolState::Export
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        None
    }
    /// Only a trusted export; see [`ExportSymbols::nearest`].
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>> {
        Ok(self.nearest(rva).filter(|n| n.trusted).map(|n| n.nearest))
    }
    fn by_name(&self, name: &str) -> Result<Vec<Sym>> {
        Ok(self.table.by_name(name))
    }
    fn matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>> {
        Ok(self.table.matching(pattern, limit))
    }
    fn aliases(&self, rva: u64) -> Result<Vec<String>> {
        Ok(self.table.aliases(rva))
    }
    fn type_layout(&self, _name: &str) -> Result<TypeLayout> {
        Err(SymbolError::NoTypes("export"))
    }
    fn function_bounds(&self, rva: u64) -> Result<Option<(u64, u64)>> {
        let before = self.functions[..self.functions.partition_point(|f| f.0 <= rva)].last();
        Ok(before.copied().filter(|f| rva < f.1))
    }
}

#[cfg(test)]
mod tests {
    use super::ExportSymbols;
    use crate::SymbolFile;

    fn exports() -> ExportSymbols {
        let names = [(0x1000, "NtClose"), (0x1000, "ZwClose"), (0x2000, "Far"), (0x2000, "LongerName")];
        let names = names.map(|(rva, name)| (rva, name.to_owned())).to_vec();
        ExportSymbols::new(names, vec![(0x2000, 0x4000), (0x4000, 0x4100)])
    }

    #[test]
    fn the_last_of_equally_short_names() {
        assert_eq!(exports().symbol_at(0x1014).unwrap().unwrap().name, "ZwClose");
        assert_eq!(exports().symbol_at(0x2000).unwrap().unwrap().name, "Far");
        assert_eq!(exports().symbol_at(0xfff).unwrap(), None);
    }

    /// Spec 80 section 11.5: the function's bounds decide, not the distance alone.
    #[test]
    fn function_bounds_beat_distance() {
        let exports = exports();
        assert_eq!(exports.symbol_at(0x3f00).unwrap().unwrap().name, "Far");
        let other = exports.nearest(0x4080).unwrap();
        assert_eq!(
            (other.nearest.name.as_str(), other.trusted, other.function),
            ("Far", false, Some(0x4000))
        );
        assert!(!exports.nearest(0x4200).unwrap().trusted);
        let without = ExportSymbols::new(vec![(0x1000, "f".into())], Vec::new());
        assert!(without.nearest(0x2000).unwrap().trusted);
        assert!(!without.nearest(0x2001).unwrap().trusted);
    }

    #[test]
    fn names_in_any_case_and_by_pattern() {
        assert_eq!(exports().by_name("far").unwrap()[0].rva, 0x2000);
        assert_eq!(exports().matching("*close", 10).unwrap().len(), 2);
    }
}
