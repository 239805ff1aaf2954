//! Devices, links, driver objects.

use target::{Address, Code, Guid};

use super::{Answer, MAX_FINDINGS, World};
use crate::record::{Device, Link};

const NOT_FOUND: u64 = 0xc000_0034;

impl World {
    pub(crate) fn io_call(&mut self, name: &str) -> Option<Answer> {
        let value = match name {
            "IoCreateDevice" => self.create_device(None),
            "IoCreateDeviceSecure" | "WdmlibIoCreateDeviceSecure" => self.create_device(Some(())),
            "WdfVersionBind" => self.bind_framework(),
            "IoDeleteDevice" => {
                let at = self.argument(0);
                self.found.devices.iter_mut().filter(|(d, _)| *d == at).for_each(|(_, d)| d.deleted = true);
                0
            }
            "IoCreateSymbolicLink" | "IoCreateUnprotectedSymbolicLink" | "IoCreateSymbolicLink2" => {
                let (path, target) = (self.argument(0), self.argument(1));
                let (path, target) = (self.unicode_string(path), self.unicode_string(target));
                self.add_link(path, target);
                0
            }
            "IoDeleteSymbolicLink" => {
                let path = self.argument(0);
                let path = self.unicode_string(path);
                self.found
                    .links
                    .iter_mut()
                    .filter(|l| Some(&l.path) == path.as_ref())
                    .for_each(|l| l.deleted = true);
                0
            }
            "IoAttachDeviceToDeviceStack" => self.argument(1),
            "IoAttachDeviceToDeviceStackSafe" | "IoAttachDevice" => {
                let (target, out) = (self.argument(1), self.argument(2));
                self.write_pointer(out, target);
                0
            }
            "IoGetDeviceObjectPointer" | "IoGetDeviceInterfaces" | "ObOpenObjectByName" => NOT_FOUND,
            "IoRegisterDeviceInterface" => {
                let out = self.argument(3);
                self.put_string(out, "\\??\\ROOT#REPLAY#0000#{00000000-0000-0000-0000-000000000000}");
                0
            }
            "IoAllocateDriverObjectExtension" => {
                let (id, size, out) = (self.argument(1), self.argument(2), self.argument(3));
                let extension = self.allocate(size & 0xffff_ffff);
                self.handles.insert(id ^ EXTENSION, extension);
                self.write_pointer(out, extension);
                0
            }
            "IoGetDriverObjectExtension" => {
                let id = self.argument(1);
                self.handles.get(&(id ^ EXTENSION)).copied().unwrap_or(0)
            }
            "IoGetDeviceProperty" => 0xc000_0023,
            "IoIs32bitProcess" => 0,
            "IoCreateFile"
            | "ZwCreateFile"
            | "ZwOpenFile"
            | "ZwOpenKey"
            | "ZwOpenKeyEx"
            | "ZwQueryValueKey"
            | "ZwQueryKey"
            | "ZwEnumerateKey"
            | "ZwEnumerateValueKey"
            | "RtlQueryRegistryValues"
            | "RtlQueryRegistryValuesEx"
            | "RtlCheckRegistryKey"
            | "IoOpenDeviceRegistryKey"
            | "IoOpenDriverRegistryKey"
            | "ZwOpenSection"
            | "ZwOpenEvent"
            | "ZwOpenDirectoryObject"
            | "ZwOpenSymbolicLinkObject" => NOT_FOUND,
            "ObReferenceObjectByHandle" | "ObReferenceObjectByHandleWithTag" => {
                let handle = self.argument(0);
                let object = self.handles.get(&handle).copied().unwrap_or(self.objects.thing);
                let out = self.argument(if name.ends_with("Tag") { 5 } else { 4 });
                self.write_pointer(out, object);
                0
            }
            "ObReferenceObjectByName" => NOT_FOUND,
            "ObOpenObjectByPointer" => {
                let (object, out) = (self.argument(0), self.argument(6));
                let handle = self.new_handle(object);
                self.write_pointer(out, handle);
                0
            }
            _ => return None,
        };
        Some(Answer::Value(value))
    }

    pub(crate) fn new_handle(&mut self, object: u64) -> u64 {
        let handle = 0x1000 + 4 * (self.handles.len() as u64 & 0xffff);
        self.handles.insert(handle, object);
        handle
    }

    pub(crate) fn add_link(&mut self, path: Option<String>, target: Option<String>) {
        if let (Some(path), Some(target)) = (path, target)
            && self.found.links.len() < MAX_FINDINGS
        {
            let from = self.phase;
            self.found.links.push(Link { path, target, deleted: false, from });
        }
    }

