//! Kernel dumps written here, read by `dump` and by kdmp-parser.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use dump::{DumpFile, KdDebuggerData, KernelDump};
use dumpforge::{
    BuiltStack, DumpType, Encoding, FrameSpec, Function, Image, ImageBuilder, KernelForge, Mapping,
    ThreadState,
};
use target::{Context, ContextSource, DumpFormat, Machine, MemoryExt, Unreadable};

const DRIVER: u64 = 0xffff_f803_4000_0000;

fn driver(machine: Machine) -> Image {
    ImageBuilder::new(machine, "myfault.sys").function(Function::new("Dispatch").locals(0x38)).build()
}

/// Two processors, a waiting thread, a second process, a driver on the crash stack.
fn forged(machine: Machine) -> (KernelForge, BuiltStack) {
    let mut forge = KernelForge::new(machine);
    let driver = driver(machine);
    forge.add_driver(&driver, DRIVER, r"\SystemRoot\system32\drivers\myfault.sys");
    forge.add_unloaded_driver("gone.sys", 0xffff_f803_5000_0000, 0xffff_f803_5001_0000);
    let kernel = forge.kernel.clone();
    let at = |name: &str| FrameSpec::calling(&kernel, 0xffff_f803_2100_0000, name);
    let crash = [
        FrameSpec::inside(&kernel, 0xffff_f803_2100_0000, "KeBugCheckEx"),
        FrameSpec::calling(&driver, DRIVER, "Dispatch"),
        at("IofCallDriver"),
        at("NtDeviceIoControlFile"),
        at("KiSystemStartup"),
    ];
    let idle = [at("KeWaitForSingleObject"), at("PspSystemThreadStartup")];
    let waiting = [at("KiSwapThread"), at("KeWaitForSingleObject"), at("PspSystemThreadStartup")];
    let system = forge.system_process();
    let (_, stack) = forge.add_thread(system, 8, ThreadState::Running { processor: 0 }, &crash);
    forge.add_thread(system, 12, ThreadState::Waiting { reason: 5 }, &waiting);
    let process = forge.add_process("victim.exe", 0x1234);
    forge.add_thread(process, 0x1238, ThreadState::Running { processor: 1 }, &idle);
    let program = ImageBuilder::new(machine, "victim.exe").program().function(Function::new("main")).build();
    forge.add_user_module(process, &program, r"C:\fx\victim.exe");
    forge.bug_check = (0xdead_beef, [0x22_2003, 1, 2, 3]);
    forge.comment = "forged".into();
    (forge, stack)
}

