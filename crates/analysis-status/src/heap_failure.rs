//! Heap failure types: parameter 1 of bug check 0x13A and `HEAP_FAILURE_INFORMATION.FailureType`.
//! The numbering shifted between releases; a PDB's `_HEAP_FAILURE_TYPE` is better where loaded.

/// What the type means, in words.
#[must_use]
pub fn heap_failure_name(kind: u64) -> Option<&'static str> {
    Some(match kind {
        0x3 => "corrupt entry header",
        0x4 => "several corrupt entry headers",
        0x5 => "corrupt header of a large block",
        0x6 => "buffer overrun",
        0x7 => "buffer underrun",
        0x8 => "block not busy",
        0x9 => "invalid argument",
        0xa => "wrong allocation type",
        0xb => "use after free",
        0xc => "wrong heap",
        0xd => "corrupt free list",
        0xe => "corrupt list entry",
        0xf => "illegal operation on a free block",
        0x10 => "corrupt internal state",
        0x11 => "double free",
        0x12 => "corrupt internal state",
        0x13 => "null heap handle",
        0x14 => "allocation limit reached",
        0x15 => "commit limit reached",
        0x16 => "internal failure",
        0x17 => "corrupt delay-free list",
        _ => return None,
    })
}

/// The kind as user-mode buckets spell it (`HEAP_CORRUPTION_ACTIONABLE_<kind>`).
#[must_use]
pub fn heap_failure_bucket(kind: u64) -> Option<&'static str> {
    Some(match kind {
        0x3 => "EntryCorruption",
        0x4 => "MultipleEntriesCorruption",
        0x5 => "VirtualBlockCorruption",
        0x6 => "BufferOverrun",
        0x7 => "BufferUnderrun",
        0x8 => "BlockNotBusy_DOUBLE_FREE",
        0x9 => "InvalidArgument",
        0xa => "InvalidAllocationType",
        0xb => "UsageAfterFree",
        0xc => "CrossHeapOperation",
        0xd => "FreeListsCorruption",
        0xe => "ListEntryCorruption",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown() {
        assert!((3..=0x17).all(|kind| heap_failure_name(kind).is_some()));
        assert_eq!(heap_failure_name(2), None);
        assert_eq!(heap_failure_bucket(8), Some("BlockNotBusy_DOUBLE_FREE"));
        assert_eq!(heap_failure_bucket(0x18), None);
    }
}
