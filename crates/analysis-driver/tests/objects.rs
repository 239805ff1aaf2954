//! Driver, device and request objects laid out in scripted memory, by the ABI and by symbols.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use analysis_driver::{
    ChainStop, DeviceLayout, DriverLayout, HandlerKind, IrpLayout, LayoutSource, Parameters, Relation,
    StackLocationLayout, read_device, read_driver, read_irp, render_driver, render_irp,
};
use target::scripted::ScriptedTarget;
use target::symbol::{Field, TypeKind, TypeLayout, TypeRef};
use target::{Address, Code, Halt, Machine, TargetKind};

const DRIVER: u64 = 0xffff_a000_0001_0000;
const DEVICE: u64 = 0xffff_a000_0002_0000;
const IRP: u64 = 0xffff_a000_0003_0000;
const IMAGE: u64 = 0xffff_f800_1000_0000;
const NT: u64 = 0xffff_f800_0000_0000;
const DEFAULT: u64 = NT + 0x1234;

/// Addresses of a 32-bit target are the low halves.
fn at(machine: Machine, address: u64) -> u64 {
    if machine.pointer_size() == 4 { address & 0xffff_ffff } else { address }
}

struct Bytes {
    machine: Machine,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(machine: Machine, size: u64) -> Self {
        Self { machine, bytes: vec![0; usize::try_from(size).unwrap()] }
    }
    fn put(&mut self, offset: u64, value: &[u8]) -> &mut Self {
        let offset = usize::try_from(offset).unwrap();
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self
    }
    fn pointer(&mut self, offset: u64, value: u64) -> &mut Self {
        let value = at(self.machine, value).to_le_bytes();
        let width = usize::from(self.machine.pointer_size());
        self.put(offset, &value[..width])
    }
}

fn driver_bytes(machine: Machine, kind: u16) -> Bytes {
    let layout = DriverLayout::abi(machine);
    let width = u64::from(machine.pointer_size());
    let mut bytes = Bytes::new(machine, layout.size + 0x100);
    bytes.put(0, &kind.to_le_bytes()).put(2, &u16::try_from(layout.size).unwrap().to_le_bytes());
    bytes.put(layout.flags, &0x12u32.to_le_bytes()).put(layout.image_size, &0x8000u32.to_le_bytes());
    bytes
        .pointer(layout.start, IMAGE)
        .pointer(layout.device_object, DEVICE)
        .pointer(layout.init, IMAGE + 0x5000);
    bytes.pointer(layout.unload, IMAGE + 0x1800).pointer(layout.extension, 0);
    let name: Vec<u8> = "\\Driver\\x".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = u16::try_from(name.len()).unwrap().to_le_bytes();
    bytes.put(layout.name, &length).put(layout.name + 2, &length);
    bytes.pointer(layout.name + width, DRIVER + layout.size).put(layout.size, &name);
    for major in 0..28 {
        let handler = match major {
            0 | 2 => IMAGE + 0x1000,
            0xe => IMAGE + 0x2000,
            0x1b => 0,
            0x16 => 0xffff_0000_dead_0000,
            _ => DEFAULT,
        };
        bytes.pointer(layout.major_function + major * width, handler);
    }
    bytes
}

fn device_bytes(machine: Machine, next: u64) -> Bytes {
    let layout = DeviceLayout::abi(machine);
    let mut bytes = Bytes::new(machine, layout.size);
    bytes.put(0, &3u16.to_le_bytes()).put(layout.reference_count, &2u32.to_le_bytes());
    bytes
        .put(layout.device_type, &0x22u32.to_le_bytes())
        .put(layout.characteristics, &0x100u32.to_le_bytes());
    bytes.put(layout.flags, &0x48u32.to_le_bytes()).put(layout.stack_size, &[1]);
    bytes
        .pointer(layout.driver, DRIVER)
        .pointer(layout.next, next)
        .pointer(layout.security_descriptor, 0x1234_5678);
    bytes
}

fn kernel(machine: Machine) -> ScriptedTarget {
    ScriptedTarget::new(machine)
        .with_facts(|facts| facts.kind = TargetKind::KernelDump)
        .with_module("nt", at(machine, NT), 0x10000)
        .with_module("x", at(machine, IMAGE), 0x8000)
        .with_symbol("x", "DispatchControl", at(machine, IMAGE + 0x2000))
}

fn with_driver(machine: Machine, kind: u16, next: u64) -> ScriptedTarget {
    kernel(machine)
        .with_memory(at(machine, DRIVER), driver_bytes(machine, kind).bytes)
        .with_memory(at(machine, DEVICE), device_bytes(machine, next).bytes)
}

