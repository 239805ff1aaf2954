//! Minidumps written here, read by `dump` and by rust-minidump.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use dump::{DumpFile, Minidump};
use dumpforge::{
    Content, FrameSpec, Function, Image, ImageBuilder, StackBuilder, UserDump, UserException, UserThread,
};
use target::{Context, ContextSource, ExceptionRecord, Guid, Machine, MemoryExt, reg};

const BASE: u64 = 0x1_4000_0000;

fn image(machine: Machine) -> Image {
    ImageBuilder::new(machine, "crashme.exe")
        .pdb(Guid(*b"crash me, please"), 1, r"C:\fx\crashme.pdb")
        .program()
        .function(Function::new("crash"))
        .function(Function::new("main").saving(if machine == Machine::Arm64 { &[19, 20] } else { &[3, 6] }))
        .build()
}

fn forged(machine: Machine, full_memory: bool) -> UserDump {
    let image = image(machine);
    let frames = [FrameSpec::inside(&image, BASE, "crash"), FrameSpec::calling(&image, BASE, "main")];
    let stack = StackBuilder::new(machine, 0x20_0000, 0x2000).build(&frames, 0);
    let mut dump = UserDump::new(machine);
    dump.full_memory = full_memory;
    dump.add_image(&image, BASE, r"C:\fx\crashme.exe", true);
    dump.threads.push(UserThread::new(0x10, &stack).named("main thread"));
    dump.threads.push(UserThread { extended: 0x340, ..UserThread::new(0x14, &stack) });
    dump.threads[1].stack = (0x30_0000, vec![7; 64]);
    dump.memory.push((0x50_0000, Content::Bytes(b"hello".to_vec())));
    dump.memory.push((0x60_0000, Content::Zeros(0x1_0000)));
    dump.exception = Some(UserException {
        thread: 0x10,
        record: ExceptionRecord {
            code: 0xc000_0005,
            address: frames[0].ip,
            parameters: vec![1, 0x45],
            ..ExceptionRecord::default()
        },
        context: Some(stack.context.clone()),
    });
    dump.regions.push(dumpforge::user::RegionSpec {
        base: 0x50_0000,
        allocation_base: 0x50_0000,
        size: 0x1000,
        state: 0x1000,
        protect: 4,
        kind: 0x2_0000,
    });
    dump.build_string = Some("19041.1.amd64fre.forge".into());
    dump.unloaded.push(("gone.dll".into(), 0x7ff8_0000_0000, 0x3000));
    dump.handles.push((4, "Event".into(), r"\BaseNamedObjects\done".into()));
    dump.comment = Some("made by a test".into());
    dump
}

