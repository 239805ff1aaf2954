//! Memory of a target: one small trait with many implementations. Every read says how far it got
//! and why it stopped; nothing invents zeros.

use std::collections::BTreeMap;
use std::fmt;

/// Which address space an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Virtual memory of the selected process (kernel half: the kernel's).
    Virtual,
    /// Virtual memory through the page tables rooted at this DirectoryTableBase.
    Root(u64),
    /// Physical memory.
    Physical,
}

/// Why a read stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreadable {
    /// The dump holds no bytes for this address.
    NotInDump,
    /// The page is not present and nothing says where its content is.
    NotPresent,
    PagedOut {
        file: u8,
        offset: u64,
    },
    DemandZero,
    NonCanonical,
    /// A page table of this level (1 = PT) is itself missing.
    PageTableMissing {
        level: u8,
    },
    /// The dump declares the bytes but the file ends before them.
    TruncatedFile,
    /// This target has no such address space.
    NoSuchSpace,
    Deadline,
    Interrupted,
    /// The target refused without saying why.
    Refused,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInDump => f.write_str("not in the dump"),
            Self::NotPresent => f.write_str("page not present"),
            Self::PagedOut { file, offset } => write!(f, "paged out (page file {file}, offset {offset:#x})"),
            Self::DemandZero => f.write_str("demand-zero page"),
            Self::NonCanonical => f.write_str("non-canonical address"),
            Self::PageTableMissing { level } => write!(f, "page table of level {level} not in the dump"),
            Self::TruncatedFile => f.write_str("past the end of a truncated file"),
            Self::NoSuchSpace => f.write_str("no such address space on this target"),
            Self::Deadline => f.write_str("time ran out"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Refused => f.write_str("unreadable"),
        }
    }
}

impl Unreadable {
    /// The snake_case word for results.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotInDump => "not_in_dump",
            Self::NotPresent => "not_present",
            Self::PagedOut { .. } => "paged_out",
            Self::DemandZero => "demand_zero",
            Self::NonCanonical => "non_canonical",
            Self::PageTableMissing { .. } => "page_table_missing",
            Self::TruncatedFile => "truncated_file",
            Self::NoSuchSpace => "no_such_space",
            Self::Deadline => "deadline",
            Self::Interrupted => "interrupted",
            Self::Refused => "unreadable",
        }
    }
}

/// How far a read got. `stopped` is `None` exactly when the whole buffer was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes filled from the start of the buffer.
    pub read: usize,
    pub stopped: Option<Unreadable>,
}

impl ReadOutcome {
    #[must_use]
    pub fn complete(read: usize) -> Self {
        Self { read, stopped: None }
    }
    #[must_use]
    pub fn stopped(read: usize, why: Unreadable) -> Self {
        Self { read, stopped: Some(why) }
    }
}

/// A failed read of a value: where and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {address:#018x}: {why}")]
pub struct ReadError {
    pub address: u64,
    pub why: Unreadable,
}

/// Bytes at addresses. Implementations fill as much of `buffer` from its start as they can.
pub trait Memory {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome;
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        (**self).read(space, address, buffer)
    }
}

