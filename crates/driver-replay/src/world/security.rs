//! Security descriptors a driver builds and sets (what wdmsec.lib does is linked into drivers).

use target::HexBytes;

use super::{Answer, World};

/// Largest descriptor kept.
const MAX_DESCRIPTOR: usize = 0x1_0000;
/// `SE_SELF_RELATIVE`, `SE_DACL_PRESENT`.
const SELF_RELATIVE: u64 = 0x8000;
const DACL_PRESENT: u64 = 4;

impl World {
    pub(crate) fn security_call(&mut self, name: &str) -> Option<Answer> {
        let value = match name {
            "ZwSetSecurityObject" => {
                let (handle, descriptor) = (self.argument(0), self.argument(2));
                let object = self.handles.get(&handle).copied().unwrap_or(handle);
                self.set_descriptor(object, descriptor);
                0
            }
            "ObSetSecurityObjectByPointer" => {
                let (object, descriptor) = (self.argument(0), self.argument(2));
                self.set_descriptor(object, descriptor);
                0
            }
            "RtlCreateSecurityDescriptor" => {
                let at = self.argument(0);
                for offset in (0..self.either(40, 20)).step_by(4) {
                    self.write(at.wrapping_add(offset), 4, 0);
                }
                self.write(at, 1, 1);
                0
            }
            "RtlSetDaclSecurityDescriptor" => {
                let (at, present, dacl) = (self.argument(0), self.argument(1) & 0xff != 0, self.argument(2));
                let control = self.read(at.wrapping_add(2), 2);
                let control = if present { control | DACL_PRESENT } else { control & !DACL_PRESENT };
                self.write(at.wrapping_add(2), 2, control);
                let slot = at.wrapping_add(self.either(0x20, 0x10));
                self.write_pointer(slot, if present { dacl } else { 0 });
                0
            }
            "RtlLengthSid" => {
                let sid = self.argument(0);
                8 + 4 * self.read(sid.wrapping_add(1), 1)
            }
            "RtlLengthRequiredSid" => 8 + 4 * (self.argument(0) & 0xff),
            "RtlCreateAcl" => {
                let (acl, size, revision) = (self.argument(0), self.argument(1), self.argument(2));
                self.write(acl, 1, revision);
                self.write(acl.wrapping_add(1), 1, 0);
                self.write(acl.wrapping_add(2), 2, size);
                self.write(acl.wrapping_add(4), 4, 0);
                0
            }
            "RtlAddAccessAllowedAce" => {
                let (acl, mask, sid) = (self.argument(0), self.argument(2), self.argument(3));
                self.add_allowed(acl, mask, sid)
            }
            "RtlValidSecurityDescriptor" | "RtlValidRelativeSecurityDescriptor" | "RtlValidSid" => 1,
            _ => return None,
        };
        Some(Answer::Value(value))
    }

    fn set_descriptor(&mut self, object: u64, at: u64) {
        let Some(bytes) = self.descriptor(at) else { return };
        for (_, device) in self.found.devices.iter_mut().filter(|(d, _)| *d == object) {
            device.security_descriptor = Some(HexBytes(bytes.clone()));
        }
    }

