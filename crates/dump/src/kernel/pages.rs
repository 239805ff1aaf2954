//! Where the physical pages of a dump are. Never one entry per page: a 64 GiB dump maps in under a
//! megabyte.

use target::{DumpFormat, ReadOutcome, Unreadable};

use super::header::{HEADER_SIZE, KernelHeader, declared_runs};
use crate::error::{DumpError, Result};
use crate::fields::{slice_at, u32_at, u64_at};

const PAGE: u64 = 0x1000;

/// Consecutive physical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalRun {
    pub first_pfn: u64,
    pub pages: u64,
}

/// A run whose pages lie one after another at a file offset.
#[derive(Clone, Copy, Debug)]
struct Placed {
    run: PhysicalRun,
    offset: u64,
}

/// Page frame numbers to file offsets.
#[derive(Debug)]
pub struct PageMap {
    format: DumpFormat,
    kind: Kind,
    /// File offset behind the last page.
    end: u64,
}

#[derive(Debug)]
enum Kind {
    /// Sorted by first PFN.
    Runs(Vec<Placed>),
    Bitmap(Bitmap),
}

/// Bits stay in the file; `ranks` makes the k-th set bit a constant-time question.
#[derive(Debug)]
struct Bitmap {
    /// File offset of the first bitmap byte.
    offset: u64,
    /// Number of bits the file has.
    bits: u64,
    /// Set bits before each block of [`RANK_BITS`].
    ranks: Vec<u64>,
    first_page: u64,
    present: u64,
}

const RANK_BITS: u64 = 4096;
const RANK_BYTES: usize = (RANK_BITS / 8) as usize;

impl PageMap {
    /// Reads the map of a dump type; unknown types are told by their signature. `None`: not known.
    pub(super) fn parse(
        bytes: &[u8],
        header: &KernelHeader,
        kind: u32,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>> {
        let signature = slice_at(bytes, HEADER_SIZE as u64, 8).unwrap_or_default();
        let bitmap = matches!(signature, b"SDMPDUMP" | b"FDMPDUMP");
        let ranges = slice_at(bytes, HEADER_SIZE as u64, 12).is_some_and(|s| s == b"\x40\0\0\0RDMPDUMP");
        match kind {
            1 => read_runs(bytes, header, notes).map(Some),
            2 if bitmap => read_old_bitmap(bytes, notes).map(Some),
            5..=7 if bitmap => read_bitmap(bytes, notes).map(Some),
            8..=0xa if ranges => read_ranges(bytes, kind, notes).map(Some),
            2 | 5..=0xa => Err(missing_map(kind, bytes.len())),
            _ if bitmap => read_bitmap(bytes, notes).map(Some),
            _ if ranges => read_ranges(bytes, kind, notes).map(Some),
            _ if plausible(header) => read_runs(bytes, header, notes).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn format(&self) -> DumpFormat {
        self.format
    }

    /// File offset behind the last declared page: where secondary data begins.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn truncated(&self, file_length: u64) -> bool {
        self.end > file_length
    }

    /// Pages the dump declares.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        match &self.kind {
            Kind::Runs(runs) => runs.iter().fold(0, |sum, r| sum.saturating_add(r.run.pages)),
            Kind::Bitmap(map) => map.present,
        }
    }

    /// File offset of a page frame, if the dump declares it. It may lie past a truncated file's end.
    pub(super) fn offset_of(&self, file: &[u8], pfn: u64) -> Option<u64> {
        match &self.kind {
            Kind::Runs(runs) => {
                let after = runs.partition_point(|r| r.run.first_pfn <= pfn);
                let placed = runs.get(after.checked_sub(1)?)?;
                let index = pfn - placed.run.first_pfn;
                (index < placed.run.pages)
                    .then(|| placed.offset.checked_add(index.checked_mul(PAGE)?))
                    .flatten()
            }
            Kind::Bitmap(map) => map.offset_of(file, pfn),
        }
    }

    pub(super) fn read(&self, file: &[u8], address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NotInDump);
            };
            let Some(page) = self.offset_of(file, at / PAGE) else {
                return ReadOutcome::stopped(done, Unreadable::NotInDump);
            };
            let within = at % PAGE;
            let wanted = usize::try_from(PAGE - within).unwrap_or(0).min(buffer.len() - done);
            let start = usize::try_from(page.saturating_add(within)).unwrap_or(usize::MAX).min(file.len());
            let have = wanted.min(file.len() - start);
            buffer[done..done + have].copy_from_slice(&file[start..start + have]);
            done += have;
            if have < wanted {
                return ReadOutcome::stopped(done, Unreadable::TruncatedFile);
            }
        }
        ReadOutcome::complete(done)
    }

    /// The first page frame at or after `pfn` that the dump declares, and how many follow it
    /// (of bitmaps: within one step of at most 4096 frames): to walk all memory in order.
    pub(super) fn next_run(&self, file: &[u8], pfn: u64) -> Option<PhysicalRun> {
        match &self.kind {
            Kind::Runs(runs) => {
                let first = runs.partition_point(|r| r.run.first_pfn.saturating_add(r.run.pages) <= pfn);
                let run = runs.get(first)?.run;
                let start = run.first_pfn.max(pfn);
                Some(PhysicalRun { first_pfn: start, pages: run.pages - (start - run.first_pfn) })
            }
            Kind::Bitmap(map) => map.next_run(file, pfn),
        }
    }
}

