//! The executable bytes of an image: readable runs, no byte twice.

use pe::Section;

use crate::image::CodeImage;
use crate::vocabulary::{Coverage, Range};
use target::{Address, Halt};

/// Most bytes of code looked at.
pub const MAX_BYTES: usize = 16 << 20;
/// Most ranges of a coverage list.
pub const MAX_RANGES: usize = 256;
/// Bytes read between two looks at the halt.
const WINDOW: usize = 0x1_0000;
const PAGE: u32 = 0x1000;
const IMAGE_SCN_MEM_DISCARDABLE: u32 = 0x0200_0000;

/// Readable bytes of one executable section without a hole.
#[derive(Clone, Debug)]
pub struct Span {
    pub section: String,
    pub discardable: bool,
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Span {
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    #[must_use]
    pub fn offset(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        (offset < self.bytes.len()).then_some(offset)
    }
}

/// Whether a section is gone once the driver has initialised.
#[must_use]
pub fn is_discardable(section: &Section) -> bool {
    section.characteristics & IMAGE_SCN_MEM_DISCARDABLE != 0
}

/// The executable sections by address. A section that lies outside the image, and pages that
/// cannot be read, are recorded as unreadable.
#[must_use]
pub fn code_spans(image: &CodeImage<'_>, halt: &Halt) -> (Vec<Span>, Coverage) {
    let mut sections: Vec<&Section> = image.pe.sections.iter().filter(|s| s.is_executable()).collect();
    sections.sort_by_key(|section| section.rva);
    let mut reader =
        Reader { image, halt, spans: Vec::new(), coverage: Coverage::default(), left: MAX_BYTES };
    let mut done = 0u32;
    for section in sections {
        let size = if section.virtual_size == 0 { section.raw_size } else { section.virtual_size };
        let wanted_end = section.rva.saturating_add(size);
        let start = section.rva.max(done);
        let end = wanted_end.min(image.size);
        if wanted_end > end && wanted_end > image.size {
            let lost = wanted_end - section.rva.max(image.size);
            reader.unreadable(section, section.rva.max(image.size), lost);
        }
        if start < end {
            reader.section(section, start, end);
        }
        done = done.max(end);
        if reader.coverage.stopped.is_some() || reader.left == 0 {
            break;
        }
    }
    (reader.spans, reader.coverage)
}

struct Reader<'i, 'a> {
    image: &'i CodeImage<'a>,
    halt: &'i Halt,
    spans: Vec<Span>,
    coverage: Coverage,
    left: usize,
}

impl Reader<'_, '_> {
    fn section(&mut self, section: &Section, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            if let Some(stop) = self.halt.stop() {
                self.coverage.stopped = Some(stop.into());
                return self.unreadable(section, at, end - at);
            }
            if self.left == 0 {
                return self.coverage.cap("code_bytes");
            }
            let length = ((end - at) as usize).min(WINDOW).min(self.left);
            let read = self.window(section, at, length);
            self.left -= read;
            at += read as u32;
            if read < length {
                // The rest of this page is not there.
                let next = (at | (PAGE - 1)).saturating_add(1).min(end);
                self.unreadable(section, at, next - at);
                at = next;
            }
        }
    }

    /// Reads up to `length` bytes at `rva` onto the last span, or into one that begins there.
    fn window(&mut self, section: &Section, rva: u32, length: usize) -> usize {
        let start = self.image.base + u64::from(rva);
        let goes_on =
            self.spans.last().is_some_and(|last| last.end() == start && last.section == section.name);
        if !goes_on {
            self.spans.push(Span {
                section: section.name.clone(),
                discardable: is_discardable(section),
                start,
                bytes: Vec::new(),
            });
        }
        let Some(last) = self.spans.last_mut() else { return 0 };
        let before = last.bytes.len();
        last.bytes.resize(before + length, 0);
        let read = self.image.read_past_cache(rva, &mut last.bytes[before..]);
        last.bytes.truncate(before + read);
        self.coverage.scanned_bytes += read as u64;
        if last.bytes.is_empty() {
            self.spans.pop();
            return 0;
        }
        let (start, bytes) = (last.start, last.bytes.len() as u64);
        match self.coverage.scanned.last_mut().filter(|range| range.start.0 == start) {
            Some(range) => range.bytes = bytes,
            None => {
                let range = Range { section: section.name.clone(), start: Address(start), bytes };
                push(&mut self.coverage.scanned, range, &mut self.coverage.cap_hit);
            }
        }
        read
    }

    fn unreadable(&mut self, section: &Section, rva: u32, bytes: u32) {
        let start = self.image.base.saturating_add(u64::from(rva));
        self.coverage.unreadable_bytes += u64::from(bytes);
        if let Some(last) = self.coverage.unreadable.last_mut()
            && last.start.0 + last.bytes == start
            && last.section == section.name
        {
            last.bytes += u64::from(bytes);
            return;
        }
        let range = Range { section: section.name.clone(), start: Address(start), bytes: u64::from(bytes) };
        push(&mut self.coverage.unreadable, range, &mut self.coverage.cap_hit);
    }
}

fn push(list: &mut Vec<Range>, range: Range, cap_hit: &mut bool) {
    if list.len() < MAX_RANGES {
        list.push(range);
    } else {
        *cap_hit = true;
    }
}
