//! Real dumps, against what DbgEng printed for them and what their makers say of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use dump::{Container, DumpFile, KernelDump, Minidump, OpenedFile, UserFull};
use target::{Context, ContextSource, DumpFormat, Machine, MemoryExt, Unreadable, reg};

fn open(data: &Path, name: &str) -> OpenedFile {
    dump::open(&data.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
fn minidump(data: &Path, name: &str) -> Minidump {
    match open(data, name).file {
        DumpFile::Minidump(dump) => dump,
        other => panic!("{name} is {other:?}"),
    }
}
fn kernel(data: &Path, name: &str) -> KernelDump {
    match open(data, name).file {
        DumpFile::Kernel(dump) => dump,
        other => panic!("{name} is {other:?}"),
    }
}
fn user_full(data: &Path, name: &str) -> UserFull {
    match open(data, name).file {
        DumpFile::UserFull(dump) => dump,
        other => panic!("{name} is {other:?}"),
    }
}
fn context(dump: &Minidump, location: dump::minidump::Location) -> Context {
    let bytes = dump.bytes_at(location);
    Context::from_bytes(dump.machine(), bytes, ContextSource::Thread).expect("a context")
}

/// `(start, end)` of the rows of the oracle's last `lm`; `unloaded` takes the second table.
fn oracle_modules(data: &Path, name: &str, unloaded: bool) -> BTreeSet<(u64, u64)> {
    let file = data.join("oracle").join(format!("{}.txt", name.replace('/', "_")));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let table = text.rsplit_once("---- lm").expect("an lm section").1;
    let (loaded, gone) = table.split_once("Unloaded modules:").unwrap_or((table, ""));
    let rows = if unloaded { gone } else { loaded };
    let number = |text: &str| u64::from_str_radix(&text.replace('`', ""), 16).ok();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((number(words.next()?)?, number(words.next()?)?))
    };
    rows.lines().take_while(|line| !line.starts_with("=>")).filter_map(row).collect()
}

const MINIDUMPS: [&str; 14] = [
    "user/bp_exec_av_on_stack.dmp",
    "user/bp_minidump2.dmp",
    "user/bp_null_read_av.dmp",
    "user/bp_stack_exhaustion.dmp.xz",
    "user/bp_tiny-exe-fastfail.dmp",
    "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
    "user/crash_x86/crash_x86.dmp",
    "user/cxx_eh_x64/cxx_eh_x64.dmp.xz",
    "user/forged_arm64/forged_arm64.dmp",
    "user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab",
    "user/kd_wow64_release/wow64_release_mini.dmp",
    "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
    "user/llvm_sigsegv_x64.dmp",
    "user/rm_invalid_parameter_x64.dmp",
];

#[test]
fn modules_are_the_oracles() {
    let Some(data) = support::data() else { return };
    for name in MINIDUMPS {
        let ours = minidump(&data, name).modules();
        let ours: BTreeSet<_> = ours.iter().map(|m| (m.base, m.base + u64::from(m.size))).collect();
        assert_eq!(ours, oracle_modules(&data, name, false), "{name}");
    }
    let name = "user/kd_x64_release/targetapp_stacktest_x64_release.cab";
    let ours = user_full(&data, name).modules();
    let ours: BTreeSet<_> = ours.iter().map(|m| (m.base, m.base + u64::from(m.size))).collect();
    assert_eq!(ours, oracle_modules(&data, name, false), "{name}");
    for name in ["kernel/triage_x64_19041_7e.dmp", "kernel/triage_arm64_17134_e2.cab"] {
        let dump = kernel(&data, name);
        let triage = dump.triage().unwrap();
        let ours: BTreeSet<_> = triage.drivers.iter().map(|m| (m.base, m.base + u64::from(m.size))).collect();
        assert_eq!(ours, oracle_modules(&data, name, false), "{name}");
        let gone: BTreeSet<_> = triage.unloaded.iter().map(|m| (m.start, m.end)).collect();
        assert_eq!(gone, oracle_modules(&data, name, true), "{name}");
    }
}

/// The oracle's transcript of a file up to the thread listing, where each line says one thing.
fn oracle_text(data: &Path, name: &str) -> String {
    let file = data.join("oracle").join(format!("{}.txt", name.replace('/', "_")));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.split_once("---- .exr -1").expect("an .exr section").1.to_owned()
}

fn hex(text: &str) -> u64 {
    let digits: String = text.trim().chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("not hex: {text}"))
}

/// The number behind the first occurrence of `key`.
fn after(text: &str, key: &str) -> Option<u64> {
    text.split_once(key).map(|(_, rest)| hex(rest))
}