fn missing_map(kind: u32, length: usize) -> DumpError {
    let found = if length <= HEADER_SIZE { "the file ends there" } else { "something else is there" };
    DumpError::malformed(format!(
        "the kernel dump (type {kind:#x}) has no page map behind its header: {found}; copy the dump again"
    ))
}

/// Lays runs out one after another from `offset`, then sorts them; empty and wrapping ones go.
fn place(runs: impl Iterator<Item = PhysicalRun>, mut offset: u64) -> (Vec<Placed>, u64) {
    let mut placed = Vec::new();
    for run in runs {
        let Some(next) = run.pages.checked_mul(PAGE).and_then(|size| offset.checked_add(size)) else { break };
        if run.pages > 0 && run.first_pfn.checked_add(run.pages).is_some() {
            placed.push(Placed { run, offset });
        }
        offset = next;
    }
    placed.sort_by_key(|p| p.run.first_pfn);
    (placed, offset)
}

fn plausible(header: &KernelHeader) -> bool {
    let total = header.physical_runs.iter().try_fold(0u64, |sum, r| sum.checked_add(r.pages));
    !header.physical_runs.is_empty() && total.is_some() && total == header.physical_pages
}

fn read_runs(bytes: &[u8], header: &KernelHeader, notes: &mut Vec<String>) -> Result<PageMap> {
    if header.physical_runs.is_empty() {
        return Err(DumpError::malformed(
            "the full kernel dump's header lists no physical memory; the dump is damaged; copy it again",
        ));
    }
    if declared_runs(bytes).is_some_and(|declared| declared > header.physical_runs.len()) {
        notes.push("the header declares more physical memory runs than it has room for".into());
    }
    let (runs, end) = place(header.physical_runs.iter().copied(), HEADER_SIZE as u64);
    Ok(PageMap { format: DumpFormat::KernelFull, kind: Kind::Runs(runs), end })
}

/// Windows 8 and later: FirstPage +0x20, present +0x28, bits +0x30, bitmap +0x38.
fn read_bitmap(bytes: &[u8], notes: &mut Vec<String>) -> Result<PageMap> {
    let field = |offset| u64_at(bytes, HEADER_SIZE + offset).ok_or_else(|| missing_map(5, bytes.len()));
    let (first_page, present, bits) = (field(0x20)?, field(0x28)?, field(0x30)?);
    bitmap_map(bytes, [HEADER_SIZE as u64 + 0x38, first_page, present, bits], notes)
}

/// `SUMMARY_DUMP64` of Windows XP to 7: 32-bit HeaderSize +0xc, bits +0x10, pages +0x14, bitmap +0x28.
fn read_old_bitmap(bytes: &[u8], notes: &mut Vec<String>) -> Result<PageMap> {
    let field = |offset| u32_at(bytes, HEADER_SIZE + offset).ok_or_else(|| missing_map(2, bytes.len()));
    let (first_page, bits, present) = (field(0xc)?, field(0x10)?, field(0x14)?);
    let fields = [HEADER_SIZE as u64 + 0x28, first_page.into(), present.into(), bits.into()];
    bitmap_map(bytes, fields, notes)
}

fn bitmap_map(bytes: &[u8], fields: [u64; 4], notes: &mut Vec<String>) -> Result<PageMap> {
    let [offset, first_page, declared, bits] = fields;
    if first_page < offset {
        return Err(DumpError::malformed(format!(
            "the kernel dump's first page (offset {first_page:#x}) lies inside its headers; the dump is damaged; copy it again"
        )));
    }
    let room = first_page.min(bytes.len() as u64).saturating_sub(offset).saturating_mul(8);
    if bits > room {
        notes.push(format!("the page bitmap declares {bits} bits but only {room} are in the file"));
    }
    let bits = bits.min(room);
    let mut map = Bitmap { offset, bits, ranks: Vec::new(), first_page, present: 0 };
    let mut ranks = Vec::with_capacity(map.bytes(bytes).len() / RANK_BYTES + 1);
    for block in 0..bits.div_ceil(RANK_BITS) {
        ranks.push(map.present);
        map.present += map.count(bytes, block * RANK_BITS, (block + 1) * RANK_BITS);
    }
    map.ranks = ranks;
    if map.present != declared {
        notes.push(format!("the page bitmap has {} pages but the header declares {declared}", map.present));
    }
    let end = map.present.saturating_mul(PAGE).saturating_add(first_page);
    Ok(PageMap { format: DumpFormat::KernelBitmap, kind: Kind::Bitmap(map), end })
}

