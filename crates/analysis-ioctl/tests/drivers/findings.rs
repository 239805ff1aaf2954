//! D24: each planted fault is found once; its repaired twin has none.

use super::*;
use analysis_ioctl::taint::{Findings, cases, find};

fn findings(build: &str, id: &str) -> Findings {
    let image = driver(build, id).unwrap();
    let request = first_request(build, id);
    let mapped = map_entry(&image, &request, &Halt::unbounded());
    find(&image, &mapped.question, &cases(&mapped.map), &Halt::unbounded())
}

fn told(found: &Findings, build: &str) -> Vec<(String, BTreeSet<u32>)> {
    let base = driver(build, "d24").unwrap().base;
    found
        .findings
        .iter()
        .map(|f| (format!("{} at {:#x} ({})", f.class.name(), f.at - base, f.sink), f.codes.clone()))
        .collect()
}

/// `planted: CODE CLASS` lines.
fn planted() -> Vec<(u32, String)> {
    let all = Expectation::all();
    let source = all.iter().find(|e| e.id == "d24").unwrap();
    let lines = source.get("planted").iter().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(code, class)| {
            Some((u32::from_str_radix(code.strip_prefix("0x")?, 16).ok()?, class.to_owned()))
        })
        .collect()
}

#[test]
fn every_planted_fault_is_found_once() {
    for build in ["x64-clang", "x86-clang", "arm64-clang"] {
        let found = findings(build, "d24");
        assert!(found.caps.is_empty(), "{build}: {:?}", found.caps);
        for (code, class) in planted() {
            // Scope tables are read on x64; ARM64 has no such instructions.
            let absent = match build {
                "x64-clang" => false,
                "x86-clang" => class == "user_pointer_outside_seh",
                _ => ["user_pointer_outside_seh", "msr_tainted", "port_tainted", "cr_tainted"]
                    .contains(&class.as_str()),
            };
            let of_code: Vec<&str> =
                found.findings.iter().filter(|f| f.codes.contains(&code)).map(|f| f.class.name()).collect();
            let wanted: Vec<&str> = if absent { Vec::new() } else { vec![&class] };
            assert_eq!(of_code, wanted, "{build} {code:#x}: {:#x?}", told(&found, build));
        }
    }
}

#[test]
fn the_repaired_twin_has_no_finding() {
    for build in ["x64-clang", "x86-clang", "arm64-clang"] {
        let found = findings(build, "d24f");
        assert!(found.findings.is_empty(), "{build}: {:#x?}", told(&found, build));
        assert!(found.functions.len() > 10, "{build}: {}", found.functions.len());
    }
}
