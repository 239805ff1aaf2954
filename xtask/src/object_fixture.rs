//! The object namespace of `fixtures/kernel.dmp`: `\Driver\faultdrv`, its device, the link to it and a
//! request on its way to it. Offsets are those of fixtures/src/nt_objects.c and of the driver ABI.

use anyhow::Result;
use dumpforge::KernelForge;

use crate::kernel_fixture::Module;

const COOKIE: u8 = 0x5c;
const NAME_INFO: u64 = 0x20;
const HEADER: u64 = 0x30;
const DIRECTORY_SIZE: u64 = 0x158;
const BUCKETS: u64 = 37;

const TYPES: [(&str, u8); 4] = [("Directory", 3), ("SymbolicLink", 4), ("Device", 0x1f), ("Driver", 0x20)];

/// Owner SYSTEM; SYSTEM and Administrators all access, Everyone read and write: the planted fault's
/// gate stands open.
const DESCRIPTOR: &[u8] = &[
    1, 0, 4, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, // header
    1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0, // owner
    2, 0, 72, 0, 3, 0, 0, 0, // DACL of three
    0, 0, 20, 0, 0xff, 1, 0x1f, 0, 1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0, //
    0, 0, 24, 0, 0xff, 1, 0x1f, 0, 1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0, //
    0, 0, 20, 0, 0x9f, 1, 0x12, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
];

struct Objects<'a> {
    forge: &'a mut KernelForge,
    filled: u64,
}

impl Objects<'_> {
    fn string(&mut self, at: u64, text: &str) {
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let buffer = self.forge.allocate(bytes.len() as u64 + 2);
        self.forge.write(buffer, &bytes);
        let length = u16::try_from(bytes.len()).unwrap_or_default().to_le_bytes();
        self.forge.write(at, &length);
        self.forge.write(at + 2, &length);
        self.forge.write_u64(at + 8, buffer);
    }

    /// A named object: name information, header, body. Its body.
    fn object(&mut self, kind: &str, name: &str, size: u64) -> u64 {
        let info = self.forge.allocate(NAME_INFO + HEADER + size);
        let header = info + NAME_INFO;
        let index = TYPES.iter().find(|(known, _)| *known == kind).map_or(0, |(_, index)| *index);
        self.forge.write(header + 0x18, &[index ^ COOKIE ^ header.to_le_bytes()[1], 0, 2]);
        self.string(info + 8, name);
        header + HEADER
    }

    fn directory(&mut self, name: &str) -> u64 {
        self.object("Directory", name, DIRECTORY_SIZE)
    }

    fn add(&mut self, directory: u64, object: u64) {
        let entry = self.forge.allocate(0x18);
        let slot = directory + self.filled % BUCKETS * 8;
        self.filled += 1;
        let old = self.forge.read(slot, 8);
        self.forge.write(entry, &old);
        self.forge.write_u64(entry + 8, object);
        self.forge.write_u64(slot, entry);
    }
}

/// Lays the objects out; the address of the request.
pub(crate) fn build(forge: &mut KernelForge, kernel: &Module, driver: &Module) -> Result<u64> {
    let global = |name: &str| Ok::<u64, anyhow::Error>(kernel.base + u64::from(kernel.rva(name)?));
    let mut objects = Objects { forge, filled: 0 };
    for (name, index) in TYPES {
        let object_type = objects.forge.allocate(0xd8);
        objects.string(object_type + 0x10, name);
        objects.forge.write(object_type + 0x28, &[index]);
        objects.forge.write_u64(global("ObTypeIndexTable")? + u64::from(index) * 8, object_type);
    }
    objects.forge.write(global("ObHeaderCookie")?, &[COOKIE]);
    // Creator information lies between the header and the name when both are there.
    objects.forge.write(global("ObpInfoMaskToOffset")?, &[0, 0x20, 0x20, 0x40]);
    let root = objects.directory("\\");
    objects.forge.write_u64(global("ObpRootDirectoryObject")?, root);
    let (devices, drivers, links) =
        (objects.directory("Device"), objects.directory("Driver"), objects.directory("GLOBAL??"));
    for directory in [devices, drivers, links] {
        objects.add(root, directory);
    }
    let driver_object = objects.object("Driver", "faultdrv", 0x150);
    let device = device_object(&mut objects, driver_object);
    objects.add(drivers, driver_object);
    objects.add(devices, device);
    fill_driver(&mut objects, driver_object, device, driver, global("IopInvalidDeviceRequest")?)?;
    let link = objects.object("SymbolicLink", "FaultDrv", 0x28);
    objects.string(link + 8, "\\Device\\FaultDrv");
    objects.add(links, link);
    Ok(request(&mut objects, device))
}