    fn bytes(&mut self, at: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length.min(MAX_DESCRIPTOR)];
        self.emulator.memory.read_bytes(at, &mut bytes).ok()?;
        Some(bytes)
    }

    fn sid(&mut self, at: u64) -> Option<Vec<u8>> {
        if at == 0 {
            return Some(Vec::new());
        }
        let count = self.read(at.wrapping_add(1), 1) as usize;
        if count > 15 {
            return None;
        }
        self.bytes(at, 8 + 4 * count)
    }

    fn acl(&mut self, at: u64) -> Option<Vec<u8>> {
        if at == 0 {
            return Some(Vec::new());
        }
        let size = self.read(at.wrapping_add(2), 2) as usize;
        self.bytes(at, size)
    }

    /// A descriptor in self-relative form, whichever form it has.
    fn descriptor(&mut self, at: u64) -> Option<Vec<u8>> {
        if at == 0 {
            return None;
        }
        let control = self.emulator.memory.read(at.wrapping_add(2), 2).ok()?.get()?;
        let relative = control & SELF_RELATIVE != 0;
        let mut parts = Vec::new();
        for index in 0..4 {
            let place = if relative {
                let offset = self.read(at.wrapping_add(4 + 4 * index), 4);
                if offset == 0 { 0 } else { at.wrapping_add(offset) }
            } else {
                let first = self.either(8, 4);
                let pointer = u64::from(self.pointer());
                self.read_pointer(at.wrapping_add(first + pointer * index))
            };
            parts.push(if index < 2 { self.sid(place)? } else { self.acl(place)? });
        }
        let mut out = vec![1, 0];
        out.extend(((control | SELF_RELATIVE) as u16).to_le_bytes());
        let mut offset = 20;
        for part in &parts {
            let at = if part.is_empty() { 0 } else { offset };
            out.extend((at as u32).to_le_bytes());
            offset += part.len();
        }
        out.extend(parts.concat());
        Some(out)
    }

    /// Appends an ACE to an ACL with room for it.
    fn add_allowed(&mut self, acl: u64, mask: u64, sid: u64) -> u64 {
        let Some(sid) = self.sid(sid).filter(|s| !s.is_empty()) else { return 0xc000_0078 };
        let (size, count) = (self.read(acl.wrapping_add(2), 2), self.read(acl.wrapping_add(4), 2));
        let mut used = 8;
        for _ in 0..count.min(1024) {
            used += self.read(acl.wrapping_add(used + 2), 2).max(4);
        }
        let length = 8 + sid.len() as u64;
        if used + length > size {
            // STATUS_ALLOTTED_SPACE_EXCEEDED
            return 0xc000_0099;
        }
        let ace = acl.wrapping_add(used);
        self.write(ace, 2, 0);
        self.write(ace.wrapping_add(2), 2, length);
        self.write(ace.wrapping_add(4), 4, mask);
        let _ = self.emulator.memory.write_bytes(ace.wrapping_add(8), &sid);
        self.write(acl.wrapping_add(4), 2, count + 1);
        0
    }

    /// `SE_EXPORTS`: 23 privileges (LUIDs), then pointers to well-known SIDs in the order of ntifs.h.
    pub(crate) fn exported_sids(&mut self) -> u64 {
        /// Authority and sub-authorities.
        const SIDS: [(u8, &[u32]); 16] = [
            (0, &[0]),
            (1, &[0]),
            (2, &[0]),
            (3, &[0]),
            (3, &[1]),
            (5, &[]),
            (5, &[1]),
            (5, &[2]),
            (5, &[3]),
            (5, &[4]),
            (5, &[18]),
            (5, &[32, 544]),
            (5, &[32, 545]),
            (5, &[32, 546]),
            (5, &[32, 547]),
            (5, &[32, 548]),
        ];
        let exports = self.allocate(0x400);
        for privilege in 0..23 {
            self.write(exports + 8 * privilege, 4, 2 + privilege);
        }
        let pointer = u64::from(self.pointer());
        for (index, (authority, subs)) in (0u64..).zip(SIDS) {
            let mut sid = vec![1, subs.len() as u8, 0, 0, 0, 0, 0, authority];
            subs.iter().for_each(|s| sid.extend(s.to_le_bytes()));
            let at = self.allocate(sid.len() as u64);
            let _ = self.emulator.memory.write_bytes(at, &sid);
            self.write_pointer(exports + 23 * 8 + index * pointer, at);
        }
        exports
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::rc::Rc;

    use pe::FileImage;
    use target::Code;

    use super::*;
    use crate::image::PlacedImage;
    use crate::record::{Device, Phase};

    fn world(build: &str) -> World {
        let path = test_data::fixture("drivers/bin").join(build).join("d27.sys");
        let file = FileImage::new(std::fs::read(path).unwrap()).unwrap();
        let image = PlacedImage::of_file(Rc::new(file), None, "d27.sys").unwrap();
        World::new(&image, &[]).unwrap()
    }

    /// As wdmsec.lib does it: an absolute descriptor with an ACL of two entries, set through a handle.
    #[test]
    fn an_absolute_descriptor_set_by_handle_is_kept_self_relative() {
        for build in ["x64-gcc-o2", "x86-gcc", "arm64-clang"] {
            let mut world = world(build);
            let device = world.device_object(0x22, 0x100, false, true, 0);
            let found = Device {
                name: Some("\\Device\\X".to_owned()),
                device_type: Code(0x22),
                characteristics: Code(0x100),
                exclusive: false,
                sddl: None,
                class_guid: None,
                security_descriptor: None,
                deleted: false,
                from: Phase::Entry,
            };
            world.add_device_found(device, found);
            let exports = world.exported_sids();
            let system = exports + 23 * 8 + 10 * u64::from(world.pointer());
            let system = world.read_pointer(system);
            let acl = world.allocate(0x100);
            world.write(acl, 1, 2);
            world.write(acl + 2, 2, 0x40);
            for mask in [0x1f_01ff, 0x12_0089] {
                assert_eq!(world.add_allowed(acl, mask, system), 0);
            }
            assert_eq!(world.add_allowed(acl, 1, system), 0xc000_0099, "no room is left");
            let descriptor = world.allocate(0x40);
            world.write(descriptor, 1, 1);
            world.write(descriptor + 2, 2, DACL_PRESENT);
            let slot = descriptor + world.either(0x20, 0x10);
            world.write_pointer(slot, acl);
            let handle = world.new_handle(device);
            let object = world.handles[&handle];
            world.set_descriptor(object, descriptor);

            let kept = world.found.devices[0].1.security_descriptor.clone().unwrap().0;
            assert_eq!(kept[..4], [1, 0, 4, 0x80], "{build}");
            assert_eq!(kept[4..20], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0], "{build}");
            assert_eq!(kept.len(), 20 + 0x40, "{build}");
            // Revision, size, two entries; allow SYSTEM.
            assert_eq!(kept[20..28], [2, 0, 0x40, 0, 2, 0, 0, 0], "{build}");
            assert_eq!(kept[28..48], [0, 0, 20, 0, 0xff, 1, 0x1f, 0, 1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]);
        }
    }

    #[test]
    fn device_names_are_formatted() {
        let mut world = world("x64-gcc-o2");
        let text = |world: &mut World, text: &str| {
            let at = world.new_string(text);
            world.read_pointer(at + 8)
        };
        let format = text(&mut world, "\\Device\\%ws%02u_%#x%%");
        let name = text(&mut world, "Disk");
        let buffer = world.allocate(0x100);
        for (index, value) in [(0, buffer), (1, format), (2, name), (3, 7)] {
            world.emulator.set_argument(index, emulate::Value::known(value)).unwrap();
        }
        // The fifth argument lies on the stack.
        let stack = world.allocate(0x100);
        world.emulator.registers.general[emulate::RSP] = emulate::Value::known(stack);
        world.emulator.set_argument(4, emulate::Value::known(0xab)).unwrap();
        let Some(Answer::Value(length)) = world.format_call("swprintf") else { panic!() };
        let mut bytes = vec![0; length as usize * 2];
        world.emulator.memory.read_bytes(buffer, &mut bytes).unwrap();
        assert_eq!(super::super::io::text_of(&bytes), "\\Device\\Disk07_ab%");
    }
}
