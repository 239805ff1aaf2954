//! The framework's functions by index (wdffuncenum.h; structures: wdfio.h, wdfdriver.h).

use target::Code;

use super::io::address;
use super::{Answer, MAX_FINDINGS, World};
use crate::record::{Device, DispatchType, DriverConfig, FrameworkCalls, Preprocess, Queue};
use crate::wdf_names::wdf_function;

/// Arguments of functions that replays meet, the globals counted: what x86 callees pop.
const ARGUMENTS: [(u32, u32); 46] = [
    (13, 3),
    (25, 3),
    (26, 4),
    (27, 2),
    (31, 2),
    (39, 2),
    (42, 2),
    (54, 2),
    (55, 3),
    (56, 3),
    (61, 3),
    (62, 3),
    (66, 3),
    (67, 3),
    (68, 3),
    (69, 3),
    (70, 4),
    (71, 4),
    (72, 3),
    (73, 6),
    (74, 3),
    (75, 4),
    (77, 4),
    (80, 3),
    (92, 2),
    (93, 4),
    (116, 6),
    (117, 2),
    (118, 2),
    (119, 5),
    (152, 5),
    (158, 3),
    (167, 4),
    (192, 7),
    (202, 3),
    (203, 4),
    (207, 3),
    (208, 2),
    (229, 6),
    (231, 2),
    (240, 4),
    (308, 4),
    (312, 3),
    (315, 3),
    (318, 4),
    (379, 4),
];

/// Functions that make an object, and which argument gets its handle.
const CREATES: [(u32, u32); 17] = [
    (0, 4),
    (13, 2),
    (21, 4),
    (94, 4),
    (98, 3),
    (111, 3),
    (116, 5),
    (141, 4),
    (152, 4),
    (167, 3),
    (207, 2),
    (247, 3),
    (308, 3),
    (312, 2),
    (315, 2),
    (318, 3),
    (379, 3),
];

/// `None` for a function that is not listed.
pub(crate) fn stack_bytes(index: u32) -> Option<u32> {
    ARGUMENTS.iter().find(|(i, _)| *i == index).map(|(_, count)| count * 4)
}

const NOT_FOUND: u64 = 0xc000_0034;

impl World {
    /// `WdfVersionBind(DriverObject, RegistryPath, BindInfo, &Globals)`.
    pub(crate) fn bind_framework(&mut self) -> u64 {
        let (info, globals_out) = (self.argument(2), self.argument(3));
        let Some(bind) = crate::framework::bind_at(&self.image, info) else {
            // STATUS_INVALID_PARAMETER
            return 0xc000_000d;
        };
        let globals = self.allocate(0x100);
        let driver = self.objects.thing;
        self.write_pointer(globals, driver);
        self.write_pointer(globals_out, globals);
        let (pointer, stubs) = (u64::from(self.pointer()), self.layout.wdf);
        let count = u64::from(bind.function_count.min(1024));
        // The stubs' own memory is a table too: clients that hold a pointer read it there.
        for index in 0..count {
            self.write_pointer(stubs + index * pointer, stubs + index * pointer);
        }
        if bind.table_is_pointer {
            self.write_pointer(bind.function_table.0, stubs);
        } else {
            for index in 0..count {
                self.write_pointer(bind.function_table.0 + index * pointer, stubs + index * pointer);
            }
        }
        self.calls().bind = Some(bind);
        0
    }

    fn calls(&mut self) -> &mut FrameworkCalls {
        self.found.framework.get_or_insert_with(FrameworkCalls::default)
    }

