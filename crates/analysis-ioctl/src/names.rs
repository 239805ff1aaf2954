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

/// Bytes `name` takes off an x86 stack, if it is known.
#[must_use]
pub fn popped(name: &str) -> Option<u32> {
    let bare = name.trim_start_matches(['_', '@']);
    if let Some((base, bytes)) = bare.split_once('@') {
        let bytes = bytes.parse::<u32>().ok()?;
        return Some(if name.starts_with('@') { bytes.saturating_sub(8) } else { bytes })
            .filter(|_| !base.is_empty());
    }
    driver_replay::stack_bytes(bare)
}
