//! Hashes, version strings and signers of images, against pefile (imphash) and the files' own signatures.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use pe::FileImage;
use proptest::prelude::*;
use target::ImageFacts;

fn facts(path: &Path) -> ImageFacts {
    FileImage::new(std::fs::read(path).unwrap()).unwrap().facts(0x1_0000)
}

#[test]
fn real_drivers() {
    let Some(data) = test_data::shared() else { return };
    let sioctl = facts(&data.join("drivers/sioctl_x64.sys"));
    assert_eq!(sioctl.imphash.as_deref(), Some("62fd3d674f04ff95cac22bb45920fc75"));
    assert_eq!(
        sioctl.sha256.as_deref(),
        Some("0e72eaf7d700a7c85725690910d4aa7bec7414d7af1db431d8615979640da597")
    );
    assert!(sioctl.is_driver && sioctl.subsystem == "native");
    // Test-signed by the WDK: the signed digest is this file's.
    let signature = sioctl.signature.unwrap();
    assert_eq!(signature.digest_matches, Some(true), "{signature:?}");
    assert_eq!(signature.signers.len(), 1);
    assert!(signature.signers[0].subject.contains("WDKTestCert"), "{signature:?}");

    let bsod = facts(&data.join("drivers/bsod_x64.sys"));
    assert_eq!(bsod.imphash.as_deref(), Some("bb7c548c2ce0c585ead3173cdb34cfbe"));
    assert!(bsod.signature.is_none());
}

#[test]
fn our_drivers() {
    let d27 = facts(&test_data::fixture("drivers/bin/x64-gcc-o2/d27.sys"));
    assert_eq!(d27.imphash.as_deref(), Some("b09203ae36bc516c6ecc31463fbedc5a"));
    assert_eq!(d27.sections.iter().filter(|s| s.access == "rx").count(), 1);
    assert!(d27.authenticode.is_some() && d27.signature.is_none());
}

/// WinDivert's release signatures: SHA-1 by its author, and Microsoft's attestation.
#[test]
fn signed_drivers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.lab/pydivert");
    let cases = [
        ("windivert-1.3-x64.sys", "58623490691babe8330adc81cd04a663"),
        ("windivert-1.3-x86.sys", "a1b2e245acd47e4a348e1a552a02859a"),
        ("windivert-2.2-x64.sys", "5bfe3723089cbcfcc271ba6d7ab617aa"),
    ];
    for (name, imphash) in cases {
        let path = folder.join(name);
        if !path.is_file() {
            assert!(std::env::var_os("WINDBG_MCP_LAB").is_none(), "no {}: cargo xtask lab", path.display());
            test_data::not_run(name);
            continue;
        }
        let facts = facts(&path);
        assert_eq!(facts.imphash.as_deref(), Some(imphash), "{name}");
        let signature = facts.signature.unwrap();
        assert_eq!(signature.digest_matches, Some(true), "{name} {signature:?}");
        assert!(
            signature.signers.iter().all(|s| s.subject.starts_with("C=") || s.subject.contains("CN=")),
            "{name} {signature:?}"
        );
        // One byte of code changed: no longer what was signed.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[0x600] ^= 1;
        let changed = FileImage::new(bytes).unwrap().facts(0);
        assert_eq!(changed.signature.unwrap().digest_matches, Some(false), "{name}");
    }
}

#[test]
fn what_no_linker_writes_is_said() {
    let path = test_data::fixture("drivers/bin/x64-gcc-o2/d27.sys");
    let whole = std::fs::read(&path).unwrap();
    let cut = FileImage::new(whole[..whole.len() / 2].to_vec()).unwrap().facts(0);
    assert!(cut.warnings.iter().any(|w| w.contains("cut off")), "{:?}", cut.warnings);
    let mut entry = whole;
    let header = u32::from_le_bytes(entry[0x3c..0x40].try_into().unwrap()) as usize;
    entry[header + 24 + 16..header + 24 + 20].copy_from_slice(&0x10u32.to_le_bytes());
    let facts = FileImage::new(entry).unwrap().facts(0);
    assert!(facts.warnings.contains(&"the entry point is not in code".to_owned()), "{:?}", facts.warnings);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damaged_files_have_facts_too(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), keep in any::<prop::sample::Index>()) {
        let mut bytes = std::fs::read(test_data::fixture("drivers/bin/x64-clang/d27.sys")).unwrap();
        for (at, byte) in changes {
            let at = at.index(0x600.min(bytes.len()));
            bytes[at] = byte;
        }
        bytes.truncate(0x200 + keep.index(bytes.len()));
        if let Ok(file) = FileImage::new(bytes) {
            let facts = file.facts(u64::MAX);
            prop_assert!(facts.warnings.len() <= 32);
        }
    }
}