#[test]
fn a_driver_object_of_both_widths() {
    for machine in [Machine::X64, Machine::X86, Machine::Arm64] {
        let target = with_driver(machine, 4, 0);
        let driver = read_driver(&target, at(machine, DRIVER), None, Some(8), &Halt::unbounded()).unwrap();
        assert_eq!(driver.name.as_deref(), Some("\\Driver\\x"));
        assert_eq!(driver.layout_source, LayoutSource::Abi);
        assert_eq!(driver.flag_names, ["DRVO_LEGACY_DRIVER", "DRVO_INITIALIZED"]);
        assert_eq!(driver.dispatch.major_count, 28);
        let kinds = |kind| driver.dispatch.entries.iter().filter(|entry| entry.kind == kind).count();
        assert_eq!(
            (kinds(HandlerKind::Own), kinds(HandlerKind::Null), kinds(HandlerKind::NoModule)),
            (3, 1, 1)
        );
        assert_eq!(kinds(HandlerKind::KernelDefault), 23);
        assert_eq!(driver.dispatch.basis.as_deref(), Some("majority"));
        let control = driver.dispatch.device_control.as_ref().unwrap();
        assert_eq!(control.describe(), "x!DispatchControl");
        assert_eq!(driver.devices.as_ref().unwrap().device_count, 1);
        assert_eq!(driver.images.len(), 2);
    }
}

#[test]
fn the_default_is_told_by_its_name_where_there_is_one() {
    let target = with_driver(Machine::X64, 4, 0).with_symbol("nt", "IopInvalidDeviceRequest", DEFAULT);
    let driver = read_driver(&target, DRIVER, None, None, &Halt::unbounded()).unwrap();
    assert_eq!(driver.dispatch.basis, None);
    assert!(driver.devices.is_none());
    insta::assert_snapshot!(render_driver(&driver));
}

#[test]
fn a_type_of_zero_is_said_and_anything_else_refused() {
    // Wine's driver host leaves Type at 0.
    let target = with_driver(Machine::X64, 0, 0);
    assert!(read_driver(&target, DRIVER, None, None, &Halt::unbounded()).unwrap().type_field_unexpected);
    let other = ScriptedTarget::new(Machine::X64).with_memory(0x1000, vec![0x41; 0x200]);
    let error = read_driver(&other, 0x1000, None, None, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("not_a_driver_object"));
    assert!(error.to_string().contains("0x4141"), "{error}");
    let error = read_driver(&other, 0x9000, None, None, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("unreadable"));
}

#[test]
fn a_device_chain_that_leads_round_or_out_of_memory() {
    let chain = |next, max| {
        let target = with_driver(Machine::X64, 4, next);
        read_driver(&target, DRIVER, None, Some(max), &Halt::unbounded()).unwrap().devices.unwrap()
    };
    assert_eq!(chain(DEVICE, 8).stopped, Some(ChainStop::Cycle));
    let lost = chain(0xffff_a000_0099_0000, 8);
    assert_eq!((lost.stopped, lost.device_count), (Some(ChainStop::Unreadable), 2));
    assert_eq!(chain(0xffff_a000_0099_0000, 1).stopped, Some(ChainStop::Capped));
    assert_eq!(chain(0, 1).stopped, None);
}

#[test]
fn an_entry_before_driver_entry_ran_is_said() {
    let mut bytes = Bytes::new(Machine::X64, 0x150);
    let layout = DriverLayout::abi(Machine::X64);
    bytes.put(0, &4u16.to_le_bytes()).put(2, &0x150u16.to_le_bytes());
    bytes.pointer(layout.start, IMAGE).pointer(layout.init, IMAGE + 0x100);
    let target = kernel(Machine::X64).with_memory(DRIVER, bytes.bytes);
    let driver = read_driver(&target, DRIVER, None, None, &Halt::unbounded()).unwrap();
    assert!(driver.dispatch.note.unwrap().contains("DriverEntry"));
}

#[test]
fn symbols_that_disagree_win_and_are_said() {
    let field = |name: &str, offset| Field {
        name: name.to_owned(),
        offset,
        size: 8,
        ty: TypeRef::Unknown,
        bits: None,
        value: None,
        base_class: false,
    };
    let layout = TypeLayout {
        module: "nt".into(),
        name: "_DEVICE_OBJECT".into(),
        kind: TypeKind::Struct,
        size: 0x150,
        fields: vec![field("DriverObject", 8), field("NextDevice", 0x148)],
        ambiguous: 0,
    };
    let mut bytes = device_bytes(Machine::X64, 0);
    bytes.pointer(0x148, 0);
    let target = with_driver(Machine::X64, 4, 0).with_type(layout).with_memory(DEVICE, bytes.bytes);
    let device = read_device(&target, DEVICE, false, &Halt::unbounded()).unwrap();
    assert_eq!(device.layout_source, LayoutSource::Symbols);
    assert_eq!(device.layout_mismatch, ["_DEVICE_OBJECT.NextDevice: 0x148 by symbols, 0x10 by the ABI"]);
}