#[test]
fn exceptions_are_the_oracles() {
    let Some(data) = support::data() else { return };
    let mut compared = 0;
    for name in MINIDUMPS {
        let dump = minidump(&data, name);
        let Some(event) = dump.exception() else { continue };
        let text = oracle_text(&data, name);
        let (record, rest) = text.split_once("=> 0").unwrap();
        assert_eq!(Some(u64::from(event.record.code)), after(record, "ExceptionCode: "), "{name}");
        assert_eq!(Some(event.record.address), after(record, "ExceptionAddress: "), "{name}");
        let parameters: Vec<u64> = record
            .lines()
            .filter(|l| l.contains("Parameter["))
            .map(|l| hex(&l[l.find(": ").unwrap() + 2..]))
            .collect();
        assert_eq!(event.record.parameters, parameters, "{name}");
        let registers = rest.split_once("---- .ecxr").unwrap().1;
        let ip = ["rip=", "eip=", " pc="].iter().find_map(|key| after(registers, key));
        // The oracle cannot make sense of the small WoW64 dump's context.
        if name != "user/kd_wow64_release/wow64_release_mini.dmp" {
            assert_eq!(Some(context(&dump, event.context).ip()), ip, "{name}");
        }
        compared += 1;
    }
    assert_eq!(compared, MINIDUMPS.len() - 1, "all but the dump of a hang have an exception");
    assert!(minidump(&data, "user/bp_tiny-exe-with-cet-xsave-x86.dmp").exception().is_none());
}

#[test]
fn contexts_larger_than_the_structure_parse() {
    let Some(data) = support::data() else { return };
    let dump = minidump(&data, "user/bp_tiny-exe-with-cet-xsave-x86.dmp");
    let threads = dump.threads();
    assert_eq!(threads.len(), 3);
    for thread in &threads {
        assert!(thread.context.size > 716, "{thread:?}");
        let context = context(&dump, thread.context);
        assert!(context.ip() > 0x1_0000 && context.sp() >= thread.stack.start, "{context:?}");
        assert_eq!(context.get(reg::CS), Some(0x23));
    }
}

#[test]
fn streams_of_a_current_writer() {
    let Some(data) = support::data() else { return };
    let dump = minidump(&data, "user/kt2/kt2_vector_oob_debugbreak_x64.dmp");
    assert_eq!(dump.flags(), 0x1825);
    assert_eq!((dump.system_info().build, dump.system_info().processors), (26200, 12));
    assert_eq!(dump.handles().len(), 171);
    assert!(dump.handles().iter().any(|h| h.type_name == "Event"));
    assert_eq!(dump.thread_infos().len(), 6);
    assert_eq!(dump.thread_infos().iter().filter(|t| t.dump_flags & 2 != 0).count(), 1);
    assert_eq!(dump.memory_infos().unwrap().len(), 455);
    assert!(!dump.function_tables().is_empty());
    let misc = dump.misc_info().unwrap();
    assert_eq!(misc.process_id, Some(0x436c));
    assert_eq!(misc.build_string.as_deref(), Some("26100.1.amd64fre.ge_release.240331-1435"));
    // Process Uptime: 0 days 0:00:06.
    assert_eq!(dump.timestamp() - misc.times.unwrap().created, 6);
    let memory = dump.system_memory_info().unwrap();
    assert_eq!((memory.page_size, memory.processors), (4096, 12));
    assert_eq!(memory.allocation_granularity, 0x1_0000);
    assert!(memory.commit_limit >= memory.committed_pages && memory.available_pages > 0);
    let counters = dump.vm_counters().unwrap();
    assert!(counters.working_set.unwrap() <= counters.peak_working_set.unwrap());
    let main = &dump.modules()[0];
    assert!(main.name.ends_with("CppConsoleApplication.exe"), "{main:?}");
    assert!(main.pdb.as_ref().unwrap().key().starts_with("4F1CBD0C"), "{main:?}");
    assert!(!dump.truncated());
}

#[test]
fn stacks_are_memory_too() {
    let Some(data) = support::data() else { return };
    for name in MINIDUMPS {
        // The 64-bit stacks of that WoW64 dump were not saved.
        if name == "user/kd_wow64_release/wow64_release_mini.dmp" {
            continue;
        }
        let dump = minidump(&data, name);
        for thread in dump.threads() {
            let context = context(&dump, thread.context);
            let mut top = [0; 8];
            let outcome = dump.read_memory(context.sp(), &mut top);
            assert_eq!(outcome.stopped, None, "{name}: stack of {:#x}", thread.id);
        }
    }
}