    pub(crate) fn framework_call(&mut self, index: u32) -> Answer {
        let name = wdf_function(index).unwrap_or_else(|| format!("Wdf#{index}"));
        if name.starts_with("WdfDeviceInit") {
            let calls = self.calls();
            if calls.device_init.len() < MAX_FINDINGS {
                calls.device_init.push(name);
            }
        }
        if let Some(value) = self.device_init_call(index) {
            return Answer::Value(value);
        }
        let value = match index {
            // ControlDeviceInitAllocate(Driver, Sddl), PdoInitAllocate, CxDeviceInitAllocate
            25 | 210 | 396 => {
                let init = self.allocate(0x200);
                let sddl = self.argument(2);
                let sddl = if index == 25 { self.unicode_string(sddl) } else { None };
                self.device_init(init).sddl = sddl;
                init
            }
            75 => self.create_framework_device(),
            // DeviceCreateSymbolicLink(Device, Path)
            80 => {
                let (device, path) = (self.argument(1), self.argument(2));
                let path = self.unicode_string(path);
                let target = self.found.devices.iter().find(|(d, _)| *d == device);
                let target = target.and_then(|(_, d)| d.name.clone()).unwrap_or_default();
                self.add_link(path, Some(target));
                0
            }
            116 => self.create_driver(),
            152 => self.create_queue(),
            // IoQueueRetrieveNextRequest and its kind: STATUS_NO_MORE_ENTRIES
            158..=161 => 0x8000_001a,
            // RegistryOpenKey, DriverOpenParametersRegistryKey, DeviceOpenRegistryKey, queries
            48 | 119 | 125 | 229 | 230 | 235..=240 | 443 => NOT_FOUND,
            // Objects a client only passes on.
            31..=33 | 39 | 42 | 92 | 118 | 178 => {
                if index == 118 {
                    self.objects.driver
                } else {
                    self.objects.thing
                }
            }
            // ObjectGetTypedContextWorker(Handle, TypeInfo)
            202 => self.context(),
            // ObjectAllocateContext(Handle, Attributes, &Context)
            203 => {
                let out = self.argument(3);
                let context = self.allocate(0x1000);
                self.write_pointer(out, context);
                0
            }
            // MemoryCreate(Attributes, PoolType, Tag, Size, &Memory, &Buffer)
            192 => {
                let (size, memory, buffer) = (self.argument(4), self.argument(5), self.argument(6));
                let block = self.allocate(size);
                let handle = self.allocate(0x40);
                self.write_pointer(memory, handle);
                self.write_pointer(buffer, block);
                0
            }
            123 => 1,
            _ => {
                if let Some((_, out)) = CREATES.iter().find(|(i, _)| *i == index) {
                    let out = self.argument(*out);
                    self.fresh_handle(out);
                }
                0
            }
        };
        Answer::Value(value)
    }

    fn fresh_handle(&mut self, out: u64) -> u64 {
        let handle = self.allocate(0x100);
        self.write_pointer(out, handle);
        handle
    }

    /// What was said of a device before it is made, kept under its init's address.
    fn device_init(&mut self, init: u64) -> &mut Device {
        let from = self.phase;
        let at = init ^ PENDING;
        let position = self.found.devices.iter().position(|(d, _)| *d == at).unwrap_or_else(|| {
            let device = Device {
                name: None,
                // FILE_DEVICE_UNKNOWN is the framework's default, FILE_DEVICE_SECURE_OPEN too.
                device_type: Code(0x22),
                characteristics: Code(0x100),
                exclusive: false,
                sddl: None,
                class_guid: None,
                security_descriptor: None,
                deleted: false,
                from,
            };
            self.found.devices.push((at, device));
            self.found.devices.len() - 1
        });
        &mut self.found.devices[position].1
    }

