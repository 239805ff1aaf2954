//! The native engine holds to what every engine must, on every dump and image of the test data.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
mod shared;

use engine_native::{OpenOptions, open};
use shared::{Prepared, data, dumps};

#[test]
fn every_dump_conforms() {
    let Some(data) = data() else { return };
    let mut broken = Vec::new();
    for dump in dumps(&data) {
        let prepared = Prepared::new(&data, &dump);
        let Ok(target) = open(&prepared.path, &prepared.options) else { continue };
        broken
            .extend(target::conformance::check(target.as_ref()).into_iter().map(|f| format!("{dump}: {f}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_image_conforms() {
    let Some(data) = data() else { return };
    let images = [
        "pe/arm64test.exe",
        "pe/cfi_chained_loop.exe",
        "pe/fpo_x86/basic32-min.dll",
        "pe/ms_seh/x64/xcpt4.exe",
        "pe/ms_seh/x86/xcpt4.exe",
        "pe/ms_seh/ARM64/xcpt4.exe",
        "drivers/sioctl_x64.sys",
        "drivers/bsod_x64.sys",
    ];
    let mut broken = Vec::new();
    for image in images {
        let target = open(&data.join(image), &OpenOptions::default()).unwrap();
        broken
            .extend(target::conformance::check(target.as_ref()).into_iter().map(|f| format!("{image}: {f}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The repository's own fixtures are always there.
#[test]
fn every_fixture_conforms() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut seen = 0;
    let mut broken = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ![".dmp", ".exe", ".sys"].iter().any(|end| name.ends_with(end)) {
            continue;
        }
        seen += 1;
        let target = open(&entry.path(), &OpenOptions::default()).unwrap();
        broken
            .extend(target::conformance::check(target.as_ref()).into_iter().map(|f| format!("{name}: {f}")));
    }
    assert!(seen > 1, "no fixtures");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
