//! Bare images as targets, and which symbols are used for what.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
mod shared;

use std::path::Path;

use dumpforge::{Content, Function, Image, ImageBuilder, UserDump};
use engine_native::{OpenOptions, open};
use shared::data;
use target::{ContextOf, Guid, Halt, Machine, MemoryExt, SymbolState, Target, TargetExt, TargetKind, View};

fn plain(path: &Path) -> Box<dyn Target> {
    open(path, &OpenOptions::default()).unwrap()
}

#[test]
fn an_image_at_its_own_base_and_elsewhere() {
    let Some(data) = data() else { return };
    for machine in ["x64", "x86", "ARM64"] {
        let path = data.join(format!("pe/ms_seh/{machine}/xcpt4.exe"));
        let here = plain(&path);
        assert_eq!(here.facts().kind, TargetKind::Image);
        let module = here.modules().unwrap()[0].clone();
        let main = here.resolve("xcpt4!main").unwrap()[0].clone();
        assert_eq!(here.symbol_status(module.base, false).unwrap().state, SymbolState::Pdb, "{machine}");
        assert!(here.source_line(main.address).unwrap().is_some(), "{machine}");
        let bounds = here.function_bounds(main.address + 4).unwrap().unwrap();
        assert_eq!(bounds.0, main.address, "{machine}");
        let code = here.disassemble(main.address, 8).unwrap();
        assert_eq!(code.len(), 8, "{machine}");
        assert!(here.context(ContextOf::Selected, View::Default).unwrap().is_none());
        assert!(here.read_u8(module.end()).is_err());

        let moved_base = module.base + 0x100_0000;
        let options = OpenOptions { image_base: Some(moved_base), ..OpenOptions::default() };
        let moved = open(&path, &options).unwrap();
        assert_eq!(moved.resolve("xcpt4!main").unwrap()[0].address, main.address + 0x100_0000, "{machine}");
        assert_eq!(moved.evaluate("xcpt4!main", &Halt::unbounded()).unwrap(), main.address + 0x100_0000);
        assert_eq!(moved.read_u16(moved_base).unwrap(), 0x5a4d);
    }
}

#[test]
fn a_moved_image_is_relocated() {
    let Some(data) = data() else { return };
    let path = data.join("pe/fpo_x86/basic32-min.dll");
    let here = plain(&path);
    let base = here.modules().unwrap()[0].base;
    let options = OpenOptions { image_base: Some(base + 0x10_0000), ..OpenOptions::default() };
    let moved = open(&path, &options).unwrap();
    let (a, _) = here.read_prefix(base + 0x1000, 0x1_0000);
    let (b, _) = moved.read_prefix(base + 0x10_1000, 0x1_0000);
    // Every difference is a 32-bit pointer that went up by the distance.
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 0;
    let mut moved_pointers = 0;
    while at + 4 <= a.len().min(b.len()) {
        if a[at..at + 4] != b[at..at + 4] && word(&b, at).wrapping_sub(word(&a, at)) == 0x10_0000 {
            moved_pointers += 1;
            at += 4;
        } else {
            at += 1;
        }
    }
    assert!(moved_pointers > 20, "{moved_pointers}");
}

#[test]
fn a_bad_base_is_refused() {
    let Some(data) = data() else { return };
    let options = OpenOptions { image_base: Some(0x1234), ..OpenOptions::default() };
    let refused = open(&data.join("pe/arm64test.exe"), &options);
    assert_eq!(refused.err().unwrap().category, "invalid_argument");
}

/// A minidump of a module that wants the PDB of `crash_x86`, by another identity.
fn wants(guid: Option<Guid>, folder: &Path, pdb: &Path) -> Box<dyn Target> {
    let mut builder = ImageBuilder::new(Machine::X64, "crash.exe").function(Function::new("Run"));
    if let Some(guid) = guid {
        builder = builder.pdb(guid, 1, "crash.pdb");
    }
    let image = builder.build();
    let mut dump = UserDump::new(Machine::X64);
    dump.add_image(&image, 0x14_0000_0000, "crash.exe", false);
    dump.memory.push((0x1000, Content::Zeros(16)));
    std::fs::copy(pdb, folder.join("crash.pdb")).unwrap();
    std::fs::write(folder.join("crash.dmp"), dump.dump().unwrap()).unwrap();
    plain(&folder.join("crash.dmp"))
}

