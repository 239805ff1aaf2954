//! Files that lie: every question must end in an answer or an error, soon, without a panic.
#![allow(clippy::unwrap_used)]

mod shared;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use symbols::{IsfFile, PdbFile, SymbolFile};

/// Everything a caller can ask of a PDB.
fn ask_everything(file: &dyn SymbolFile) {
    let _ = file.identity();
    for rva in [0, 0x1000, 0x1010, 0x1040, 0x10d9, 0x2000, 0xffff_ffff, u64::MAX] {
        let _ = file.symbol_at(rva);
        let _ = file.line_at(rva);
        let _ = file.inline_chain(rva);
        let _ = file.locals_at(rva);
        let _ = file.frame_program(rva);
        let _ = file.function_bounds(rva);
    }
    for name in ["main", "_EPROCESS", "Class", "no such name"] {
        let _ = file.by_name(name);
        let _ = file.type_layout(name);
        let _ = file.type_of(name);
    }
    let _ = file.matching("*", 200);
    for name in file.types_matching("*", 50).unwrap_or_default() {
        let _ = file.type_layout(&name);
    }
}

/// A panic inside would be turned into an error by the guard: here it must not even happen.
fn no_panic<T>(work: impl FnOnce() -> T) -> T {
    // One at a time: the hook is the process's.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    let hook = std::panic::take_hook();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let record = seen.clone();
    std::panic::set_hook(Box::new(move |info| record.lock().unwrap().push(info.to_string())));
    let result = work();
    std::panic::set_hook(hook);
    // The container reader is another's; its panics are what the guard is for.
    let ours: Vec<String> =
        seen.lock().unwrap().iter().filter(|m| m.contains("crates/symbols/src")).cloned().collect();
    assert!(ours.is_empty(), "{ours:#?}");
    result
}

fn open_and_ask(bytes: Vec<u8>) {
    let started = Instant::now();
    no_panic(|| {
        if let Ok(file) = PdbFile::from_bytes(bytes, "x.pdb") {
            ask_everything(&file);
        }
    });
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

const SMALL: [&str; 3] =
    ["synthetic/ntkrnlmp.pdb", "user/llvm_sigsegv_x64.pdb", "pe/llvm_types/test-pdb-types.pdb"];

/// One of [`SMALL`], or the repository's own where there is no shared data.
fn small(which: usize) -> Vec<u8> {
    match shared::data() {
        Some(data) => shared::bytes(&data, SMALL[which]),
        None => std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/crash.pdb")).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_pdbs_never_panic_or_hang(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 1usize..5), 1..40),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = small(which);
        for (at, value, width) in changes {
            let at = at.index(bytes.len() - 4);
            bytes[at..at + width.min(4)].copy_from_slice(&value.to_le_bytes()[..width.min(4)]);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        open_and_ask(bytes);
    }

    #[test]
    fn small_numbers_written_over_pdbs(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![0u32, 1, 2, 4, 0x1000, 0x1001, 0x1010, 0x7fff_ffff, 0x8000_0000, u32::MAX])), 1..60),
    ) {
        let mut bytes = small(which);
        for (at, value) in changes {
            let at = at.index(bytes.len() / 4 - 1) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        open_and_ask(bytes);
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(PdbFile::from_bytes(bytes.clone(), "x").is_err());
        let _ = IsfFile::from_bytes(bytes);
    }

    #[test]
    fn mutated_isf_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = ISF.as_bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        no_panic(|| if let Ok(file) = IsfFile::from_bytes(bytes) {
            ask_everything(&file);
        });
    }
}

const ISF: &str = r#"{"metadata":{"format":"6.1.0","windows":{"pdb":{"GUID":"5278AFF86C341677D7D7835C85B7B844","age":1,"database":"nt.pdb","machine_type":34404}}},
"base_types":{"pointer":{"endian":"little","kind":"int","signed":false,"size":8},"unsigned long":{"endian":"little","kind":"int","signed":false,"size":4}},
"user_types":{"_A":{"kind":"struct","size":24,"fields":{"x":{"offset":0,"type":{"kind":"base","name":"unsigned long"}},
"b":{"offset":4,"type":{"kind":"bitfield","bit_length":3,"bit_position":5,"type":{"kind":"base","name":"unsigned long"}}},
"u":{"offset":8,"anonymous":true,"type":{"kind":"union","name":"_U"}},
"p":{"offset":16,"type":{"kind":"pointer","subtype":{"kind":"struct","name":"_A"}}}}},
"_U":{"kind":"union","size":8,"fields":{"l":{"offset":0,"type":{"kind":"array","count":2,"subtype":{"kind":"enum","name":"_E"}}},
"again":{"offset":0,"anonymous":true,"type":{"kind":"struct","name":"_U"}}}}},
"enums":{"_E":{"base":"unsigned long","size":4,"constants":{"One":1,"Minus":-1}}},
"symbols":{"Foo":{"address":4096},"Bar":{"address":8192,"linkage_name":"_Bar","type":{"kind":"struct","name":"_A"}}}}"#;

#[test]
fn an_isf_reads_as_written() {
    let file = IsfFile::from_bytes(ISF.as_bytes().to_vec()).unwrap();
    let layout = file.type_layout("_A").unwrap();
    let fields: Vec<_> = layout.fields.iter().map(|f| (f.name.as_str(), f.offset, f.size, f.bits)).collect();
    assert_eq!(fields[..2], [("x", 0, 4, None), ("b", 4, 4, Some((5, 3)))]);
    assert_eq!(fields.last().unwrap(), &("p", 16, 8, None));
    assert!(fields.contains(&("l", 8, 8, None)), "the anonymous union lies flat: {fields:?}");
    assert_eq!(file.by_name("_Bar").unwrap()[0].rva, 8192);
    assert!(file.type_of("Bar").unwrap().is_some());
    let values: Vec<_> = file.type_layout("_E").unwrap().fields.iter().map(|f| f.value).collect();
    assert_eq!(values, [Some(-1), Some(1)]);
    assert!(file.type_layout("_Missing").is_err());
}

/// A stream directory that repeats one page makes streams far larger than the file.
#[test]
fn a_stream_larger_than_the_file_is_refused() {
    let mut bytes = small(0);
    // The superblock: a directory size and page count the file cannot have.
    for (offset, value) in [(44, 0x7fff_ffffu32), (40, u32::MAX)] {
        let saved = bytes[offset..offset + 4].to_vec();
        bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        let error = PdbFile::from_bytes(bytes.clone(), "x.pdb").err().unwrap();
        assert!(error.to_string().contains("damaged"), "{error}");
        bytes[offset..offset + 4].copy_from_slice(&saved);
    }
    assert!(PdbFile::from_bytes(bytes, "x.pdb").is_ok());
}

#[test]
fn a_truncated_pdb_says_so() {
    let mut bytes = small(0);
    bytes.truncate(bytes.len() / 2);
    let error = PdbFile::from_bytes(bytes, "x.pdb").err().unwrap().to_string();
    assert!(error.contains("truncated"), "{error}");
}

#[test]
fn other_formats_are_refused_by_name() {
    let portable = PdbFile::from_bytes(b"BSJB\x01\0\x01\0 and more".to_vec(), "x").err().unwrap();
    assert!(portable.to_string().contains("portable"), "{portable}");
    let missing = symbols::open(std::path::Path::new("no/such/file.pdb")).err().unwrap();
    assert!(missing.to_string().contains("no/such/file.pdb"), "{missing}");
}
