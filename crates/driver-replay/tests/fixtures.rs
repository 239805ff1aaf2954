//! The test drivers of `fixtures/drivers`, every build, against what their sources say.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::rc::Rc;

use driver_replay::{EntryKind, EntrySource, PlacedImage, Replay, ReplayStatus, discover, replay};
use pe::FileImage;
use target::{Code, Halt};

fn folder() -> PathBuf {
    test_data::fixture("drivers")
}

fn place(path: &Path) -> PlacedImage {
    let file = FileImage::new(std::fs::read(path).unwrap()).unwrap();
    PlacedImage::of_file(Rc::new(file), None, path.to_str().unwrap()).unwrap()
}

fn run(path: &Path) -> (PlacedImage, Replay) {
    let image = place(path);
    let result = replay(&image, &Halt::unbounded());
    (image, result)
}

/// Every committed build of `name`.
fn builds(name: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder().join("bin"))
        .unwrap()
        .map(|build| build.unwrap().path().join(format!("{name}.sys")))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

#[test]
fn every_driver_is_replayed_to_its_end() {
    let mut seen = 0;
    for build in std::fs::read_dir(folder().join("bin")).unwrap() {
        for file in std::fs::read_dir(build.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "sys") {
                continue;
            }
            let (image, result) = run(&path);
            let shown = path.display();
            assert_eq!(result.status, ReplayStatus::Complete, "{shown}: {:?}", result.stopped_at);
            assert_eq!(result.runs.len(), 1, "{shown}");
            assert_eq!(result.runs[0].returned, Some(Code(0)), "{shown}");
            let entries = discover(&image, &result);
            assert!(!entries.entries.is_empty(), "{shown}");
            assert!(entries.entries.iter().all(|e| e.source == EntrySource::Replay), "{shown}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

/// `key: value` lines of a source's leading comment.
fn says(source: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("src").join(source)).unwrap();
    let prefix = format!("// {key}: ");
    text.lines().filter_map(|l| l.strip_prefix(&prefix)).map(str::to_owned).collect()
}

fn links(result: &Replay) -> Vec<String> {
    result.links.iter().map(|l| format!("{} {}", l.path, l.target)).collect()
}

#[test]
fn d27_devices_links_and_descriptors() {
    let paths = builds("d27");
    assert!(paths.len() >= 7, "{paths:?}");
    for path in paths {
        let (_, result) = run(&path);
        let devices: Vec<String> = result
            .devices
            .iter()
            .map(|d| {
                let sddl = d.sddl.as_ref().map(|s| format!(" sddl={s}")).unwrap_or_default();
                let exclusive = if d.exclusive { "yes" } else { "no" };
                let (kind, chars) = (d.device_type.0, d.characteristics.0);
                let name = d.name.as_deref().unwrap();
                format!("{name} type={kind:#x} characteristics={chars:#x} exclusive={exclusive}{sddl}")
            })
            .collect();
        assert_eq!(devices, says("d27_devices.c", "device"), "{}", path.display());
        assert_eq!(links(&result), says("d27_devices.c", "link"), "{}", path.display());
        let guid = result.devices[1].class_guid.unwrap();
        let guid = serde_json::to_string(&guid).unwrap().to_lowercase();
        assert!(guid.contains("d27d27d227d24d27a7d27d27d27d27d2"), "{guid}");
        let dispatch = result.dispatch.unwrap();
        assert!(dispatch[0].is_some() && dispatch[0] == dispatch[2] && dispatch[0x0e].is_some());
        assert_eq!(dispatch.iter().flatten().count(), 3);
        assert_eq!(dispatch.len(), 28);
    }
}

#[test]
fn d28_binds_by_array_and_by_pointer() {
    for (name, source, pointer) in [("d28", "d28_kmdf.c", false), ("d28b", "d28b_kmdf.c", true)] {
        let paths = builds(name);
        assert!(paths.len() >= 7, "{paths:?}");
        for path in paths {
            let (image, result) = run(&path);
            let shown = path.display();
            let calls = result.framework.clone().unwrap();
            let bind = calls.bind.unwrap();
            assert_eq!(bind.table_is_pointer, pointer, "{shown}");
            let framework = format!("{} functions={}", bind.version, bind.function_count);
            assert_eq!(vec![framework], says(source, "framework"), "{shown}");
            let device = &result.devices[0];
            let (device_name, sddl) = (device.name.as_deref().unwrap(), device.sddl.as_deref().unwrap());
            assert_eq!(vec![format!("{device_name} sddl={sddl}")], says(source, "device"), "{shown}");
            assert_eq!(links(&result), says(source, "link"), "{shown}");
            assert_eq!(calls.queues.len(), 2, "{shown}");
            assert!(calls.queues[0].default && calls.queues[0].device_control.is_some());
            let entries = discover(&image, &result);
            let kinds: Vec<EntryKind> = entries.entries.iter().map(|e| e.kind).collect();
            assert_eq!(kinds, [EntryKind::WdfDeviceControl, EntryKind::WdfInCallerContext], "{shown}");
            assert!(entries.manual_queue, "{shown}");
            // The same from the file alone.
            assert_eq!(driver_replay::static_bind(&image).as_ref(), entries.bind.as_ref(), "{shown}");
            assert!(calls.driver_config.unwrap().unload.is_some());
        }
    }
}

#[test]
fn real_drivers() {
    let Some(data) = test_data::shared() else { return };
    let (image, result) = run(&data.join("drivers/sioctl_x64.sys"));
    assert_eq!(result.status, ReplayStatus::Complete, "{:?}", result.stopped_at);
    assert_eq!(result.devices[0].name.as_deref(), Some("\\Device\\SIOCTL"));
    assert_eq!(links(&result), ["\\DosDevices\\IoctlTest \\Device\\SIOCTL"]);
    assert_eq!(discover(&image, &result).entries[0].kind, EntryKind::Wdm);
    assert!(result.unload.is_some());

    let (image, result) = run(&data.join("drivers/bsod_x64.sys"));
    assert!(discover(&image, &result).entries.is_empty());
    assert!(result.devices.is_empty() && result.links.is_empty());
}
