//! Where fields are. The driver ABI is compiled into every driver, so a table serves when symbols
//! are missing; private structures come from symbols or not at all (spec 40 section 2.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::symbol::{TypeLayout, TypeRef};
use target::{Machine, Target, TargetError};

/// Where the offsets of a structure came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LayoutSource {
    Symbols,
    Abi,
}

/// Offset of a member by path (`Tail.Overlay.Thread`), through named and unnamed members.
fn member(target: &dyn Target, layout: &TypeLayout, path: &str) -> Option<u64> {
    let (head, tail) = path.split_once('.').map_or((path, None), |(head, tail)| (head, Some(tail)));
    let field = layout.fields.iter().find(|field| field.name == head)?;
    match tail {
        None => Some(field.offset),
        Some(tail) => {
            let TypeRef::Named { name, .. } = &field.ty else { return None };
            let inner = target.type_layout(&format!("{}!{name}", layout.module)).ok()?;
            Some(field.offset + member(target, &inner, tail)?)
        }
    }
}

macro_rules! abi {
    ($(#[$doc:meta])* $layout:ident, $type_name:literal, $size64:literal, $size32:literal, {
        $($field:ident: $path:literal $at64:literal $at32:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $layout {
            pub source: LayoutSource,
            /// Fields where symbols and the published ABI disagree; the symbols are used.
            pub mismatch: Vec<String>,
            pub size: u64,
            $(pub $field: u64,)*
        }

        impl $layout {
            /// The published ABI of this pointer size.
            #[must_use]
            pub fn abi(machine: Machine) -> Self {
                let wide = machine.pointer_size() == 8;
                let pick = |at64: u64, at32: u64| if wide { at64 } else { at32 };
                Self {
                    source: LayoutSource::Abi,
                    mismatch: Vec::new(),
                    size: pick($size64, $size32),
                    $($field: pick($at64, $at32),)*
                }
            }

            /// From the kernel's symbols where they have the type, else the ABI.
            #[must_use]
            pub fn of(target: &dyn Target) -> Self {
                let mut out = Self::abi(target.facts().machine);
                let Ok(layout) = target.type_layout(concat!("nt!", $type_name)) else { return out };
                if layout.size == 0 || layout.size > 0x1000 {
                    return out;
                }
                out.source = LayoutSource::Symbols;
                out.size = layout.size;
                $(
                    if let Some(at) = member(target, &layout, $path).filter(|at| *at < layout.size) {
                        if at != out.$field {
                            out.mismatch.push(format!(
                                "{}.{}: {at:#x} by symbols, {:#x} by the ABI", $type_name, $path, out.$field
                            ));
                        }
                        out.$field = at;
                    }
                )*
                out
            }
        }
    };
}

abi!(
    /// `DRIVER_OBJECT` (wdm.h).
    DriverLayout, "_DRIVER_OBJECT", 0x150, 0xa8, {
        device_object: "DeviceObject" 0x08 0x04,
        flags: "Flags" 0x10 0x08,
        start: "DriverStart" 0x18 0x0c,
        image_size: "DriverSize" 0x20 0x10,
        section: "DriverSection" 0x28 0x14,
        extension: "DriverExtension" 0x30 0x18,
        name: "DriverName" 0x38 0x1c,
        fast_io: "FastIoDispatch" 0x50 0x28,
        init: "DriverInit" 0x58 0x2c,
        start_io: "DriverStartIo" 0x60 0x30,
        unload: "DriverUnload" 0x68 0x34,
        major_function: "MajorFunction" 0x70 0x38,
    }
);

abi!(
    /// `DEVICE_OBJECT` (wdm.h).
    DeviceLayout, "_DEVICE_OBJECT", 0x150, 0xb8, {
        reference_count: "ReferenceCount" 0x04 0x04,
        driver: "DriverObject" 0x08 0x08,
        next: "NextDevice" 0x10 0x0c,
        attached: "AttachedDevice" 0x18 0x10,
        current_irp: "CurrentIrp" 0x20 0x14,
        flags: "Flags" 0x30 0x1c,
        characteristics: "Characteristics" 0x34 0x20,
        vpb: "Vpb" 0x38 0x24,
        extension: "DeviceExtension" 0x40 0x28,
        device_type: "DeviceType" 0x48 0x2c,
        stack_size: "StackSize" 0x4c 0x30,
        security_descriptor: "SecurityDescriptor" 0x110 0x98,
        object_extension: "DeviceObjectExtension" 0x138 0xb0,
    }
);

abi!(
    /// `IRP` (wdm.h).
    IrpLayout, "_IRP", 0xd0, 0x70, {
        mdl: "MdlAddress" 0x08 0x04,
        flags: "Flags" 0x10 0x08,
        system_buffer: "AssociatedIrp.SystemBuffer" 0x18 0x0c,
        status: "IoStatus" 0x30 0x18,
        requestor_mode: "RequestorMode" 0x40 0x20,
        pending_returned: "PendingReturned" 0x41 0x21,
        stack_count: "StackCount" 0x42 0x22,
        current_location: "CurrentLocation" 0x43 0x23,
        cancel: "Cancel" 0x44 0x24,
        cancel_routine: "CancelRoutine" 0x68 0x38,
        user_buffer: "UserBuffer" 0x70 0x3c,
        thread: "Tail.Overlay.Thread" 0x98 0x50,
        current_stack_location: "Tail.Overlay.CurrentStackLocation" 0xb8 0x60,
        file: "Tail.Overlay.OriginalFileObject" 0xc0 0x64,
    }
);

abi!(
    /// `IO_STACK_LOCATION` (wdm.h).
    StackLocationLayout, "_IO_STACK_LOCATION", 0x48, 0x24, {
        major: "MajorFunction" 0 0,
        minor: "MinorFunction" 1 1,
        flags: "Flags" 2 2,
        control: "Control" 3 3,
        parameters: "Parameters" 0x08 0x04,
        device: "DeviceObject" 0x28 0x14,
        file: "FileObject" 0x30 0x18,
        completion: "CompletionRoutine" 0x38 0x1c,
        context: "Context" 0x40 0x20,
    }
);

/// A private structure, from the kernel's symbols only: constants would decode another build
/// confidently and wrongly.
pub(crate) struct Private<'a> {
    target: &'a dyn Target,
    layout: TypeLayout,
}

/// The kernel's private layouts are not known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{type_name} is private to the kernel and its symbols are not loaded{wanted}; set a symbol path that has them"
)]
pub struct NoTypeInformation {
    pub type_name: String,
    /// The PDB that would have it, in words.
    pub wanted: String,
}

