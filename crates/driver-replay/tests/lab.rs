//! Real drivers the lab fetches: WinDivert 1.3 (x64, x86) and 2.2 (x64), and Wine's own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::rc::Rc;

use driver_replay::{Entries, EntryKind, PlacedImage, Replay, discover, framework_of, replay};
use pe::FileImage;
use target::Halt;

fn place(path: &Path) -> PlacedImage {
    let file = FileImage::new(std::fs::read(path).unwrap()).unwrap();
    PlacedImage::of_file(Rc::new(file), None, path.to_str().unwrap()).unwrap()
}

fn run(name: &str) -> Option<(PlacedImage, Replay, Entries)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.lab/pydivert").join(name);
    if !path.is_file() {
        assert!(std::env::var_os("WINDBG_MCP_LAB").is_none(), "no {}: cargo xtask lab", path.display());
        test_data::not_run(&format!("no {}", path.display()));
        return None;
    }
    let image = place(&path);
    let result = replay(&image, &Halt::unbounded());
    let entries = discover(&image, &result);
    Some((image, result, entries))
}

struct Expected {
    file: &'static str,
    device: &'static str,
    link: &'static str,
    table: u64,
    device_control: u64,
    in_caller_context: Option<u64>,
    unload: Option<u64>,
}

fn check(expected: &Expected) {
    let Some((image, result, entries)) = run(expected.file) else { return };
    let rva = |address: target::Address| address.0 - image.base;
    let shown = serde_json::to_string_pretty(&result).unwrap();
    let imports = image.pe.imports(image.bytes.as_ref());
    let framework = framework_of(&imports).unwrap();
    assert_eq!((framework.name.as_str(), framework.tells.len()), ("kmdf", 1));
    let device = result.devices.iter().find(|d| d.name.is_some()).expect(&shown);
    assert_eq!(device.name.as_deref(), Some(expected.device), "{shown}");
    assert_eq!(device.sddl.as_deref(), Some("D:P(A;;GA;;;SY)(A;;GA;;;BA)"), "{shown}");
    assert_eq!(result.links[0].path, expected.link, "{shown}");
    let calls = result.framework.as_ref().unwrap();
    let bind = calls.bind.as_ref().unwrap();
    assert_eq!((bind.version.as_str(), bind.function_count), ("1.9.7600", 396));
    assert_eq!(rva(bind.function_table), expected.table);
    assert_eq!(driver_replay::static_bind(&image).as_ref(), Some(bind));
    // The second queue, a manual one, is made for each file that is opened.
    assert_eq!(calls.queues.len(), 1, "{shown}");
    assert!(calls.queues[0].default);
    assert_eq!(entries.queue_sites.len(), 2);
    assert!(entries.manual_queue);
    // A pool of NDIS was refused, so the entry failed; with its pools it is content.
    assert_eq!(result.runs[1].changed.as_deref(), Some("NdisAllocateNetBufferListPool"));
    let last = result.runs.last().unwrap();
    assert_eq!((last.returned, last.chosen), (Some(target::Code(0)), true), "{shown}");
    let control = entries.entries.iter().find(|e| e.kind == EntryKind::WdfDeviceControl).expect(&shown);
    assert_eq!(rva(control.address), expected.device_control, "{shown}");
    if let Some(wanted) = expected.in_caller_context {
        let context = entries.entries.iter().find(|e| e.kind == EntryKind::WdfInCallerContext).unwrap();
        assert_eq!(rva(context.address), wanted);
    }
    if let Some(wanted) = expected.unload {
        assert_eq!(calls.driver_config.as_ref().and_then(|c| c.unload).map(rva), Some(wanted));
    }
}

#[test]
fn windivert_1_3_x64() {
    check(&Expected {
        file: "windivert-1.3-x64.sys",
        device: "\\Device\\WinDivert1.3",
        link: "\\??\\WinDivert1.3",
        table: 0x8410,
        device_control: 0x2a80,
        in_caller_context: Some(0x284c),
        unload: Some(0x15dc),
    });
}

#[test]
fn windivert_1_3_x86() {
    check(&Expected {
        file: "windivert-1.3-x86.sys",
        device: "\\Device\\WinDivert1.3",
        link: "\\??\\WinDivert1.3",
        table: 0x6208,
        device_control: 0x2bb6,
        in_caller_context: None,
        unload: None,
    });
}

#[test]
fn windivert_2_2_x64() {
    check(&Expected {
        file: "windivert-2.2-x64.sys",
        device: "\\Device\\WinDivert",
        link: "\\??\\WinDivert",
        table: 0x15190,
        device_control: 0x8710,
        in_caller_context: Some(0x4920),
        unload: Some(0xb4c0),
    });
}

/// Not native, full of DWARF sections, linked against Wine's own libraries.
#[test]
fn wines_drivers_end_well() {
    let Some(folder) = test_data::wine_images() else { return };
    for name in ["nsiproxy.sys", "mountmgr.sys", "http.sys", "winebus.sys", "cng.sys"] {
        let path = folder.join(name);
        if !path.is_file() {
            continue;
        }
        let image = place(&path);
        let result = replay(&image, &Halt::unbounded());
        let entries = discover(&image, &result);
        if name == "nsiproxy.sys" {
            assert_eq!(entries.entries[0].kind, EntryKind::Wdm, "{:?}", result.stopped_at);
            assert_eq!(result.devices[0].name.as_deref(), Some("\\Device\\Nsi"));
        }
    }
}
