//! Objects of the made-up kernel (layouts: wdm.h, ntddk.h).

use super::World;
use crate::record::FastIo;
use target::{Address, Machine};

/// Addresses of what exists from the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Objects {
    pub(crate) driver: u64,
    pub(crate) extension: u64,
    pub(crate) registry_path: u64,
    /// A thread, process or any other object nobody looks into.
    pub(crate) thing: u64,
}

/// `IRP_MJ_MAXIMUM_FUNCTION + 1`.
pub(crate) const MAJORS: u64 = 28;

const KUSER64: u64 = 0xffff_f780_0000_0000;
const KUSER32: u64 = 0xffdf_0000;

impl World {
    pub(crate) fn make_objects(&mut self) {
        let thing = self.allocate(0x1000);
        self.objects.thing = thing;
        self.shared_data();
        self.processor_block();
        self.driver_object();
        let name = self.image.name.clone();
        let path = format!("\\REGISTRY\\MACHINE\\SYSTEM\\ControlSet001\\Services\\{name}");
        self.objects.registry_path = self.new_string(&path);
    }

    /// A `UNICODE_STRING` and its buffer, NUL-terminated.
    pub(crate) fn new_string(&mut self, text: &str) -> u64 {
        let at = self.allocate(16);
        self.put_string(at, text);
        at
    }

    /// Fills a `UNICODE_STRING` with a fresh buffer.
    pub(crate) fn put_string(&mut self, at: u64, text: &str) {
        let units: Vec<u8> = text.encode_utf16().take(0x7ff0).flat_map(u16::to_le_bytes).collect();
        let buffer = self.allocate(units.len() as u64 + 2);
        let _ = self.emulator.memory.write_bytes(buffer, &units);
        self.write(at, 2, units.len() as u64);
        self.write(at + 2, 2, units.len() as u64 + 2);
        let pointer_at = at + self.either(8, 4);
        self.write_pointer(pointer_at, buffer);
    }

    /// `KUSER_SHARED_DATA`: a clock that has run, version 10.0.19045.
    fn shared_data(&mut self) {
        let base = self.either(KUSER64, KUSER32);
        self.emulator.memory.map_zero(base, 0x1000);
        let fields: [(u64, u32, u64); 9] = [
            (0x04, 4, 0x0fa0_0000),
            (0x08, 8, 0x0000_0123_4567_89ab),
            (0x14, 8, 0x01da_5bd1_e995_a3c7),
            (0x260, 4, 19045),
            (0x26c, 4, 10),
            (0x270, 4, 0),
            (0x2d4, 1, 0),
            (0x320, 8, 0x0012_3457),
            (0x328, 4, 0),
        ];
        for (offset, bytes, value) in fields {
            self.write(base + offset, bytes, value);
        }
    }

    /// `KPCR` as far as inlined `KeGetCurrentThread` and the like look.
    fn processor_block(&mut self) {
        let block = self.allocate(0x4000);
        let thread = self.objects.thing;
        let known = emulate::Value::known;
        match self.image.machine {
            Machine::X86 => {
                self.write(block, 4, 0xffff_ffff);
                self.write(block + 0x18, 4, block);
                self.write(block + 0x1c, 4, block);
                self.write(block + 0x124, 4, thread);
                self.emulator.registers.fs_base = known(block);
            }
            Machine::X64 => {
                self.write(block + 0x18, 8, block);
                self.write(block + 0x30, 8, block);
                self.write(block + 0x188, 8, thread);
                self.emulator.registers.gs_base = known(block);
            }
            _ => {
                self.write(block + 0x18, 8, block);
                self.write(block + 0x988, 8, thread);
                self.emulator.registers.general[18] = known(block);
            }
        }
    }

    fn driver_object(&mut self) {
        let size = self.either(0x150, 0xa8);
        let driver = self.allocate(size);
        let extension = self.allocate(0x80);
        let section = self.allocate(0x120);
        (self.objects.driver, self.objects.extension) = (driver, extension);
        let (base, image_size) = (self.image.base, u64::from(self.image.pe.size_of_image));
        self.write(driver, 2, 4);
        self.write(driver + 2, 2, size);
        let field = |wide: u64, narrow: u64| driver + self.either(wide, narrow);
        let (start, length, link, ext, name, hardware, init) = (
            field(0x18, 0x0c),
            field(0x20, 0x10),
            field(0x28, 0x14),
            field(0x30, 0x18),
            field(0x38, 0x1c),
            field(0x48, 0x24),
            field(0x58, 0x2c),
        );
        let table = field(0x70, 0x38);
        self.write_pointer(start, base);
        self.write(length, 4, image_size);
        self.write_pointer(link, section);
        self.write_pointer(ext, extension);
        let driver_name = format!("\\Driver\\{}", self.image.name);
        self.put_string(name, &driver_name);
        let database = self.new_string("\\REGISTRY\\MACHINE\\HARDWARE\\DESCRIPTION\\SYSTEM");
        self.write_pointer(hardware, database);
        let entry = base.wrapping_add(u64::from(self.image.pe.entry_point));
        self.write_pointer(init, entry);
        let (sentinel, pointer) = (self.sentinel(), u64::from(self.pointer()));
        for major in 0..MAJORS {
            self.write_pointer(table + major * pointer, sentinel);
        }
        self.write_pointer(extension, driver);
        let service = extension + self.either(0x18, 0x0c);
        let service_name = self.image.name.clone();
        self.put_string(service, &service_name);
        self.loader_entry(section);
    }

    /// `KLDR_DATA_TABLE_ENTRY`, alone in its list.
    fn loader_entry(&mut self, at: u64) {
        let pointer = u64::from(self.pointer());
        self.write_pointer(at, at);
        self.write_pointer(at + pointer, at);
        let (base, size, full, short) = (
            at + self.either(0x30, 0x18),
            at + self.either(0x40, 0x20),
            at + self.either(0x48, 0x24),
            at + self.either(0x58, 0x2c),
        );
        let (image_base, image_size) = (self.image.base, u64::from(self.image.pe.size_of_image));
        self.write_pointer(base, image_base);
        self.write(size, 4, image_size);
        let file = format!("{}.sys", self.image.name);
        self.put_string(full, &format!("\\SystemRoot\\System32\\drivers\\{file}"));
        self.put_string(short, &file);
    }

    /// `MajorFunction`; `None` where it is as it was.
    pub(crate) fn dispatch(&mut self) -> Vec<Option<Address>> {
        let table = self.objects.driver + self.either(0x70, 0x38);
        let pointer = u64::from(self.pointer());
        let sentinel = self.sentinel();
        (0..MAJORS)
            .map(|major| Some(self.read_pointer(table + major * pointer)))
            .map(|address| address.filter(|&a| a != sentinel && a != 0).map(Address))
            .collect()
    }

    /// A routine of the driver object.
    pub(crate) fn driver_field(&mut self, wide: u64, narrow: u64) -> Option<Address> {
        let at = self.objects.driver + self.either(wide, narrow);
        Some(Address(self.read_pointer(at))).filter(|a| a.0 != 0)
    }

    pub(crate) fn add_device(&mut self) -> Option<Address> {
        let at = self.objects.extension + self.either(8, 4);
        Some(Address(self.read_pointer(at))).filter(|a| a.0 != 0)
    }

    pub(crate) fn fast_io(&mut self) -> Option<FastIo> {
        let table = self.driver_field(0x50, 0x28)?;
        let at = table.0.checked_add(self.either(0x50, 0x28))?;
        let device_control = Some(Address(self.read_pointer(at))).filter(|a| a.0 != 0);
        Some(FastIo { table, device_control })
    }
}