/// What the kernel's PDB is called, for a message.
pub(crate) fn wanted_pdb(target: &dyn Target) -> String {
    let nt = target.modules().ok().and_then(|modules| modules.iter().find(|m| m.name == "nt").cloned());
    let pdb = nt.and_then(|nt| {
        nt.pdb.clone().or_else(|| target.symbol_status(nt.base, true).ok().and_then(|status| status.pdb))
    });
    pdb.map(|pdb| format!(" ({}, {})", pdb.file_name(), pdb.key())).unwrap_or_default()
}

impl From<NoTypeInformation> for TargetError {
    fn from(error: NoTypeInformation) -> Self {
        Self::failed_because("no_type_information", error.to_string())
    }
}

impl<'a> Private<'a> {
    pub(crate) fn of(target: &'a dyn Target, type_name: &str) -> Result<Self, NoTypeInformation> {
        let failed =
            || NoTypeInformation { type_name: format!("nt!{type_name}"), wanted: wanted_pdb(target) };
        match target.type_layout(&format!("nt!{type_name}")) {
            Ok(layout) if (1..=0x1000).contains(&layout.size) => Ok(Self { target, layout }),
            _ => Err(failed()),
        }
    }
    pub(crate) fn size(&self) -> u64 {
        self.layout.size
    }
    pub(crate) fn offset(&self, path: &str) -> Result<u64, NoTypeInformation> {
        member(self.target, &self.layout, path).filter(|at| *at < self.layout.size).ok_or_else(|| {
            NoTypeInformation {
                type_name: format!("nt!{}.{path}", self.layout.name),
                wanted: wanted_pdb(self.target),
            }
        })
    }
    /// Offset of the member after `path`, or the size of the structure: where `path` ends.
    pub(crate) fn end_of(&self, path: &str) -> Result<u64, NoTypeInformation> {
        let at = self.offset(path)?;
        let size = self.layout.fields.iter().find(|field| field.name == path).map_or(0, |field| field.size);
        let next = self.layout.fields.iter().map(|field| field.offset).filter(|next| *next > at).min();
        Ok(if size > 0 { at + size } else { next.unwrap_or(self.layout.size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abi_of_both_widths() {
        let driver = DriverLayout::abi(Machine::X64);
        assert_eq!(driver.major_function + 0xe * 8, 0xe0);
        assert_eq!(DriverLayout::abi(Machine::X86).major_function + 0xe * 4, 0x70);
        assert_eq!((driver.size - driver.major_function) / 8, 28);
        assert_eq!(IrpLayout::abi(Machine::X86).current_stack_location, 0x60);
        assert_eq!(DeviceLayout::abi(Machine::Arm64), DeviceLayout::abi(Machine::X64));
    }
}