#[test]
fn a_pdb_of_another_build_is_named_and_not_used() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pdb = data.join("user/crash_x86/crash.pdb");
    let target = wants(Some(Guid([7; 16])), folder.path(), &pdb);
    let status = target.symbol_status(0x14_0000_0000, true).unwrap();
    assert_eq!((status.state, status.unmatched), (SymbolState::None, true), "{status:?}");
    assert!(status.note.as_deref().is_some_and(|n| n.contains("crash.pdb")), "{status:?}");
    assert!(target.resolve("crash!main").unwrap().is_empty());
    assert!(target.type_layout("crash!_EXCEPTION_RECORD").is_err());
}

#[test]
fn without_any_identity_a_pdb_is_used_by_name_and_flagged() {
    let Some(data) = data() else { return };
    let path = data.join("user/kd_wow64_release/wow64_release_mini.dmp");
    let target = plain(&path);
    let module = target.module_named("targetapp").unwrap().unwrap();
    let status = target.symbol_status(module.base, true).unwrap();
    assert_eq!((status.state, status.unmatched), (SymbolState::Pdb, true), "{status:?}");
    assert!(status.note.is_some());
}

#[test]
fn damaged_pdbs_cost_their_module_only() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pdb = std::fs::read(data.join("user/crash_x86/crash.pdb")).unwrap();
    std::fs::copy(data.join("user/crash_x86/crash_x86.dmp"), folder.path().join("d.dmp")).unwrap();
    for (cut, fill) in [(0, 0u8), (100, 0), (5000, 0), (200_000, 0xff), (600_000, 0x41)] {
        let mut bytes = pdb.clone();
        let end = (cut + 40_000).min(bytes.len());
        bytes[cut..end].fill(fill);
        std::fs::write(folder.path().join("crash.pdb"), bytes).unwrap();
        let target = plain(&folder.path().join("d.dmp"));
        let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
        let stack = target.stack(&context, 32, &Halt::unbounded()).unwrap();
        assert_eq!(stack.frames.iter().find(|f| !f.inline).unwrap().ip, context.ip());
        let _ = target.type_layout("crash!_EXCEPTION_RECORD");
        let _ = target.find_symbols("crash!*", 10, &Halt::unbounded());
    }
}

#[test]
fn a_symbol_store_serves_pdb_and_image() {
    let Some(data) = data() else { return };
    let store = data.join("symsrv");
    let file = std::fs::read(store.join("ShowSSEConfig.exe/63E6C7F78000/ShowSSEConfig.exe")).unwrap();
    let image = Image::from_file("ShowSSEConfig.exe", file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut dump = UserDump::new(image.machine);
    let base = 0x7ff6_2000_0000;
    dump.add_image(&image, base, r"C:\x\ShowSSEConfig.exe", false);
    dump.memory.push((0x1000, Content::Zeros(16)));
    let path = folder.path().join("stored.dmp");
    std::fs::write(&path, dump.dump().unwrap()).unwrap();

    let without = plain(&path);
    assert_eq!(without.symbol_status(base, true).unwrap().state, SymbolState::None);
    let options =
        OpenOptions { symbol_path: Some(format!("srv*{}", store.display())), ..OpenOptions::default() };
    let with = open(&path, &options).unwrap();
    let status = with.symbol_status(base, true).unwrap();
    assert_eq!((status.state, status.unmatched), (SymbolState::Pdb, false), "{status:?}");
    assert_eq!(status.pdb.unwrap().key(), "A62592418D7807494C4C44205044422E1");
    let entry = base + u64::from(image.entry_point);
    assert_eq!(with.read_u8(entry).unwrap(), image.mapped_at(base)[image.entry_point as usize]);
    assert!(with.symbol_at(entry).unwrap().is_some());
    // The path may come later; what had symbols keeps them.
    let mut paths = without.symbol_paths();
    paths.symbols = options.symbol_path.unwrap();
    without.set_symbol_paths(paths).unwrap();
    assert_eq!(without.symbol_status(base, true).unwrap().state, SymbolState::Pdb);
    without.set_symbol_paths(target::SymbolPaths::default()).unwrap();
    assert_eq!(without.symbol_status(base, true).unwrap().state, SymbolState::Pdb);
    without.reload(Some("showsse*"), false).unwrap();
    assert_eq!(without.symbol_status(base, true).unwrap().state, SymbolState::None);
    assert!(without.reload(Some("nothing"), false).is_err());
}
