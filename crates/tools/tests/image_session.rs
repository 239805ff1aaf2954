//! What an image session says of its file, and what it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod worker_call;

use engine_native::{OpenOptions, open};
use serde_json::{Value, json};
use target::Target;
use tools::{Category, ToolError, summary_of};

fn driver(build: &str, id: &str) -> Box<dyn Target> {
    open(&test_data::fixture(&format!("drivers/bin/{build}/{id}.sys")), &OpenOptions::default()).unwrap()
}

fn call(target: &dyn Target, tool: &str, args: Value) -> Result<Value, ToolError> {
    worker_call::call(target, tool, args).map(|(data, _)| data)
}

#[test]
fn a_summary_names_the_file() {
    let summary = summary_of(&*driver("x64-gcc-o2", "d28"));
    let image = summary.image.unwrap();
    assert!(image.facts.is_driver);
    assert_eq!(image.facts.subsystem, "native");
    assert_eq!(image.facts.framework.as_deref(), Some("kmdf"));
    assert_eq!(image.facts.sections.len(), 9);
    assert_eq!(image.facts.sections[5].access, "rw");
    assert_eq!(image.facts.warnings, Vec::<String>::new());
    assert!(image.facts.sha256.is_some() && image.facts.authenticode.is_some());
    let value = serde_json::to_value(&image).unwrap();
    assert_eq!(value["replay"]["status"], "on_first_use");
    assert!(summary_of(&*driver("x86-gcc", "d01")).image.unwrap().facts.framework.is_none());
}

#[test]
fn there_are_no_threads_to_ask_about() {
    let target = driver("x64-clang", "d01");
    for tool in ["registers", "threads", "backtrace", "current_location"] {
        let error = call(&*target, tool, json!({})).unwrap_err();
        assert_eq!(error.category, Category::Unsupported, "{tool}");
        assert!(error.message.contains("image file"), "{tool}: {}", error.message);
    }
}

#[test]
fn zeros_that_the_file_does_not_hold_are_marked() {
    let target = driver("x64-gcc-o2", "d28");
    let base = target.modules().unwrap()[0].base;
    let read = |rva: u64| {
        call(&*target, "read_memory", json!({ "address": format!("{:#x}", base + rva), "size": 16 })).unwrap()
    };
    // .bss has no bytes in the file, .text has all of them.
    assert_eq!(read(0x6000)["uninitialised"], true);
    assert_eq!(read(0x6000)["data"], "0".repeat(32));
    assert!(read(0x1000).get("uninitialised").is_none());
}

#[test]
fn a_call_through_an_import_slot_has_the_imports_name() {
    // Away from its symbols, whose names of the slots say it already.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bare.sys");
    std::fs::copy(test_data::fixture("drivers/bin/x64-clang/d01.sys"), &file).unwrap();
    let target = open(&file, &OpenOptions::default()).unwrap();
    let args = json!({ "address": "0x140001000", "count": 128 });
    let answer = call(&*target, "disassemble", args).unwrap();
    let texts: Vec<&str> =
        answer["instructions"].as_array().unwrap().iter().filter_map(|row| row["text"].as_str()).collect();
    let import = texts.iter().find_map(|text| text.split_once("{ntoskrnl!")?.1.strip_suffix('}'));
    let import = import.unwrap_or_else(|| panic!("{texts:#?}"));
    // The name alone has no address; where its slot is, is said.
    let error = call(&*target, "disassemble", json!({ "address": format!("bare!{import}") }))
        .unwrap_err()
        .to_string();
    assert!(error.contains(&format!("{import} is an import of bare")), "{error}");
    assert!(error.contains("its slot is bare+0x"), "{error}");
    // Who calls it is asked of that slot; nothing is decoded where nothing is.
    let named = call(&*target, "xrefs_to", json!({ "address": import })).unwrap();
    let slot = error.rsplit_once("its slot is ").unwrap().1.split(':').next().unwrap();
    assert_eq!(named, call(&*target, "xrefs_to", json!({ "address": slot })).unwrap());
    let nowhere = call(&*target, "disassemble", json!({ "address": "0x10" })).unwrap_err();
    assert!(nowhere.to_string().contains("cannot read 0x0000000000000010"), "{nowhere}");
}
