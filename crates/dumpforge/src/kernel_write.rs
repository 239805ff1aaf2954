//! A kernel's memory as dump files.

use std::io::{self, Cursor, Seek, SeekFrom, Write};

use target::{Context, ContextSource, Machine};

use crate::bytes::{low32, pad_to, put, put16, put32, put64};
use crate::kernel::KernelForge;
use crate::paging::PAGE;

/// `DumpType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpType {
    Full = 1,
    /// Windows XP to 7.
    OldSummary = 2,
    Triage = 4,
    BitmapFull = 5,
    BitmapKernel = 6,
    /// What current debuggers write with `.dump /k`.
    Ranges = 8,
    RangesActive = 9,
    RangesFull = 0xa,
}

/// How a type stores its page map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Runs,
    Bitmap,
    Ranges,
    Blocks,
}

impl DumpType {
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::OldSummary,
        Self::Triage,
        Self::BitmapFull,
        Self::BitmapKernel,
        Self::Ranges,
        Self::RangesActive,
        Self::RangesFull,
    ];

    #[must_use]
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Full => Encoding::Runs,
            Self::OldSummary | Self::BitmapFull | Self::BitmapKernel => Encoding::Bitmap,
            Self::Ranges | Self::RangesActive | Self::RangesFull => Encoding::Ranges,
            Self::Triage => Encoding::Blocks,
        }
    }
}

/// Runs a full dump's header has room for.
const MAX_RUNS: usize = 42;
const HEADER: usize = 0x2000;

type Run = std::ops::Range<u64>;

impl KernelForge {
    /// The dump in memory.
    pub fn dump(&mut self, kind: DumpType) -> io::Result<Vec<u8>> {
        let mut out = Cursor::new(Vec::new());
        self.write_dump(kind, &mut out)?;
        Ok(out.into_inner())
    }

    /// Writes the dump. Zero frames are skipped over, so they cost no disk where files may be sparse.
    pub fn write_dump<W: Write + Seek>(&mut self, kind: DumpType, out: &mut W) -> io::Result<()> {
        self.finish();
        if kind == DumpType::Triage {
            let bytes = crate::triage::build(self);
            out.write_all(&bytes)?;
            return self.write_blobs(out);
        }
        let runs = self.runs();
        let mut head = self.header(kind, &runs);
        match kind.encoding() {
            Encoding::Runs if runs.len() > MAX_RUNS => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{} runs of memory, a full dump holds {MAX_RUNS}: use a bitmap", runs.len()),
                ));
            }
            Encoding::Runs | Encoding::Blocks => {}
            Encoding::Bitmap if kind == DumpType::OldSummary => head.extend(old_bitmap(&runs)),
            Encoding::Bitmap => head.extend(bitmap(&runs, kind)),
            Encoding::Ranges => head.extend(ranges(&runs, kind)),
        }
        // RequiredDumpSpace: DbgEng reads no page that lies behind it.
        let frames: u64 = runs.iter().map(|r| r.end - r.start).sum();
        let size = head.len() as u64 + frames * PAGE;
        put64(&mut head, 0xfa0, size);
        out.write_all(&head)?;
        self.write_pages(out)?;
        self.write_blobs(out)
    }

    /// Runs of frames, written ones and zero ones merged.
    fn runs(&self) -> Vec<Run> {
        let mut all: Vec<Run> = self.memory.pages().map(|(pfn, _)| pfn..pfn + 1).collect();
        if !self.zero_frames.is_empty() {
            all.push(self.zero_frames.clone());
        }
        all.sort_by_key(|r| r.start);
        let mut out: Vec<Run> = Vec::new();
        for run in all {
            match out.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => out.push(run),
            }
        }
        out
    }

    fn write_pages<W: Write + Seek>(&self, out: &mut W) -> io::Result<()> {
        let zero = self.zero_frames.clone();
        let skip = |out: &mut W, frames: u64| -> io::Result<()> {
            if frames > 0 {
                out.seek(SeekFrom::Current(((frames * PAGE) as i64) - 1))?;
                out.write_all(&[0])?;
            }
            Ok(())
        };
        let mut next = zero.start;
        for (pfn, page) in self.memory.pages() {
            let gap = pfn.clamp(next, zero.end.max(next)) - next;
            skip(out, gap)?;
            next += gap;
            out.write_all(page)?;
            next = next.max(if zero.contains(&pfn) { pfn + 1 } else { next });
        }
        skip(out, zero.end.saturating_sub(next))
    }

    fn write_blobs<W: Write>(&self, out: &mut W) -> io::Result<()> {
        if self.blobs.is_empty() {
            return Ok(());
        }
        let mut bytes = b"DumpBlob".to_vec();
        bytes.extend(0x10u32.to_le_bytes());
        bytes.extend(self.layout.build.to_le_bytes());
        for (tag, data) in &self.blobs {
            bytes.extend(0x20u32.to_le_bytes());
            bytes.extend(tag);
            bytes.extend(low32(data.len()).to_le_bytes());
            bytes.extend([0; 8]);
            bytes.extend(data);
        }
        out.write_all(&bytes)
    }

    /// The processor the header describes: the first.
    fn crash_context(&self) -> Context {
        let context = self.processors.first().map(|p| p.context.clone());
        context.unwrap_or_else(|| Context::new(self.machine, ContextSource::Header))
    }

    /// `DUMP_HEADER64`.
    pub(crate) fn header(&self, kind: DumpType, runs: &[Run]) -> Vec<u8> {
        let mut out = b"PAGE".repeat(HEADER / 4);
        put(&mut out, 4, b"DU64");
        put32(&mut out, 0x8, 15);
        put32(&mut out, 0xc, self.layout.build);
        let process = self.processors.first().map_or(0, |p| p.process);
        let flags = if self.machine == Machine::X64 { 2 } else { 0 };
        put64(&mut out, 0x10, self.processes[process].space.root | flags);
        put64(&mut out, 0x18, 0);
        put64(&mut out, 0x20, self.symbol("PsLoadedModuleList"));
        put64(&mut out, 0x28, self.symbol("PsActiveProcessHead"));
        put32(&mut out, 0x30, self.machine.image_machine().into());
        put32(&mut out, 0x34, low32(self.processors.len().max(1)));
        put32(&mut out, 0x38, self.bug_check.0);
        for (index, parameter) in self.bug_check.1.into_iter().enumerate() {
            put64(&mut out, 0x40 + 8 * index, parameter);
        }
        put(&mut out, 0x60, &[0]);
        put64(&mut out, 0x80, self.symbol("KdDebuggerDataBlock"));
        if kind != DumpType::Triage {
            put_runs(&mut out, runs);
        }
        let context = self.crash_context();
        put(&mut out, 0x348, &vec![0; 3000]);
        put(&mut out, 0x348, &context.to_bytes());
        put(&mut out, 0xf00, &[0; 0x98]);
        put32(&mut out, 0xf00, 0x8000_0003);
        put32(&mut out, 0xf04, 1);
        put64(&mut out, 0xf10, context.ip());
        put32(&mut out, 0xf98, kind as u32);
        let pages: u64 = runs.iter().map(|r| r.end - r.start).sum();
        put64(&mut out, 0xfa0, HEADER as u64 + pages * PAGE);
        put64(&mut out, 0xfa8, self.system_time);
        if !self.comment.is_empty() {
            put(&mut out, 0xfb0, &[0; 128]);
            put(&mut out, 0xfb0, &self.comment.as_bytes()[..self.comment.len().min(127)]);
        }
        put64(&mut out, 0x1030, self.up_time);
        // MiniDumpFields: which parts of a triage dump are there.
        put32(&mut out, 0x1038, 0xcff);
        put32(&mut out, 0x1040, 1);
        put32(&mut out, 0x1044, 0x110);
        put32(&mut out, 0x1050, 0);
        put16(&mut out, 0x104c, 0);
        out
    }
}

