//! Unwind records as what they say of functions: where code lies, which parts belong together,
//! which sites an exception handler covers.
//!
//! Formats: Microsoft, "x64 exception handling" (RUNTIME_FUNCTION, UNWIND_INFO, scope table) and
//! "ARM64 exception handling" (packed data, .xdata).

use pe::{FunctionEntry, ImageSourceExt};
use target::Machine;

use crate::image::CodeImage;

/// Most records of an image; ntoskrnl has about 30,000.
const MAX_RECORDS: u32 = 1 << 19;
/// Longest chain of records to a primary one.
const MAX_CHAIN: usize = 32;
/// Most entries of a scope table.
const MAX_SCOPES: u32 = 4096;
const CHAINED: u8 = 4;
const HANDLERS: u8 = 3;

/// One unwind record's code: `[begin, end)` as RVAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub begin: u32,
    pub end: u32,
    /// Begin of the record the chain ends at; `begin` itself for an unchained record.
    pub primary: u32,
    /// x64: RVA of `UNWIND_INFO`; ARM64: the packed word or RVA of `.xdata`.
    pub unwind: u32,
}

/// One `__try` of a scope table, RVAs. `handler` is 1 for `__except(EXCEPTION_EXECUTE_HANDLER)`;
/// `target` is 0 for a `__finally`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    pub begin: u32,
    pub end: u32,
    pub handler: u32,
    pub target: u32,
}

/// The unwind records of an image, by begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    records: Vec<Region>,
    /// Records that lie outside code, are empty or overlap the one before; they are left out.
    pub refused: usize,
    /// A part of the directory could not be read, or it has more records than are read.
    pub short: bool,
}

impl Regions {
    pub(crate) fn read(image: &CodeImage<'_>) -> Self {
        let Some(table) = image.pe.exception_table(image) else { return Self::default() };
        let mut out = Self::default();
        let mut found = Vec::new();
        for index in 0..table.len() {
            if index >= MAX_RECORDS {
                out.short = true;
                break;
            }
            let Some(entry) = table.get(index) else {
                out.short = true;
                break;
            };
            // The table may be padded with zeros at its end.
            if entry.begin == 0 {
                continue;
            }
            match region(image, entry) {
                Some(region) => found.push(region),
                None => out.refused += 1,
            }
        }
        found.sort_by_key(|region| (region.begin, region.end));
        for region in found {
            match out.records.last() {
                Some(last) if region.begin < last.end => out.refused += 1,
                _ => out.records.push(region),
            }
        }
        out
    }

    #[must_use]
    pub fn all(&self) -> &[Region] {
        &self.records
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The record an RVA lies in.
    #[must_use]
    pub fn at(&self, rva: u32) -> Option<&Region> {
        let after = self.records.partition_point(|region| region.begin <= rva);
        self.records.get(after.checked_sub(1)?).filter(|region| rva < region.end)
    }

    /// The records that belong to the function whose primary record begins at `primary`.
    #[must_use]
    pub fn of(&self, primary: u32) -> Vec<Region> {
        self.records.iter().filter(|region| region.primary == primary).copied().collect()
    }

    /// The next record that begins after `rva`.
    #[must_use]
    pub fn next_begin(&self, rva: u32) -> Option<u32> {
        let after = self.records.partition_point(|region| region.begin <= rva);
        self.records.get(after).map(|region| region.begin)
    }

    /// The scope table of the record at `rva`: x64 records whose language handler is a C-like one.
    /// `None` where there is no handler or its data is no scope table.
    #[must_use]
    pub fn scopes(&self, image: &CodeImage<'_>, rva: u32) -> Option<Vec<Scope>> {
        if image.machine != Machine::X64 {
            return None;
        }
        let region = self.at(rva)?;
        let (flags, after) = unwind_info(image, region.unwind)?;
        if flags & HANDLERS == 0 || flags & CHAINED != 0 {
            return None;
        }
        let count = image.u32(after.checked_add(4)?)?;
        if count > MAX_SCOPES {
            return None;
        }
        let mut out = Vec::new();
        for index in 0..count {
            let at = after.checked_add(8)?.checked_add(index * 16)?;
            let raw: [u8; 16] = image.array(at)?;
            let word = |i: usize| u32::from_le_bytes([raw[i], raw[i + 1], raw[i + 2], raw[i + 3]]);
            let scope = Scope { begin: word(0), end: word(4), handler: word(8), target: word(12) };
            // Handler data of another language (C++ FuncInfo) does not describe ranges of code.
            if scope.begin >= scope.end || scope.end > image.size {
                return None;
            }
            out.push(scope);
        }
        Some(out)
    }

    /// RVA of the language handler of the record at `rva`.
    #[must_use]
    pub fn handler(&self, image: &CodeImage<'_>, rva: u32) -> Option<u32> {
        let (flags, after) = unwind_info(image, self.at(rva)?.unwind)?;
        (image.machine == Machine::X64 && flags & HANDLERS != 0).then(|| image.u32(after)).flatten()
    }
}

/// `(flags, RVA after the codes)` of an x64 `UNWIND_INFO`.
fn unwind_info(image: &CodeImage<'_>, rva: u32) -> Option<(u8, u32)> {
    let header: [u8; 4] = image.array(rva)?;
    let codes = u32::from(header[2]).next_multiple_of(2);
    Some((header[0] >> 3, rva.checked_add(4)?.checked_add(codes * 2)?))
}

fn region(image: &CodeImage<'_>, entry: FunctionEntry) -> Option<Region> {
    let end = match image.machine {
        Machine::X64 => entry.end,
        _ => entry.begin.checked_add(arm64_length(image, entry.unwind)?)?,
    };
    let code = image.pe.section_at(entry.begin).is_some_and(pe::Section::is_executable);
    if entry.begin >= end || end > image.size || !code {
        return None;
    }
    let (primary, unwind) = match image.machine {
        Machine::X64 => primary_of(image, entry)?,
        _ => (entry.begin, entry.unwind),
    };
    Some(Region { begin: entry.begin, end, primary, unwind })
}

/// Follows chained records: `(begin of the primary record, this record's own UNWIND_INFO)`.
fn primary_of(image: &CodeImage<'_>, entry: FunctionEntry) -> Option<(u32, u32)> {
    let table = image.pe.exception_table(image)?;
    let mut at = entry;
    let mut own = None;
    for _ in 0..MAX_CHAIN {
        // Bit 0: not an UNWIND_INFO but another RUNTIME_FUNCTION.
        if at.unwind & 1 != 0 {
            at = table.at(at.unwind & !1)?;
            continue;
        }
        let own = *own.get_or_insert(at.unwind);
        match unwind_info(image, at.unwind) {
            Some((flags, after)) if flags & CHAINED != 0 => match table.at(after) {
                Some(parent) => at = parent,
                None => return Some((entry.begin, own)),
            },
            _ => return Some((at.begin, own)),
        }
    }
    // A chain that does not end is no chain.
    Some((entry.begin, own?))
}

/// Bytes of code of an ARM64 record.
fn arm64_length(image: &CodeImage<'_>, data: u32) -> Option<u32> {
    match data & 3 {
        0 => Some((image.u32(data)? & 0x3_ffff) * 4),
        1 | 2 => Some((data >> 2 & 0x7ff) * 4),
        _ => None,
    }
}
