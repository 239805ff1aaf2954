//! Memory of an emulated machine: regions, pages copied on write, bytes that may be unknown.

use std::collections::HashMap;
use std::rc::Rc;

use crate::value::{Value, mask};

/// Bytes of a page.
pub const PAGE: u64 = 0x1000;
const PAGE_BYTES: usize = 0x1000;

/// Where the bytes of a region come from at their first use.
pub trait Backing {
    /// Fills as much of `buffer` from its start as can be read at `address`, and says how much.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
}

impl<F: Fn(u64, &mut [u8]) -> usize> Backing for F {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self(address, buffer)
    }
}

#[derive(Clone)]
enum Content {
    Zero,
    Unknown,
    Backed(Rc<dyn Backing>),
}

#[derive(Clone)]
struct Region {
    start: u64,
    end: u64,
    content: Content,
}

/// What memory outside every region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// An access there stops the machine.
    Stop,
    /// Reads are unknown, what is written stays there.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// An access that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("nothing is mapped at {address:#x} ({access:?})")]
    Unmapped { address: u64, access: Access },
    #[error("more than the allowed pages would be in use at {address:#x}")]
    TooManyPages { address: u64 },
    #[error("bytes at {address:#x} are not known")]
    Unknown { address: u64 },
}

#[derive(Clone)]
struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    /// A one for each unknown bit; absent when all are known.
    unknown: Option<Box<[u8; PAGE_BYTES]>>,
}

/// See the module. Cloning shares pages until one side writes.
#[derive(Clone)]
pub struct Memory {
    pages: HashMap<u64, Rc<Page>>,
    regions: Vec<Region>,
    outside: Outside,
    page_limit: usize,
}

impl Memory {
    /// No regions; at most 16,384 pages (64 MiB) ever in use.
    #[must_use]
    pub fn new(outside: Outside) -> Self {
        Self { pages: HashMap::new(), regions: Vec::new(), outside, page_limit: 0x4000 }
    }

    /// Sets how many pages may be in use at once.
    pub fn limit_pages(&mut self, pages: usize) {
        self.page_limit = pages;
    }

    /// `length` zero bytes at `start`. A later region hides an earlier one where no page is in use yet.
    pub fn map_zero(&mut self, start: u64, length: u64) {
        self.map(start, length, Content::Zero);
    }

    /// `length` unknown bytes at `start`.
    pub fn map_unknown(&mut self, start: u64, length: u64) {
        self.map(start, length, Content::Unknown);
    }

    /// `length` bytes read from `backing` a page at a time; what it cannot read is unknown.
    pub fn map_backed(&mut self, start: u64, length: u64, backing: Rc<dyn Backing>) {
        self.map(start, length, Content::Backed(backing));
    }

    fn map(&mut self, start: u64, length: u64, content: Content) {
        self.regions.push(Region { start, end: start.saturating_add(length), content });
    }

    /// Whether `address` lies in a region.
    #[must_use]
    pub fn is_mapped(&self, address: u64) -> bool {
        self.region(address).is_some()
    }

    fn region(&self, address: u64) -> Option<&Region> {
        self.regions.iter().rev().find(|r| r.start <= address && address < r.end)
    }

    fn page(&mut self, address: u64, access: Access) -> Result<&mut Rc<Page>, Fault> {
        let number = address / PAGE;
        if !self.pages.contains_key(&number) {
            if self.pages.len() >= self.page_limit {
                return Err(Fault::TooManyPages { address });
            }
            let page = self.load(address, access)?;
            self.pages.insert(number, Rc::new(page));
        }
        self.pages.get_mut(&number).ok_or(Fault::Unmapped { address, access })
    }

    fn load(&self, address: u64, access: Access) -> Result<Page, Fault> {
        let mut page = Page { bytes: Box::new([0; PAGE_BYTES]), unknown: None };
        let content = match (self.region(address), self.outside) {
            (Some(region), _) => region.content.clone(),
            (None, Outside::Unknown) => Content::Unknown,
            (None, Outside::Stop) => return Err(Fault::Unmapped { address, access }),
        };
        match content {
            Content::Zero => {}
            Content::Unknown => page.unknown = Some(Box::new([0xff; PAGE_BYTES])),
            Content::Backed(backing) => fill(&mut page, &*backing, address / PAGE * PAGE),
        }
        Ok(page)
    }

    /// The `bytes` (1 to 8) bytes at `address`, little-endian, zero-extended.
    pub fn read(&mut self, address: u64, bytes: u32) -> Result<Value, Fault> {
        self.read_for(address, bytes, Access::Read)
    }

    fn read_for(&mut self, address: u64, bytes: u32, access: Access) -> Result<Value, Fault> {
        let bytes = bytes.min(8);
        let offset = (address % PAGE) as usize;
        if offset + bytes as usize <= PAGE_BYTES {
            let page = self.page(address, access)?;
            return Ok(page.value(offset, bytes));
        }
        let first = (PAGE_BYTES - offset) as u32;
        let low = self.page(address, access)?.value(offset, first);
        let high = self.page(address.wrapping_add(u64::from(first)), access)?.value(0, bytes - first);
        Ok(low | high.shl(first * 8))
    }

