//! The same files through other people's parsers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use dump::{DumpFile, KernelDump};
use minidump::{
    MinidumpException, MinidumpMemory64List, MinidumpMemoryList, MinidumpModuleList, MinidumpThreadList,
    Module,
};

/// Bytes of a minidump, its container removed by us: the other parser knows none.
fn unpacked(path: &std::path::Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|e| e == "xz") {
        let mut out = Vec::new();
        std::io::Read::read_to_end(&mut liblzma::read::XzDecoder::new(&bytes[..]), &mut out).unwrap();
        return out;
    }
    bytes
}

#[test]
fn minidumps_read_like_rust_minidump_reads_them() {
    let Some(data) = support::data() else { return };
    let names = [
        "user/bp_exec_av_on_stack.dmp",
        "user/bp_null_read_av.dmp",
        "user/bp_stack_exhaustion.dmp.xz",
        "user/bp_tiny-exe-fastfail.dmp",
        "user/crash_x86/crash_x86.dmp",
        "user/cxx_eh_x64/cxx_eh_x64.dmp.xz",
        "user/forged_arm64/forged_arm64.dmp",
        "user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz",
        "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
        "user/llvm_sigsegv_x64.dmp",
        "user/rm_invalid_parameter_x64.dmp",
    ];
    for name in names {
        let bytes = unpacked(&data.join(name));
        let theirs = minidump::Minidump::read(bytes.clone()).unwrap();
        let DumpFile::Minidump(ours) = dump::from_bytes(bytes).unwrap() else { panic!("{name}") };
        let threads = theirs.get_stream::<MinidumpThreadList>().unwrap();
        let ids: Vec<u32> = threads.threads.iter().map(|t| t.raw.thread_id).collect();
        assert_eq!(ours.threads().iter().map(|t| t.id).collect::<Vec<_>>(), ids, "{name}");
        let modules = theirs.get_stream::<MinidumpModuleList>().unwrap();
        let listed: Vec<_> =
            modules.iter().map(|m| (m.base_address(), m.size(), m.code_file().into_owned())).collect();
        let mine: Vec<_> = ours.modules().into_iter().map(|m| (m.base, u64::from(m.size), m.name)).collect();
        assert_eq!(mine, listed, "{name}");
        if let Ok(exception) = theirs.get_stream::<MinidumpException>() {
            assert_eq!(ours.exception().unwrap().thread, exception.thread_id, "{name}");
        }
        let mut regions: Vec<(u64, Vec<u8>)> = Vec::new();
        if let Ok(list) = theirs.get_stream::<MinidumpMemoryList>() {
            regions.extend(list.iter().map(|m| (m.base_address, m.bytes.to_vec())));
        }
        if let Ok(list) = theirs.get_stream::<MinidumpMemory64List>() {
            regions.extend(list.iter().map(|m| (m.base_address, m.bytes.to_vec())));
        }
        assert!(!regions.is_empty(), "{name}");
        for (address, expected) in regions {
            let mut buffer = vec![0; expected.len()];
            assert_eq!(ours.read_memory(address, &mut buffer).stopped, None, "{name} {address:#x}");
            assert!(buffer == expected, "{name}: bytes at {address:#x} differ");
        }
    }
}

fn same_pages(path: &std::path::Path, ours: &KernelDump) {
    let theirs = kdmp_parser::parse::KernelDumpParser::new(path).unwrap();
    let reader = kdmp_parser::phys::Reader::new(&theirs);
    assert_eq!(ours.pages().unwrap().page_count(), theirs.physmem().len() as u64);
    for (gpa, _) in theirs.physmem() {
        let (mut a, mut b) = (vec![0; 0x1000], vec![0; 0x1000]);
        let outcome = ours.read_physical(u64::from(gpa), &mut a);
        match reader.read_exact(gpa, &mut b) {
            Ok(()) => assert!(outcome.stopped.is_none() && a == b, "{gpa}"),
            Err(_) => assert!(outcome.stopped.is_some(), "{gpa}"),
        }
    }
}

#[test]
fn kernel_pages_read_like_kdmp_parser_reads_them() {
    let Some(data) = support::data() else { return };
    for name in ["syn_full_x64", "syn_bmp5_x64", "syn_bmp6_x64", "syn_rdmp8_x64"] {
        let path = data.join(format!("synthetic/{name}.dmp"));
        let DumpFile::Kernel(ours) = dump::open(&path).unwrap().file else { panic!("{name}") };
        same_pages(&path, &ours);
    }
}
