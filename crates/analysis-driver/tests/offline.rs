//! Drivers nobody loaded: the repository's test drivers and the real ones of the data, as objects.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use analysis_driver::{
    AbsenceKind, HandlerKind, LinkSearch, ObjectSource, SecurityRequest, Verdict, device_security,
    find_device, find_driver, find_irp, render_driver, render_security,
};
use engine_native::OpenOptions;
use target::{Halt, Target};

fn open(path: &Path) -> Box<dyn Target> {
    engine_native::open(path, &OpenOptions::default()).unwrap()
}

fn request(device: &str) -> SecurityRequest<'_> {
    SecurityRequest { device, links: true, link_directory: "\\GLOBAL??", all_sessions: false, model: true }
}

#[test]
fn the_devices_of_d27_have_the_gates_their_sources_say() {
    for build in ["x64-clang", "x64-gcc-o2", "arm64-clang"] {
        let path = test_data::fixture(&format!("drivers/bin/{build}/d27.sys"));
        let target = open(&path);
        let halt = Halt::unbounded();
        let driver = find_driver(target.as_ref(), "d27", Some(8), &halt).unwrap();
        assert_eq!(driver.source, ObjectSource::Replay);
        assert!(driver.address.is_none());
        assert!(driver.dispatch.entries.iter().any(|entry| entry.kind == HandlerKind::Own), "{build}");
        assert_eq!(driver.devices.unwrap().device_count, 4, "{build}");
        let gate = device_security(target.as_ref(), &request("\\??\\D27Again"), &halt).unwrap();
        assert_eq!(gate.device, "\\Device\\D27", "{build}");
        let links: Vec<_> = gate.links.iter().map(|link| (link.path.as_str(), link.hops)).collect();
        let wanted = [("\\DosDevices\\D27", 1), ("\\DosDevices\\D27Other", 1), ("\\DosDevices\\D27Again", 2)];
        assert_eq!(links, wanted, "{build}: a link to a link leads here too");
        if build == "x64-clang" {
            let driver = find_driver(target.as_ref(), "d27", Some(8), &halt).unwrap();
            insta::assert_snapshot!("d27_driver", render_driver(&driver));
        }
    }
}

#[test]
fn a_device_that_is_not_made_names_those_that_are() {
    let target = open(&test_data::fixture("drivers/bin/x64-clang/d27.sys"));
    let error = find_device(target.as_ref(), "nonesuch", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("not_found"));
    assert!(error.to_string().contains("\\Device\\"), "{error}");
    let error = find_irp(target.as_ref(), Some("1"), &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category(), ("unsupported", Some("unsupported_target")));
}

#[test]
fn everyone_may_open_the_open_door() {
    let target = open(&test_data::fixture("drivers/bin/x64-clang/open.sys"));
    let driver = find_driver(target.as_ref(), "open", Some(8), &Halt::unbounded()).unwrap();
    assert_eq!(driver.devices.unwrap().device_count, 1);
    let device = find_device(target.as_ref(), "OpenDoor", false, &Halt::unbounded()).unwrap();
    let gate = device_security(target.as_ref(), &request("OpenDoor"), &Halt::unbounded()).unwrap();
    assert_eq!(gate.device, device.path.unwrap());
    let model = gate.access_model.as_ref().unwrap();
    let user = model.tokens.iter().find(|row| row.token.name() == "standard_user").unwrap();
    assert_eq!(user.writes, Verdict::Yes, "{model:#?}");
    assert_eq!((gate.link_search, gate.links.len()), (LinkSearch::Skipped, 1));
    insta::assert_snapshot!("open_door", render_security(&gate));
}

#[test]
fn the_wdk_sample_is_made_without_a_descriptor() {
    let Some(shared) = test_data::shared() else { return };
    let target = open(&shared.join("drivers/sioctl_x64.sys"));
    let gate = device_security(target.as_ref(), &request("SIOCTL"), &Halt::unbounded()).unwrap();
    assert_eq!(gate.security_absent.unwrap().kind, AbsenceKind::None);
    assert!(gate.secure_open);
    assert!(gate.links.iter().any(|link| link.path.ends_with("IoctlTest")), "{:?}", gate.links);
}

#[test]
fn a_name_that_is_not_this_driver_is_refused() {
    let target = open(&test_data::fixture("drivers/bin/x64-clang/open.sys"));
    let halt = Halt::unbounded();
    for mine in ["", "open", "OPEN.SYS", "\\Driver\\open", "0x140001000"] {
        assert!(find_driver(target.as_ref(), mine, None, &halt).is_ok(), "{mine}");
    }
    let error = find_driver(target.as_ref(), "foo", None, &halt).unwrap_err();
    assert_eq!(error.category().1, Some("not_found"), "{error}");
}
