//! One image as code recovery sees it: bytes by address with their provenance, sections, imports.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use pe::{FileImage, ImageSource, Pe, PeError, Relocation, Section};
use target::{Machine, Module};

use crate::imports::{ImportSlot, Imports};
use crate::regions::Regions;
use crate::starts::{FoundStarts, KnownStarts};
use crate::symbols::{Names, NoNames};
use crate::vocabulary::{BytesFrom, ImageRecord};

/// Bytes per cached page.
const PAGE: u32 = 0x1000;
/// The Windows loader's own limit.
const MAX_SECTIONS: u16 = 96;
/// Most pages kept: 64 MiB.
const MAX_PAGES: usize = 0x4000;
/// Most base relocations looked at.
const MAX_RELOCATIONS: usize = 1 << 22;

/// Where a run of bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Target,
    ImageFile,
    /// Some bytes of it from the one, some from the other.
    Both,
}

/// What a page read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// Bytes filled from the start of the buffer; the rest is unreadable.
    pub read: usize,
    pub origin: Origin,
}

/// Bytes of one image by RVA. The reader above caches pages.
pub trait PageSource {
    /// Fills as much of `buffer` from its start as it can.
    fn read_page(&self, rva: u32, buffer: &mut [u8]) -> PageRead;
    /// Whether this is a file and nothing else: imports are as the linker left them.
    fn is_a_file(&self) -> bool {
        false
    }
}

/// Any [`ImageSource`], with one origin for all of it.
pub struct Whole<S>(pub S, pub Origin);

impl<S: ImageSource> PageSource for Whole<S> {
    fn read_page(&self, rva: u32, buffer: &mut [u8]) -> PageRead {
        PageRead { read: self.0.read_rva(rva, buffer), origin: self.1 }
    }
    fn is_a_file(&self) -> bool {
        self.1 == Origin::ImageFile
    }
}

/// A file, relocated to a base.
struct FileAt<B>(FileImage<B>, u64);

impl<B: AsRef<[u8]>> ImageSource for FileAt<B> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.0.read_rva_at(rva, self.1, buffer)
    }
}

/// Why an image cannot be analysed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("{module} at {base:#x}: {error}")]
    Headers { module: String, base: u64, error: PeError },
    #[error("{module} is for machine {machine:#x}; x86, x64 and ARM64 code is read")]
    Machine { module: String, machine: u16 },
    #[error("{module}: {what}")]
    Malformed { module: String, what: String },
}

struct Page {
    bytes: Box<[u8]>,
    origin: Origin,
}

/// One image: its headers and, behind a page cache, its bytes.
pub struct CodeImage<'a> {
    pub record: ImageRecord,
    pub base: u64,
    /// `SizeOfImage`, clamped to the loader's extent where that is smaller.
    pub size: u32,
    pub machine: Machine,
    pub pe: Pe,
    source: Box<dyn PageSource + 'a>,
    pages: RefCell<HashMap<u32, Page>>,
    from_target: Cell<bool>,
    from_file: Cell<bool>,
    imports: OnceCell<Imports>,
    regions: OnceCell<Regions>,
    starts: OnceCell<KnownStarts>,
    relocations: OnceCell<Vec<Relocation>>,
    names: Box<dyn Names + 'a>,
    /// Starts of functions found in code decoded so far.
    found: RefCell<FoundStarts>,
    /// Whether a function returns, as far as it was asked.
    pub(crate) returns: RefCell<HashMap<u64, bool>>,
    bound: OnceCell<HashMap<u64, usize>>,
}

