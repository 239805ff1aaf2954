//! Kernel routines findings are about, and which of their arguments matter.

/// What a routine does with the arguments named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// Copies; the length.
    Copy(usize),
    /// Allocates; the size.
    Allocate(usize),
    /// Maps physical memory or a section.
    Map,
    /// Names a process, thread or handle, first argument.
    Process,
    /// `ObReferenceObjectByHandle`: the handle, and the access mode (1 checks).
    Handle { mode: usize },
    /// Makes a user pointer safe to use: the pointer.
    Probe(usize),
    /// Decides who may.
    AccessCheck,
    /// Fills memory; the length.
    Fill(usize),
}

pub(super) fn sink(name: &str) -> Option<Sink> {
    Some(match name {
        "memcpy"
        | "memmove"
        | "RtlCopyMemory"
        | "RtlMoveMemory"
        | "RtlCopyMemoryNonTemporal"
        | "strncpy"
        | "wcsncpy" => Sink::Copy(2),
        "MmCopyMemory" => Sink::Copy(2),
        "MmCopyVirtualMemory" => Sink::Copy(4),
        "memset" | "RtlFillMemory" => Sink::Fill(2),
        "RtlZeroMemory" => Sink::Fill(1),
        "ExAllocatePool"
        | "ExAllocatePool2"
        | "ExAllocatePool3"
        | "ExAllocatePoolWithTag"
        | "ExAllocatePoolWithQuotaTag"
        | "ExAllocatePoolWithTagPriority" => Sink::Allocate(1),
        "MmAllocateContiguousMemory"
        | "MmAllocateContiguousMemorySpecifyCache"
        | "MmAllocateContiguousMemorySpecifyCacheNode"
        | "MmAllocateNonCachedMemory" => Sink::Allocate(0),
        "MmMapIoSpace"
        | "MmMapIoSpaceEx"
        | "ZwMapViewOfSection"
        | "HalSetBusDataByOffset"
        | "HalTranslateBusAddress"
        | "MmGetVirtualForPhysical" => Sink::Map,
        "PsLookupProcessByProcessId"
        | "PsLookupThreadByThreadId"
        | "ObOpenObjectByPointer"
        | "ZwTerminateProcess"
        | "ZwDuplicateObject"
        | "KeStackAttachProcess"
        | "KeAttachProcess"
        | "ZwAllocateVirtualMemory"
        | "ZwProtectVirtualMemory"
        | "ZwReadVirtualMemory"
        | "ZwWriteVirtualMemory"
        | "ZwOpenProcessToken" => Sink::Process,
        "ObReferenceObjectByHandle" => Sink::Handle { mode: 3 },
        "ProbeForRead" | "ProbeForWrite" => Sink::Probe(0),
        "MmProbeAndLockPages" | "MmProbeAndLockProcessPages" => Sink::Probe(0),
        "SeAccessCheck"
        | "SePrivilegeCheck"
        | "SeSinglePrivilegeCheck"
        | "ZwQueryInformationToken"
        | "SeQueryInformationToken"
        | "RtlCheckTokenMembership"
        | "IoValidateDeviceIoControlAccess"
        | "ExGetPreviousMode" => Sink::AccessCheck,
        _ => return None,
    })
}

/// Routines that a code anybody may send should not reach (kinds `physical_memory`, `process_access`).
pub(super) fn is_sensitive(name: &str) -> bool {
    matches!(sink(name), Some(Sink::Map | Sink::Process | Sink::Handle { .. }))
        || matches!(name, "ZwOpenSection" | "ZwOpenProcess" | "ZwOpenThread" | "HalGetBusDataByOffset")
}