fn device_object(objects: &mut Objects<'_>, driver: u64) -> u64 {
    let device = objects.object("Device", "FaultDrv", 0x150);
    let descriptor = objects.forge.allocate(DESCRIPTOR.len() as u64);
    objects.forge.write(descriptor, DESCRIPTOR);
    let forge = &mut *objects.forge;
    forge.write(device, &[3, 0, 0x50, 1, 1, 0, 0, 0]);
    forge.write_u64(device + 8, driver);
    // DO_BUFFERED_IO and DO_DEVICE_HAS_NAME; no FILE_DEVICE_SECURE_OPEN.
    forge.write(device + 0x30, &[0x44, 0, 0, 0]);
    forge.write(device + 0x48, &[0x22, 0, 0, 0, 1]);
    forge.write_u64(device + 0x110, descriptor);
    let extension = forge.allocate(0x70);
    forge.write_u64(extension + 8, device);
    forge.write_u64(device + 0x138, extension);
    device
}

fn fill_driver(
    objects: &mut Objects<'_>,
    object: u64,
    device: u64,
    driver: &Module,
    default: u64,
) -> Result<()> {
    objects.string(object + 0x38, "\\Driver\\faultdrv");
    let at = |name: &str| Ok::<u64, anyhow::Error>(driver.base + u64::from(driver.rva(name)?));
    let forge = &mut *objects.forge;
    forge.write(object, &[4, 0, 0x50, 1]);
    forge.write_u64(object + 8, device);
    // DRVO_LEGACY_DRIVER and DRVO_INITIALIZED.
    forge.write(object + 0x10, &[0x12, 0, 0, 0]);
    forge.write_u64(object + 0x18, driver.base);
    forge.write(object + 0x20, &driver.image.size.to_le_bytes());
    forge.write_u64(object + 0x58, at("DriverEntry")?);
    forge.write_u64(object + 0x68, at("Unload")?);
    for major in 0..28u64 {
        let handler = if matches!(major, 0 | 2 | 0xe) { at("DispatchDeviceControl")? } else { default };
        forge.write_u64(object + 0x70 + major * 8, handler);
    }
    Ok(())
}

/// Control code 0x222003 from user mode, 16 bytes in and out, at its only stack location.
fn request(objects: &mut Objects<'_>, device: u64) -> u64 {
    let forge = &mut *objects.forge;
    let irp = forge.allocate(0xd0 + 0x48);
    forge.write(irp, &[6, 0, 0x18, 1]);
    forge.write(irp + 0x40, &[1, 0, 1, 1]);
    forge.write_u64(irp + 0x70, 0x7ffe_1000);
    let location = irp + 0xd0;
    forge.write_u64(irp + 0xb8, location);
    forge.write(location, &[0xe, 0, 0, 0]);
    forge.write_u64(location + 8, 16);
    forge.write_u64(location + 0x10, 16);
    forge.write(location + 0x18, &0x22_2003u32.to_le_bytes());
    forge.write_u64(location + 0x20, 0x7ffe_2000);
    forge.write_u64(location + 0x28, device);
    irp
}
