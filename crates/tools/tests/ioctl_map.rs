//! `ioctl_map`, and the findings of `driver_hazards`, over image sessions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod worker_call;

use engine_native::{OpenOptions, open};
use serde_json::{Value, json};
use target::Target;
use worker_call::call;

fn driver(build: &str, id: &str) -> Box<dyn Target> {
    open(&test_data::fixture(&format!("drivers/bin/{build}/{id}.sys")), &OpenOptions::default()).unwrap()
}

fn codes(map: &Value) -> Vec<&str> {
    map["codes"].as_array().unwrap().iter().map(|row| row["code"].as_str().unwrap()).collect()
}

/// A bare file needs no address: DriverEntry says where the codes arrive.
#[test]
fn the_codes_of_a_bare_file() {
    let (data, text) = call(&*driver("x64-clang", "d07"), "ioctl_map", json!({})).unwrap();
    assert_eq!(codes(&data), ["0x00222000", "0x00222004", "0x00222008"]);
    assert_eq!(data["complete"], json!(true));
    assert_eq!(data["source"], json!("replay"));
    assert_eq!(data["codes"][0]["in_size"], json!(32));
    assert_eq!(data["codes"][1]["out_range"]["min"], json!(16));
    assert_eq!(data["codes"][2]["accepted"], json!(false));
    assert_eq!(data["codes"][0]["sites"][0]["verified"], json!(true));
    insta::assert_snapshot!("ioctl_map_d07", text);
}

#[test]
fn a_routine_that_is_named_and_what_is_no_routine() {
    let target = driver("x64-clang", "d01");
    let (data, _) = call(&*target, "ioctl_map", json!({})).unwrap();
    let dispatch = data["dispatch"]["address"].as_str().unwrap().to_owned();
    let args = json!({ "dispatch": dispatch, "max_codes": 2, "verify": false });
    let (named, _) = call(&*target, "ioctl_map", args).unwrap();
    assert_eq!((codes(&named).len(), &named["code_count"]), (2, &json!(5)));
    assert_eq!(named["complete"], json!(false), "the list is cut");
    assert!(named["codes"][0]["sites"][0].get("verified").is_none());
    let base = target.modules().unwrap()[0].base;
    let error = call(&*target, "ioctl_map", json!({ "dispatch": format!("{base:#x}") })).unwrap_err();
    assert!(format!("{error:?}").contains("not_code"), "{error:?}");
}

/// Every map of a KMDF client, the main one first.
#[test]
fn a_framework_client_has_a_map_a_callback() {
    let (data, _) = call(&*driver("x64-clang", "d28"), "ioctl_map", json!({})).unwrap();
    assert_eq!(data["convention"], json!("wdf_device_control"));
    assert_eq!(codes(&data), ["0x00222003", "0x0022200e", "0x9c402011"]);
    let others = data["maps"].as_array().unwrap();
    assert!(
        others
            .iter()
            .any(|map| map["convention"] == json!("wdf_in_caller_context") && codes(map) == ["0x0022e003"]),
        "{others:?}"
    );
    assert!(data["note"].as_str().unwrap().contains("queue"), "{}", data["note"]);
}

/// A driver with a fast-I/O entry is never complete without it: each entry has its map, and one alone
/// says what it lacks.
#[test]
fn fast_io_is_mapped_or_missed() {
    let target = driver("x64-clang", "d32");
    let (data, text) = call(&*target, "ioctl_map", json!({})).unwrap();
    let others = data["maps"].as_array().unwrap();
    assert_eq!((data["convention"].as_str(), others.len()), (Some("wdm"), 1), "{text}");
    assert_eq!([&data["complete"], &others[0]["complete"]], [true, true], "{text}");
    assert_eq!(codes(&data), ["0x00222003", "0x00222007", "0x9c40a004"]);
    assert_eq!(others[0]["convention"], json!("fast_io"));
    assert_eq!(codes(&others[0]), ["0x00222003", "0x00222400", "0x00222404", "0x0022e40c"]);
    let alone = json!({ "dispatch": data["dispatch"]["address"] });
    let (alone, text) = call(&*target, "ioctl_map", alone).unwrap();
    assert_eq!((codes(&alone), &alone["complete"]), (codes(&data), &json!(false)), "{text}");
    assert!(alone["note"].as_str().unwrap().contains("fast-I/O routine"), "{text}");
}

/// Each planted fault once, the device's gate too; the repaired twin has nothing.
#[test]
fn findings_of_the_hazard_drivers() {
    let args = json!({ "sections": ["findings"] });
    let (data, text) = call(&*driver("x64-clang", "d24"), "driver_hazards", args.clone()).unwrap();
    let rows = data["findings"]["rows"].as_array().unwrap();
    let classes: Vec<&str> = rows.iter().map(|row| row["class"].as_str().unwrap()).collect();
    assert_eq!(classes.len(), 16, "{text}");
    assert!(classes.contains(&"unguarded_device"));
    let rows = rows.iter().filter(|row| row["at"].is_object());
    assert!(rows.clone().count() == 15 && rows.clone().all(|row| row["at"]["rva"].is_string()));
    let (data, text) = call(&*driver("x64-clang", "d24f"), "driver_hazards", args).unwrap();
    assert_eq!(data["findings"]["rows"].as_array().unwrap().len(), 0, "{text}");
}
