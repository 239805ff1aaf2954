//! Every dump of `../shared/data` triaged by the native engine, against DbgEng's facts about it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use analysis_crash::{
    CrashParams, CrashTriage, ExceptionParams, ExceptionTriage, crash_triage, exception_triage, render_crash,
    render_exception,
};
use engine_native::OpenOptions;
use target::{Halt, Target};

fn data() -> Option<PathBuf> {
    let given = std::env::var_os("WINDBG_MCP_DATA").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no test data at {}", folder.display());
    println!("not run: no ../shared/data");
    None
}

fn halt() -> Halt {
    Halt::within(Duration::from_secs(30))
}

/// Unpacks the `.xz` files of `folder` that end in `end` into `into`.
fn unpack(folder: &Path, end: &str, into: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(plain) = name.strip_suffix(".xz").filter(|p| p.ends_with(end)) {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(entry.path()).unwrap();
            liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            std::fs::write(into.join(plain), bytes).unwrap();
        }
    }
}

/// Opens a dump with the symbols of its folder; `isf` adds the kernel's types and symbols.
fn with_target<T>(name: &str, isf: bool, act: impl FnOnce(&dyn Target) -> T) -> Option<T> {
    let data = data()?;
    let path = data.join(name);
    let folder = path.parent().unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    unpack(folder, ".pdb", unpacked.path());
    if isf {
        unpack(&data.join("isf"), ".json", unpacked.path());
    }
    let symbols = format!("{};{}", folder.display(), unpacked.path().display());
    let options = OpenOptions { symbol_path: Some(symbols), ..OpenOptions::default() };
    let target = engine_native::open(&path, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    Some(act(target.as_ref()))
}

fn crash(name: &str, isf: bool) -> Option<CrashTriage> {
    with_target(name, isf, |target| crash_triage(target, &CrashParams::default(), &halt()).unwrap())
}
fn exception(name: &str) -> Option<ExceptionTriage> {
    with_target(name, false, |target| exception_triage(target, &ExceptionParams::default(), &halt()).unwrap())
}

#[test]
fn show() {
    for name in std::env::var("SHOW").unwrap_or_default().split(',').filter(|n| !n.is_empty()) {
        let isf = name.contains("triage_x64");
        with_target(name, isf, |target| {
            println!("=== {name}");
            if target.facts().kind.is_kernel() {
                match crash_triage(target, &CrashParams::default(), &halt()) {
                    Ok(t) => {
                        println!("{}\n{} bytes", render_crash(&t), serde_json::to_string(&t).unwrap().len())
                    }
                    Err(e) => println!("ERR {e}"),
                }
            } else {
                match exception_triage(target, &ExceptionParams::default(), &halt()) {
                    Ok(t) => println!(
                        "{}\n{} bytes",
                        render_exception(&t),
                        serde_json::to_string(&t).unwrap().len()
                    ),
                    Err(e) => println!("ERR {e}"),
                }
            }
        });
    }
}
