//! Drivers that are not ours: Microsoft's samples from the shared data, WinDivert from PyPI (the lab
//! downloads it; it is never committed).

use super::*;

fn shared(name: &str) -> Option<Vec<u8>> {
    std::fs::read(test_data::shared()?.join("drivers").join(name)).ok()
}

#[test]
fn sioctl_has_its_four_codes() {
    let Some(bytes) = shared("sioctl_x64.sys") else {
        return test_data::not_run("drivers/sioctl_x64.sys is not here");
    };
    let found = replayed(bytes.clone());
    let map = map(&open(bytes), &request(&found.entries[0], None));
    assert_eq!(codes(&map), [0x9c40_2401, 0x9c40_2406, 0x9c40_2408, 0x9c40_240f].into());
    assert!(map.complete && map.code_proved, "{map:?}");
    assert!(map.codes.iter().all(|row| row.in_range.and_then(|r| r.min) == Some(1)));
}

#[test]
fn bsod_has_no_routine_for_codes() {
    let Some(bytes) = shared("bsod_x64.sys") else {
        return test_data::not_run("drivers/bsod_x64.sys is not here");
    };
    assert!(replayed(bytes).entries.is_empty());
}

/// A driver the lab fetched; absent outside it only.
fn fetched(name: &str) -> Option<Vec<u8>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.lab/pydivert").join(name);
    let bytes = std::fs::read(&path).ok();
    assert!(
        bytes.is_some() || std::env::var_os("WINDBG_MCP_LAB").is_none(),
        "no {}: cargo xtask lab",
        path.display()
    );
    bytes
}

#[test]
fn windivert_of_pypi() {
    const OLD: [u32; 8] =
        [0x12_2422, 0x12_2425, 0x12_2429, 0x12_242d, 0x12_2431, 0x12_2435, 0x12_2439, 0x12_243e];
    const NEW: [u32; 7] = [0x12_648e, 0x12_649a, 0x12_e486, 0x12_e489, 0x12_e491, 0x12_e495, 0x12_e49d];
    let drivers: [(&str, &[u32], u64); 3] = [
        ("windivert-1.3-x64.sys", &OLD, 0x2a80),
        ("windivert-1.3-x86.sys", &OLD, 0x2bb6),
        ("windivert-2.2-x64.sys", &NEW, 0x8710),
    ];
    for (name, wanted, rva) in drivers {
        let Some(bytes) = fetched(name) else {
            return test_data::not_run("pydivert's drivers are not here: cargo xtask lab");
        };
        let found = replayed(bytes.clone());
        let image = open(bytes);
        let control = found.entries.iter().find(|e| e.kind == EntryKind::WdfDeviceControl);
        let control = control.unwrap_or_else(|| panic!("{name}: {found:?}"));
        assert_eq!(control.address.0 - image.base, rva, "{name}");
        let control = map(&image, &request(control, found.bind.as_ref()));
        assert_eq!(codes(&control), wanted.iter().copied().collect(), "{name}: {control:?}");
        assert!(control.complete && control.code_proved, "{name}: {control:?}");
        assert!(control.codes.iter().all(|r| r.sites.iter().all(|s| s.verified == Some(true))), "{name}");
        let context = found.entries.iter().find(|e| e.kind == EntryKind::WdfInCallerContext);
        if let Some(context) = context {
            let context = map(&image, &request(context, found.bind.as_ref()));
            assert_eq!(codes(&context), wanted.iter().copied().collect(), "{name}: {context:?}");
        }
    }
}