#[test]
fn a_wow64_process_with_all_its_memory() {
    let Some(data) = support::data() else { return };
    let dump = minidump(&data, "user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz");
    assert_eq!(dump.machine(), Machine::X64);
    assert!(dump.has_full_memory() && !dump.truncated());
    let thread = &dump.threads()[1];
    let area = dump.read_u64(thread.teb + 0x1488).unwrap();
    assert_eq!(dump.read_u16(area + 2).unwrap(), 0x14c);
    let bytes: [u8; 716] = dump.read_array(area + 4).unwrap();
    let x86 = Context::from_x86(&bytes, ContextSource::Wow64CpuArea).unwrap();
    assert_eq!((x86.ip(), x86.sp()), (0x7723_c58c, 0x0098_f748));
}

#[test]
fn a_legacy_full_user_dump_in_a_cab() {
    let Some(data) = support::data() else { return };
    let opened = open(&data, "user/kd_x64_release/targetapp_stacktest_x64_release.cab");
    assert_eq!(opened.container, Some(Container::Cab));
    assert!(opened.member.as_deref().unwrap().ends_with(".dmp"), "{:?}", opened.member);
    let DumpFile::UserFull(dump) = opened.file else { panic!("not a full user dump") };
    assert_eq!(dump.machine(), Machine::X64);
    assert!(!dump.truncated());
    let event = dump.event().unwrap();
    assert_eq!(event.exception.code, 0x8000_0003);
    let threads = dump.threads();
    assert_eq!(threads.len(), 3);
    let first = Context::from_x64(threads[0].context, ContextSource::Thread).unwrap();
    assert_eq!(threads[0].id, event.thread);
    assert!(dump.modules()[0].name.to_lowercase().ends_with("targetapp.exe"));
    // The int 3 at the instruction pointer.
    assert_eq!(dump.read_u8(first.ip()).unwrap(), 0xcc);
    assert_eq!(dump.read_u16(dump.modules()[0].base).unwrap(), 0x5a4d);
}

#[test]
fn a_triage_dump_of_sixteen_processors() {
    let Some(data) = support::data() else { return };
    let dump = kernel(&data, "kernel/triage_x64_19041_7e.dmp");
    let header = dump.header();
    assert_eq!((dump.format(), header.machine), (DumpFormat::KernelTriage, Machine::X64));
    assert_eq!((header.build, header.processors), (19041, 16));
    assert_eq!((header.bug_check_code, header.bug_check_base()), (0x1000_007e, 0x7e));
    let wanted = [0xffff_ffff_c000_0005, 0xffff_f804_8b58_334c, 0xffff_8504_2989_1ee8, 0xffff_8504_2989_1720];
    assert_eq!(header.bug_check_parameters, wanted);
    // System Uptime: 0 days 0:00:03.747
    assert_eq!(header.system_up_time.unwrap() / 10_000, 3_747);
    assert_eq!(
        target::value::rfc3339_from_filetime(header.system_time.unwrap()).unwrap(),
        "2021-02-21T01:38:22.987Z"
    );
    assert_eq!((header.comment.as_deref(), header.attributes, header.physical_pages), (None, None, None));
    let triage = dump.triage().unwrap();
    assert_eq!((triage.blocks.len(), triage.drivers.len()), (1831, 151));
    let nt = &triage.drivers[0];
    assert_eq!((nt.base, nt.size, nt.timestamp), (0xffff_f804_7ba0_0000, 0x104_6000, 0x0d83_33e6));
    assert_eq!(triage.unloaded[0].name.trim(), "dam.sys");
    assert_eq!(triage.thread, Some(0xffff_c08b_de9e_1640));
    assert_eq!(triage.process, Some(0xffff_c08b_dce9_4180));
    // The header holds the context of the fault; the crash context hangs on the PRCB.
    let fault = Context::from_x64(dump.context_bytes(), ContextSource::Header).unwrap();
    assert_eq!(fault.ip(), 0xffff_f804_8b58_334c);
    let prcb = triage.prcb.unwrap();
    let saved = dump.read_u64(prcb + 0x85c0).unwrap();
    let saved: [u8; 0x4d0] = dump.read_array(saved).unwrap();
    let registers = Context::from_x64(&saved, ContextSource::Prcb).unwrap();
    assert_eq!((registers.ip(), registers.sp()), (0xffff_f804_7bdf_5a80, 0xffff_8504_2989_0ee8));
    // The return address of KeBugCheckEx, the CONTEXT at parameter 4, the process's name.
    assert_eq!(dump.read_u64(registers.sp()).unwrap(), 0xffff_f804_7be0_f4e1);
    let record: [u8; 0x4d0] = dump.read_array(header.bug_check_parameters[3]).unwrap();
    let at_fault = Context::from_x64(&record, ContextSource::ContextRecord).unwrap();
    assert_eq!(at_fault.ip(), 0xffff_f804_8b58_334c);
    let system = triage.process.unwrap();
    assert_eq!(dump.read_u64(system + 0x440).unwrap(), 4);
    assert_eq!(dump.read_c_string(system + 0x5a8, 15).unwrap(), b"System");
    assert_eq!(dump.read_u64(system + 0x28).unwrap() & !0xfff, 0x1a_d000);
}

