//! Generates the name tables of `crates/analysis-status/data` from the sources of the crate `windows`
//! (MIT or Apache-2.0). Run by hand when that crate moves; the results are committed, so that a build
//! needs neither network nor Windows.
//!
//! A table is raw deflate of lines `8 hex digits NAME [NAME...]`, sorted by value, the preferred name
//! first. The .NET names (facts of the runtime's public header, MIT) come from `cor.txt` in the same folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Names per value.
type Table = BTreeMap<u32, Vec<String>>;

/// Bug checks that the driver documentation lists and the crate does not.
const EXTRA_BUG_CHECKS: [(u32, &str); 5] = [
    (0x71, "SESSION5_INITIALIZATION_FAILED"),
    (0xad, "VIDEO_DRIVER_DEBUG_REPORT_REQUEST"),
    (0x10f, "RESOURCE_MANAGER_EXCEPTION_NOT_HANDLED"),
    (0xc000_0218, "STATUS_CANNOT_LOAD_REGISTRY_FILE"),
    (0xc000_0221, "STATUS_IMAGE_CHECKSUM_MISMATCH"),
];

/// Status codes the crate lists as bug checks that are ones.
const STATUS_BUG_CHECKS: [u32; 4] = [0x4000_008a, 0x4000_00ad, 0x4000_01ee, 0x4000_01ef];

/// `windows` is the source folder of the crate (`.../windows-0.62.2`), `out` the data folder.
pub(crate) fn generate(windows: &Path, out: &Path) -> Result<()> {
    let mut source = String::new();
    collect(&windows.join("src/Windows"), &mut source)?;
    let mut tables: BTreeMap<&str, Table> = BTreeMap::new();
    for line in source.lines() {
        let Some((name, type_name, value)) = constant(line) else { continue };
        let Some(table) = table_of(name, type_name) else { continue };
        add(tables.entry(table).or_default(), value, name);
    }
    for line in fs::read_to_string(out.join("cor.txt")).context("cor.txt")?.lines() {
        let Some((value, name)) = line.split_once(' ') else { continue };
        let value = u32::from_str_radix(value, 16).with_context(|| format!("cor.txt: {line}"))?;
        add(tables.entry("cor").or_default(), value, name);
    }
    let bug_checks = tables.entry("bugcheck").or_default();
    bug_checks.retain(|code, _| {
        *code != 0x8000_0000
            && (!(0x4000_0000..=0x4001_ffff).contains(code) || STATUS_BUG_CHECKS.contains(code))
    });
    for (code, name) in EXTRA_BUG_CHECKS {
        add(bug_checks, code, name);
    }
    for (name, table) in &mut tables {
        for names in table.values_mut() {
            names.sort_by_key(|n| (rank(n), n.clone()));
        }
        write(&out.join(format!("{name}.z")), table)?;
        println!("{name}: {} values", table.len());
    }
    Ok(())
}

fn collect(folder: &Path, into: &mut String) -> Result<()> {
    let mut entries: Vec<_> =
        fs::read_dir(folder).with_context(|| folder.display().to_string())?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), into)?;
        } else {
            into.push_str(&fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

/// `pub const NAME: TYPE = TYPE(VALUE);` or `= VALUE;` to name, last path component of the type, value.
fn constant(line: &str) -> Option<(&str, &str, u32)> {
    let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(": ")?;
    let (type_path, value) = rest.split_once(" = ")?;
    let type_name = type_path.rsplit("::").next()?;
    let value = value.trim_end_matches(';');
    let value = value.rsplit_once('(').map_or(value, |(_, inner)| inner).trim_end_matches(')');
    let value = value.trim_end_matches(" as _");
    let value = value.trim_end_matches("u32").trim_end_matches("i32").trim_end_matches('_');
    let number = match value.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => {
            let wide: i64 = value.parse().ok()?;
            u32::try_from(wide).ok().or_else(|| i32::try_from(wide).ok().map(i32::cast_unsigned))?
        }
    };
    Some((name, type_name, number))
}

fn table_of(name: &str, type_name: &str) -> Option<&'static str> {
    match type_name {
        "HRESULT" => Some("hresult"),
        "NTSTATUS" => Some("ntstatus"),
        "WIN32_ERROR" | "RPC_STATUS" | "WSA_ERROR" => Some("win32"),
        "BUGCHECK_ERROR" => Some("bugcheck"),
        "FACILITY_CODE" => Some("facility"),
        "i32" if name.starts_with("COR_E_") => Some("cor"),
        _ => None,
    }
}

fn add(table: &mut Table, value: u32, name: &str) {
    let names = table.entry(value).or_default();
    if !names.iter().any(|n| n == name) {
        names.push(name.to_owned());
    }
}

/// Which of several names leads: the ones everybody writes, then the plain prefixes.
fn rank(name: &str) -> u8 {
    const FIRST: [&str; 12] = [
        "S_OK",
        "STATUS_SUCCESS",
        "ERROR_SUCCESS",
        "FACILITY_NULL",
        "FACILITY_WIN32",
        "FACILITY_ITF",
        "FACILITY_SECURITY",
        "FACILITY_WINDOWS",
        "FACILITY_URT",
        "FACILITY_DISPATCH",
        "FACILITY_STORAGE",
        "FACILITY_RPC",
    ];
    if FIRST.contains(&name) {
        0
    } else if ["S_", "E_", "STATUS_", "ERROR_"].iter().any(|p| name.starts_with(p)) {
        1
    } else if name.starts_with("COR_E_") || name.starts_with("EXCEPTION_") {
        3
    } else {
        2
    }
}

fn write(path: &Path, table: &Table) -> Result<()> {
    if table.is_empty() {
        bail!("{}: the source has no such constants", path.display());
    }
    let mut text = String::new();
    for (value, names) in table {
        text.push_str(&format!("{value:08x} {}\n", names.join(" ")));
    }
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    fs::write(path, encoder.finish()?).with_context(|| path.display().to_string())
}