fn put_runs(out: &mut Vec<u8>, runs: &[Run]) {
    let shown = &runs[..runs.len().min(MAX_RUNS)];
    put32(out, 0x88, low32(shown.len()));
    put64(out, 0x90, shown.iter().map(|r| r.end - r.start).sum());
    for (index, run) in shown.iter().enumerate() {
        put64(out, 0x98 + 16 * index, run.start);
        put64(out, 0xa0 + 16 * index, run.end - run.start);
    }
}

/// One bit per frame, and how many are set.
fn bits(runs: &[Run]) -> (Vec<u8>, u64) {
    let last = runs.last().map_or(0, |r| r.end);
    let mut map = vec![0u8; usize::try_from(last.div_ceil(8)).unwrap_or(0)];
    let mut count = 0;
    for run in runs {
        count += run.end - run.start;
        for pfn in run.clone() {
            map[(pfn / 8) as usize] |= 1 << (pfn % 8);
        }
    }
    (map, count)
}

fn bitmap(runs: &[Run], kind: DumpType) -> Vec<u8> {
    let (map, count) = bits(runs);
    let mut out = if kind == DumpType::BitmapFull { b"FDMPDUMP".to_vec() } else { b"SDMPDUMP".to_vec() };
    let first = (HEADER + 0x38 + map.len()).next_multiple_of(0x1000);
    put64(&mut out, 0x20, first as u64);
    put64(&mut out, 0x28, count);
    put64(&mut out, 0x30, runs.last().map_or(0, |r| r.end));
    out.extend(map);
    out.resize(first - HEADER, 0);
    out
}

/// `SUMMARY_DUMP64` of Windows XP to 7.
fn old_bitmap(runs: &[Run]) -> Vec<u8> {
    let (map, count) = bits(runs);
    let mut out = b"SDMPDUMP".to_vec();
    let first = (HEADER + 0x28 + map.len()).next_multiple_of(0x1000);
    let frames = usize::try_from(runs.last().map_or(0, |r| r.end)).unwrap_or(0);
    put32(&mut out, 0xc, low32(first));
    put32(&mut out, 0x10, low32(frames));
    put32(&mut out, 0x14, low32(usize::try_from(count).unwrap_or(0)));
    put32(&mut out, 0x18, low32(frames));
    put64(&mut out, 0x20, 0);
    out.extend(map);
    out.resize(first - HEADER, 0);
    out
}

fn ranges(runs: &[Run], kind: DumpType) -> Vec<u8> {
    let mut out = b"\x40\0\0\0RDMPDUMP".to_vec();
    let list = 0x30 + 16 * (runs.len() + 1);
    let size = (list + HEADER).next_multiple_of(0x1000) - HEADER;
    put64(&mut out, 0x10, (size - 0x40 + 0x20) as u64);
    put64(&mut out, 0x18, (HEADER + size) as u64);
    if kind == DumpType::RangesFull {
        put32(&mut out, 0x20, low32(runs.len()));
        put32(&mut out, 0x24, 0);
        put64(&mut out, 0x28, runs.iter().map(|r| r.end - r.start).sum());
    } else {
        put64(&mut out, 0x20, 0);
        put64(&mut out, 0x28, 0);
    }
    for run in runs {
        out.extend(run.start.to_le_bytes());
        out.extend((run.end - run.start).to_le_bytes());
    }
    pad_to(&mut out, 16);
    out.resize(size, 0);
    out
}
