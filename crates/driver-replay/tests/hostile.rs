//! Damaged and made-up images: a replay ends, within its budgets, whatever it is given.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::rc::Rc;

use driver_replay::{PlacedImage, discover, replay};
use pe::FileImage;
use proptest::prelude::*;
use target::Halt;

fn try_all(bytes: Vec<u8>) {
    let Ok(file) = FileImage::new(bytes) else { return };
    let Some(image) = PlacedImage::of_file(Rc::new(file), None, "hostile.sys") else { return };
    let result = replay(&image, &Halt::unbounded());
    assert!(result.runs.len() <= 4);
    assert!(result.runs.iter().map(|r| r.instructions).sum::<u64>() <= 5_100_000);
    assert!(result.runs.iter().all(|r| r.stub_calls <= 10_001));
    let _ = discover(&image, &result);
}

fn drivers() -> Vec<Vec<u8>> {
    ["x64-gcc-o2/d28.sys", "x86-clang/d27.sys", "arm64-clang/d28b.sys", "x64-clang/d12.sys"]
        .iter()
        .map(|name| std::fs::read(test_data::fixture("drivers/bin").join(name)).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes changed anywhere: headers, imports, relocations, code, data.
    #[test]
    fn mutated_drivers(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        headers in any::<bool>(),
    ) {
        let mut bytes = drivers().swap_remove(which);
        let end = if headers { 0x400.min(bytes.len()) } else { bytes.len() };
        for (at, byte) in changes {
            let at = at.index(end);
            bytes[at] = byte;
        }
        try_all(bytes);
    }

    /// The entry's code replaced by anything.
    #[test]
    fn random_code(which in 0usize..4, code in prop::collection::vec(any::<u8>(), 16..300)) {
        let mut bytes = drivers().swap_remove(which);
        let file = FileImage::new(bytes.clone()).unwrap();
        let entry = file.file_offset(file.pe().entry_point).unwrap() as usize;
        let count = code.len().min(bytes.len() - entry);
        bytes[entry..entry + count].copy_from_slice(&code[..count]);
        try_all(bytes);
    }

    #[test]
    fn truncated(which in 0usize..4, keep in any::<prop::sample::Index>()) {
        let mut bytes = drivers().swap_remove(which);
        let length = keep.index(bytes.len());
        bytes.truncate(length);
        try_all(bytes);
    }
}
