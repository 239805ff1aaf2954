//! The test drivers, every build of each, against what their sources say (and the brute-force sweep
//! proved): the set of control codes, exactly.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod expectation;
mod findings;
mod rows;
mod samples;

use std::collections::BTreeSet;
use std::rc::Rc;

use analysis_ioctl::analysis::{Convention, Findings, Question, analyse};
use analysis_ioctl::map::{CodeRow, IoctlMap, MapRequest, map_entry};
use analysis_ioctl::pass::{FrameworkTable, Pass};
use analysis_ioctl::set::Set;
use code_flow::{CodeImage, Origin, Whole};
use driver_replay::{Bind, Entries, Entry, EntryKind, PlacedImage, discover};
use expectation::{Expectation, folder};
use target::Halt;

const BUILDS: [&str; 7] =
    ["x64-gcc-o0", "x64-gcc-o2", "x64-gcc-os", "x64-clang", "x86-gcc", "x86-clang", "arm64-clang"];

fn module(file: &pe::FileImage<Vec<u8>>) -> target::Module {
    target::Module {
        name: "driver".into(),
        image_name: "driver.sys".into(),
        image_path: "driver.sys".into(),
        base: file.pe().image_base,
        size: u64::from(file.pe().size_of_image),
        timestamp: 0,
        checksum: 0,
        pdb: None,
        user_mode: None,
        file_version: None,
    }
}

fn open(bytes: Vec<u8>) -> CodeImage<'static> {
    let file = pe::FileImage::new(bytes).unwrap();
    let base = file.pe().image_base;
    CodeImage::of_file("driver", file, base).unwrap()
}

fn driver(build: &str, id: &str) -> Option<CodeImage<'static>> {
    std::fs::read(path(build, id)).ok().map(open)
}

fn path(build: &str, id: &str) -> std::path::PathBuf {
    folder().join("bin").join(build).join(format!("{id}.sys"))
}

/// Entries as DriverEntry installs them when it is run.
fn replayed(bytes: Vec<u8>) -> Entries {
    let file = Rc::new(pe::FileImage::new(bytes).unwrap());
    let placed = PlacedImage::of_file(file, None, "driver.sys").unwrap();
    let replay = driver_replay::replay(&placed, &Halt::unbounded());
    discover(&placed, &replay)
}

fn request(entry: &Entry, bind: Option<&Bind>) -> MapRequest {
    let convention = match entry.kind {
        EntryKind::Wdm | EntryKind::WdfPreprocess => Convention::Wdm,
        EntryKind::FastIo => Convention::FastIo,
        EntryKind::WdfDeviceControl | EntryKind::WdfInternalDeviceControl => Convention::WdfDeviceControl,
        EntryKind::WdfDefault => Convention::WdfDefault,
        EntryKind::WdfInCallerContext => Convention::WdfInCallerContext,
    };
    MapRequest {
        convention: Some(convention),
        major: entry.major,
        framework: bind.map(|bind| FrameworkTable {
            table: bind.function_table.0,
            pointer: bind.table_is_pointer,
            count: bind.function_count,
        }),
        max_codes: 4096,
        ..MapRequest::at(entry.address.0)
    }
}

/// The request of the driver's first entry.
fn first_request(build: &str, id: &str) -> MapRequest {
    let found = replayed(std::fs::read(path(build, id)).unwrap());
    let first = found.entries.first().unwrap_or_else(|| panic!("{build}/{id} has no entry"));
    request(first, found.bind.as_ref())
}

fn question(request: &MapRequest) -> Question {
    Question {
        entry: request.entry,
        convention: request.convention.unwrap(),
        major: request.major,
        framework: request.framework,
        descend: true,
        sweeps: request.sweeps,
    }
}

/// Everything that makes a result a lower bound.
fn doubts(found: &Findings) -> Vec<String> {
    let mut out = Vec::new();
    if !found.unresolved.is_empty() {
        out.push(format!("unresolved {:x?}", found.unresolved));
    }
    if !found.untracked.is_empty() {
        out.push(format!("untracked {:x?}", found.untracked));
    }
    if !found.blind.is_empty() {
        out.push(format!("blind {:x?}", found.blind));
    }
    if found.unsettled {
        out.push("unsettled".into());
    }
    if !found.caps.is_empty() {
        out.push(format!("caps {:?}", found.caps));
    }
    out
}