#[test]
fn debugger_data_of_a_real_kernel() {
    let Some(data) = support::data() else { return };
    let dump = kernel(&data, "kernel/triage_x64_19041_7e.dmp");
    let kdbg = dump.debugger_data().unwrap();
    assert_eq!(kdbg.size(), 0x380);
    assert_eq!(kdbg.kern_base(), Some(0xffff_f804_7ba0_0000));
    assert_eq!(kdbg.ps_loaded_module_list(), dump.header().ps_loaded_module_list);
    assert_eq!(kdbg.ps_active_process_head(), dump.header().ps_active_process_head);
    assert_eq!(kdbg.size_prcb(), Some(0xaf00));
    assert_eq!((kdbg.size_eprocess(), kdbg.size_ethread()), (Some(0xa40), Some(0x898)));
    assert_eq!(kdbg.offset_prcb_context(), Some(0x85c0));
    assert_eq!(kdbg.offset_kthread_wait_reason(), Some(0x283));
    assert_eq!(kdbg.offset_prcb_proc_state_special_reg(), Some(0x100));
    assert_eq!(kdbg.offset_kthread_next_processor(), Some(0x218));
    assert_eq!(kdbg.mm_page_size(), Some(0x1000));
    assert!(kdbg.pte_base().unwrap().is_multiple_of(1 << 39));
    // All sixteen processors' PRCBs are among the blocks.
    let table = kdbg.ki_processor_block().unwrap();
    for number in 0..16 {
        let prcb = dump.read_u64(table + 8 * number).unwrap();
        assert_eq!(dump.read_u32(prcb + 0x24).unwrap(), u32::try_from(number).unwrap());
    }
    assert_eq!(dump.triage().unwrap().prcb.map(|p| dump.read_u64(p + 8)), {
        dump.triage().unwrap().thread.map(Ok)
    });
}

#[test]
fn an_arm64_triage_dump_in_a_cab() {
    let Some(data) = support::data() else { return };
    let opened = open(&data, "kernel/triage_arm64_17134_e2.cab");
    assert_eq!(opened.container, Some(Container::Cab));
    let DumpFile::Kernel(dump) = opened.file else { panic!("not a kernel dump") };
    let header = dump.header();
    assert_eq!((header.machine, header.build, header.processors), (Machine::Arm64, 17134, 8));
    assert_eq!((header.bug_check_code, header.bug_check_parameters), (0xe2, [0; 4]));
    let triage = dump.triage().unwrap();
    assert_eq!(triage.drivers.len(), 228);
    assert_eq!(triage.drivers[0].base, 0xffff_f801_bcb3_0000);
    let registers = Context::from_arm64(dump.context_bytes(), ContextSource::Header).unwrap();
    assert_eq!(registers.ip(), 0xffff_f801_bcb3_0000 + 0x22_2de8);
    // add x0, x27, #0x40
    assert_eq!(dump.read_u32(registers.ip()).unwrap(), 0x9101_0360);
    assert_eq!(dump.debugger_data().unwrap().size(), 0x368);
    assert_eq!(dump.debugger_data().unwrap().pte_base().map(|p| p >> 48), Some(0xffff));
}

#[test]
fn a_32_bit_kernel_dump_gives_its_header_and_drivers() {
    let Some(data) = support::data() else { return };
    let DumpFile::Kernel32(dump) = open(&data, "kernel/triage_arm32_17134.cab").file else {
        panic!("not a 32-bit kernel dump")
    };
    assert_eq!((dump.header.machine, dump.header.build, dump.header.processors), (Machine::Arm32, 17134, 4));
    assert_eq!((dump.header.bug_check_code, dump.header.dump_type), (0, 4));
    assert_eq!(
        target::value::rfc3339_from_filetime(dump.header.system_time.unwrap()).unwrap(),
        "2018-07-16T20:15:13.913Z"
    );
    // System Uptime: 0 days 0:00:46.606
    assert_eq!(dump.header.system_up_time.unwrap() / 10_000, 46_606);
    let ours: BTreeSet<_> =
        dump.drivers.iter().map(|d| (u64::from(d.base), u64::from(d.base) + u64::from(d.size))).collect();
    assert_eq!(ours, oracle_modules(&data, "kernel/triage_arm32_17134.cab", false));
    assert_eq!(dump.drivers[0].name, r"\SystemRoot\system32\ntoskrnl.exe");
}

