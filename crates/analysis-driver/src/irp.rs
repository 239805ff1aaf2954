//! `IRP` and its stack locations (spec 40 section 9.4).

use code_flow::{CodeLocation, ImageRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, HexBytes, MemoryExt as _, Result, Target};

use crate::control_code::{ControlCode, DecodedCode, Method};
use crate::device::driver_ref;
use crate::failure::{because, unreadable};
use crate::layout::{DeviceLayout, IrpLayout, LayoutSource, StackLocationLayout};
use crate::locations::Locations;
use crate::names::{self, DEVICE_CONTROL, INTERNAL_DEVICE_CONTROL, irp_flags, major_name, minor_name};

const IRP_TYPE: u16 = 6;
const MAX_STACK_COUNT: u8 = 0x40;

/// Who sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RequestorMode {
    Kernel,
    User,
}

/// A status value and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusValue {
    pub value: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl StatusValue {
    #[must_use]
    pub fn of(value: u32) -> Self {
        let name = analysis_status::decode(value, analysis_status::StatusSpace::Ntstatus)
            .names
            .ntstatus
            .into_iter()
            .next();
        Self { value: Code(value), name }
    }
}

/// One buffer of a control request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestBuffer {
    pub length: u32,
    /// Which field of the request holds it.
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
}

/// Parameters, by major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[schemars(inline)]
pub enum Parameters {
    DeviceControl {
        code: Code,
        decoded: Box<DecodedCode>,
        input: RequestBuffer,
        output: RequestBuffer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        type3: Option<Address>,
    },
    Transfer {
        length: u32,
        key: u32,
        byte_offset: Address,
    },
    Create {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        desired_access: Option<Code>,
        options: Code,
        share: u16,
        file_attributes: u16,
    },
    Raw {
        raw: HexBytes,
    },
}

/// One stack location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StackLocation {
    /// 1 is the lowest driver's.
    pub index: u8,
    pub address: Address,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_current: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
    pub major: u8,
    pub major_name: String,
    pub minor: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_name: Option<String>,
    pub flags: u8,
    pub control: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
}

/// An I/O request packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IrpStack {
    pub irp: Address,
    pub type_ok: bool,
    pub size: u16,
    /// The size fits its stack count; larger allocations exist, a smaller one contradicts itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_warning: Option<String>,
    pub stack_count: u8,
    pub current_location: u8,
    /// Absent when no location is current: the I/O manager owns the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u8>,
    /// The stored pointer is not where `current_location` says; both are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pointer_mismatch: bool,
    pub current_stack_location: Address,
    pub requestor_mode: RequestorMode,
    pub flags: Code,
    pub flag_names: Vec<String>,
    pub pending_returned: bool,
    pub cancel: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_routine: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mdl: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_buffer: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_buffer: Option<Address>,
    /// `status` is the envelope's own word.
    #[serde(rename = "io_status")]
    pub status: StatusValue,
    pub information: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Address>,
    pub locations: Vec<StackLocation>,
    pub layout_source: LayoutSource,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout_mismatch: Vec<String>,
    /// Which register or stack slot the address was taken from, when none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    pub images: Vec<ImageRecord>,
}

/// Bytes of an IRP and what they are read with.
struct Packet<'a> {
    target: &'a dyn Target,
    at: u64,
    width: u8,
    irp: IrpLayout,
    location: StackLocationLayout,
    system_buffer: u64,
    user_buffer: u64,
    mdl: u64,
}

fn some(value: u64) -> Option<Address> {
    (value != 0).then_some(Address(value))
}

