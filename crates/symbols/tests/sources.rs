//! Frame programs, OMAP, lines, ISF, builds, exports: the facts of real files.
#![allow(clippy::unwrap_used)]

mod shared;

use std::time::Instant;

use symbols::{BuildTable, ExportSymbols, FrameProgram, IsfFile, PdbFile, SymbolFile};
use target::{SymbolKind, SymbolState, TypeRef};

#[test]
fn identity_compares_the_dbi_age() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/crash_x86/crash.pdb");
    let identity = pdb.identity().unwrap();
    assert_eq!(identity.key(), "3249D99D0C4049318610F4E4FB0B69361");
    assert!(pdb.info_age() >= identity.age);
    let image = pe::FileImage::new(shared::bytes(&data, "user/crash_x86/crash.exe")).unwrap();
    let recorded = image.pe().pdb(&image).unwrap();
    assert_eq!((recorded.guid, recorded.age), (identity.guid, identity.age));
}

#[test]
fn frame_programs_of_an_x86_dll() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "pe/fpo_x86/basic32-min.pdb");
    assert_eq!(pdb.frame_program_counts().unwrap(), (4972, 86));
    // A stripped PDB: publics are all it has.
    let publics = pdb.matching("*", 500).unwrap();
    assert!(publics.len() > 100 && publics.iter().all(|s| s.kind == SymbolKind::Public));
    for public in &publics {
        assert_eq!(pdb.symbol_at(public.rva + 1).unwrap().unwrap().rva, public.rva, "{public:?}");
    }
    let mut programs = 0;
    for rva in (0x1000..0x40000).step_by(0x40) {
        if let Some(FrameProgram::Data(data)) = pdb.frame_program(rva).unwrap() {
            assert!(data.start <= rva && rva < data.start + u64::from(data.code_size));
            programs += usize::from(data.program.contains('$'));
        }
    }
    assert!(programs > 100, "{programs}");
}

#[test]
fn frame_programs_of_crash_x86() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/crash_x86/crash.pdb");
    let Some(FrameProgram::Data(main)) = pdb.frame_program(0x2a3d).unwrap() else { panic!() };
    assert!(main.program.contains("$ebp"), "{main:?}");
    assert_eq!(main.start, pdb.symbol_at(0x2a3d).unwrap().unwrap().rva, "{main:?}");
}

/// Every symbol of a reordered image is found again where it was put.
#[test]
fn omap_moves_symbols() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "pe/omap_reorder_bbs.pdb");
    let all = pdb.matching("*", 5000).unwrap();
    let functions: Vec<_> = all.iter().filter(|s| s.kind == SymbolKind::Function).collect();
    assert!(functions.len() > 100, "{}", functions.len());
    for function in functions.iter().take(300) {
        let found = pdb.symbol_at(function.rva).unwrap().unwrap();
        assert_eq!(found.rva, function.rva, "{found:?} {function:?}");
    }
}

/// Where Breakpad's reader, which goes through DIA, puts functions and blocks of this image.
#[test]
fn omap_agrees_with_dia() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "pe/omap_reorder_bbs.pdb");
    for (name, rva) in [("strcmp", 0x27ab), ("exit", 0x6d68), ("_cexit", 0x1df4), ("doexit", 0x35a7)] {
        let found = pdb.by_name(name).unwrap();
        assert!(found.iter().any(|s| s.rva == rva), "{name}: {found:x?}");
        assert_eq!(pdb.symbol_at(rva).unwrap().unwrap().name, name);
    }
    // Blocks that were moved away from their function's start.
    for (rva, name, line) in
        [(0x1de4, "_initterm_e", 917), (0x6568, "_initterm_e", 922), (0x3ea0, "free", 50)]
    {
        assert_eq!(pdb.symbol_at(rva).unwrap().unwrap().name, name);
        assert_eq!(pdb.line_at(rva).unwrap().unwrap().line, line, "{rva:x}");
    }
}

/// RVAs that several procedures start at.
fn folded(pdb: &PdbFile) -> std::collections::HashSet<u64> {
    let all = pdb.matching("*", usize::MAX).unwrap();
    let mut functions: Vec<u64> =
        all.iter().filter(|s| s.kind == SymbolKind::Function).map(|s| s.rva).collect();
    functions.sort_unstable();
    functions.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect()
}

