//! `windbg-mcp driver` as people and scripts meet it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn drivers() -> PathBuf {
    test_data::fixture("drivers/bin/x64-clang")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .arg("driver")
        .args(arguments)
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Some drivers in a folder of their own, without PDBs.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(drivers().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn named(text: &str, folder: &Path) -> String {
    text.replace(folder.to_str().unwrap(), "FOLDER")
}

#[test]
fn a_driver_without_symbols() {
    let folder = folder(&["d24.sys"]);
    let path = folder.path().join("d24.sys");
    insta::assert_snapshot!(named(&said(&[path.to_str().unwrap()]), folder.path()));
}

/// What an ordinary user reaches comes first; the repaired twin's sinks nobody may send anything to.
#[test]
fn a_folder_is_ranked_by_what_can_be_reached() {
    let folder = folder(&["d01.sys", "d22.sys", "d24.sys", "d24f.sys", "d28.sys", "open.sys"]);
    std::fs::write(folder.path().join("notes.txt"), "no driver").unwrap();
    let text = named(&said(&[folder.path().to_str().unwrap()]), folder.path());
    let order: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("FOLDER/")?.1)).collect();
    assert_eq!(order, ["d24.sys", "open.sys", "d24f.sys", "d22.sys", "d01.sys", "d28.sys"]);
    insta::assert_snapshot!(text);
}

#[test]
fn json_is_the_tools_own_answer() {
    let path = drivers().join("d27.sys");
    let text = said(&["--json", path.to_str().unwrap()]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((answer["status"].as_str(), text.lines().count()), (Some("ok"), 1));
    assert_eq!(answer["open"]["kind"], "image");
    let devices = answer["surface"]["devices"].as_array().unwrap();
    let names: Vec<&str> = devices.iter().filter_map(|device| device["device"].as_str()).collect();
    assert_eq!(
        names,
        ["\\Device\\D27", "\\Device\\D27Secure", "\\Device\\D27Exclusive", "\\Device\\D27Open"]
    );
    assert_eq!(answer["surface"]["ioctl"][0]["codes"][0]["code"], "0x00222003");
}

#[test]
fn what_is_no_driver_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&[folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no driver (.sys) in this folder"));
    let dump = test_data::fixture("crash.dmp");
    let output = run(&[dump.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("triage reads dumps"));
    let bytes = std::fs::read(drivers().join("d01.sys")).unwrap();
    let cut = folder.path().join("cut.sys");
    std::fs::write(&cut, &bytes[..700]).unwrap();
    assert!(matches!(run(&[cut.to_str().unwrap()]).status.code(), Some(0 | 1)));
    let output = run(&["--header", "x.h", drivers().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}

/// The header compiles to the driver's own codes, the scripts are Python.
#[test]
fn exports_are_what_other_programs_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (header, ida, ghidra) = (file("open.h"), file("ida.py"), file("ghidra.py"));
    let driver = drivers().join("open.sys");
    said(&["--header", &header, "--ida", &ida, "--ghidra", &ghidra, driver.to_str().unwrap()]);
    let text = [&header, &ida, &ghidra].map(|path| std::fs::read_to_string(path).unwrap());
    insta::assert_snapshot!(text.join("\n--------\n"));

    for script in [&ida, &ghidra] {
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        match Command::new("python3").args(["-c", parse, script]).status() {
            Ok(status) => assert!(status.success(), "{script}"),
            Err(_) => test_data::not_run("no python3"),
        }
    }
    let source = file("use.c");
    let check = "#define CTL_CODE(t, f, m, a) ((t) << 16 | (a) << 14 | (f) << 2 | (m))\n\
                 enum { METHOD_BUFFERED, METHOD_IN_DIRECT, METHOD_OUT_DIRECT, METHOD_NEITHER };\n\
                 enum { FILE_ANY_ACCESS, FILE_READ_ACCESS, FILE_WRITE_ACCESS };\n\
                 #include \"open.h\"\n\
                 _Static_assert(IOCTL_OPEN_00222003 == 0x00222003 && IOCTL_OPEN_0022E008 == 0x0022e008, \"\");\n";
    std::fs::write(&source, check).unwrap();
    match Command::new("clang").args(["-fsyntax-only", &source]).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => test_data::not_run("no clang"),
    }
}
