//! The scripts `windbg-mcp driver` writes for IDA and Ghidra, run against stand-ins for both that record
//! what they are told: every handler is named, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Where the disassembler has the image: not where the file wants it.
const BASE: u64 = 0x7ff6_1234_0000;

fn exported(driver: &Path, folder: &Path) -> Value {
    let file = |name: &str| folder.join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(["driver", "--json", "--ida"])
        .arg(file("ida.py"))
        .arg("--ghidra")
        .arg(file("ghidra.py"))
        .arg(driver)
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The calls a script makes: what, where, and the text. `None` without Python.
fn calls(program: &str, folder: &Path, functions: &[u64]) -> Option<Vec<(String, u64, String)>> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/disassemblers.py");
    let output = Command::new("python3")
        .arg(runner)
        .arg(program)
        .arg(folder.join(format!("{program}.py")))
        .arg(format!("{BASE:#x}"))
        .args(functions.iter().map(|address| format!("{address:#x}")))
        .output();
    let Ok(output) = output else {
        test_data::not_run("no python3");
        return None;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// From the map: each address with its symbol, if it has one, and the codes that lead there.
fn expected(answer: &Value) -> BTreeMap<u64, (Option<String>, BTreeSet<String>)> {
    let mut places: BTreeMap<u64, (Option<String>, BTreeSet<String>)> = BTreeMap::new();
    let symbol = |place: &Value| place["symbol"].as_str().map(ToOwned::to_owned);
    for map in answer["surface"]["ioctl"].as_array().unwrap() {
        let dispatch = &map["dispatch"];
        places.entry(BASE + number(&dispatch["rva"])).or_default().0 = symbol(dispatch);
        for row in map["codes"].as_array().unwrap().iter().filter(|row| row["accepted"] != false) {
            let handler = row.get("handler").filter(|handler| handler.get("rva").is_some());
            let rva = handler.map_or_else(|| number(&row["case_rva"]), |handler| number(&handler["rva"]));
            let place = places.entry(BASE + rva).or_default();
            place.0 = place.0.take().or_else(|| handler.and_then(symbol));
            place.1.insert(row["code"].as_str().unwrap().to_owned());
        }
    }
    places
}

fn check(driver: &str, with_symbols: bool) {
    let folder = tempfile::tempdir().unwrap();
    let source = test_data::fixture("drivers/bin/x64-clang");
    for file in [format!("{driver}.sys"), format!("{driver}.pdb")] {
        if with_symbols || file.ends_with(".sys") {
            std::fs::copy(source.join(&file), folder.path().join(&file)).unwrap();
        }
    }
    let answer = exported(&folder.path().join(format!("{driver}.sys")), folder.path());
    let expected = expected(&answer);
    assert!(expected.len() > 1, "{answer}");
    assert_eq!(
        expected.values().any(|(symbol, _)| symbol.is_some()),
        with_symbols,
        "{driver}: {expected:x?}"
    );
    let first = *expected.keys().next().unwrap();
    for (program, functions) in [("ida", vec![]), ("ghidra", vec![]), ("ghidra", vec![first])] {
        let Some(calls) = calls(program, folder.path(), &functions) else { return };
        let named = |kind: &str| -> BTreeMap<u64, String> {
            calls.iter().filter(|call| call.0 == kind).map(|call| (call.1, call.2.clone())).collect()
        };
        let (names, renamed, comments) = (named("name"), named("function"), named("comment"));
        assert_eq!(calls.len(), 2 * expected.len(), "{program}: each address is named and explained once");
        assert_eq!(renamed.keys().copied().collect::<Vec<_>>(), functions, "{program}");
        for (address, (symbol, codes)) in &expected {
            let name = names.get(address).or_else(|| renamed.get(address));
            let name = name.unwrap_or_else(|| panic!("{program}: nothing at {address:#x}: {calls:?}"));
            let first = codes.first().map(|code| code["0x".len()..].to_uppercase());
            let made = first.map_or_else(|| "Dispatch_".to_owned(), |code| format!("Ioctl_{code}"));
            let right = symbol.as_ref().map_or_else(|| name.starts_with(&made), |symbol| name == symbol);
            assert!(right, "{program}: {name} at {address:#x} is neither {symbol:?} nor {made}");
            for code in codes.iter().take(8) {
                assert!(comments[address].contains(code.as_str()), "{program}: {comments:?} lacks {code}");
            }
        }
    }
}

#[test]
fn handlers_get_their_symbols() {
    check("open", true);
}

#[test]
fn handlers_without_symbols_are_named_after_their_codes() {
    check("open", false);
    check("d22", false);
    check("d28", false);
}
