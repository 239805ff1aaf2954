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