/// Every procedure pdb2 reads is named alike at its first and last byte, with the same line.
#[test]
fn procedures_and_lines_agree_with_another_reader() {
    use pdb2::FallibleIterator;
    let Some(data) = shared::data() else { return };
    for name in ["user/crash_x86/crash.pdb", "user/kd_x64_release/targetapp.pdb", "synthetic/ntkrnlmp.pdb"] {
        let bytes = shared::bytes(&data, name);
        let ours = PdbFile::from_bytes(bytes.clone(), name).unwrap();
        let mut other = pdb2::PDB::open(std::io::Cursor::new(bytes)).unwrap();
        let map = other.address_map().unwrap();
        let strings = other.string_table().unwrap();
        let debug = other.debug_information().unwrap();
        let mut modules = debug.modules().unwrap();
        let (mut procedures, mut lines) = (0, 0);
        // Identical functions are folded: several modules then claim the same bytes.
        let folded = folded(&ours);
        while let Some(module) = modules.next().unwrap() {
            let Some(info) = other.module_info(&module).unwrap() else { continue };
            let program = info.line_program().unwrap();
            let mut symbols = info.symbols().unwrap();
            while let Some(symbol) = symbols.next().unwrap() {
                let Ok(pdb2::SymbolData::Procedure(procedure)) = symbol.parse() else { continue };
                let Some(rva) = procedure.offset.to_rva(&map) else { continue };
                let rva = u64::from(rva.0);
                let found = ours.symbol_at(rva + u64::from(procedure.len) - 1).unwrap().unwrap();
                assert_eq!(found.rva, rva, "{name} {}", procedure.name);
                procedures += 1;
                if folded.contains(&rva) {
                    continue;
                }
                let mut rows = program.lines_for_symbol(procedure.offset);
                while let Some(row) = rows.next().unwrap() {
                    let (Some(at), false) = (row.offset.to_rva(&map), row.line_start >= 0xf0_0f00) else {
                        continue;
                    };
                    let line = ours.line_at(u64::from(at.0)).unwrap().unwrap();
                    let file = program.get_file_info(row.file_index).unwrap();
                    assert_eq!(line.file, file.name.to_string_lossy(&strings).unwrap(), "{name}");
                    if line.displacement == 0 {
                        lines += usize::from(line.line == row.line_start);
                    }
                }
            }
        }
        println!("{name}: {procedures} procedures, {lines} lines");
        assert!(procedures > 3 && lines > 3, "{name}: {procedures} {lines}");
    }
}

#[test]
fn public_names_are_shown_undecorated_and_found_by_either() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kt2/CppConsoleApplication.pdb.xz");
    let decorated = pdb.matching("*?AddItem*", 3).unwrap();
    let by_shown = pdb.matching("*operator[]", 50).unwrap();
    assert!(!by_shown.is_empty());
    for symbol in decorated.iter().chain(&by_shown) {
        let again = pdb.by_name(&symbol.name).unwrap();
        assert!(again.iter().any(|s| s.rva == symbol.rva), "{symbol:?}");
        if let Some(raw) = &symbol.raw_name {
            assert!(pdb.by_name(raw).unwrap().iter().any(|s| s.rva == symbol.rva), "{raw}");
        }
    }
    assert!(pdb.by_name("MAIN").unwrap().iter().any(|s| s.name == "main"));
}

#[test]
fn isf_of_19041_loads_fast_and_has_real_offsets() {
    let Some(data) = shared::data() else { return };
    let name = "isf/ntkrnlmp_10.0.19041.804_5278AFF86C341677D7D7835C85B7B844-1.json.xz";
    let started = Instant::now();
    let isf = IsfFile::open(&data.join(name)).unwrap();
    println!("loaded in {:?}", started.elapsed());
    assert_eq!((isf.symbol_count(), isf.type_count(), isf.state()), (39832, 1646, SymbolState::Isf));
    assert_eq!(isf.identity().unwrap().key(), "5278AFF86C341677D7D7835C85B7B8441");
    let process = isf.type_layout("_EPROCESS").unwrap();
    let field = |name: &str| process.fields.iter().find(|f| f.name == name).unwrap();
    assert_eq!(field("UniqueProcessId").offset, 0x440);
    assert_eq!(field("ActiveProcessLinks").offset, 0x448);
    assert_eq!(field("ImageFileName").offset, 0x5a8);
    assert_eq!(field("AccountingFolded").bits, Some((1, 1)));
    assert!(process.fields.is_sorted_by_key(|f| f.offset));
    let TypeRef::Array { of, count: 15, size: 15 } = &field("ImageFileName").ty else { panic!() };
    assert_eq!(**of, TypeRef::Base { name: "UChar".into(), size: 1, signed: false, float: false });
    // The RVA DbgEng's `nt!KeBugCheckEx` has in the dump of this kernel.
    assert_eq!(isf.by_name("KeBugCheckEx").unwrap()[0].rva, 0x3f5a80);
    assert_eq!(isf.symbol_at(0x3f5a80).unwrap().unwrap().name, "KeBugCheckEx");
    assert_eq!(isf.by_name("psloadedmodulelist").unwrap().len(), 1);
}

