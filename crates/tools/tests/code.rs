//! The code tools over image sessions of the native engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod worker_call;

use engine_native::{OpenOptions, open};
use serde_json::json;
use target::Target;
use worker_call::call;

fn driver(build: &str, id: &str) -> Box<dyn Target> {
    image(&test_data::fixture(&format!("drivers/bin/{build}/{id}.sys")))
}

fn image(path: &std::path::Path) -> Box<dyn Target> {
    open(path, &OpenOptions::default()).unwrap()
}

/// What marks of a driver's source say, as addresses.
fn marks(target: &dyn Target) -> Vec<u64> {
    use target::MemoryExt;
    let base = target.modules().unwrap()[0].base;
    let headers: Vec<u8> = target.read_prefix(base, 0x400).0;
    let at = headers.windows(8).position(|name| name == b".marks\0\0").unwrap();
    let word = |at: usize| u64::from(u32::from_le_bytes(headers[at..at + 4].try_into().unwrap()));
    let (size, rva) = (word(at + 8), word(at + 12));
    (0..size / 4).map(|i| base + u64::from(target.read_u32(base + rva + i * 4).unwrap())).collect()
}

#[test]
fn references_to_an_address() {
    let target = driver("x64-clang", "d29");
    let wanted = marks(&*target)[0];
    let (data, text) = call(&*target, "xrefs_to", json!({ "address": format!("{wanted:#x}") })).unwrap();
    assert_eq!(
        data["by_kind"],
        json!({ "call": 2, "jump": 1, "branch": 1, "table": 1, "address_taken": 1, "data_pointer": 1 })
    );
    assert_eq!(data["site_count"], 7);
    assert_eq!(data["complete"], true);
    assert_eq!(data["images"][0]["bytes_from"], "image_file");
    let init = data["sites"].as_array().unwrap().iter().find(|s| s["at"]["section"] == "INIT").unwrap();
    assert_eq!(init["discardable"], true);
    insta::assert_snapshot!("xrefs_to_d29", text);

    let some = json!({ "address": format!("{wanted:#x}"), "kinds": ["call"], "limit": 1 });
    let (data, _) = call(&*target, "xrefs_to", some).unwrap();
    assert_eq!((data["site_count"].as_u64(), data["sites"].as_array().unwrap().len()), (Some(2), 1));
    assert_eq!((&data["complete"], &data["coverage"]["caps"]), (&json!(false), &json!(["limit"])));
}

#[test]
fn a_place_is_an_address_or_a_module_and_an_rva() {
    let target = driver("x64-clang", "d29");
    for args in
        [json!({}), json!({ "module": "d29" }), json!({ "address": "0x1", "module": "d29", "rva": "0x1" })]
    {
        let error = call(&*target, "xrefs_to", args).unwrap_err();
        assert_eq!(error.category, tools::Category::InvalidArgument);
    }
    let error = call(&*target, "xrefs_to", json!({ "module": "d29", "rva": "0x100000" })).unwrap_err();
    assert_eq!(error.reason.as_deref(), Some("out_of_bounds"));
    let (data, _) = call(&*target, "xrefs_to", json!({ "module": "d29", "rva": "0x10a0" })).unwrap();
    assert_eq!(data["module"], "d29");
    let error = call(&*target, "xrefs_to", json!({ "address": "0x10" })).unwrap_err();
    assert_eq!(error.reason.as_deref(), Some("not_code"));
}

