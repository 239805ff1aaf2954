//! Mutated and truncated dumps: whatever happens, it is an answer, and soon.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/exercise.rs"]
mod exercise;
mod support;

use proptest::prelude::*;

/// Small dumps of every format, as far as the shared data is there.
fn seeds() -> Vec<Vec<u8>> {
    let Some(data) = support::data() else { return Vec::new() };
    let names = [
        "user/bp_minidump2.dmp",
        "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
        "user/forged_arm64/forged_arm64.dmp",
        "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
        "user/llvm_sigsegv_x64.dmp",
        "kernel/full_header_only_19045.dmp",
        "kernel/triage_x64_19041_7e.dmp",
        "synthetic/syn_full_x64.dmp",
        "synthetic/syn_bmp5_x64.dmp",
        "synthetic/syn_rdmp8_x64.dmp",
        "negative/invalid-range.dmp",
        "negative/invalid-record-count.dmp",
        "negative/trunc_memory64.dmp",
    ];
    names.iter().map(|name| std::fs::read(data.join(name)).unwrap()).collect()
}

/// Where damage matters most: headers and tables at the start, and anywhere.
fn damage() -> impl Strategy<Value = Vec<(f64, bool, u8, u8)>> {
    proptest::collection::vec((0.0..1.0f64, any::<bool>(), any::<u8>(), 0u8..5), 1..12)
}

fn apply(bytes: &mut Vec<u8>, damages: &[(f64, bool, u8, u8)], keep: f64) {
    for &(at, near, value, kind) in damages {
        let span = if near { bytes.len().min(0x3000) } else { bytes.len() };
        let index = (at * span as f64) as usize;
        let end = (index + 1 + 4 * usize::from(kind > 2)).min(bytes.len());
        let filler = [value, 0xff, 0, 0x80, 0x7f][usize::from(kind)];
        bytes[index..end].fill(filler);
    }
    bytes.truncate((keep * bytes.len() as f64) as usize);
}

#[test]
fn damaged_dumps_are_answered() {
    let seeds = seeds();
    if seeds.is_empty() {
        return;
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    });
    let strategy = (0..seeds.len(), damage(), prop_oneof![Just(1.0), 0.0..1.0f64]);
    let outcome = runner.run(&strategy, |(seed, damages, keep)| {
        let mut bytes = seeds[seed].clone();
        apply(&mut bytes, &damages, keep);
        let before = std::time::Instant::now();
        exercise::exercise(&bytes);
        prop_assert!(before.elapsed().as_secs() < 10, "took {:?}", before.elapsed());
        Ok(())
    });
    outcome.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    /// Each signature with noise behind it.
    #[test]
    fn noise_is_answered(
        signature in prop_oneof![Just("MDMP"), Just("USERDU64"), Just("PAGEDU64"), Just("PAGEDUMP"), Just("MZ")],
        noise in proptest::collection::vec(any::<u8>(), 0..0x3000),
    ) {
        let mut bytes = signature.as_bytes().to_vec();
        bytes.extend(noise);
        exercise::exercise(&bytes);
    }
}

#[test]
fn every_truncation_of_a_small_dump_is_answered() {
    let Some(data) = support::data() else { return };
    let bytes = std::fs::read(data.join("user/bp_minidump2.dmp")).unwrap();
    for length in 0..bytes.len() {
        exercise::exercise(&bytes[..length]);
    }
}