#[test]
fn kphdyn_names_the_build_of_the_triage_dump() {
    let Some(data) = shared::data() else { return };
    let table = BuildTable::open(&data.join("isf/kphdyn.xml.xz")).unwrap();
    assert!(table.len() > 1000);
    let found = table.find(0x0d83_33e6, 0x104_6000);
    assert_eq!((found[0].version.as_str(), found[0].file.as_str()), ("10.0.19041.804", "ntoskrnl.exe"));
}

#[test]
fn exports_of_a_real_image() {
    let Some(data) = shared::data() else { return };
    let image = pe::FileImage::new(shared::bytes(&data, "pe/fpo_x86/basic32-min.dll")).unwrap();
    let exports = ExportSymbols::of_image(image.pe(), &image);
    for export in image.pe().exports(&image) {
        let (Some(rva), Some(name)) = (export.rva(), export.name.clone()) else { continue };
        assert!(exports.by_name(&name).unwrap().iter().any(|s| s.rva == u64::from(rva)));
    }
}

/// A compressed PDB (MSFZ), made from an ordinary one, answers alike.
#[test]
fn a_compressed_pdb_answers_alike() {
    use std::io::{Cursor, Write};
    let Some(data) = shared::data() else { return };
    let bytes = shared::bytes(&data, "user/kd_x64_release/targetapp.pdb");
    let plain = PdbFile::from_bytes(bytes.clone(), "x.pdb").unwrap();
    let msf = ms_pdb::msf::Msf::open_with_file(bytes).unwrap();
    let mut writer = ms_pdb::msfz::MsfzWriter::new(Cursor::new(Vec::new())).unwrap();
    writer.reserve_num_streams(msf.num_streams() as usize);
    for stream in (1..msf.num_streams()).filter(|&s| msf.is_stream_valid(s)) {
        let content = msf.read_stream_to_vec(stream).unwrap();
        writer.stream_writer(stream).unwrap().write_all(&content).unwrap();
    }
    let (_, file) = writer.finish().unwrap();
    let packed = PdbFile::from_bytes(file.into_inner(), "x.pdb").unwrap();
    assert_eq!(packed.identity(), plain.identity());
    assert_eq!(packed.inline_chain(0x1e65).unwrap(), plain.inline_chain(0x1e65).unwrap());
    assert_eq!(packed.matching("*", 5000).unwrap(), plain.matching("*", 5000).unwrap());
    assert_eq!(packed.type_layout("stackTestClass").unwrap(), plain.type_layout("stackTestClass").unwrap());
    assert_eq!(packed.line_at(0x1e65).unwrap(), plain.line_at(0x1e65).unwrap());
}

/// The compiler wrote each function's name down twice, plain and decorated: they must agree.
#[test]
fn decorated_names_are_spelled_as_the_compiler_does() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/kt2/CppConsoleApplication.pdb.xz");
    let all = pdb.matching("*", usize::MAX).unwrap();
    let decorated = |s: &&symbols::Sym| s.raw_name.as_ref().is_some_and(|raw| raw.starts_with('?'));
    let mut compared = 0;
    for symbol in all.iter().filter(|s| s.kind == SymbolKind::Function).filter(decorated) {
        let raw = symbol.raw_name.as_deref().unwrap();
        assert_eq!(symbols::demangle::display_name(raw).as_deref(), Some(&*symbol.name), "{raw}");
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn folded_functions_have_aliases() {
    let Some(data) = shared::data() else { return };
    let pdb = shared::pdb(&data, "user/crash_x86/crash.pdb");
    let rva = folded(&pdb).into_iter().min().unwrap();
    let aliases = pdb.aliases(rva).unwrap();
    assert!((2..=4).contains(&aliases.len()), "{aliases:?}");
    assert!(aliases.is_sorted_by_key(String::len));
}

/// Code behind a string literal between functions is not the literal's (DbgEng: `nt+0x40f4e1`).
#[test]
fn a_string_literal_names_its_own_bytes_only() {
    let Some(data) = shared::data() else { return };
    let name = "isf/ntkrnlmp_10.0.19041.804_5278AFF86C341677D7D7835C85B7B844-1.json.xz";
    let isf = IsfFile::from_bytes(shared::bytes(&data, name)).unwrap();
    let last = isf.symbol_at(0x40_ded0).unwrap().unwrap();
    assert_eq!((last.name.as_str(), last.size, last.kind), ("`string'", Some(0x3e), SymbolKind::Data));
    assert_eq!(isf.symbol_at(0x40_f4e1).unwrap(), None);
    assert_eq!(isf.symbol_at(0x3f_5a80).unwrap().unwrap().name, "KeBugCheckEx");
}