#[test]
fn reachable_with_a_recipe_and_not_reachable_with_excuses() {
    let target = driver("x64-clang", "d30");
    let marks = marks(&*target);
    let at = |i: usize| format!("{:#x}", marks[i]);
    let ask = |from: String, to: String| json!({ "from": from, "address": to });
    let (data, text) = call(&*target, "reachable_from_dispatch", ask(at(4), at(0))).unwrap();
    assert_eq!(data["verdict"], "reachable");
    assert_eq!(data["recipe"][0]["steps"][0]["required"], "fallthrough");
    assert_eq!(data["recipe"][0]["steps"][0]["predicate"]["value"], "0x8");
    assert!(data["started_at"].is_string());
    assert_eq!(data["recipe"][0]["steps"][0]["predicate"]["field"], "input_length");
    assert_eq!(data["recipe"][0]["codes"], json!(["0x00222003"]));
    insta::assert_snapshot!("reachable_d30", text);

    let (data, text) = call(&*target, "reachable_from_dispatch", ask(at(11), at(3))).unwrap();
    assert_eq!(data["verdict"], "not_reachable");
    assert_eq!(data["complete"], false);
    assert!(data["unresolved_count"].as_u64().unwrap() > 0 && data["bound_hit"] == true);
    insta::assert_snapshot!("not_reachable_d30", text);

    let nowhere = json!({ "from": "0x140003000", "address": at(0) });
    let error = call(&*target, "reachable_from_dispatch", nowhere).unwrap_err();
    assert_eq!(error.reason.as_deref(), Some("not_code"));
}

#[test]
fn hazards_of_a_driver() {
    let target = driver("x64-clang", "d26");
    let parts = json!({ "sections": ["sinks", "privileged", "mitigations"] });
    let (data, text) = call(&*target, "driver_hazards", parts).unwrap();
    let sinks = data["sinks"].as_array().unwrap();
    let calls =
        |name: &str| sinks.iter().find(|s| s["name"] == name).map(|s| s["call_site_count"].as_u64().unwrap());
    assert_eq!(calls("ExAllocatePoolWithTag"), Some(1));
    assert_eq!(calls("MmMapIoSpace"), Some(1));
    assert_eq!(calls("PsLookupProcessByProcessId"), Some(0));
    assert_eq!(data["imports_named_from"], json!(["import_directory"]));
    assert_eq!(data["mitigations"]["nx_compat"], true);
    insta::assert_snapshot!("hazards_d26", text);

    let target = driver("x64-clang", "d25");
    let (data, _) = call(&*target, "driver_hazards", json!({ "sections": ["privileged"] })).unwrap();
    assert_eq!(data["privileged"]["in_function_count"], 2);
    assert!(data["privileged"]["no_unwind_entry_count"].as_u64().unwrap() >= 32);
    assert!(data.get("sinks").is_none());
    assert_eq!(data["complete"], true);
}

#[test]
fn shared_drivers_are_read_whole() {
    let Some(folder) = test_data::shared() else { return };
    let target = image(&folder.join("drivers/sioctl_x64.sys"));
    let (data, text) =
        call(&*target, "driver_hazards", json!({ "sections": ["sinks", "privileged", "mitigations"] }))
            .unwrap();
    assert_eq!(data["complete"], true, "{text}");
    let sinks = data["sinks"].as_array().unwrap();
    let names: Vec<&str> = sinks.iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"MmProbeAndLockPages") && names.contains(&"MmMapLockedPagesSpecifyCache"),
        "{names:?}"
    );
    for sink in sinks {
        println!("{} {}", sink["name"], sink["call_site_count"]);
    }
}

/// A driver in a kernel dump: its pages from the dump, the rest from the file beside it; without the
/// file what is missing is unknown, never absent.
#[test]
fn a_driver_in_a_kernel_dump() {
    let ask = json!({ "module": "faultdrv", "sections": ["sinks", "privileged", "mitigations"] });
    let with_file = image(&test_data::fixture("kernel.dmp"));
    let (data, text) = call(&*with_file, "driver_hazards", ask.clone()).unwrap();
    println!("{text}");
    assert!(["image_file", "mixed", "target"].contains(&data["images"][0]["bytes_from"].as_str().unwrap()));
    assert_eq!(data["coverage"]["unreadable_bytes"], 0, "{text}");

    let alone = tempfile::tempdir().unwrap();
    let copy = alone.path().join("kernel.dmp");
    std::fs::copy(test_data::fixture("kernel.dmp"), &copy).unwrap();
    match call(&*image(&copy), "driver_hazards", ask) {
        Ok((data, text)) => {
            let unread = data["coverage"]["unreadable_bytes"].as_u64().unwrap();
            assert_eq!(data["complete"], unread == 0, "{text}");
            println!("{text}");
        }
        Err(error) => assert_eq!(error.reason.as_deref(), Some("unreadable"), "{error}"),
    }
}