impl Bitmap {
    fn bytes<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        slice_at(file, self.offset, self.bits.div_ceil(8)).unwrap_or_default()
    }

    /// Set bits in `[from, to)`, `from` a multiple of 8; bits past the last do not count.
    fn count(&self, file: &[u8], from: u64, to: u64) -> u64 {
        let to = to.min(self.bits);
        let all = self.bytes(file);
        let index = |bit: u64| usize::try_from(bit / 8).unwrap_or(usize::MAX).min(all.len());
        let whole = &all[index(from).min(index(to))..index(to)];
        let mut sum = 0u64;
        let mut words = whole.chunks_exact(8);
        for word in &mut words {
            sum += u64::from(u64::from_le_bytes(word.try_into().unwrap_or_default()).count_ones());
        }
        sum += words.remainder().iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
        let tail = all.get(index(to)).copied().unwrap_or(0) & ((1u16 << (to % 8)) - 1).to_le_bytes()[0];
        sum + u64::from(tail.count_ones())
    }

    fn is_set(&self, file: &[u8], bit: u64) -> bool {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| self.bytes(file).get(at));
        bit < self.bits && byte.is_some_and(|b| b >> (bit % 8) & 1 == 1)
    }

    fn offset_of(&self, file: &[u8], pfn: u64) -> Option<u64> {
        if !self.is_set(file, pfn) {
            return None;
        }
        let block = pfn / RANK_BITS;
        let before = self.ranks.get(usize::try_from(block).ok()?)?;
        let rank = before + self.count(file, block * RANK_BITS, pfn);
        rank.checked_mul(PAGE)?.checked_add(self.first_page)
    }

    fn next_run(&self, file: &[u8], pfn: u64) -> Option<PhysicalRun> {
        let mut bit = pfn;
        let all = self.bytes(file);
        while bit < self.bits && !self.is_set(file, bit) {
            // Skip whole empty bytes.
            let byte = usize::try_from(bit / 8).ok()?;
            if bit.is_multiple_of(8) && all.get(byte) == Some(&0) {
                let zeros = all[byte..].iter().take_while(|b| **b == 0).count();
                bit += 8 * zeros as u64;
            } else {
                bit += 1;
            }
        }
        if bit >= self.bits {
            return None;
        }
        let limit = self.bits.min(bit.saturating_add(RANK_BITS));
        let end = (bit..limit).find(|&b| !self.is_set(file, b)).unwrap_or(limit);
        Some(PhysicalRun { first_pfn: bit, pages: end - bit })
    }
}

/// `RDMP`: metadata size +0x10, first page offset +0x18, then the ranges.
fn read_ranges(bytes: &[u8], kind: u32, notes: &mut Vec<String>) -> Result<PageMap> {
    let long = |offset| u64_at(bytes, HEADER_SIZE + offset).ok_or_else(|| missing_map(kind, bytes.len()));
    let (metadata, first_page) = (long(0x10)?, long(0x18)?);
    let start = HEADER_SIZE as u64 + 0x20;
    if first_page < start || metadata.checked_sub(0x20) != Some(first_page - HEADER_SIZE as u64 - 0x40) {
        notes.push("the page ranges' size and the first page's offset do not agree".into());
    }
    let total = if kind == 0xa { Some(long(0x28)?) } else { None };
    let list = slice_at(bytes, start, first_page.min(bytes.len() as u64).saturating_sub(start));
    let list = list.unwrap_or_default().get(0x10..).unwrap_or_default();
    let mut seen = 0u64;
    let runs = list.chunks_exact(16).map_while(|entry| {
        let run = PhysicalRun { first_pfn: u64_at(entry, 0)?, pages: u64_at(entry, 8)? };
        let complete = total.is_some_and(|total| seen >= total);
        seen = seen.saturating_add(run.pages);
        (run.pages != 0 && !complete).then_some(run)
    });
    let (runs, end) = place(runs, first_page);
    if runs.is_empty() {
        return Err(DumpError::malformed(
            "the kernel dump's page ranges are empty; the dump is damaged; copy it again",
        ));
    }
    Ok(PageMap { format: DumpFormat::KernelRanges, kind: Kind::Runs(runs), end })
}