    /// `WdfDeviceInitSet...(Init, ...)`.
    fn device_init_call(&mut self, index: u32) -> Option<u64> {
        if !(54..=74).contains(&index) || self.found.devices.len() >= MAX_FINDINGS {
            return None;
        }
        let (init, value) = (self.argument(1), self.argument(2));
        match index {
            62 => self.device_init(init).exclusive = value & 0xff != 0,
            66 => self.device_init(init).device_type = Code(value as u32),
            67 => {
                let name = self.unicode_string(value);
                self.device_init(init).name = name;
            }
            68 => {
                let sddl = self.unicode_string(value);
                self.device_init(init).sddl = sddl;
            }
            69 => {
                let guid = self.guid(value);
                self.device_init(init).class_guid = guid;
            }
            // SetCharacteristics(Init, Characteristics, OrInValues)
            70 => {
                let or_in = self.argument(3) & 0xff != 0;
                let device = self.device_init(init);
                let old = if or_in { device.characteristics.0 } else { 0 };
                device.characteristics = Code(old | value as u32);
            }
            // AssignWdmIrpPreprocessCallback(Init, Callback, Major, MinorFunctions, Count)
            73 => {
                let major = self.argument(3) as u8;
                if let Some(at) = address(value)
                    && self.calls().preprocess.len() < MAX_FINDINGS
                {
                    self.calls().preprocess.push(Preprocess { major, address: at });
                }
            }
            74 => self.calls().in_caller_context = address(value),
            // DeviceInitFree: the device will not be.
            54 => self.found.devices.retain(|(d, _)| *d != init ^ PENDING),
            _ => {}
        }
        Some(0)
    }

    /// `WdfDeviceCreate(&Init, Attributes, &Device)`.
    fn create_framework_device(&mut self) -> u64 {
        let (init_at, out) = (self.argument(1), self.argument(3));
        let init = self.read_pointer(init_at);
        let handle = self.fresh_handle(out);
        // A framework device exists whether or not its init was touched.
        self.device_init(init);
        if let Some(entry) = self.found.devices.iter_mut().find(|(d, _)| *d == init ^ PENDING) {
            entry.0 = handle;
        }
        self.write_pointer(init_at, 0);
        0
    }

    /// `WdfDriverCreate(DriverObject, RegistryPath, Attributes, Config, &Driver)`.
    fn create_driver(&mut self) -> u64 {
        let (config, out) = (self.argument(4), self.argument(5));
        let pointer = u64::from(self.pointer());
        let add = self.read_pointer(config.wrapping_add(pointer));
        let unload = self.read_pointer(config.wrapping_add(2 * pointer));
        let flags = self.read(config.wrapping_add(3 * pointer), 4) as u32;
        self.calls().driver_config =
            Some(DriverConfig { device_add: address(add), unload: address(unload), flags: Code(flags) });
        self.found.wdf_device_add = (add != 0).then_some(add);
        self.fresh_handle(out);
        0
    }

    /// `WdfIoQueueCreate(Device, Config, Attributes, &Queue)`.
    fn create_queue(&mut self) -> u64 {
        let (config, out) = (self.argument(2), self.argument(4));
        let callbacks = self.either(0x10, 0x10);
        let pointer = u64::from(self.pointer());
        let callback = |world: &mut Self, index: u64| {
            address(world.read_pointer(config.wrapping_add(callbacks + index * pointer)))
        };
        let dispatch_type = match self.read(config.wrapping_add(4), 4) {
            1 => DispatchType::Sequential,
            2 => DispatchType::Parallel,
            3 => DispatchType::Manual,
            _ => DispatchType::Other,
        };
        let queue = Queue {
            dispatch_type,
            default: self.read(config.wrapping_add(0xd), 1) != 0,
            io_default: callback(self, 0),
            read: callback(self, 1),
            write: callback(self, 2),
            device_control: callback(self, 3),
            internal_device_control: callback(self, 4),
            from: self.phase,
        };
        if self.calls().queues.len() < MAX_FINDINGS {
            self.calls().queues.push(queue);
        }
        self.fresh_handle(out);
        0
    }

    /// The context of a handle and type, one for each pair.
    fn context(&mut self) -> u64 {
        let (handle, kind) = (self.argument(1), self.argument(2));
        let key = handle.rotate_left(17) ^ kind ^ PENDING;
        if let Some(&known) = self.handles.get(&key) {
            return known;
        }
        let context = self.allocate(0x1000);
        self.handles.insert(key, context);
        context
    }
}

/// Tells the key of a device's init from a device's handle.
const PENDING: u64 = 1 << 63 >> 1;
