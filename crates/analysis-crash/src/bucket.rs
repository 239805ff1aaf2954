//! Failure buckets and their hash (spec 60 sections 2.5 and 2.6).

use md5::{Digest as _, Md5};

/// What nothing blamed is called.
pub(crate) const INCONCLUSIVE: &str = "ANALYSIS_INCONCLUSIVE!unknown_function";

/// Which buckets: Microsoft's hash starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketSpace {
    Kernel,
    User,
}

/// `FAILURE_ID_HASH` of a bucket: the MD5 of the lower-case UTF-16LE text `km:BUCKET` or `um:BUCKET`
/// read as a GUID in memory layout. Exact: equal to Microsoft's where the bucket is.
#[must_use]
pub fn failure_hash(space: BucketSpace, bucket: &str) -> String {
    let prefix = match space {
        BucketSpace::Kernel => "km:",
        BucketSpace::User => "um:",
    };
    let bytes: Vec<u8> = prefix
        .encode_utf16()
        .chain(bucket.to_ascii_lowercase().encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let digest: [u8; 16] = Md5::digest(&bytes).into();
    let d = digest;
    let first = u32::from_le_bytes([d[0], d[1], d[2], d[3]]);
    let second = u16::from_le_bytes([d[4], d[5]]);
    let third = u16::from_le_bytes([d[6], d[7]]);
    let tail: String = d[10..].iter().map(|b| format!("{b:02x}")).collect();
    format!("{first:08x}-{second:04x}-{third:04x}-{:02x}{:02x}-{tail}", d[8], d[9])
}

/// Template and path punctuation of a function name as buckets spell it.
#[must_use]
pub(crate) fn folded(function: &str) -> String {
    function
        .chars()
        .map(|c| if matches!(c, '<' | '>' | '"' | '/' | '\\' | ' ' | '`' | '\'') { '_' } else { c })
        .collect()
}

/// `module!Function`, or `module!unknown_function`; nothing blamed: the inconclusive name.
#[must_use]
pub(crate) fn symbol_part(module: Option<&str>, function: Option<&str>) -> String {
    match (module, function) {
        (Some(module), Some(function)) => format!("{module}!{}", folded(function)),
        (Some(module), None) => format!("{module}!unknown_function"),
        (None, _) => INCONCLUSIVE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_public_analyses() {
        for (text, hash) in [
            ("km:av_ndis!ndisqueueioworkitem", "10686423-afa1-4852-ad1b-9324ac44ac96"),
            ("km:0x1e_c0000005_r_nt!cmpcreatekeybody", "c4b33015-e33f-270e-d1a4-e4a9a8d630df"),
            (
                "km:0x139_1d_invalid_balanced_tree_driver!unknown_function",
                "8ebd2998-ea64-b96c-aae8-2108d8c92247",
            ),
            ("km:0x9f_3_rtsper_image_pci.sys", "ce555a86-e2a6-4bdd-cc96-f64b1a03e85a"),
            ("km:0x116_image_nvlddmkm.sys", "c89bfe8c-ed39-f658-ef27-f2898997fdbd"),
            ("km:memory_corruption_one_bit", "e3faf315-c3d0-81db-819a-6c43d23c63a7"),
            ("um:invalid_pointer_read_c0000005_qt6core.dll!unknown", "11f85110-02eb-30ad-d320-ae4675a7890a"),
            (
                "um:heap_corruption_actionable_blocknotbusy_double_free_c0000374_ntdll.dll!rtlpfreeheapinternal",
                "f9e860eb-b03f-7415-804c-7e671e26c730",
            ),
            (
                "um:software_nx_fault_c0000005_chrome_child.dll!webrtc::peerconnection::removetrack",
                "8dd97ce9-008b-c2fa-d8f1-2086df973582",
            ),
        ] {
            let (space, bucket) = text.split_once(':').unwrap();
            let space = if space == "km" { BucketSpace::Kernel } else { BucketSpace::User };
            assert_eq!(failure_hash(space, bucket), hash, "{text}");
            assert_eq!(failure_hash(space, &bucket.to_ascii_uppercase()), hash, "case does not matter");
        }
    }

    #[test]
    fn folding() {
        assert_eq!(folded("Foo<Bar>::Swap"), "Foo_Bar_::Swap");
        assert_eq!(symbol_part(Some("a"), Some("operator \"\"_x")), "a!operator____x");
        assert_eq!(symbol_part(Some("a"), None), "a!unknown_function");
        assert_eq!(symbol_part(None, None), INCONCLUSIVE);
    }
}
