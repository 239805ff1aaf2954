//! A walker over built stacks and images.

use std::rc::Rc;

use dumpforge::{BuiltStack, Image};
use pe::{DirectoryIndex, FileImage};
use target::{Halt, Memory, RegionMemory};
use unwind::{RawStack, UnwindImage, UnwindSource};

pub(crate) struct World {
    memory: RegionMemory,
    images: Vec<(u64, Image)>,
}

impl World {
    pub(crate) fn new(stack: &BuiltStack, images: &[(u64, &Image)]) -> Self {
        let mut memory = RegionMemory::new();
        memory.add(stack.low, stack.bytes.clone());
        for (base, image) in images {
            memory.add(*base, image.mapped_at(*base));
        }
        Self { memory, images: images.iter().map(|(base, image)| (*base, (*image).clone())).collect() }
    }

    pub(crate) fn walk(&self, stack: &BuiltStack) -> RawStack {
        unwind::walk(self, &stack.context, 64, &Halt::unbounded())
    }

    /// Walks and compares with what the builder says, registers included.
    pub(crate) fn check(&self, stack: &BuiltStack) {
        let walked = self.walk(stack);
        let found: Vec<_> = walked.frames.iter().map(|f| (f.context.ip(), f.context.sp())).collect();
        let expected: Vec<_> = stack.frames.iter().map(|f| (f.ip, f.sp)).collect();
        assert_eq!(found, expected, "{:?} {:?}", walked.end, walked.limitations);
        for (index, (walked, expected)) in walked.frames.iter().zip(&stack.frames).enumerate() {
            for &(number, value) in &expected.registers {
                assert_eq!(walked.context.get(number), Some(value), "frame {index} register {number}");
            }
        }
    }
}

impl UnwindSource for World {
    fn memory(&self) -> &dyn Memory {
        &self.memory
    }
    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        let (base, image) =
            self.images.iter().find(|(base, image)| address.wrapping_sub(*base) < u64::from(image.size))?;
        let source = FileImage::new(image.file.clone()).ok()?;
        Some(UnwindImage {
            base: *base,
            size: image.size.into(),
            machine: image.machine,
            exception_directory: source.pe().directory(DirectoryIndex::Exception).unwrap_or_default(),
            source: Rc::new(source),
        })
    }
    fn is_executable(&self, address: u64) -> Option<bool> {
        let image = self.image_at(address)?;
        let (_, own) = self.images.iter().find(|(base, _)| *base == image.base)?;
        own.headers().ok()?.is_executable(image.rva(address)?)
    }
}
