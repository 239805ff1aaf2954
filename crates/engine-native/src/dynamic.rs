//! Function tables of generated code that a minidump carries (its FunctionTable stream).

use std::rc::Rc;

use pe::ImageSource;
use target::{Machine, Memory, Space};
use unwind::UnwindImage;

use crate::core::Core;
use crate::raw::RawMemory;

/// Where a table's entries appear in the image made of it: behind all code it can describe.
const TABLE_RVA: u32 = 0xf000_0000;

/// A table's entries at [`TABLE_RVA`], everything below it from memory at the table's base.
struct TableImage {
    core: Rc<Core>,
    base: u64,
    entries: Vec<u8>,
}

impl ImageSource for TableImage {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        if let Some(offset) = rva.checked_sub(TABLE_RVA) {
            let rest = self.entries.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            return count;
        }
        match self.base.checked_add(u64::from(rva)) {
            Some(address) => self.core.read(Space::Virtual, address, buffer).read.min(buffer.len()),
            None => 0,
        }
    }
}

/// The registered table that covers `address`, as an image to unwind by.
pub(crate) fn image_at(core: &Rc<Core>, address: u64) -> Option<UnwindImage> {
    let RawMemory::Minidump(dump) = &core.raw else { return None };
    let expected = match core.machine {
        Machine::X64 => 12,
        Machine::Arm64 => 8,
        Machine::X86 | Machine::Arm32 => return None,
    };
    let tables = dump.function_tables();
    let table = tables.iter().find(|t| {
        t.entry_size == expected && address >= t.minimum && address < t.maximum && t.base <= address
    })?;
    let size = u32::try_from(table.entries.len()).ok()?;
    Some(UnwindImage {
        base: table.base,
        size: u64::from(TABLE_RVA),
        machine: core.machine,
        exception_directory: (TABLE_RVA, size),
        source: Rc::new(TableImage {
            core: Rc::clone(core),
            base: table.base,
            entries: table.entries.to_vec(),
        }),
    })
}
