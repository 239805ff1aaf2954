//! Every dump, asked of both engines and compared field by field.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use differential::{ACCEPTED, Case, Client, Comparison, Engines, Lab, compare_dump, dumps_below, render};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn binary() -> PathBuf {
    std::env::var_os("WINDBG_MCP_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_windbg-mcp").into()).into()
}

/// The committed dumps and those of the shared data, each with the symbols and images that lie beside it.
fn cases() -> Vec<Case> {
    let only = std::env::var("DIFFERENTIAL_ONLY").unwrap_or_default();
    let mut folders = vec![("fixtures", root().join("fixtures"))];
    if let Some(data) = test_data::shared() {
        folders.extend(["user", "kernel", "synthetic", "negative"].map(|name| (name, data.join(name))));
    }
    let mut cases = Vec::new();
    for (top, folder) in folders {
        for (name, path) in dumps_below(&folder) {
            let name = format!("{top}/{name}");
            if name.contains(&only) {
                cases.push(case(&path, &name));
            }
        }
    }
    cases.extend(others().into_iter().filter(|case| case.name.contains(&only)));
    assert!(!cases.is_empty(), "no dump is called {only}");
    cases
}

/// Bare images, and the dump whose kernel is known by an ISF file.
fn others() -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["crash.exe", "faultdrv.sys", "ntkrnlmp.exe"] {
        cases.push(case(&root().join("fixtures").join(name), &format!("images/{name}")));
    }
    let Some(data) = test_data::shared() else { return cases };
    for name in [
        "drivers/bsod_x64.sys",
        "drivers/sioctl_x64.sys",
        "pe/ms_seh/x64/xcpt4.exe",
        "pe/ms_seh/x86/xcpt4.exe",
        "pe/ms_seh/ARM64/xcpt4.exe",
    ] {
        cases.push(case(&data.join(name), &format!("images/{name}")));
    }
    let isf = data.join("isf").display().to_string();
    cases.push(case(&data.join("kernel/triage_x64_19041_7e.dmp"), "isf/triage_x64").and_symbols(&isf));
    cases
}

fn case(path: &Path, name: &str) -> Case {
    let case = Case::new(path, name).unwrap();
    // These were made under Wine, whose DLLs are their images.
    let under_wine = name.contains("cxx_eh_x64") || name == "fixtures/crash.dmp";
    match under_wine.then(test_data::wine_images).flatten() {
        Some(images) => case.and_images(&images.display().to_string()),
        None => case,
    }
}

fn compare_all(client: &mut Client, engines: Engines) -> Vec<Comparison> {
    cases().iter().map(|case| compare_dump(client, case, engines).unwrap()).collect()
}

/// Chance is no difference between engines: two sessions of one engine answer alike.
#[test]
fn two_sessions_of_one_engine_answer_alike() {
    let mut client = Client::start(&binary(), &[]).unwrap();
    for comparison in compare_all(&mut client, Engines::TWICE) {
        assert!(comparison.differences.is_empty(), "{}", render(&comparison, false));
        assert!(comparison.questions > 0 && comparison.looked_at > 0);
    }
}

fn lab() -> Option<Lab> {
    if std::env::var_os("WINDBG_MCP_LAB").is_none_or(|set| set != "1") {
        test_data::not_run(
            "the comparison with DbgEng: the lab is not asked for (cargo xtask lab, WINDBG_MCP_LAB=1)",
        );
        return None;
    }
    Some(Lab::of(&root()).unwrap_or_else(|missing| panic!("{missing}")))
}

/// x64 dumps whose code has unwind data, in an image beside them or in the dump itself.
const UNWOUND: [&str; 6] = [
    "fixtures/crash.dmp",
    "fixtures/kernel.dmp",
    "user/cxx_eh_x64/",
    "user/kd_x64_release/",
    "synthetic/syn_full_x64",
    "synthetic/syn_bmp6_x64",
];

/// Where a frame is and whose it is; how it was found and what its caller is called may differ.
fn stacks_differ(comparison: &Comparison) -> Vec<String> {
    let places = ["..", ".address", ".sp", ".module", ".rva", ".inline"];
    let of_stacks = comparison.differences.iter().map(|judged| &judged.difference).filter(|difference| {
        let frame =
            difference.field.contains("frames[") && places.iter().any(|end| difference.field.ends_with(end));
        difference.question.starts_with("backtrace") && (frame || difference.field == "ended")
    });
    of_stacks
        .map(|difference| format!("{} {} {}", comparison.dump, difference.question, difference.field))
        .collect()
}

#[test]
fn both_engines_answer_alike_but_for_the_accepted_differences() {
    let Some(lab) = lab() else { return };
    let mut client = Client::start(&binary(), &lab.environment()).unwrap();
    let comparisons = compare_all(&mut client, Engines::DBGENG);
    let mut used = vec![false; ACCEPTED.len()];
    let mut open = 0;
    for comparison in &comparisons {
        for row in comparison.differences.iter().filter_map(|judged| judged.accepted) {
            used[row] = true;
        }
        if comparison.open().next().is_some() {
            open += comparison.open().count();
            println!("{}", render(comparison, std::env::var_os("DIFFERENTIAL_ALL").is_some()));
        }
    }
    assert_eq!(open, 0, "differences that nobody accepted");
    let unwound = comparisons.iter().filter(|c| UNWOUND.iter().any(|name| c.dump.starts_with(name)));
    let stacks: Vec<String> = unwound.flat_map(stacks_differ).collect();
    assert!(stacks.is_empty(), "stacks of dumps with unwind data: {stacks:#?}");
    let everything = std::env::var_os("DIFFERENTIAL_ONLY").is_none() && test_data::shared().is_some();
    let idle: Vec<_> = ACCEPTED.iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row).collect();
    assert!(!everything || idle.is_empty(), "rows that accept nothing any more: {idle:#?}");
}