fn read(bytes: Vec<u8>) -> Minidump {
    match dump::from_bytes(bytes).unwrap() {
        DumpFile::Minidump(dump) => dump,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_is_read() {
    for (machine, full) in [(Machine::X64, false), (Machine::X64, true), (Machine::Arm64, true)] {
        let dump = forged(machine, full);
        let read = read(dump.dump().unwrap());
        assert_eq!((read.machine(), read.truncated()), (machine, false));
        assert_eq!(read.has_full_memory(), full);
        assert_eq!(read.system_info().build, 19041);
        let threads = read.threads();
        assert_eq!(threads.iter().map(|t| t.id).collect::<Vec<_>>(), [0x10, 0x14]);
        let context = Context::from_bytes(machine, read.bytes_at(threads[0].context), ContextSource::Thread);
        let context = context.unwrap();
        assert_eq!(
            (context.ip(), context.sp()),
            (dump.threads[0].context.ip(), dump.threads[0].context.sp())
        );
        assert!(threads[1].context.size as usize > Context::record_size(machine));
        assert_eq!(read.thread_names()[0].name, "main thread");
        assert_eq!(read.thread_infos().len(), 2);
        let module = &read.modules()[0];
        assert_eq!((module.base, module.name.as_str()), (BASE, r"C:\fx\crashme.exe"));
        assert_eq!(module.pdb.as_ref().unwrap().name, r"C:\fx\crashme.pdb");
        assert_eq!(read.exception().unwrap().record, dump.exception.as_ref().unwrap().record);
        assert_eq!(read.read_array::<5>(0x50_0000).unwrap(), *b"hello");
        assert_eq!(read.read_array::<64>(0x30_0000).unwrap(), [7; 64]);
        assert_eq!(read.read_u64(0x60_fff8).unwrap(), 0);
        assert!(read.read_u8(0x61_0000).is_err());
        assert_eq!(read.read_u16(BASE).unwrap(), 0x5a4d);
        assert_eq!(read.memory_infos().unwrap().len(), 1);
        let misc = read.misc_info().unwrap();
        assert_eq!(
            (misc.process_id, misc.build_string.as_deref()),
            (Some(0x1234), Some("19041.1.amd64fre.forge"))
        );
        assert_eq!(read.unloaded_modules()[0].name, "gone.dll");
        assert_eq!((read.handles()[0].type_name.as_str(), read.handles()[0].handle), ("Event", 4));
        assert_eq!(read.comments(), ["made by a test"]);
    }
}

#[test]
fn the_other_reader_agrees() {
    let bytes = forged(Machine::X64, false).dump().unwrap();
    let theirs = minidump::Minidump::read(bytes).unwrap();
    let threads = theirs.get_stream::<minidump::MinidumpThreadList>().unwrap();
    assert_eq!(threads.threads.len(), 2);
    let names = theirs.get_stream::<minidump::MinidumpThreadNames>().unwrap();
    assert_eq!(names.get_name(0x10).as_deref(), Some("main thread"));
    let memory = theirs.get_memory().unwrap();
    assert_eq!(memory.memory_at_address(0x50_0000).unwrap().bytes(), b"hello");
    assert!(theirs.get_stream::<minidump::MinidumpException>().is_ok());
    let infos = theirs.get_stream::<minidump::MinidumpMemoryInfoList>().unwrap();
    assert_eq!(infos.iter().count(), 1);
}

#[test]
fn x86_processes_too() {
    let mut dump = UserDump::new(Machine::X86);
    let mut context = Context::new(Machine::X86, ContextSource::Thread);
    for (number, value) in
        [(reg::RIP, 0x40_1000), (reg::RSP, 0x12_fe00), (reg::RBP, 0x12_fe10), (reg::CS, 0x23)]
    {
        context.set(number, value);
    }
    let mut stack = dumpforge::BuiltStack {
        low: 0x12_f000,
        bytes: vec![0; 0x1000],
        context: context.clone(),
        frames: Vec::new(),
    };
    stack.bytes[0xe10..0xe14].copy_from_slice(&0x12_fe30u32.to_le_bytes());
    dump.threads.push(UserThread::new(1, &stack));
    dump.exception = Some(UserException {
        thread: 1,
        record: ExceptionRecord {
            code: 0xc000_0005,
            address: 0xffff_ffff_8040_1000,
            parameters: vec![0, 0xffff_ffff_8000_0000],
            ..ExceptionRecord::default()
        },
        context: None,
    });
    let read = read(dump.dump().unwrap());
    assert_eq!(read.machine(), Machine::X86);
    // Sign-extended addresses are cut to 32 bits.
    let event = read.exception().unwrap();
    assert_eq!((event.record.address, event.record.parameters[1]), (0x8040_1000, 0x8000_0000));
    assert_eq!(event.context.size, 0);
    let thread = &read.threads()[0];
    let parsed = Context::from_x86(read.bytes_at(thread.context), ContextSource::Thread).unwrap();
    assert_eq!((parsed.ip(), parsed.fp()), (0x40_1000, Some(0x12_fe10)));
    assert_eq!(read.read_u32(0x12_fe10).unwrap(), 0x12_fe30);
}

#[test]
fn a_large_dump_streams_to_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.dmp");
    let before = std::time::Instant::now();
    dumpforge::user::large(&path, 100 << 20).unwrap();
    assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
    let DumpFile::Minidump(read) = dump::open(&path).unwrap().file else { panic!() };
    assert_eq!(read.memory_regions().iter().find(|r| r.0 == 0x1000_0000).unwrap().1, 100 << 20);
    let mut page = [0; 0x1000];
    assert_eq!(read.read_memory(0x1000_0000 + (100 << 20) - 0x1000, &mut page).stopped, None);
    assert!(!page.contains(&0) && !read.truncated());
    assert_eq!(read.exception().unwrap().record.code, 0xc000_0005);
}

#[test]
fn two_gigabytes_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.dmp");
    let mut dump = forged(Machine::X64, true);
    for index in 0..512u64 {
        dump.memory.push((0x1_0000_0000 + index * 0x40_0000, Content::Zeros(0x40_0000)));
    }
    dump.memory.push((0x7000_0000_0000, Content::Bytes(b"the end".to_vec())));
    dump.write(&mut std::fs::File::create(&path).unwrap()).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 2 << 30);
    let before = std::time::Instant::now();
    let DumpFile::Minidump(read) = dump::open(&path).unwrap().file else { panic!() };
    assert_eq!(read.read_array::<7>(0x7000_0000_0000).unwrap(), *b"the end");
    assert!(!read.truncated());
    assert!(before.elapsed().as_secs() < 1, "{:?}", before.elapsed());
}

#[test]
fn every_truncation_opens_or_says_why() {
    let bytes = forged(Machine::X64, true).dump().unwrap();
    let mut cut = 0;
    for length in (0..bytes.len()).step_by(97) {
        match dump::from_bytes(bytes[..length].to_vec()) {
            Ok(DumpFile::Minidump(dump)) => {
                assert!(dump.truncated(), "{length} of {}", bytes.len());
                cut += 1;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.category().1, Some("malformed_file"), "{length}: {error}"),
        }
    }
    assert!(cut > 10);
}