impl<'a> CodeImage<'a> {
    /// The image of a file as if it were loaded at `base`, without anything else around it.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn of_file<B: AsRef<[u8]> + 'a>(
        name: &str,
        file: FileImage<B>,
        base: u64,
    ) -> Result<Self, ImageError> {
        let module = Module {
            name: name.to_owned(),
            image_name: name.to_owned(),
            image_path: String::new(),
            base,
            size: u64::from(file.pe().size_of_image),
            timestamp: file.pe().timestamp,
            checksum: 0,
            pdb: None,
            user_mode: None,
            file_version: None,
        };
        Self::open(&module, Box::new(Whole(FileAt(file, base), Origin::ImageFile)))
    }

    /// Reads the headers of the image `module` names.
    ///
    /// # Errors
    /// Headers that cannot be read or parsed; a machine whose code is not read; a size past the
    /// address space.
    pub fn open(module: &Module, source: Box<dyn PageSource + 'a>) -> Result<Self, ImageError> {
        let pages = RefCell::default();
        let reader = Raw { source: source.as_ref() };
        let name = || module.name.clone();
        let pe = Pe::parse(&reader).map_err(|error| ImageError::Headers {
            module: name(),
            base: module.base,
            error,
        })?;
        let declared = section_count(&reader).unwrap_or(0);
        if declared > MAX_SECTIONS {
            let what = format!("{declared} sections; an image has at most {MAX_SECTIONS}");
            return Err(ImageError::Malformed { module: name(), what });
        }
        let machine = pe
            .machine
            .filter(|m| *m != Machine::Arm32)
            .ok_or_else(|| ImageError::Machine { module: name(), machine: pe.image_machine })?;
        let declared = match u32::try_from(module.size) {
            Ok(extent) if extent != 0 => pe.size_of_image.min(extent),
            _ => pe.size_of_image,
        };
        if module.base.checked_add(u64::from(declared)).is_none() || declared == 0 {
            let what = format!("an image of {declared:#x} bytes does not fit at {:#x}", module.base);
            return Err(ImageError::Malformed { module: name(), what });
        }
        Ok(Self {
            record: ImageRecord::of(module),
            base: module.base,
            size: declared,
            machine,
            pe,
            source,
            pages,
            from_target: Cell::new(false),
            from_file: Cell::new(false),
            imports: OnceCell::new(),
            regions: OnceCell::new(),
            starts: OnceCell::new(),
            relocations: OnceCell::new(),
            names: Box::new(NoNames),
            found: RefCell::default(),
            returns: RefCell::default(),
            bound: OnceCell::new(),
        })
    }

    /// Gives the image names: more known starts, and functions that are known not to return.
    #[must_use]
    pub fn with_names(mut self, names: Box<dyn Names + 'a>) -> Self {
        self.names = names;
        self
    }

    #[must_use]
    pub fn names(&self) -> &dyn Names {
        self.names.as_ref()
    }

    /// Bytes of a pointer.
    #[must_use]
    pub fn pointer_size(&self) -> usize {
        if self.pe.is_64 { 8 } else { 4 }
    }

    /// The RVA of an address inside the image.
    #[must_use]
    pub fn rva(&self, address: u64) -> Option<u32> {
        let rva = u32::try_from(address.checked_sub(self.base)?).ok()?;
        (rva < self.size).then_some(rva)
    }

    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.rva(address).is_some()
    }

    /// The address of `length` bytes at an RVA: the only way from an RVA to an address.
    #[must_use]
    pub fn checked_va(&self, rva: u32, length: u32) -> Option<u64> {
        let end = rva.checked_add(length)?;
        (end <= self.size).then(|| self.base + u64::from(rva))
    }

    /// The section an address lies in.
    #[must_use]
    pub fn section_at(&self, address: u64) -> Option<&Section> {
        self.pe.section_at(self.rva(address)?)
    }

    #[must_use]
    pub fn is_executable(&self, address: u64) -> bool {
        self.section_at(address).is_some_and(Section::is_executable)
    }

    /// Whether the address is in a section that cannot be written: constants may be read there.
    #[must_use]
    pub fn is_constant(&self, address: u64) -> bool {
        self.section_at(address).is_some_and(|section| !section.is_writable())
    }

    /// Fills `buffer` from `address`; bytes read before the first hole. Never past the image.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.rva(address).map_or(0, |rva| self.read_rva(rva, buffer))
    }

    /// `length` bytes, `None` unless all are readable.
    #[must_use]
    pub fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let left = usize::try_from(self.size - self.rva(address)?).ok()?;
        if length > left {
            return None;
        }
        let mut out = vec![0; length];
        (self.read(address, &mut out) == length).then_some(out)
    }

    /// A little-endian value of `size` bytes (1..=8).
    #[must_use]
    pub fn value(&self, address: u64, size: usize) -> Option<u64> {
        let mut raw = [0; 8];
        let part = raw.get_mut(..size)?;
        (self.read(address, part) == size).then(|| u64::from_le_bytes(raw))
    }

    /// A value in a section that cannot be written: `None` elsewhere, and where it cannot be read.
    #[must_use]
    pub fn constant(&self, address: u64, size: usize) -> Option<u64> {
        let last = address.checked_add(u64::try_from(size).ok()?.checked_sub(1)?)?;
        if self.is_constant(address) && self.is_constant(last) { self.value(address, size) } else { None }
    }

    /// Where the bytes read so far came from; `None` when none were.
    #[must_use]
    pub fn bytes_from(&self) -> Option<BytesFrom> {
        match (self.from_target.get(), self.from_file.get()) {
            (true, true) => Some(BytesFrom::Mixed),
            (true, false) => Some(BytesFrom::Target),
            (false, true) => Some(BytesFrom::ImageFile),
            (false, false) => None,
        }
    }

    /// Where the page of an RVA came from; `None` where it cannot be read.
    #[must_use]
    pub fn origin_of(&self, rva: u32) -> Option<Origin> {
        self.read_rva(rva, &mut [0]);
        self.pages.borrow().get(&(rva / PAGE)).filter(|page| !page.bytes.is_empty()).map(|page| page.origin)
    }

    /// Whether the image is a file, not something loaded.
    #[must_use]
    pub fn is_a_file(&self) -> bool {
        self.source.is_a_file()
    }

    /// The record for `images[]`, with where its bytes came from.
    #[must_use]
    pub fn image_record(&self) -> ImageRecord {
        ImageRecord { bytes_from: self.bytes_from(), ..self.record.clone() }
    }

    /// The imports, read once.
    #[must_use]
    pub fn imports(&self) -> &Imports {
        self.imports.get_or_init(|| Imports::read(self))
    }

    /// The unwind records, read once.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        self.regions.get_or_init(|| Regions::read(self))
    }

    /// Starts of functions that need no decoding, found once.
    #[must_use]
    pub fn starts(&self) -> &KnownStarts {
        self.starts.get_or_init(|| KnownStarts::read(self))
    }

    /// Every base relocation, read once, by RVA.
    #[must_use]
    pub fn relocations(&self) -> &[Relocation] {
        self.relocations.get_or_init(|| {
            let mut all = self.pe.relocations(self, 0, u32::MAX);
            all.truncate(MAX_RELOCATIONS);
            all.sort_by_key(|relocation| relocation.rva);
            all.dedup();
            all
        })
    }

    /// Notes that a function starts at `address`: a direct call goes there, or code computes it.
    pub fn note_start(&self, address: u64) {
        if self.is_executable(address) {
            self.found.borrow_mut().insert(address);
        }
    }

    /// Starts noted so far and these, by address: what the image knows from now on.
    pub(crate) fn settle_starts(&self, more: &[u64]) -> Rc<[u64]> {
        self.found.borrow_mut().settle(more)
    }

    /// Starts noted so far, by address.
    #[must_use]
    pub fn found_starts(&self) -> Vec<u64> {
        self.found.borrow().all()
    }

    /// Takes over the starts an earlier walk of the same image found. Extents of functions without
    /// unwind records, and what is a tail jump, depend on them.
    pub fn learn(&self, index: &crate::references::ImageIndex) {
        self.found.borrow_mut().learn(&index.starts);
    }

    /// Whether a function is known to start at `address`: a sure start, or called or computed by code
    /// decoded so far. The begin of an unwind record alone does not make one: cold parts have their
    /// own.
    #[must_use]
    pub fn is_start(&self, address: u64) -> bool {
        self.starts().sure.contains(&address) || self.found.borrow().contains(address)
    }

    /// The next known start after `address`.
    #[must_use]
    pub fn next_start(&self, address: u64) -> Option<u64> {
        use std::ops::Bound::{Excluded, Unbounded};
        let sure = self.starts().sure.range((Excluded(address), Unbounded)).next().copied();
        let called = self.found.borrow().after(address);
        sure.into_iter().chain(called).min()
    }

    /// The last known start at or before `address`.
    #[must_use]
    pub fn start_before(&self, address: u64) -> Option<u64> {
        let sure = self.starts().sure.range(..=address).next_back().copied();
        let called = self.found.borrow().up_to(address);
        sure.into_iter().chain(called).max()
    }

    /// The import whose slot the loader has bound to `address`: on a live target with import
    /// optimisation a direct call goes there.
    #[must_use]
    pub fn bound_import(&self, address: u64) -> Option<&ImportSlot> {
        let bound = self.bound.get_or_init(|| {
            let size = self.pointer_size();
            let value = |slot: &ImportSlot| self.value(slot.slot, size).filter(|v| !self.contains(*v));
            let slots = self.imports().slots.iter().enumerate();
            slots.filter_map(|(index, slot)| Some((value(slot)?, index))).collect()
        });
        self.imports().slots.get(*bound.get(&address)?)
    }

    /// As [`read_rva`](ImageSource::read_rva), for bytes the caller keeps: of a file they are not
    /// cached once more.
    pub(crate) fn read_past_cache(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let wanted = buffer.len().min((self.size - rva.min(self.size)) as usize);
        if self.source.is_a_file() {
            let got = self.source.read_page(rva, &mut buffer[..wanted]);
            if wanted > 0 && got.read >= wanted {
                self.note_origin(got.origin);
                return wanted;
            }
        }
        self.read_rva(rva, buffer)
    }

    fn note_origin(&self, origin: Origin) {
        if matches!(origin, Origin::Target | Origin::Both) {
            self.from_target.set(true);
        }
        if matches!(origin, Origin::ImageFile | Origin::Both) {
            self.from_file.set(true);
        }
    }

    fn page(&self, rva: u32, mut visit: impl FnMut(&[u8])) {
        let number = rva / PAGE;
        if let Some(page) = self.pages.borrow().get(&number) {
            return visit(&page.bytes);
        }
        let start = number * PAGE;
        let length = (self.size - start.min(self.size)).min(PAGE) as usize;
        let mut buffer = vec![0; length];
        let got = self.source.read_page(start, &mut buffer);
        buffer.truncate(got.read.min(length));
        if !buffer.is_empty() {
            self.note_origin(got.origin);
        }
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= MAX_PAGES {
            pages.clear();
        }
        visit(&buffer);
        pages.insert(number, Page { bytes: buffer.into(), origin: got.origin });
    }
}

impl ImageSource for CodeImage<'_> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = u32::try_from(done).ok().and_then(|d| rva.checked_add(d)) else { break };
            if at >= self.size {
                break;
            }
            let within = (at % PAGE) as usize;
            let rest = &mut buffer[done..];
            let mut count = 0;
            let mut whole = false;
            self.page(at, |page| {
                let part = page.get(within..).unwrap_or_default();
                count = part.len().min(rest.len());
                rest[..count].copy_from_slice(&part[..count]);
                whole = page.len() == PAGE as usize;
            });
            done += count;
            if count == 0 || (!whole && done < buffer.len()) {
                break;
            }
        }
        done
    }
}

/// `NumberOfSections` as the file header has it.
fn section_count(source: &dyn ImageSource) -> Option<u16> {
    use pe::ImageSourceExt as _;
    source.u16(source.u32(0x3c)?.checked_add(6)?)
}

/// The uncached source, for the headers.
struct Raw<'s> {
    source: &'s dyn PageSource,
}

impl ImageSource for Raw<'_> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.source.read_page(rva, buffer).read.min(buffer.len())
    }
}
