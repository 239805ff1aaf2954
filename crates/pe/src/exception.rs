//! The exception directory, searched where it lies: system images have ten thousand entries.

use target::Machine;

use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

/// An entry: x64 `RUNTIME_FUNCTION {begin, end, unwind}`; ARM64 `{begin, data}` with `end` 0, since
/// the length is in the data word or the `.xdata` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionEntry {
    pub begin: u32,
    pub end: u32,
    /// x64: RVA of `UNWIND_INFO`. ARM64: the packed word or RVA of `.xdata`, low two bits the kind.
    pub unwind: u32,
}

/// A view of the directory.
#[derive(Clone, Copy)]
pub struct ExceptionTable<'a> {
    source: &'a dyn ImageSource,
    rva: u32,
    count: u32,
    entry_size: u32,
}

impl<'a> ExceptionTable<'a> {
    /// The directory at `rva` of `size` bytes; entries are 12 bytes on x64 and 8 on ARM64.
    /// `None` for other machines.
    #[must_use]
    pub fn new(source: &'a dyn ImageSource, machine: Machine, rva: u32, size: u32) -> Option<Self> {
        let entry_size = match machine {
            Machine::X64 => 12,
            Machine::Arm64 => 8,
            Machine::X86 | Machine::Arm32 => return None,
        };
        Some(Self { source, rva, count: size / entry_size, entry_size })
    }

    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entry at `index`, `None` past the end or where its bytes are missing.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<FunctionEntry> {
        if index >= self.count {
            return None;
        }
        self.at(self.rva.checked_add(index.checked_mul(self.entry_size)?)?)
    }

    /// The entry that lies at `rva` itself (an indirect x64 entry points at one).
    #[must_use]
    pub fn at(&self, rva: u32) -> Option<FunctionEntry> {
        let word = |raw: &[u8], at: usize| crate::field::le32(raw, at);
        if self.entry_size == 8 {
            let raw: [u8; 8] = self.source.array(rva)?;
            return Some(FunctionEntry { begin: word(&raw, 0), end: 0, unwind: word(&raw, 4) });
        }
        let raw: [u8; 12] = self.source.array(rva)?;
        Some(FunctionEntry { begin: word(&raw, 0), end: word(&raw, 4), unwind: word(&raw, 8) })
    }

    /// The last entry whose `begin` is not above `rva`; the caller checks its end. The error is a page the
    /// search needs and does not have.
    pub fn find(&self, rva: u32) -> Result<Option<FunctionEntry>, UnreadableTable> {
        let (mut low, mut high) = (0, self.count);
        let mut best = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.get(middle).ok_or(UnreadableTable)?;
            if entry.begin <= rva {
                best = Some(entry);
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(best)
    }
}

/// A page of the exception directory is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the image's exception directory is not readable")]
pub struct UnreadableTable;

impl Pe {
    /// The exception directory of an x64 or ARM64 image.
    #[must_use]
    pub fn exception_table<'a>(&self, source: &'a dyn ImageSource) -> Option<ExceptionTable<'a>> {
        let (rva, size) = self.directory(DirectoryIndex::Exception)?;
        ExceptionTable::new(source, self.machine?, rva, size)
    }
}