/// The request at `address`.
///
/// # Errors
/// `unreadable`, or `not_an_irp` with what was seen there.
pub fn read_irp(target: &dyn Target, address: u64) -> Result<IrpStack> {
    let irp = IrpLayout::of(target);
    let width = target.facts().machine.pointer_size();
    let lost = |error| unreadable("the IRP", error);
    let pointer = |at: u64| target.read_pointer(address.wrapping_add(at), width).map_err(lost);
    let byte = |at: u64| target.read_u8(address.wrapping_add(at)).map_err(lost);
    let word = |at: u64| target.read_u32(address.wrapping_add(at)).map_err(lost);
    let kind = target.read_u16(address).map_err(lost)?;
    let size = target.read_u16(address.wrapping_add(2)).map_err(lost)?;
    let (count, current) = (byte(irp.stack_count)?, byte(irp.current_location)?);
    let plausible = (1..=MAX_STACK_COUNT).contains(&count) && (1..=count + 1).contains(&current);
    if !plausible {
        return Err(because(
            "not_an_irp",
            format!(
                "what is at {address:#018x} is not an IRP: Type {kind:#x} (6), Size {size:#x}, StackCount {count}, CurrentLocation {current}"
            ),
        ));
    }
    let location = StackLocationLayout::of(target);
    let needed = irp.size + u64::from(count) * location.size;
    let stored = pointer(irp.current_stack_location)?;
    let expected = address.wrapping_add(irp.size).wrapping_add(u64::from(current - 1) * location.size);
    let mut locations = Locations::new(target);
    let packet = Packet {
        target,
        at: address,
        width,
        system_buffer: pointer(irp.system_buffer)?,
        user_buffer: pointer(irp.user_buffer)?,
        mdl: pointer(irp.mdl)?,
        location,
        irp,
    };
    let flags = word(packet.irp.flags)?;
    let rows = (1..=count).map(|index| read_location(&packet, index, index == current, &mut locations));
    let rows: Vec<StackLocation> = rows.collect::<Result<_>>()?;
    let cancel_routine = pointer(packet.irp.cancel_routine)?;
    let mode = byte(packet.irp.requestor_mode)?;
    let source = packet.irp.source;
    let mismatch: Vec<String> =
        packet.irp.mismatch.iter().chain(&packet.location.mismatch).cloned().collect();
    Ok(IrpStack {
        irp: Address(address),
        type_ok: kind == IRP_TYPE,
        size,
        size_warning: match u64::from(size) {
            exact if exact == needed => None,
            more if more > needed => {
                Some(format!("{more:#x} bytes, {:#x} more than its stack needs", more - needed))
            }
            less => Some(format!("{less:#x} bytes, less than the {needed:#x} its stack needs")),
        },
        stack_count: count,
        current_location: current,
        current: (current <= count).then_some(current),
        pointer_mismatch: stored != expected,
        current_stack_location: Address(stored),
        requestor_mode: if mode == 0 { RequestorMode::Kernel } else { RequestorMode::User },
        flags: Code(flags),
        flag_names: irp_flags(flags),
        pending_returned: byte(packet.irp.pending_returned)? != 0,
        cancel: byte(packet.irp.cancel)? != 0,
        cancel_routine: (cancel_routine != 0).then(|| locations.at(cancel_routine)),
        mdl: some(packet.mdl),
        system_buffer: some(packet.system_buffer),
        user_buffer: some(packet.user_buffer),
        status: StatusValue::of(word(packet.irp.status)?),
        information: Address(pointer(packet.irp.status + u64::from(width))?),
        thread: some(pointer(packet.irp.thread)?),
        file: some(pointer(packet.irp.file)?),
        locations: rows,
        layout_source: source,
        layout_mismatch: mismatch,
        assumed_from: None,
        warning: None,
        images: locations.images(),
    })
}

fn read_location(
    packet: &Packet<'_>,
    index: u8,
    is_current: bool,
    locations: &mut Locations<'_>,
) -> Result<StackLocation> {
    let layout = &packet.location;
    let at = packet.at.wrapping_add(packet.irp.size).wrapping_add(u64::from(index - 1) * layout.size);
    let mut bytes = vec![0; usize::try_from(layout.size).unwrap_or_default()];
    packet.target.read_exact(at, &mut bytes).map_err(|error| unreadable("a stack location", error))?;
    let pointer =
        |offset: u64| packet.target.read_pointer(at.wrapping_add(offset), packet.width).unwrap_or_default();
    let byte =
        |offset: u64| usize::try_from(offset).ok().and_then(|o| bytes.get(o)).copied().unwrap_or_default();
    let (major, minor, control) = (byte(layout.major), byte(layout.minor), byte(layout.control));
    let empty = bytes.iter().all(|byte| *byte == 0);
    let (device, completion) = (pointer(layout.device), pointer(layout.completion));
    let driver = (device != 0)
        .then(|| {
            let layout = DeviceLayout::of(packet.target);
            packet.target.read_pointer(device.wrapping_add(layout.driver), packet.width).ok()
        })
        .flatten();
    Ok(StackLocation {
        index,
        address: Address(at),
        is_current,
        empty,
        major,
        major_name: major_name(major),
        minor,
        minor_name: minor_name(major, minor).map(ToOwned::to_owned),
        flags: byte(layout.flags),
        control,
        control_names: names::stack_control(control),
        device: some(device),
        driver_name: driver.and_then(|driver| driver_ref(packet.target, driver, locations).name),
        file: some(pointer(layout.file)),
        completion: (completion != 0).then(|| locations.at(completion)),
        context: some(pointer(layout.context)),
        parameters: (!empty).then(|| parameters(packet, major, at, &bytes)),
    })
}

