//! Bytes of an image by RVA.

use std::cell::OnceCell;

use target::{Memory, Space};

use crate::headers::{Pe, Section};
use crate::relocations::{RelocationIndex, apply};

/// Bytes by RVA. Fills as much of `buffer` from its start as it can and says how much.
pub trait ImageSource {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize;
}

impl<S: ImageSource + ?Sized> ImageSource for &S {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        (**self).read_rva(rva, buffer)
    }
}

/// Typed reads over any [`ImageSource`]; `None` when not every byte is there.
pub trait ImageSourceExt: ImageSource {
    fn array<const N: usize>(&self, rva: u32) -> Option<[u8; N]> {
        let mut buffer = [0; N];
        (self.read_rva(rva, &mut buffer) == N).then_some(buffer)
    }
    fn u16(&self, rva: u32) -> Option<u16> {
        self.array(rva).map(u16::from_le_bytes)
    }
    fn u32(&self, rva: u32) -> Option<u32> {
        self.array(rva).map(u32::from_le_bytes)
    }
    fn u64(&self, rva: u32) -> Option<u64> {
        self.array(rva).map(u64::from_le_bytes)
    }
    /// The readable prefix of `length` bytes.
    fn prefix(&self, rva: u32, length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        // In steps, so that a lying length costs no memory that is not there.
        while out.len() < length {
            let step = (length - out.len()).min(0x1_0000);
            let start = out.len();
            let Some(at) = u32::try_from(start).ok().and_then(|done| rva.checked_add(done)) else { break };
            out.resize(start + step, 0);
            let read = self.read_rva(at, &mut out[start..]).min(step);
            out.truncate(start + read);
            if read < step {
                break;
            }
        }
        out
    }
    /// A NUL-terminated string of at most `limit` bytes, lossily. `None` when its first byte is not
    /// readable or no NUL comes.
    fn string(&self, rva: u32, limit: usize) -> Option<String> {
        let mut out = Vec::new();
        while out.len() < limit {
            let at = rva.checked_add(u32::try_from(out.len()).ok()?)?;
            let chunk = self.prefix(at, (limit - out.len()).min(64));
            if chunk.is_empty() {
                return None;
            }
            if let Some(end) = chunk.iter().position(|&b| b == 0) {
                out.extend_from_slice(&chunk[..end]);
                return Some(String::from_utf8_lossy(&out).into_owned());
            }
            out.extend_from_slice(&chunk);
        }
        None
    }
}

impl<S: ImageSource + ?Sized> ImageSourceExt for S {}

/// An image as the loader laid it out, in the memory of a target. Holes are holes.
#[derive(Clone, Copy, Debug)]
pub struct MappedImage<M> {
    memory: M,
    base: u64,
}

impl<M: Memory> MappedImage<M> {
    /// The image at `base` of the selected process's virtual memory.
    pub fn new(memory: M, base: u64) -> Self {
        Self { memory, base }
    }
}

impl<M: Memory> ImageSource for MappedImage<M> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        match self.base.checked_add(u64::from(rva)) {
            Some(address) => self.memory.read(Space::Virtual, address, buffer).read.min(buffer.len()),
            None => 0,
        }
    }
}

/// An image in a file, seen as the loader would lay it out: headers, then each section's raw bytes
/// and zeros up to its virtual size. Gaps between sections are not readable.
pub struct FileImage<B> {
    bytes: B,
    pe: Pe,
    relocations: OnceCell<RelocationIndex>,
}

struct RawFile<'a>(&'a [u8]);
impl ImageSource for RawFile<'_> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        copy_prefix(self.0, u64::from(rva), buffer)
    }
}

fn copy_prefix(bytes: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}

impl<B: AsRef<[u8]>> FileImage<B> {
    /// Reads the headers.
    pub fn new(bytes: B) -> Result<Self, crate::PeError> {
        let pe = Pe::parse(&RawFile(bytes.as_ref()))?;
        Ok(Self { bytes, pe, relocations: OnceCell::new() })
    }

    /// The headers.
    #[must_use]
    pub fn pe(&self) -> &Pe {
        &self.pe
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// [`ImageSource::read_rva`] as the image would read when loaded at `load_base`: base
    /// relocations that touch the range are applied.
    pub fn read_rva_at(&self, rva: u32, load_base: u64, buffer: &mut [u8]) -> usize {
        let read = self.read_rva(rva, buffer);
        if load_base != self.pe.image_base {
            let index = self.relocations.get_or_init(|| RelocationIndex::new(&self.pe, self));
            let delta = load_base.wrapping_sub(self.pe.image_base);
            apply(index, self, rva, delta, &mut buffer[..read]);
        }
        read
    }

    /// File offset of an RVA, `None` where the file has no byte for it.
    #[must_use]
    pub fn file_offset(&self, rva: u32) -> Option<u64> {
        if rva < self.pe.size_of_headers {
            return Some(u64::from(rva));
        }
        let section = self.pe.section_at(rva)?;
        let within = rva - section.rva;
        (within < section.raw_size).then(|| section.raw_start() + u64::from(within))
    }

    /// Bytes from `rva` on within one section, and how many.
    fn read_section(&self, section: &Section, rva: u32, buffer: &mut [u8]) -> usize {
        let within = rva - section.rva;
        let mapped = section.mapped_size(self.pe.section_alignment);
        let left = usize::try_from(mapped.saturating_sub(within)).unwrap_or(0).min(buffer.len());
        let raw = usize::try_from(section.raw_size.saturating_sub(within)).unwrap_or(0).min(left);
        let read = copy_prefix(self.bytes(), section.raw_start() + u64::from(within), &mut buffer[..raw]);
        if read < raw {
            return read;
        }
        buffer[raw..left].fill(0);
        left
    }
}

impl<B: AsRef<[u8]>> ImageSource for FileImage<B> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = u32::try_from(done).ok().and_then(|d| rva.checked_add(d)) else { break };
            let rest = &mut buffer[done..];
            let count = if let Some(section) = self.pe.section_at(at) {
                self.read_section(section, at, rest)
            } else if at < self.pe.size_of_headers {
                let left = usize::try_from(self.pe.size_of_headers - at).unwrap_or(0).min(rest.len());
                copy_prefix(self.bytes(), u64::from(at), &mut rest[..left])
            } else {
                0
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        done
    }
}