    /// Writes the low `bytes` (1 to 8) bytes of `value`.
    pub fn write(&mut self, address: u64, bytes: u32, value: Value) -> Result<(), Fault> {
        let bytes = bytes.min(8);
        let offset = (address % PAGE) as usize;
        let first = bytes.min((PAGE_BYTES - offset) as u32);
        if first < bytes {
            // Both pages, or neither changes.
            self.page(address.wrapping_add(u64::from(first)), Access::Write)?;
        }
        Rc::make_mut(self.page(address, Access::Write)?).set(offset, first, value);
        if first < bytes {
            let next = self.page(address.wrapping_add(u64::from(first)), Access::Write)?;
            Rc::make_mut(next).set(0, bytes - first, value.shr(first * 8));
        }
        Ok(())
    }

    /// Fills `buffer` with known bytes.
    pub fn read_bytes(&mut self, address: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        for (i, byte) in buffer.iter_mut().enumerate() {
            let at = address.wrapping_add(i as u64);
            let value = self.read(at, 1)?;
            *byte = value.get().ok_or(Fault::Unknown { address: at })? as u8;
        }
        Ok(())
    }

    /// Writes known bytes.
    pub fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = (at % PAGE) as usize;
            let count = rest.len().min(PAGE_BYTES - offset);
            let page = Rc::make_mut(self.page(at, Access::Write)?);
            page.bytes[offset..offset + count].copy_from_slice(&rest[..count]);
            if let Some(unknown) = &mut page.unknown {
                unknown[offset..offset + count].fill(0);
            }
            rest = &rest[count..];
            at = at.wrapping_add(count as u64);
        }
        Ok(())
    }

    /// Makes `length` bytes unknown, at most what is mapped from `address` on.
    pub fn forget(&mut self, address: u64, length: u64) -> Result<(), Fault> {
        let mut at = address;
        let mut left = length;
        while left > 0 {
            let offset = (at % PAGE) as usize;
            let count = left.min(PAGE - offset as u64);
            let page = Rc::make_mut(self.page(at, Access::Write)?);
            let end = offset + count as usize;
            page.bytes[offset..end].fill(0);
            page.unknown.get_or_insert_with(|| Box::new([0; PAGE_BYTES]))[offset..end].fill(0xff);
            left -= count;
            at = at.wrapping_add(count);
        }
        Ok(())
    }

    /// Up to `buffer.len()` known bytes of code at `address`, and how many.
    pub(crate) fn fetch(&mut self, address: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let page = match self.page(at, Access::Execute) {
                Ok(page) => page,
                Err(fault) if done == 0 => return Err(fault),
                Err(_) => break,
            };
            let offset = (at % PAGE) as usize;
            let count = (buffer.len() - done).min(PAGE_BYTES - offset);
            let known = match &page.unknown {
                None => count,
                Some(unknown) => unknown[offset..offset + count].iter().take_while(|&&u| u == 0).count(),
            };
            buffer[done..done + known].copy_from_slice(&page.bytes[offset..offset + known]);
            done += known;
            if known < count {
                break;
            }
        }
        if done == 0 { Err(Fault::Unknown { address }) } else { Ok(done) }
    }
}

/// Loads a page in one read, or what is readable of it in small ones.
fn fill(page: &mut Page, backing: &dyn Backing, start: u64) {
    if backing.read(start, &mut page.bytes[..]) >= PAGE_BYTES {
        return;
    }
    let mut unknown = Box::new([0xff; PAGE_BYTES]);
    const STEP: usize = 64;
    for offset in (0..PAGE_BYTES).step_by(STEP) {
        let chunk = &mut page.bytes[offset..offset + STEP];
        let read = backing.read(start.wrapping_add(offset as u64), chunk).min(STEP);
        chunk[read..].fill(0);
        unknown[offset..offset + read].fill(0);
    }
    page.unknown = Some(unknown);
}

impl Page {
    fn value(&self, offset: usize, bytes: u32) -> Value {
        let end = offset + bytes as usize;
        let unknown = self.unknown.as_ref().map_or(0, |u| little_endian(&u[offset..end]));
        Value::new(little_endian(&self.bytes[offset..end]), unknown)
    }

    fn set(&mut self, offset: usize, bytes: u32, value: Value) {
        let end = offset + bytes as usize;
        self.bytes[offset..end].copy_from_slice(&value.bits().to_le_bytes()[..bytes as usize]);
        let unknown = value.unknown_bits() & mask(bytes);
        if unknown != 0 && self.unknown.is_none() {
            self.unknown = Some(Box::new([0; PAGE_BYTES]));
        }
        if let Some(page) = &mut self.unknown {
            page[offset..end].copy_from_slice(&unknown.to_le_bytes()[..bytes as usize]);
        }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