/// What is wrong with one driver, `None` when nothing is.
fn check(expected: &Expectation, image: &CodeImage<'_>, request: &MapRequest) -> Option<String> {
    let halt = Halt::unbounded();
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, request.major);
    let found = analyse(&mut pass, question(request), &halt);
    let doubts = doubts(&found);
    let wanted = expected.set(&mut pass.solver.sets);
    let proved = !expected.has("proved");
    let mut got = Set::EMPTY;
    for site in found.sites.iter().filter(|s| s.proved == proved) {
        got = pass.solver.sets.or(got, site.values);
    }
    let wrong = pass.solver.sets.minus(got, wanted);
    if !wrong.is_empty() {
        return Some(format!("INVENTED {:x?} ({doubts:?})", pass.solver.sets.values(wrong, 16)));
    }
    let missing = pass.solver.sets.minus(wanted, got);
    let may_miss = expected.has("loop") || expected.has("unresolved");
    if !missing.is_empty() && (!may_miss || doubts.is_empty()) {
        return Some(format!("missing {:x?} ({doubts:?})", pass.solver.sets.values(missing, 16)));
    }
    if !doubts.is_empty() && !may_miss {
        return Some(format!("incomplete: {doubts:?}"));
    }
    if expected.has("unresolved") && found.unresolved.is_empty() {
        return Some("nothing is unresolved".into());
    }
    for site in &found.sites {
        for value in pass.solver.sets.values(site.values, 64).unwrap_or_default() {
            let refused = expected.refused().contains(&value);
            if site.fate.accepted == Some(false) && !refused && expected.codes().contains(&value) {
                return Some(format!("{value:#x} said to be refused"));
            }
            if refused && site.fate.accepted != Some(false) {
                return Some(format!("{value:#x} not said to be refused"));
            }
        }
    }
    if proved && missing.is_empty() {
        let status = found.default.as_ref().map(|d| d.fate.status);
        if status != Some(expected.default()) {
            return Some(format!("default {:x?}", found.default.map(|d| (d.lands, d.fate.status))));
        }
    }
    None
}

/// The map as it is served.
fn map(image: &CodeImage<'_>, request: &MapRequest) -> IoctlMap {
    map_entry(image, request, &Halt::unbounded()).map
}

fn driver_map(build: &str, id: &str) -> IoctlMap {
    map(&driver(build, id).unwrap(), &first_request(build, id))
}

fn codes(map: &IoctlMap) -> BTreeSet<u32> {
    map.codes.iter().map(|row| row.code.0).collect()
}

fn row(map: &IoctlMap, code: u32) -> &CodeRow {
    map.codes.iter().find(|row| row.code.0 == code).unwrap_or_else(|| panic!("{code:#x} is not listed"))
}

/// The interpreter that shares only the decoder goes where the pass says, for every proved site.
#[test]
fn the_second_interpreter_agrees() {
    let mut failures = Vec::new();
    let mut verified = 0;
    for expected in Expectation::all() {
        for build in BUILDS {
            let Some(image) = driver(build, &expected.id) else { continue };
            let found = replayed(std::fs::read(path(build, &expected.id)).unwrap());
            let Some(entry) = found.entries.first() else { continue };
            let map = map(&image, &request(entry, found.bind.as_ref()));
            if !map.disputed.is_empty() {
                failures.push(format!("{build}/{}: disputed {:?}", expected.id, map.disputed.first()));
            }
            let open: Vec<_> = map
                .codes
                .iter()
                .flat_map(|row| row.sites.iter().filter(|s| s.proved && s.verified != Some(true)))
                .collect();
            verified += map.codes.len();
            if !open.is_empty() {
                failures.push(format!(
                    "{build}/{}: {} sites not verified, {:?}",
                    expected.id,
                    open.len(),
                    open[0]
                ));
            }
        }
    }
    assert!(verified > 1000, "{verified} codes");
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

/// D07: sizes and refusals, in every build.
#[test]
fn lengths_and_refusals_of_d07() {
    for build in BUILDS {
        let map = driver_map(build, "d07");
        let exact = row(&map, 0x22_2000);
        assert_eq!(exact.in_size, Some(32), "{build}: {exact:?}");
        assert!(exact.evidence.iter().any(|e| e.field == "input" && e.value == 32), "{build}: {exact:?}");
        let least = row(&map, 0x22_2004);
        assert_eq!(least.out_range.and_then(|r| r.min), Some(16), "{build}: {least:?}");
        let refused = row(&map, 0x22_2008);
        assert_eq!(refused.accepted, Some(false), "{build}: {refused:?}");
        assert_eq!(refused.status.as_ref().map(|s| s.value.0), Some(0xc000_0022), "{build}");
        assert!(map.complete && map.code_proved, "{build}");
    }
}

#[test]
fn every_driver_has_the_codes_its_source_says() {
    let skip = ["d24", "d24f", "d25", "d26", "d27", "d28", "d28b", "d29", "d30"];
    let mut failures = Vec::new();
    let mut checked = 0;
    for expected in Expectation::all() {
        if skip.contains(&expected.id.as_str()) {
            continue;
        }
        for build in BUILDS {
            let Some(image) = driver(build, &expected.id) else { continue };
            checked += 1;
            if let Some(failure) = check(&expected, &image, &first_request(build, &expected.id)) {
                failures.push(format!("{build}/{}: {failure}", expected.id));
            }
        }
    }
    assert!(checked > 100, "{checked} drivers");
    assert!(failures.is_empty(), "{} of {checked}:\n{}", failures.len(), failures.join("\n"));
}