/// Typed reads over any [`Memory`], in the selected process's virtual space unless said otherwise.
pub trait MemoryExt: Memory {
    fn read_exact_in(&self, space: Space, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let outcome = self.read(space, address, buffer);
        match outcome.stopped {
            None => Ok(()),
            Some(why) => Err(ReadError { address: address.wrapping_add(outcome.read as u64), why }),
        }
    }
    fn read_exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read_exact_in(Space::Virtual, address, buffer)
    }
    /// Up to `length` bytes: the readable prefix and why it is shorter, if it is.
    fn read_prefix(&self, address: u64, length: usize) -> (Vec<u8>, Option<Unreadable>) {
        let mut buffer = vec![0; length];
        let outcome = self.read(Space::Virtual, address, &mut buffer);
        buffer.truncate(outcome.read);
        (buffer, outcome.stopped)
    }
    fn read_array<const N: usize>(&self, address: u64) -> Result<[u8; N], ReadError> {
        let mut buffer = [0; N];
        self.read_exact(address, &mut buffer)?;
        Ok(buffer)
    }
    fn read_u8(&self, address: u64) -> Result<u8, ReadError> {
        self.read_array::<1>(address).map(|b| b[0])
    }
    fn read_u16(&self, address: u64) -> Result<u16, ReadError> {
        self.read_array(address).map(u16::from_le_bytes)
    }
    fn read_u32(&self, address: u64) -> Result<u32, ReadError> {
        self.read_array(address).map(u32::from_le_bytes)
    }
    fn read_u64(&self, address: u64) -> Result<u64, ReadError> {
        self.read_array(address).map(u64::from_le_bytes)
    }
    /// A pointer of 4 or 8 bytes, zero-extended.
    fn read_pointer(&self, address: u64, pointer_size: u8) -> Result<u64, ReadError> {
        if pointer_size == 4 { self.read_u32(address).map(u64::from) } else { self.read_u64(address) }
    }
    /// Bytes up to a NUL, at most `limit`; a region's end before the NUL ends the string too.
    /// `None` when not even the first byte is readable.
    fn read_c_string(&self, address: u64, limit: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < limit {
            let step = (limit - out.len()).min(64);
            let (chunk, stopped) = self.read_prefix(address.wrapping_add(out.len() as u64), step);
            if chunk.is_empty() && out.is_empty() {
                return None;
            }
            if let Some(end) = chunk.iter().position(|&b| b == 0) {
                out.extend_from_slice(&chunk[..end]);
                return Some(out);
            }
            out.extend_from_slice(&chunk);
            if stopped.is_some() {
                break;
            }
        }
        Some(out)
    }
    /// `bytes` bytes of UTF-16LE, lossily; odd tails are dropped.
    fn read_utf16(&self, address: u64, bytes: usize) -> Result<String, ReadError> {
        let mut buffer = vec![0; bytes & !1];
        self.read_exact(address, &mut buffer)?;
        let units: Vec<u16> = buffer.chunks_exact(2).map(|p| u16::from_le_bytes([p[0], p[1]])).collect();
        Ok(String::from_utf16_lossy(&units))
    }
    /// A `UNICODE_STRING` at `address` of a 4- or 8-byte-pointer target; at most 64 KiB by its type.
    fn read_unicode_string(&self, address: u64, pointer_size: u8) -> Result<String, ReadError> {
        let length = usize::from(self.read_u16(address)?);
        let pointer = self.read_pointer(address.wrapping_add(u64::from(pointer_size)), pointer_size)?;
        if length == 0 { Ok(String::new()) } else { self.read_utf16(pointer, length) }
    }
}

impl<M: Memory + ?Sized> MemoryExt for M {}

/// Memory made of disjoint regions, for tests and for analyses over captured bytes.
#[derive(Clone, Debug, Default)]
pub struct RegionMemory {
    regions: BTreeMap<u64, Vec<u8>>,
}

impl RegionMemory {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds bytes at an address; a later region hides what it overlaps only from its own start on.
    pub fn add(&mut self, address: u64, bytes: impl Into<Vec<u8>>) -> &mut Self {
        self.regions.insert(address, bytes.into());
        self
    }
}

impl Memory for RegionMemory {
    fn read(&self, space: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        if space == Space::Physical {
            return ReadOutcome::stopped(0, Unreadable::NoSuchSpace);
        }
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let piece = self.regions.range(..=at).next_back().and_then(|(start, bytes)| {
                usize::try_from(at - start)
                    .ok()
                    .and_then(|offset| bytes.get(offset..))
                    .filter(|p| !p.is_empty())
            });
            let Some(piece) = piece else {
                return ReadOutcome::stopped(done, Unreadable::NotInDump);
            };
            let count = piece.len().min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        ReadOutcome::complete(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_over_a_hole_keeps_its_prefix() {
        let mut memory = RegionMemory::new();
        memory.add(0x1000, [1, 2, 3]).add(0x1003, [4]).add(0x2000, [9]);
        let (bytes, stopped) = memory.read_prefix(0x1001, 8);
        assert_eq!(bytes, [2, 3, 4]);
        assert_eq!(stopped, Some(Unreadable::NotInDump));
        assert_eq!(memory.read_u32(0x1001).unwrap_err().address, 0x1004);
        assert_eq!(memory.read_u32(u64::MAX).unwrap_err().why, Unreadable::NotInDump);
        assert_eq!(memory.read_c_string(0x1000, 100), Some(vec![1, 2, 3, 4]));
        assert_eq!(memory.read_c_string(0x3000, 100), None);
    }
}