fn read(bytes: Vec<u8>) -> KernelDump {
    match dump::from_bytes(bytes).unwrap() {
        DumpFile::Kernel(dump) => dump,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_page_is_read_back_from_every_type() {
    for machine in [Machine::X64, Machine::Arm64] {
        let (mut forge, stack) = forged(machine);
        for kind in DumpType::ALL.into_iter().filter(|k| k.encoding() != Encoding::Blocks) {
            let dump = read(forge.dump(kind).unwrap());
            let wanted = match kind.encoding() {
                Encoding::Runs => DumpFormat::KernelFull,
                Encoding::Bitmap => DumpFormat::KernelBitmap,
                _ => DumpFormat::KernelRanges,
            };
            assert_eq!((dump.format(), dump.truncated()), (wanted, false), "{kind:?}");
            assert!(dump.notes().is_empty(), "{kind:?}: {:?}", dump.notes());
            let header = dump.header();
            assert_eq!((header.machine, header.bug_check_code), (machine, 0xdead_beef));
            assert_eq!((header.processors, header.comment.as_deref()), (2, Some("forged")));
            let context = Context::from_bytes(machine, dump.context_bytes(), ContextSource::Header).unwrap();
            assert_eq!((context.ip(), context.sp()), (stack.context.ip(), stack.context.sp()));
            let mut pages = 0;
            let mut pfn = 0;
            while let Some(run) = dump.next_physical_run(pfn) {
                for frame in run.first_pfn..run.first_pfn + run.pages {
                    let mut page = vec![0; 0x1000];
                    assert_eq!(dump.read_physical(frame * 0x1000, &mut page).stopped, None, "{kind:?}");
                    assert!(page == forge.memory.read(frame * 0x1000, 0x1000), "{kind:?} frame {frame:#x}");
                    pages += 1;
                }
                pfn = run.first_pfn + run.pages;
            }
            assert_eq!(pages, dump.pages().unwrap().page_count(), "{kind:?}");
            assert!(pages > 50);
        }
    }
}

#[test]
fn kdmp_parser_reads_them_too() {
    let (mut forge, _) = forged(Machine::X64);
    let folder = tempfile::tempdir().unwrap();
    for kind in
        [DumpType::Full, DumpType::BitmapFull, DumpType::BitmapKernel, DumpType::Ranges, DumpType::RangesFull]
    {
        let bytes = forge.dump(kind).unwrap();
        let path = folder.path().join("forged.dmp");
        std::fs::write(&path, &bytes).unwrap();
        let theirs =
            kdmp_parser::parse::KernelDumpParser::new(&path).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(theirs.physmem().len() as u64, read(bytes).pages().unwrap().page_count(), "{kind:?}");
        let reader = kdmp_parser::phys::Reader::new(&theirs);
        for (address, _) in theirs.physmem() {
            let mut page = vec![0; 0x1000];
            reader.read_exact(address, &mut page).unwrap();
            assert!(page == forge.memory.read(u64::from(address), 0x1000), "{kind:?} {address}");
        }
        // It walks the module list by itself.
        let names: Vec<&str> = theirs.kernel_modules().map(|(_, name)| name).collect();
        assert_eq!(names.len(), 2, "{kind:?}: {names:?}");
    }
}

#[test]
fn a_triage_dump_holds_the_crash() {
    for machine in [Machine::X64, Machine::Arm64] {
        let (mut forge, stack) = forged(machine);
        forge.blobs.push((*b"secondary  data!", vec![0x5a; 100]));
        let (thread, process) = (forge.layout.ethread_size, forge.process_object(forge.system_process()));
        assert!(thread > 0);
        let dump = read(forge.dump(DumpType::Triage).unwrap());
        assert_eq!((dump.format(), dump.truncated()), (DumpFormat::KernelTriage, false));
        let triage = dump.triage().unwrap();
        let names: Vec<&str> = triage.drivers.iter().map(|d| target::base_name(&d.name)).collect();
        assert_eq!(names, ["ntoskrnl.exe", "myfault.sys"]);
        assert_eq!(triage.unloaded[0].name, "gone.sys");
        assert_eq!(triage.process, Some(process));
        let name = u64::from(forge.layout.eprocess_image_file_name);
        assert_eq!(dump.read_c_string(process + name, 15).unwrap(), b"System");
        let kdbg = dump.debugger_data().unwrap();
        assert_eq!(kdbg.kern_base(), Some(forge.kernel_base));
        assert_eq!(kdbg.offset_prcb_context(), Some(forge.layout.prcb_context));
        // The stack from the stack pointer up, nothing below it.
        let top = usize::try_from(stack.context.sp() - stack.low).unwrap();
        let (bytes, stopped) = dump.read_prefix(stack.context.sp(), 0x6000);
        assert_eq!((bytes, stopped), (stack.bytes[top..].to_vec(), Some(Unreadable::NotInDump)));
        assert!(dump.read_u8(stack.context.sp() - 1).is_err());
        // Each processor's saved context, by way of its PRCB.
        for processor in 0..2 {
            let prcb = dump.read_u64(kdbg.ki_processor_block().unwrap() + 8 * processor).unwrap();
            let saved = dump.read_u64(prcb + u64::from(forge.layout.prcb_context)).unwrap();
            let (bytes, _) = dump.read_prefix(saved, Context::record_size(machine));
            let context = Context::from_bytes(machine, &bytes, ContextSource::Prcb).unwrap();
            assert_eq!(context.ip() == stack.context.ip(), processor == 0);
        }
        assert_eq!((dump.blobs().len(), dump.blobs()[0].size), (1, 100));
    }
}

#[test]
fn the_crash_stack_is_walked() {
    for machine in [Machine::X64, Machine::Arm64] {
        let (forge, stack) = forged(machine);
        let driver = driver(machine);
        let world = support::World::new(&stack, &[(forge.kernel_base, &forge.kernel), (DRIVER, &driver)]);
        world.check(&stack);
    }
}

#[test]
fn encoded_debugger_data_decodes_with_the_kernels_keys() {
    let (mut forge, _) = forged(Machine::X64);
    forge.encode = Some((0x0123_4567_89ab_cd27, 0xfedc_ba98_7654_3210));
    forge.dump(DumpType::BitmapKernel).unwrap();
    let block = forge.read(forge.symbol("KdDebuggerDataBlock"), 0x380);
    assert!(KdDebuggerData::parse(&block).is_none());
    let quad = |name: &str| u64::from_le_bytes(forge.read(forge.symbol(name), 8).try_into().unwrap());
    let address = forge.symbol("KdpDataBlockEncoded");
    let plain = KdDebuggerData::decode(&block, quad("KiWaitNever"), quad("KiWaitAlways"), address).unwrap();
    assert_eq!(plain.ps_loaded_module_list(), Some(forge.symbol("PsLoadedModuleList")));
}

#[test]
fn pages_in_every_state() {
    let mut forge = KernelForge::new(Machine::X64);
    let base = 0xffff_a590_0000_0000;
    let transition = forge.map(base, Mapping::Transition).unwrap();
    forge.memory.write(transition * 0x1000, b"TRANSITION");
    assert_eq!(forge.read(base, 10), b"TRANSITION");
    let large = forge.map(base + 0x20_0000, Mapping::Large2M).unwrap();
    forge.write(base + 0x20_0000 + 0x12_3456, b"large");
    assert_eq!(forge.memory.read(large * 0x1000 + 0x12_3456, 5), b"large");
    let huge = forge.map(base + 0x4000_0000, Mapping::Large1G).unwrap();
    assert!(huge.is_multiple_of(512 * 512));
    forge.write(base + 0x4000_0000 + 0x1234_5678, b"huge");
    assert_eq!(forge.memory.read(huge * 0x1000 + 0x1234_5678, 4), b"huge");
    for (index, how) in [
        Mapping::PageFile { file: 2, offset: 0x1234 },
        Mapping::Prototype { entry: base },
        Mapping::PrototypeVad,
        Mapping::DemandZero,
    ]
    .into_iter()
    .enumerate()
    {
        let address = base + 0x1000 * (1 + index as u64);
        assert_eq!(forge.map(address, how), None);
        assert!(forge.read(address, 1).is_empty(), "{how:?}");
    }
    let hole = forge.map(base + 0x9000, Mapping::Hole).unwrap();
    let dump = read(forge.dump(DumpType::BitmapFull).unwrap());
    let mut byte = [0];
    assert_eq!(dump.read_physical(hole * 0x1000, &mut byte).stopped, Some(Unreadable::NotInDump));
    assert_eq!(dump.read_physical(transition * 0x1000, &mut byte).stopped, None);
    // Of the large page only what was written is there.
    assert_eq!(dump.read_physical(large * 0x1000 + 0x12_3456, &mut byte).stopped, None);
    assert_eq!(dump.read_physical(large * 0x1000, &mut byte).stopped, Some(Unreadable::NotInDump));
}

#[test]
fn five_levels_of_tables() {
    let mut forge = KernelForge::with_five_levels();
    // Two addresses that differ only above bit 47.
    forge.write(0xff10_0000_0000_0000, b"one");
    forge.write(0xff11_0000_0000_0000, b"two");
    assert_eq!(
        (forge.read(0xff10_0000_0000_0000, 3), forge.read(0xff11_0000_0000_0000, 3)),
        (b"one".into(), b"two".into())
    );
    assert!(forge.dump(DumpType::BitmapFull).is_ok());
}

#[test]
fn sixty_four_gigabytes_open_at_once() {
    let (mut forge, _) = forged(Machine::X64);
    forge.zero_frames = 0x1_0000..0x100_0000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.dmp");
    forge.write_dump(DumpType::BitmapFull, &mut std::fs::File::create(&path).unwrap()).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 0xffu64 << 28);
    let before = std::time::Instant::now();
    let DumpFile::Kernel(dump) = dump::open(&path).unwrap().file else { panic!() };
    assert!(before.elapsed().as_secs() < 2, "{:?}", before.elapsed());
    assert!(!dump.truncated() && dump.notes().is_empty());
    let mut page = [1; 0x1000];
    assert_eq!(dump.read_physical(0xff_ffff << 12, &mut page).stopped, None);
    assert_eq!(page, [0; 0x1000]);
    assert_eq!(dump.read_physical(0x100_0000 << 12, &mut page).stopped, Some(Unreadable::NotInDump));
}

#[test]
fn truncated_dumps_open_and_say_so() {
    let (mut forge, _) = forged(Machine::X64);
    for kind in DumpType::ALL {
        let bytes = forge.dump(kind).unwrap();
        let dump = read(bytes[..bytes.len() - 0x1800].to_vec());
        assert!(dump.truncated(), "{kind:?}");
    }
}

#[test]
fn the_isf_is_json_with_the_kernels_names() {
    let forge = KernelForge::new(Machine::X64);
    let text = dumpforge::isf::isf(&forge.kernel, &forge.layout);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["symbols"]["PsLoadedModuleList"]["address"], forge.kernel.rva("PsLoadedModuleList"));
    assert_eq!(json["user_types"]["_EPROCESS"]["fields"]["ImageFileName"]["offset"], 0x5a8);
    assert_eq!(json["metadata"]["windows"]["pdb"]["GUID"], target::Guid(*b"stand-in kernel!").to_string());
}
