//! Kernel functions the pass knows something about.

/// Calls that change nothing about whether a request was accepted: completing it, tracing, releasing
/// locks.
const BENIGN: [&str; 25] = [
    "DbgPrint",
    "DbgPrintEx",
    "vDbgPrintEx",
    "vDbgPrintExWithPrefix",
    "EtwWrite",
    "EtwWriteEx",
    "EtwWriteTransfer",
    "EtwWriteString",
    "EtwEventEnabled",
    "EtwProviderEnabled",
    "WmiTraceMessage",
    "WmiTraceMessageVa",
    "IofCompleteRequest",
    "IoCompleteRequest",
    "KeReleaseSpinLock",
    "KfReleaseSpinLock",
    "KeReleaseSpinLockFromDpcLevel",
    "KeReleaseInStackQueuedSpinLock",
    "KeLowerIrql",
    "KfLowerIrql",
    "IoReleaseRemoveLockEx",
    "KeReleaseMutex",
    "ExReleaseFastMutex",
    "ExReleaseResourceLite",
    "KeLeaveCriticalRegion",
];

/// Whether a call of `name` says nothing about acceptance.
#[must_use]
pub fn is_benign(name: &str) -> bool {
    BENIGN.contains(&name)
}

/// Whether `name` completes a request.
#[must_use]
pub fn completes(name: &str) -> bool {
    matches!(name, "IofCompleteRequest" | "IoCompleteRequest")
}

/// Bytes of stack arguments that functions take off an x86 stack (wdm.h, ntddk.h: `stdcall` pops its
/// arguments, `fastcall` all but two, `cdecl` none).
const POPPED: [(&str, u32); 72] = [
    ("DbgPrint", 0),
    ("DbgPrintEx", 0),
    ("memcpy", 0),
    ("memset", 0),
    ("memmove", 0),
    ("IofCompleteRequest", 0),
    ("IofCallDriver", 0),
    ("ObfDereferenceObject", 0),
    ("ObfReferenceObject", 0),
    ("KfAcquireSpinLock", 0),
    ("KfReleaseSpinLock", 0),
    ("KfRaiseIrql", 0),
    ("KfLowerIrql", 0),
    ("ExAcquireFastMutex", 0),
    ("ExReleaseFastMutex", 0),
    ("KefAcquireSpinLockAtDpcLevel", 0),
    ("KefReleaseSpinLockFromDpcLevel", 0),
    ("KeEnterCriticalRegion", 0),
    ("KeLeaveCriticalRegion", 0),
    ("ExGetPreviousMode", 0),
    ("PsGetCurrentProcessId", 0),
    ("IoGetCurrentProcess", 0),
    ("ExAllocatePool", 8),
    ("ExAllocatePoolWithTag", 12),
    ("ExAllocatePool2", 16),
    ("ExFreePool", 4),
    ("ExFreePoolWithTag", 8),
    ("ProbeForRead", 12),
    ("ProbeForWrite", 12),
    ("RtlInitUnicodeString", 8),
    ("RtlInitAnsiString", 8),
    ("RtlCopyUnicodeString", 8),
    ("IoCreateDevice", 28),
    ("IoDeleteDevice", 4),
    ("IoCreateSymbolicLink", 8),
    ("IoDeleteSymbolicLink", 4),
    ("IoAllocateMdl", 20),
    ("IoFreeMdl", 4),
    ("MmProbeAndLockPages", 12),
    ("MmUnlockPages", 4),
    ("MmMapLockedPages", 8),
    ("MmMapLockedPagesSpecifyCache", 24),
    ("MmUnmapLockedPages", 8),
    ("MmMapIoSpace", 16),
    ("MmUnmapIoSpace", 12),
    ("MmGetPhysicalAddress", 4),
    ("MmIsAddressValid", 4),
    ("KeInitializeEvent", 12),
    ("KeSetEvent", 12),
    ("KeClearEvent", 4),
    ("KeResetEvent", 4),
    ("KeWaitForSingleObject", 20),
    ("KeInitializeSpinLock", 4),
    ("KeQuerySystemTime", 4),
    ("KeDelayExecutionThread", 12),
    ("ObReferenceObjectByHandle", 24),
    ("ObOpenObjectByPointer", 28),
    ("PsLookupProcessByProcessId", 8),
    ("PsLookupThreadByThreadId", 8),
    ("KeStackAttachProcess", 8),
    ("KeUnstackDetachProcess", 4),
    ("ZwClose", 4),
    ("ZwOpenProcess", 16),
    ("ZwTerminateProcess", 8),
    ("ZwOpenSection", 12),
    ("ZwMapViewOfSection", 40),
    ("ZwUnmapViewOfSection", 8),
    ("IoValidateDeviceIoControlAccess", 8),
    ("IoGetRequestorProcess", 4),
    ("SeSinglePrivilegeCheck", 12),
    ("HalGetBusDataByOffset", 24),
    ("HalSetBusDataByOffset", 24),
];

/// Bytes `name` takes off an x86 stack, if it is known.
#[must_use]
pub fn popped(name: &str) -> Option<u32> {
    let bare = name.trim_start_matches(['_', '@']);
    if let Some((base, bytes)) = bare.split_once('@') {
        let bytes = bytes.parse::<u32>().ok()?;
        return Some(if name.starts_with('@') { bytes.saturating_sub(8) } else { bytes })
            .filter(|_| !base.is_empty());
    }
    POPPED.iter().find(|(known, _)| *known == bare).map(|(_, bytes)| *bytes)
}