/// The four fields of `Parameters` are pointer-aligned words (wdm.h).
fn parameters(packet: &Packet<'_>, major: u8, at: u64, bytes: &[u8]) -> Parameters {
    let base = packet.location.parameters;
    let step = u64::from(packet.width);
    let field = |index: u64| at.wrapping_add(base).wrapping_add(index * step);
    let word = |index: u64| packet.target.read_u32(field(index)).unwrap_or_default();
    let pointer = |index: u64| packet.target.read_pointer(field(index), packet.width).unwrap_or_default();
    match major {
        DEVICE_CONTROL | INTERNAL_DEVICE_CONTROL => {
            let code = ControlCode(word(2));
            let type3 = pointer(3);
            let (input_from, output_from) = match code.method() {
                Method::Buffered => (packet.system_buffer, packet.system_buffer),
                Method::InDirect | Method::OutDirect => (packet.system_buffer, packet.mdl),
                Method::Neither => (type3, packet.user_buffer),
            };
            let decoded = code.decode();
            let field = |text: &str| text.split(" (").next().unwrap_or(text).to_owned();
            Parameters::DeviceControl {
                code: Code(code.0),
                input: RequestBuffer {
                    length: word(1),
                    from: field(&decoded.buffers.input),
                    address: some(input_from),
                },
                output: RequestBuffer {
                    length: word(0),
                    from: field(&decoded.buffers.output),
                    address: some(output_from),
                },
                type3: some(type3),
                decoded: Box::new(decoded),
            }
        }
        // Length, Key, ByteOffset; on 32-bit the 64-bit offset starts at the third word.
        3 | 4 => Parameters::Transfer {
            length: word(0),
            key: word(1),
            byte_offset: Address(packet.target.read_u64(field(2)).unwrap_or_default()),
        },
        // SecurityContext, Options, FileAttributes and ShareAccess; the context leads to the access.
        0 => {
            let context = pointer(0);
            let access = context.wrapping_add(u64::from(packet.width) * 2);
            let packed = word(2);
            Parameters::Create {
                desired_access: (context != 0)
                    .then(|| packet.target.read_u32(access).ok().map(Code))
                    .flatten(),
                options: Code(word(1)),
                share: u16::try_from(packed >> 16).unwrap_or_default(),
                file_attributes: u16::try_from(packed & 0xffff).unwrap_or_default(),
            }
        }
        _ => {
            let from = usize::try_from(base).unwrap_or_default();
            let to = usize::try_from(packet.location.device).unwrap_or_default();
            Parameters::Raw { raw: HexBytes(bytes.get(from..to).unwrap_or_default().to_vec()) }
        }
    }
}

/// The text half.
#[must_use]
pub fn render_irp(irp: &IrpStack) -> String {
    let mut text = String::new();
    for caveat in [&irp.warning, &irp.size_warning].into_iter().flatten() {
        text.push_str(&format!("{caveat}\n"));
    }
    if !irp.type_ok {
        text.push_str("The type field is not that of an IRP.\n");
    }
    if irp.pointer_mismatch {
        text.push_str(&format!(
            "CurrentStackLocation {} is not where CurrentLocation {} says.\n",
            irp.current_stack_location, irp.current_location
        ));
    }
    text.push_str(&format!("IRP {}", irp.irp));
    if let Some(from) = &irp.assumed_from {
        text.push_str(&format!(" (taken from {from})"));
    }
    let mode = if irp.requestor_mode == RequestorMode::User { "user" } else { "kernel" };
    text.push_str(&format!(
        ": {} of {} locations, {mode} mode, flags {}, status {} {}, information {}",
        irp.current.map_or_else(|| "none".to_owned(), |current| format!("location {current}")),
        irp.stack_count,
        names::with_names(irp.flags, &irp.flag_names),
        irp.status.value,
        irp.status.name.as_deref().unwrap_or(""),
        irp.information,
    ));
    for row in &irp.locations {
        let mark = if row.is_current { ">" } else { " " };
        if row.empty {
            text.push_str(&format!("\n{mark}{} empty", row.index));
            continue;
        }
        text.push_str(&format!(
            "\n{mark}{} {} {} device {} {}",
            row.index,
            row.major_name,
            row.minor_name.as_deref().unwrap_or(""),
            row.device.map_or_else(|| "none".to_owned(), |device| device.to_string()),
            row.driver_name.as_deref().unwrap_or(""),
        ));
        if let Some(completion) = &row.completion {
            text.push_str(&format!(
                ", completes in {} ({})",
                completion.describe(),
                row.control_names.join(" ")
            ));
        }
        if let Some(parameters) = &row.parameters {
            text.push_str(&format!("\n    {}", render_parameters(parameters)));
        }
    }
    text
}

fn render_parameters(parameters: &Parameters) -> String {
    let at =
        |address: Option<Address>| address.map_or_else(|| "null".to_owned(), |address| address.to_string());
    match parameters {
        Parameters::DeviceControl { code, decoded, input, output, .. } => format!(
            "code {code} {}; input {:#x} bytes at {} ({}); output {:#x} bytes at {} ({})",
            decoded.ctl_code,
            input.length,
            at(input.address),
            input.from,
            output.length,
            at(output.address),
            output.from
        ),
        Parameters::Transfer { length, key, byte_offset } => {
            format!("length {length:#x}, key {key:#x}, offset {byte_offset}")
        }
        Parameters::Create { desired_access, options, share, file_attributes } => format!(
            "access {}, options {options}, share {share:#x}, attributes {file_attributes:#x}",
            desired_access.map_or_else(|| "unreadable".to_owned(), |access| access.to_string())
        ),
        Parameters::Raw { raw } => format!("parameters {raw}"),
    }
}
