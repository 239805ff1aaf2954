//! The same names and displacements as Microsoft's DbgEng prints in `data/oracle/`.
#![allow(clippy::unwrap_used)]

mod shared;

use symbols::{PdbFile, SymbolFile, VarLocation};

/// The rows DbgEng's `k` shows at one address: inline frames, then the physical one. `lookup` is
/// the address symbols are looked up by: one less than a return address.
fn frames(pdb: &PdbFile, ip: u64, lookup: u64) -> Vec<String> {
    let shown = |name: &str, start: u64| match ip - start {
        0 => name.to_owned(),
        displacement => format!("{name}+{displacement:#x}"),
    };
    let inline = pdb.inline_chain(lookup).unwrap();
    let mut rows: Vec<String> = inline.iter().map(|f| shown(&f.name, f.start)).collect();
    let symbol = pdb.symbol_at(lookup).unwrap().unwrap();
    rows.push(shown(&symbol.name, symbol.rva));
    rows
}

fn at(pdb: &PdbFile, rva: u64) -> Vec<String> {
    frames(pdb, rva, rva)
}

fn returning_to(pdb: &PdbFile, rva: u64) -> Vec<String> {
    frames(pdb, rva, rva - 1)
}

#[test]
fn crash_x86() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/crash_x86/crash.pdb");
    assert_eq!(at(&pdb, 0x2a3d), ["?A0xc3a0617d::crash", "?A0xc3a0617d::start", "main+0x12d"]);
    assert_eq!(returning_to(&pdb, 0x2d97), ["invoke_main+0x1c", "__scrt_common_main_seh+0xf9"]);
    assert_eq!(
        returning_to(&pdb, 0x20c7),
        ["google_breakpad::ExceptionHandler::WriteMinidumpOnHandlerThread+0xa7"]
    );
}

/// Link-time code generation: the ids of inlined functions are other modules'.
#[test]
fn inlined_functions_of_other_modules_are_named() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/crash_x86/crash.pdb");
    let mut names = std::collections::BTreeSet::new();
    for rva in (0x1000..0x4000).step_by(4) {
        names.extend(pdb.inline_chain(rva).unwrap().into_iter().map(|f| f.name));
    }
    assert!(names.len() > 50, "{names:#?}");
    assert!(names.iter().all(|n| !n.starts_with("inlined function")), "{names:#?}");
    assert!(names.contains("std::_WChar_traits<wchar_t>::length"), "{names:#?}");
}

#[test]
fn cxx_eh_x64() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/cxx_eh_x64/CrashWithException.pdb");
    assert_eq!(returning_to(&pdb, 0x114c), ["crashing_function+0x2c"]);
    assert_eq!(returning_to(&pdb, 0x1167), ["test+0x17"]);
    assert_eq!(returning_to(&pdb, 0x1179), ["main+0x9"]);
    assert_eq!(returning_to(&pdb, 0x1414), ["invoke_main+0x22", "__scrt_common_main_seh+0x10c"]);
}

#[test]
fn kd_x64_release() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kd_x64_release/targetapp.pdb");
    assert_eq!(at(&pdb, 0x1e65), ["stackTestClass::stackMethod", "stackTestRun2", "stackTestRun1+0x55"]);
    assert_eq!(returning_to(&pdb, 0x1c33), ["stackTestRun+0x3b", "wmain+0x233"]);
    assert_eq!(returning_to(&pdb, 0x2e98), ["invoke_main+0x22", "__scrt_common_main_seh+0x10c"]);
}

#[test]
fn kd_wow64_release() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kd_wow64_release/targetapp.pdb");
    assert_eq!(at(&pdb, 0x1c38), ["stackTestClass::stackMethod", "stackTestRun2", "stackTestRun1+0x78"]);
    assert_eq!(returning_to(&pdb, 0x1a15), ["stackTestRun+0x24", "wmain+0x1e5"]);
    assert_eq!(returning_to(&pdb, 0x2aea), ["invoke_main+0x1c", "__scrt_common_main_seh+0xfa"]);
}

#[test]
fn kt2_template_names() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kt2/CppConsoleApplication.pdb.xz");
    assert_eq!(
        at(&pdb, 0x46df8),
        ["std::vector<std::shared_ptr<Item>,std::allocator<std::shared_ptr<Item> > >::operator[]+0x88"]
    );
}

#[test]
fn forged_arm64() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/forged_arm64/xcpt4.pdb");
    assert_eq!(at(&pdb, 0x1040), ["__gsfailure+0x28"]);
    assert_eq!(returning_to(&pdb, 0x1100), ["_vfprintf_l+0x28"]);
    assert_eq!(returning_to(&pdb, 0x1158), ["printf+0x30"]);
}

#[test]
fn kd_allreg_amd64() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kd_allreg_amd64/targetapp.pdb");
    assert_eq!(at(&pdb, 0x29e9), ["test_cv_allreg_amd64+0x39"]);
    let locals = pdb.locals_at(0x29e9).unwrap();
    let places: Vec<(&str, bool, &str)> = locals
        .iter()
        .map(|l| match &l.location {
            VarLocation::Register(register) => (l.name.as_str(), l.parameter, register.name),
            VarLocation::Unavailable(why) => (l.name.as_str(), l.parameter, *why),
            other => panic!("{other:?}"),
        })
        .collect();
    let gone = "not live here";
    assert_eq!(
        places,
        [
            ("aa", true, "r14"),
            ("ab", true, "r15"),
            ("r", false, "ecx"),
            ("le", false, gone),
            ("f", false, gone),
            ("e", false, "r12"),
            ("lt", false, gone)
        ]
    );
}