#[test]
fn a_device_and_its_stack() {
    let mut below = device_bytes(Machine::X64, 0);
    let layout = DeviceLayout::abi(Machine::X64);
    below.pointer(layout.attached, DEVICE);
    let low = DEVICE + 0x1000;
    let target = with_driver(Machine::X64, 4, 0).with_memory(low, below.bytes);
    let device = read_device(&target, low, true, &Halt::unbounded()).unwrap();
    assert!(device.secure_open && device.exclusive);
    assert_eq!(device.device_type_name.as_deref(), Some("FILE_DEVICE_UNKNOWN"));
    let rows: Vec<(Relation, u64)> = device.stack.iter().map(|row| (row.relation, row.address.0)).collect();
    assert_eq!(rows, [(Relation::Above, DEVICE), (Relation::Own, low)]);
    // Which device is below is private to the kernel: unknown, not none.
    assert!(device.stack_note.unwrap().contains("below are unknown"));
    assert!(read_device(&target, IMAGE, false, &Halt::unbounded()).is_err());
}

fn irp_bytes(machine: Machine, count: u8, current: u8, code: u32) -> Bytes {
    let (irp, location) = (IrpLayout::abi(machine), StackLocationLayout::abi(machine));
    let width = u64::from(machine.pointer_size());
    let size = irp.size + u64::from(count) * location.size;
    let mut bytes = Bytes::new(machine, size);
    bytes.put(0, &6u16.to_le_bytes()).put(2, &u16::try_from(size).unwrap().to_le_bytes());
    bytes.put(irp.stack_count, &[count]).put(irp.current_location, &[current]).put(irp.requestor_mode, &[1]);
    bytes.put(irp.status, &0xc000_000du32.to_le_bytes());
    bytes.pointer(irp.system_buffer, 0x7000_0000).pointer(irp.user_buffer, 0x5000);
    let here = irp.size + u64::from(current.saturating_sub(1)) * location.size;
    bytes.pointer(irp.current_stack_location, IRP + here);
    if (1..=count).contains(&current) {
        bytes.put(here, &[0xe, 0, 0, 0xe0]).put(here + location.parameters, &0x40u32.to_le_bytes());
        bytes.put(here + location.parameters + width, &0x20u32.to_le_bytes());
        bytes.put(here + location.parameters + 2 * width, &code.to_le_bytes());
        bytes.pointer(here + location.parameters + 3 * width, 0x6000);
        bytes.pointer(here + location.device, DEVICE).pointer(here + location.completion, IMAGE + 0x1000);
    }
    bytes
}

fn irp(machine: Machine, bytes: Bytes) -> target::Result<analysis_driver::IrpStack> {
    let target = with_driver(machine, 4, 0).with_memory(at(machine, IRP), bytes.bytes);
    read_irp(&target, at(machine, IRP))
}

#[test]
fn a_request_of_both_widths() {
    for machine in [Machine::X64, Machine::X86] {
        let read = irp(machine, irp_bytes(machine, 2, 2, 0x22_2003)).unwrap();
        assert!(read.type_ok && !read.pointer_mismatch && read.size_warning.is_none());
        assert_eq!((read.current, read.status.name.as_deref()), (Some(2), Some("STATUS_INVALID_PARAMETER")));
        assert!(read.locations[0].empty && read.locations[1].is_current);
        let Some(Parameters::DeviceControl { code, input, output, type3, .. }) =
            &read.locations[1].parameters
        else {
            panic!("{read:?}")
        };
        assert_eq!((*code, input.length, output.length), (Code(0x22_2003), 0x20, 0x40));
        assert_eq!(
            (input.address, output.address, *type3),
            (Some(Address(0x6000)), Some(Address(0x5000)), Some(Address(0x6000)))
        );
        assert_eq!(read.locations[1].driver_name.as_deref(), Some("\\Driver\\x"));
    }
}

#[test]
fn the_text_of_a_request() {
    let read = irp(Machine::X64, irp_bytes(Machine::X64, 2, 1, 0x9c40_2408)).unwrap();
    insta::assert_snapshot!(render_irp(&read));
}

#[test]
fn no_current_location_is_not_an_error() {
    let read = irp(Machine::X64, irp_bytes(Machine::X64, 2, 3, 0)).unwrap();
    assert_eq!(read.current, None);
    assert!(!read.pointer_mismatch);
}

#[test]
fn requests_that_contradict_themselves() {
    for (count, current) in [(0, 0), (0x41, 1), (2, 4), (2, 0)] {
        let mut bytes = irp_bytes(Machine::X64, 2, 1, 0);
        let layout = IrpLayout::abi(Machine::X64);
        bytes.put(layout.stack_count, &[count]).put(layout.current_location, &[current]);
        let error = irp(Machine::X64, bytes).unwrap_err();
        assert_eq!(error.category().1, Some("not_an_irp"), "{count} {current}");
    }
    let mut bytes = irp_bytes(Machine::X64, 2, 1, 0);
    bytes.pointer(IrpLayout::abi(Machine::X64).current_stack_location, IRP);
    bytes.put(2, &0x1000u16.to_le_bytes());
    let read = irp(Machine::X64, bytes).unwrap();
    assert!(read.pointer_mismatch && read.size_warning.unwrap().contains("more than"));
}
