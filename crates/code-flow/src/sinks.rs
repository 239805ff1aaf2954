//! Kernel routines worth knowing about when a driver calls them. A call is evidence, not a verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bumped on any change of the list.
pub const SINK_LIST_VERSION: &str = "1";

/// What a sink is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SinkKind {
    BufferCopy,
    UserPointerGuard,
    Allocation,
    ArithmeticGuard,
    PhysicalMemory,
    ProcessAccess,
    Callback,
    Persistence,
    AccessCheck,
    DynamicResolution,
}

const LIST: [(SinkKind, &[&str]); 10] = [
    (
        SinkKind::BufferCopy,
        &[
            "memcpy",
            "memmove",
            "RtlCopyMemory",
            "RtlMoveMemory",
            "RtlCopyMemoryNonTemporal",
            "MmCopyMemory",
            "MmCopyVirtualMemory",
            "RtlCopyUnicodeString",
            "wcscpy",
            "strcpy",
            "wcscat",
            "strcat",
            "sprintf",
            "swprintf",
            "wcsncpy",
            "strncpy",
            "_vsnprintf",
            "_vsnwprintf",
        ],
    ),
    (
        SinkKind::UserPointerGuard,
        &[
            "ProbeForRead",
            "ProbeForWrite",
            "MmProbeAndLockPages",
            "MmProbeAndLockProcessPages",
            "MmIsAddressValid",
            "ExGetPreviousMode",
        ],
    ),
    (
        SinkKind::Allocation,
        &[
            "ExAllocatePool",
            "ExAllocatePool2",
            "ExAllocatePool3",
            "ExAllocatePoolWithTag",
            "ExAllocatePoolWithQuotaTag",
            "ExAllocatePoolWithTagPriority",
            "MmAllocateContiguousMemory",
            "MmAllocateContiguousMemorySpecifyCache",
            "MmAllocateContiguousMemorySpecifyCacheNode",
            "MmAllocateContiguousNodeMemory",
            "MmAllocateNonCachedMemory",
            "MmAllocatePagesForMdl",
            "MmAllocatePagesForMdlEx",
        ],
    ),
    (
        SinkKind::ArithmeticGuard,
        &[
            "RtlULongAdd",
            "RtlULongMult",
            "RtlULongSub",
            "RtlULongLongAdd",
            "RtlULongLongMult",
            "RtlSizeTAdd",
            "RtlSizeTMult",
        ],
    ),
    (
        SinkKind::PhysicalMemory,
        &[
            "MmMapIoSpace",
            "MmMapIoSpaceEx",
            "MmGetPhysicalAddress",
            "MmGetVirtualForPhysical",
            "MmMapLockedPages",
            "MmMapLockedPagesSpecifyCache",
            "ZwMapViewOfSection",
            "ZwOpenSection",
            "HalTranslateBusAddress",
            "HalGetBusDataByOffset",
            "HalSetBusDataByOffset",
        ],
    ),
    (
        SinkKind::ProcessAccess,
        &[
            "PsLookupProcessByProcessId",
            "PsLookupThreadByThreadId",
            "ObReferenceObjectByHandle",
            "ObOpenObjectByPointer",
            "ZwOpenProcess",
            "ZwOpenThread",
            "ZwOpenProcessToken",
            "ZwDuplicateObject",
            "ZwTerminateProcess",
            "KeStackAttachProcess",
            "KeAttachProcess",
            "ZwAllocateVirtualMemory",
            "ZwProtectVirtualMemory",
            "ZwReadVirtualMemory",
            "ZwWriteVirtualMemory",
            "KeInsertQueueApc",
        ],
    ),
    (
        SinkKind::Callback,
        &[
            "PsSetCreateProcessNotifyRoutine",
            "PsSetCreateProcessNotifyRoutineEx",
            "PsSetCreateProcessNotifyRoutineEx2",
            "PsSetLoadImageNotifyRoutine",
            "PsSetLoadImageNotifyRoutineEx",
            "PsSetCreateThreadNotifyRoutine",
            "CmRegisterCallback",
            "CmRegisterCallbackEx",
            "ObRegisterCallbacks",
        ],
    ),
    (
        SinkKind::Persistence,
        &[
            "ZwCreateFile",
            "ZwOpenFile",
            "ZwWriteFile",
            "ZwDeleteFile",
            "ZwSetInformationFile",
            "ZwSetValueKey",
            "ZwCreateKey",
            "ZwDeleteKey",
            "ZwLoadDriver",
            "IoCreateSymbolicLink",
            "IoCreateSymbolicLink2",
            "IoCreateUnprotectedSymbolicLink",
        ],
    ),
    (
        SinkKind::AccessCheck,
        &[
            "SeAccessCheck",
            "SePrivilegeCheck",
            "SeSinglePrivilegeCheck",
            "ZwQueryInformationToken",
            "SeQueryInformationToken",
            "IoIs32bitProcess",
            "RtlCheckTokenMembership",
            "IoValidateDeviceIoControlAccess",
        ],
    ),
    (
        SinkKind::DynamicResolution,
        &["MmGetSystemRoutineAddress", "FltGetRoutineAddress", "NdisGetRoutineAddress"],
    ),
];

/// KMDF routines that hand out the caller's own memory or IRP, by index into the framework's
/// function table (1.9 numbering; later versions only append).
pub const WDF_SINKS: [(u32, &str); 6] = [
    (273, "WdfRequestRetrieveUnsafeUserInputBuffer"),
    (274, "WdfRequestRetrieveUnsafeUserOutputBuffer"),
    (278, "WdfRequestProbeAndLockUserBufferForRead"),
    (279, "WdfRequestProbeAndLockUserBufferForWrite"),
    (280, "WdfRequestGetRequestorMode"),
    (285, "WdfRequestWdmGetIrp"),
];

/// The kind of a routine, by its exact name.
#[must_use]
pub fn sink_kind(name: &str) -> Option<SinkKind> {
    LIST.iter().find(|(_, names)| names.contains(&name)).map(|(kind, _)| *kind)
}
