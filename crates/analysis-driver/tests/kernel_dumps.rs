//! Objects in dumps: the repository's kernel fixture, and a real kernel's layouts against the ABI.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use analysis_driver::{
    DeviceLayout, DriverLayout, IrpLayout, LayoutSource, Parameters, SecurityRequest, StackLocationLayout,
    device_security, find_device, find_driver, find_irp, render_device, render_driver, render_irp,
    render_security,
};
use engine_native::OpenOptions;
use target::{Halt, Target};

fn open(dump: &Path, symbols: &Path) -> Box<dyn Target> {
    let options = OpenOptions { symbol_path: Some(symbols.display().to_string()), ..OpenOptions::default() };
    engine_native::open(dump, &options).unwrap()
}

fn fixture() -> Box<dyn Target> {
    let dump = test_data::fixture("kernel.dmp");
    open(&dump, dump.parent().unwrap())
}

#[test]
fn the_driver_of_the_fixture() {
    let target = fixture();
    let halt = Halt::unbounded();
    let driver = find_driver(target.as_ref(), "FAULTDRV", Some(8), &halt).unwrap();
    insta::assert_snapshot!("driver", render_driver(&driver));
    let device = find_device(target.as_ref(), "\\??\\FaultDrv", true, &halt).unwrap();
    insta::assert_snapshot!("device", render_device(&device));
    let request = SecurityRequest {
        device: "FaultDrv",
        links: true,
        link_directory: "\\GLOBAL??",
        all_sessions: false,
        model: true,
    };
    insta::assert_snapshot!(
        "security",
        render_security(&device_security(target.as_ref(), &request, &halt).unwrap())
    );
}

/// The request lies where the fixture's builder put it: found by its device, as a reader would.
#[test]
fn the_request_of_the_fixture() {
    let target = fixture();
    let halt = Halt::unbounded();
    let device = find_device(target.as_ref(), "FaultDrv", false, &halt).unwrap().address.unwrap().0;
    let irp = (device..device + 0x2000)
        .step_by(16)
        .find(|at| find_irp(target.as_ref(), Some(&format!("{at:#x}")), &halt).is_ok_and(|irp| irp.type_ok))
        .expect("no IRP behind the device");
    let read = find_irp(target.as_ref(), Some(&format!("{irp:#x}")), &halt).unwrap();
    assert!(matches!(
        read.locations[0].parameters,
        Some(Parameters::DeviceControl { ref input, .. }) if input.length == 16
    ));
    insta::assert_snapshot!("request", render_irp(&read));
}

#[test]
fn a_real_kernels_layouts_agree_with_the_abi() {
    let Some(shared) = test_data::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(shared.join("isf")).unwrap() {
        let path = file.unwrap().path();
        if path.to_string_lossy().ends_with(".json.xz") {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let target = open(&shared.join("kernel/triage_x64_19041_7e.dmp"), folder.path());
    let target = target.as_ref();
    let layouts = [
        (DriverLayout::of(target).source, DriverLayout::of(target).mismatch),
        (DeviceLayout::of(target).source, DeviceLayout::of(target).mismatch),
        (IrpLayout::of(target).source, IrpLayout::of(target).mismatch),
        (StackLocationLayout::of(target).source, StackLocationLayout::of(target).mismatch),
    ];
    for (source, mismatch) in layouts {
        assert_eq!((source, mismatch), (LayoutSource::Symbols, Vec::<String>::new()));
    }
    // A minidump of a real machine has no object namespace, and says which address did not read.
    let error = find_driver(target, "beep", None, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("no_namespace"), "{error}");
}
