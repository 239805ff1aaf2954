//! The image a replay runs: its bytes as loaded at a base.

use std::rc::Rc;

use pe::{FileImage, ImageSource, Pe};
use target::Machine;

/// An image placed at a base. Its bytes come through `bytes`, already relocated to it.
#[derive(Clone)]
pub struct PlacedImage {
    pub pe: Rc<Pe>,
    pub bytes: Rc<dyn ImageSource>,
    pub base: u64,
    pub machine: Machine,
    /// File name without folder and extension, for made-up paths (`\Driver\NAME`).
    pub name: String,
}

impl PlacedImage {
    /// `None` for a machine whose code is not run, or an image that does not fit at `base`.
    #[must_use]
    pub fn new(pe: Rc<Pe>, bytes: Rc<dyn ImageSource>, base: u64, name: &str) -> Option<Self> {
        let machine = pe.machine.filter(|m| *m != Machine::Arm32)?;
        let end = base.checked_add(u64::from(pe.size_of_image))?;
        if machine == Machine::X86 && end > 1 << 32 || pe.is_64 == (machine == Machine::X86) {
            return None;
        }
        let name = name.rsplit(['\\', '/']).next().unwrap_or(name);
        let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        Some(Self { pe, bytes, base, machine, name: name.chars().take(64).collect() })
    }

    /// An image file at `base`, its preferred one if `None`.
    #[must_use]
    pub fn of_file<B: AsRef<[u8]> + 'static>(
        file: Rc<FileImage<B>>,
        base: Option<u64>,
        name: &str,
    ) -> Option<Self> {
        let pe = Rc::new(file.pe().clone());
        let base = base.unwrap_or(pe.image_base);
        Self::new(pe, Rc::new(Relocated { file, base }), base, name)
    }

    /// Bytes of a pointer.
    #[must_use]
    pub fn pointer(&self) -> u32 {
        if self.pe.is_64 { 8 } else { 4 }
    }

    /// Whether `address` is inside.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < u64::from(self.pe.size_of_image)
    }

    pub(crate) fn rva(&self, address: u64) -> Option<u32> {
        self.contains(address).then(|| u32::try_from(address - self.base).ok())?
    }
}

struct Relocated<B> {
    file: Rc<FileImage<B>>,
    base: u64,
}

impl<B: AsRef<[u8]>> ImageSource for Relocated<B> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.file.read_rva_at(rva, self.base, buffer)
    }
}
