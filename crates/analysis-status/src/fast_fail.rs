//! Fast-fail codes: parameter 0 of 0xC0000409 and parameter 1 of bug check 0x139
//! (`FAST_FAIL_*` of winnt.h by the crate `windows` 0.62; MIT or Apache-2.0).

/// The name without `FAST_FAIL_`.
#[must_use]
pub fn fast_fail_name(code: u64) -> Option<&'static str> {
    // One line a code: a table.
    Some(match code {
        0 => "LEGACY_GS_VIOLATION",
        1 => "VTGUARD_CHECK_FAILURE",
        2 => "STACK_COOKIE_CHECK_FAILURE",
        3 => "CORRUPT_LIST_ENTRY",
        4 => "INCORRECT_STACK",
        5 => "INVALID_ARG",
        6 => "GS_COOKIE_INIT",
        7 => "FATAL_APP_EXIT",
        8 => "RANGE_CHECK_FAILURE",
        9 => "UNSAFE_REGISTRY_ACCESS",
        10 => "GUARD_ICALL_CHECK_FAILURE",
        11 => "GUARD_WRITE_CHECK_FAILURE",
        12 => "INVALID_FIBER_SWITCH",
        13 => "INVALID_SET_OF_CONTEXT",
        14 => "INVALID_REFERENCE_COUNT",
        18 => "INVALID_JUMP_BUFFER",
        19 => "MRDATA_MODIFIED",
        20 => "CERTIFICATION_FAILURE",
        21 => "INVALID_EXCEPTION_CHAIN",
        22 => "CRYPTO_LIBRARY",
        23 => "INVALID_CALL_IN_DLL_CALLOUT",
        24 => "INVALID_IMAGE_BASE",
        25 => "DLOAD_PROTECTION_FAILURE",
        26 => "UNSAFE_EXTENSION_CALL",
        27 => "DEPRECATED_SERVICE_INVOKED",
        28 => "INVALID_BUFFER_ACCESS",
        29 => "INVALID_BALANCED_TREE",
        30 => "INVALID_NEXT_THREAD",
        31 => "GUARD_ICALL_CHECK_SUPPRESSED",
        32 => "APCS_DISABLED",
        33 => "INVALID_IDLE_STATE",
        34 => "MRDATA_PROTECTION_FAILURE",
        35 => "UNEXPECTED_HEAP_EXCEPTION",
        36 => "INVALID_LOCK_STATE",
        37 => "GUARD_JUMPTABLE",
        38 => "INVALID_LONGJUMP_TARGET",
        39 => "INVALID_DISPATCH_CONTEXT",
        40 => "INVALID_THREAD",
        41 => "INVALID_SYSCALL_NUMBER",
        42 => "INVALID_FILE_OPERATION",
        43 => "LPAC_ACCESS_DENIED",
        44 => "GUARD_SS_FAILURE",
        45 => "LOADER_CONTINUITY_FAILURE",
        46 => "GUARD_EXPORT_SUPPRESSION_FAILURE",
        47 => "INVALID_CONTROL_STACK",
        48 => "SET_CONTEXT_DENIED",
        49 => "INVALID_IAT",
        50 => "HEAP_METADATA_CORRUPTION",
        51 => "PAYLOAD_RESTRICTION_VIOLATION",
        52 => "LOW_LABEL_ACCESS_DENIED",
        53 => "ENCLAVE_CALL_FAILURE",
        54 => "UNHANDLED_LSS_EXCEPTON",
        55 => "ADMINLESS_ACCESS_DENIED",
        56 => "UNEXPECTED_CALL",
        57 => "CONTROL_INVALID_RETURN_ADDRESS",
        58 => "UNEXPECTED_HOST_BEHAVIOR",
        59 => "FLAGS_CORRUPTION",
        60 => "VEH_CORRUPTION",
        61 => "ETW_CORRUPTION",
        62 => "RIO_ABORT",
        63 => "INVALID_PFN",
        64 => "GUARD_ICALL_CHECK_FAILURE_XFG",
        65 => "CAST_GUARD",
        66 => "HOST_VISIBILITY_CHANGE",
        67 => "KERNEL_CET_SHADOW_STACK_ASSIST",
        68 => "PATCH_CALLBACK_FAILED",
        69 => "NTDLL_PATCH_FAILED",
        70 => "INVALID_FLS_DATA",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!((0..=70).filter(|&code| fast_fail_name(code).is_some()).count(), 68);
        assert_eq!(fast_fail_name(7), Some("FATAL_APP_EXIT"));
        assert_eq!(fast_fail_name(0x1d), Some("INVALID_BALANCED_TREE"));
        assert_eq!(fast_fail_name(15), None);
        assert_eq!(fast_fail_name(71), None);
    }
}