    /// `(DriverObject, ExtensionSize, Name, Type, Characteristics, Exclusive[, Sddl, ClassGuid], &Device)`.
    fn create_device(&mut self, secure: Option<()>) -> u64 {
        let (extension_size, name) = (self.argument32(1), self.argument(2));
        let (kind, characteristics) = (self.argument32(3), self.argument32(4));
        let exclusive = self.argument(5) & 0xff != 0;
        let name = self.unicode_string(name);
        let (sddl, class_guid) = match secure {
            Some(()) => {
                let (sddl, guid) = (self.argument(6), self.argument(7));
                (self.unicode_string(sddl), self.guid(guid))
            }
            None => (None, None),
        };
        let out = self.argument(if secure.is_some() { 8 } else { 6 });
        let at = self.device_object(kind, characteristics, exclusive, name.is_some(), extension_size);
        self.write_pointer(out, at);
        let device = Device {
            name,
            device_type: Code(kind),
            characteristics: Code(characteristics),
            exclusive,
            sddl,
            class_guid,
            security_descriptor: None,
            deleted: false,
            from: self.phase,
        };
        self.add_device_found(at, device);
        0
    }

    pub(crate) fn add_device_found(&mut self, at: u64, device: Device) {
        if self.found.devices.len() < MAX_FINDINGS {
            self.found.devices.push((at, device));
        }
    }

    /// A `DEVICE_OBJECT` of the driver, first in its list.
    pub(crate) fn device_object(
        &mut self,
        kind: u32,
        characteristics: u32,
        exclusive: bool,
        named: bool,
        extension_size: u32,
    ) -> u64 {
        let size = self.either(0x150, 0xb8);
        let at = self.allocate(size);
        let extension = if extension_size == 0 { 0 } else { self.allocate(u64::from(extension_size)) };
        let driver = self.objects.driver;
        let field = |wide: u64, narrow: u64| at + self.either(wide, narrow);
        let (owner, next, flags, chars, ext, kind_at, stack) = (
            field(8, 8),
            field(0x10, 0xc),
            field(0x30, 0x1c),
            field(0x34, 0x20),
            field(0x40, 0x28),
            field(0x48, 0x2c),
            field(0x4c, 0x30),
        );
        let first = driver + self.either(8, 4);
        let old = self.read_pointer(first);
        self.write(at, 2, 3);
        self.write(at + 2, 2, size + u64::from(extension_size & 0xff00));
        self.write_pointer(owner, driver);
        self.write_pointer(next, old);
        // Initialising, exclusive, named.
        let bits = 0x80 | if exclusive { 8 } else { 0 } | if named { 0x40 } else { 0 };
        self.write(flags, 4, bits);
        self.write(chars, 4, u64::from(characteristics));
        self.write_pointer(ext, extension);
        self.write(kind_at, 4, u64::from(kind));
        self.write(stack, 1, 1);
        self.write_pointer(first, at);
        at
    }

    pub(crate) fn guid(&mut self, at: u64) -> Option<Guid> {
        let mut bytes = [0; 16];
        (at != 0 && self.emulator.memory.read_bytes(at, &mut bytes).is_ok()).then_some(Guid(bytes))
    }

    /// A `UNICODE_STRING`, lossily; `None` for a null pointer or one that does not read.
    pub(crate) fn unicode_string(&mut self, at: u64) -> Option<String> {
        if at == 0 {
            return None;
        }
        let length = self.emulator.memory.read(at, 2).ok()?.get()? as usize & !1;
        let buffer_at = at.checked_add(self.either(8, 4))?;
        let buffer = self.read_pointer(buffer_at);
        if length == 0 {
            return (buffer != 0).then(String::new);
        }
        let mut bytes = vec![0; length];
        self.emulator.memory.read_bytes(buffer, &mut bytes).ok()?;
        Some(text_of(&bytes))
    }
}

/// Marks keys of driver object extensions among the handles.
const EXTENSION: u64 = 0xe417_0000_0000_0000;

/// UTF-16LE as text that can be printed.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|u| u16::from_le_bytes([u[0], u[1]])).collect();
    String::from_utf16_lossy(&units).replace(char::is_control, "\u{fffd}")
}

/// For callers that have an address to show.
pub(crate) fn address(value: u64) -> Option<Address> {
    (value != 0).then_some(Address(value))
}