#[test]
fn a_full_dump_cut_to_sixteen_kilobytes_opens() {
    let Some(data) = support::data() else { return };
    let dump = kernel(&data, "kernel/full_header_only_19045.dmp");
    assert!(dump.truncated());
    assert_eq!((dump.format(), dump.header().build), (DumpFormat::KernelFull, 19045));
    assert_eq!(dump.header().processors, 4);
    assert_eq!(dump.pages().unwrap().page_count(), 523_910);
    assert_eq!(dump.header().physical_runs.len(), 5);
    let mut page = [0; 0x1000];
    assert_eq!(dump.read_physical(0x2000, &mut page).stopped, None);
    let later = dump.read_physical(0x10_0000 * 0x10, &mut page);
    assert_eq!((later.read, later.stopped), (0, Some(Unreadable::TruncatedFile)));
    assert_eq!(dump.read_physical(0, &mut page).stopped, Some(Unreadable::NotInDump));
}

#[test]
fn the_same_memory_in_four_page_maps() {
    let Some(data) = support::data() else { return };
    let names = ["syn_full_x64", "syn_bmp5_x64", "syn_bmp6_x64", "syn_rdmp8_x64"];
    let dumps = names.map(|name| kernel(&data, &format!("synthetic/{name}.dmp")));
    let formats = dumps.each_ref().map(KernelDump::format);
    let bitmap = DumpFormat::KernelBitmap;
    assert_eq!(formats, [DumpFormat::KernelFull, bitmap, bitmap, DumpFormat::KernelRanges]);
    for (dump, name) in dumps.iter().zip(names) {
        assert_eq!(dump.pages().unwrap().page_count(), 51, "{name}");
        assert!(!dump.truncated(), "{name}");
        assert!(dump.notes().is_empty(), "{name}: {:?}", dump.notes());
        assert_eq!(dump.header().bug_check_code, 0xdead_beef);
        assert_eq!(dump.header().comment.as_deref(), Some("synthetic fixture"));
        assert_eq!(dump.header().system_up_time, Some(600 * 10_000_000));
    }
    for pfn in 0..0x300u64 {
        let pages = dumps.each_ref().map(|dump| {
            let mut page = vec![0; 0x1000];
            (dump.read_physical(pfn * 0x1000, &mut page), page)
        });
        assert!(pages.iter().all(|p| *p == pages[0]), "frame {pfn:#x}");
        assert_eq!(pages[0].0.stopped.is_none(), (0x200..0x233).contains(&pfn), "frame {pfn:#x}");
    }
}

#[test]
fn secondary_data_behind_the_memory() {
    let Some(data) = support::data() else { return };
    let dump = kernel(&data, "kernel/triage_x64_19041_7e.dmp");
    let blobs = dump.blobs();
    assert!(!blobs.is_empty());
    assert_eq!(blobs[0].tag.to_string(), "54C8488801D14C1EBED6282C98241303");
    assert_eq!(blobs[0].size, 0x1000);
    assert!(dump.file_bytes(blobs[0].offset, blobs[0].size.into()).is_some());
}

#[test]
fn what_is_refused_and_why() {
    let Some(data) = support::data() else { return };
    let cases = [
        ("negative/foreign_linux.dmp", "unsupported", "foreign_platform", "Linux"),
        ("negative/foreign_macos_crashpad.dmp", "unsupported", "foreign_platform", "macOS"),
        ("negative/invalid-range.dmp", "debugger", "malformed_file", "header"),
        ("negative/trunc_memory64.dmp", "debugger", "malformed_file", "system information"),
        ("README.md", "debugger", "malformed_file", "23 20 54"),
    ];
    for (name, category, reason, word) in cases {
        let error = dump::open(&data.join(name)).expect_err(name);
        assert_eq!(error.category(), (category, Some(reason)), "{name}: {error}");
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
    assert!(dump::open(&data.join("negative/invalid-record-count.dmp")).is_err());
}

#[test]
fn an_image_is_an_image() {
    let Some(data) = support::data() else { return };
    assert!(matches!(open(&data, "drivers/bsod_x64.sys").file, DumpFile::Image(_)));
}
