//! What the tests share: the data folder, and a target made of one image file and a sparse stack.
#![allow(dead_code, unreachable_pub)]

pub mod minidump;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pe::{DirectoryIndex, FileImage, ImageSource};
use target::{Machine, Memory, ReadOutcome, Space, Unreadable};
use unwind::{UnwindImage, UnwindSource};

pub use test_data::shared as data;

pub struct Image(pub FileImage<Vec<u8>>);
impl ImageSource for Image {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.0.read_rva(rva, buffer)
    }
}

/// Where the caller of an emulated function lies: outside the image, said to be code.
pub const RETURN_ADDRESS: u64 = 0x7777_0000;

/// One image loaded at its preferred base, and a stack byte by byte.
pub struct OneImage {
    pub image: Rc<Image>,
    pub base: u64,
    pub size: u64,
    pub machine: Machine,
    pub directory: (u32, u32),
    pub stack: RefCell<HashMap<u64, u8>>,
}

impl OneImage {
    pub fn open(path: &std::path::Path) -> Self {
        let image = FileImage::new(std::fs::read(path).unwrap()).unwrap();
        let pe = image.pe().clone();
        Self {
            base: pe.image_base,
            size: u64::from(pe.size_of_image),
            machine: pe.machine.unwrap(),
            directory: pe.directory(DirectoryIndex::Exception).unwrap_or((0, 0)),
            image: Rc::new(Image(image)),
            stack: RefCell::default(),
        }
    }
    pub fn write(&self, address: u64, value: u64, size: usize) {
        for (index, byte) in value.to_le_bytes()[..size].iter().enumerate() {
            self.stack.borrow_mut().insert(address.wrapping_add(index as u64), *byte);
        }
    }
    pub fn read_value(&self, address: u64) -> u64 {
        let mut raw = [0; 8];
        self.read(Space::Virtual, address, &mut raw);
        u64::from_le_bytes(raw)
    }
}

impl Memory for OneImage {
    fn read(&self, _: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        if address >= self.base && address - self.base < self.size {
            let read = self.image.read_rva((address - self.base) as u32, buffer);
            return if read == buffer.len() {
                ReadOutcome::complete(read)
            } else {
                ReadOutcome::stopped(read, Unreadable::NotInDump)
            };
        }
        let stack = self.stack.borrow();
        for (index, byte) in buffer.iter_mut().enumerate() {
            match stack.get(&address.wrapping_add(index as u64)) {
                Some(value) => *byte = *value,
                None => return ReadOutcome::stopped(index, Unreadable::NotInDump),
            }
        }
        ReadOutcome::complete(buffer.len())
    }
}

impl UnwindSource for OneImage {
    fn memory(&self) -> &dyn Memory {
        self
    }
    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        (address >= self.base && address - self.base < self.size).then(|| UnwindImage {
            base: self.base,
            size: self.size,
            machine: self.machine,
            exception_directory: self.directory,
            source: self.image.clone(),
        })
    }
    fn is_executable(&self, address: u64) -> Option<bool> {
        if address == RETURN_ADDRESS {
            return Some(true);
        }
        let rva = address.checked_sub(self.base).filter(|&d| d < self.size)?;
        self.image.0.pe().is_executable(rva as u32)
    }
}
