//! User dumps, and user memory behind kernel stacks, whose every answer is known.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use dumpforge::{
    Content, DumpType, FrameSpec, Function, Image, ImageBuilder, KernelForge, StackBuilder, ThreadState,
    UserDump, UserException, UserThread,
};
use engine_native::{OpenOptions, open, open_bytes};
use target::{
    ContextOf, ExceptionRecord, Found, Halt, Machine, MemoryExt, Selection, Target, TargetExt, Unreadable,
    View, WalkEnd,
};

const BASE: u64 = 0x7ff6_1000_0000;
const STACK: u64 = 0x12_0000_0000;

fn halt() -> Halt {
    Halt::within(Duration::from_secs(20))
}

fn program(machine: Machine) -> Image {
    ImageBuilder::new(machine, "app.exe")
        .timestamp(0x5f00_0001)
        .function(Function::new("Crash").locals(0x20).exported())
        .function(Function::new("Middle").locals(0x60))
        .function(Function::new("Main").locals(0x30).exported())
        .variable("State", 64, b"state")
        .build()
}

/// A process of one thread that crashed three functions deep, its image's memory in the dump or not.
fn crashed(machine: Machine, image: &Image, with_memory: bool) -> UserDump {
    let frames = [
        FrameSpec::inside(image, BASE, "Crash"),
        FrameSpec::calling(image, BASE, "Middle"),
        FrameSpec::calling(image, BASE, "Main"),
    ];
    let stack = StackBuilder::new(machine, STACK, 0x4000).build(&frames, 0);
    let mut dump = UserDump::new(machine);
    dump.add_image(image, BASE, r"C:\path\app.exe", with_memory);
    dump.exception = Some(UserException {
        thread: 7,
        record: ExceptionRecord { code: 0xc000_0005, address: stack.context.ip(), ..Default::default() },
        context: Some(stack.context.clone()),
    });
    dump.threads = vec![UserThread::new(7, &stack).named("worker")];
    dump
}

fn ips(target: &dyn Target) -> (Vec<u64>, WalkEnd) {
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    let stack = target.stack(&context, 32, &halt()).unwrap();
    (stack.frames.iter().map(|f| f.ip - BASE).collect(), stack.end)
}

#[test]
fn stacks_through_memory_of_the_dump() {
    for machine in [Machine::X64, Machine::Arm64] {
        let image = program(machine);
        let bytes = crashed(machine, &image, true).dump().unwrap();
        let target = open_bytes(bytes, "crashed.dmp", &OpenOptions::default()).unwrap();
        let facts = |name: &str| image.function(name);
        let expected = [
            u64::from(facts("Crash").body),
            u64::from(facts("Middle").returns[0]),
            u64::from(facts("Main").returns[0]),
        ];
        assert_eq!(ips(target.as_ref()), (expected.to_vec(), WalkEnd::Outermost), "{machine:?}");
        assert_eq!(target.threads().unwrap()[0].name.as_deref(), Some("worker"));
        let hit = target.symbol_at(BASE + expected[0]).unwrap().unwrap();
        assert_eq!(hit.qualified(), "app!Crash");
        assert_eq!(target::conformance::check(target.as_ref()), [], "{machine:?}");
    }
}

#[test]
fn an_image_file_stands_behind_a_small_dump() {
    let machine = Machine::X64;
    let image = program(machine);
    let folder = tempfile::tempdir().unwrap();
    let images = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.dmp");
    std::fs::write(&path, crashed(machine, &image, false).dump().unwrap()).unwrap();
    let code = BASE + u64::from(image.function("Crash").body);
    let data = BASE + u64::from(image.rva("State"));

    let without = open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(without.read_u8(code).unwrap_err().why, Unreadable::NotInDump);

    let options =
        OpenOptions { image_path: Some(images.path().display().to_string()), ..OpenOptions::default() };
    std::fs::write(
        images.path().join("app.exe"),
        program(machine).file.iter().map(|b| b ^ 1).collect::<Vec<_>>(),
    )
    .unwrap();
    assert!(open(&path, &options).unwrap().read_u8(code).is_err(), "a file that is no image");
    let other = ImageBuilder::new(machine, "app.exe").timestamp(1).function(Function::new("Other")).build();
    std::fs::write(images.path().join("app.exe"), &other.file).unwrap();
    assert!(open(&path, &options).unwrap().read_u8(code).is_err(), "another build's image");

    std::fs::write(images.path().join("app.exe"), &image.file).unwrap();
    let with = open(&path, &options).unwrap();
    let mapped = image.mapped_at(BASE);
    let start = usize::try_from(code - BASE).unwrap();
    assert_eq!(with.read_array::<16>(code).unwrap(), mapped[start..start + 16]);
    assert!(with.read_u8(data).is_err(), "writable data is never taken from a file");
    assert_eq!(ips(with.as_ref()).0.len(), 3);
    assert_eq!(target::conformance::check(with.as_ref()), []);
    // Paths set later do the same.
    let mut paths = without.symbol_paths();
    paths.images = images.path().display().to_string();
    without.set_symbol_paths(paths).unwrap();
    assert_eq!(ips(without.as_ref()).0.len(), 3);
}

#[test]
fn a_hole_in_a_module_keeps_what_the_dump_has() {
    let machine = Machine::X64;
    let image = program(machine);
    let folder = tempfile::tempdir().unwrap();
    let mut dump = crashed(machine, &image, false);
    let patched = BASE + u64::from(image.function("Crash").body) + 4;
    dump.memory.push((patched, Content::Bytes(vec![0xcc, 0xcc])));
    let path = folder.path().join("patched.dmp");
    std::fs::write(&path, dump.dump().unwrap()).unwrap();
    std::fs::write(folder.path().join("app.exe"), &image.file).unwrap();
    let target = open(&path, &OpenOptions::default()).unwrap();
    let mut expected = image.mapped_at(BASE)[usize::try_from(patched - 4 - BASE).unwrap()..][..16].to_vec();
    expected[4..6].fill(0xcc);
    assert_eq!(target.read_prefix(patched - 4, 16).0, expected, "the dump's bytes win over the file's");
}

#[test]
fn five_thousand_threads_and_a_hundred_megabytes() {
    let machine = Machine::X64;
    let image = program(machine);
    let mut dump = crashed(machine, &image, true);
    let stack = StackBuilder::new(machine, STACK, 0x100).build(&[FrameSpec::inside(&image, BASE, "Main")], 0);
    dump.threads.extend((100..5100).map(|id| UserThread::new(id, &stack)));
    dump.memory.push((0x5000_0000, Content::Zeros(100 << 20)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.dmp");
    dump.write(&mut std::fs::File::create(&path).unwrap()).unwrap();
    let start = Instant::now();
    let target = open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(target.threads().unwrap().len(), 5001);
    for thread in target.threads().unwrap().iter() {
        assert!(target.context(ContextOf::Thread(thread.system_id), View::Default).unwrap().is_some());
    }
    assert_eq!(ips(target.as_ref()).0.len(), 3);
    let mut buffer = vec![1; 1 << 20];
    let reads = Instant::now();
    for index in 0..64 {
        target.read_exact(0x5000_0000 + (index << 20), &mut buffer).unwrap();
    }
    assert!(reads.elapsed() < Duration::from_secs(2), "{:?}", reads.elapsed());
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn a_kernel_stack_goes_on_in_user_memory() {
    let machine = Machine::X64;
    let kernel = ImageBuilder::new(machine, "driver.sys")
        .function(Function::new("KiSystemCall64").locals(0x48).trap_handler(false))
        .function(Function::new("Inside").locals(0x20))
        .build();
    let user = program(machine);
    let mut forge = KernelForge::new(machine);
    let driver = 0xffff_f803_4000_0000;
    forge.add_driver(&kernel, driver, r"\SystemRoot\system32\drivers\driver.sys");
    let process = forge.add_process("app.exe", 0x1234);
    let base = forge.add_user_module(process, &user, r"C:\app.exe");
    let user_frames = [FrameSpec::calling(&user, base, "Middle"), FrameSpec::calling(&user, base, "Main")];
    let user_stack = StackBuilder::new(machine, 0x2_0000_0000, 0x2000).build(&user_frames, 0);
    forge.write_user(process, user_stack.low, &user_stack.bytes);
    let frames =
        [FrameSpec::inside(&kernel, driver, "Inside"), FrameSpec::calling(&kernel, driver, "KiSystemCall64")];
    let (_, stack) = forge.add_thread(process, 0x1238, ThreadState::Running { processor: 0 }, &frames);
    // Where the processor left user mode.
    let trap = stack.frames[1].sp + u64::from(kernel.function("KiSystemCall64").frame_size);
    let machine_frame = [user_stack.context.ip(), 0x33, 0x246, user_stack.context.sp(), 0x2b];
    for (index, value) in machine_frame.into_iter().enumerate() {
        forge.write_u64(trap + 8 * index as u64, value);
    }
    let target =
        open_bytes(forge.dump(DumpType::BitmapFull).unwrap(), "k.dmp", &OpenOptions::default()).unwrap();
    assert_eq!(target.selection(), Selection { processor: Some(0), ..Selection::default() });
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    let walked = target.stack(&context, 32, &halt()).unwrap();
    let found: Vec<u64> = walked.frames.iter().map(|f| f.ip).collect();
    let expected: Vec<u64> = stack.frames.iter().chain(&user_stack.frames).map(|f| f.ip).collect();
    assert_eq!(found, expected, "{:?} {:?}", walked.end, walked.limitations);
    assert!(walked.frames.iter().skip(1).all(|f| f.found == Found::Unwind));
    assert_eq!(target.module_at(base).unwrap().unwrap().name, "app");
    assert_eq!(walked.frames[3].symbol.as_ref().map(|s| s.qualified()).as_deref(), Some("app!Main"));
}

#[test]
fn names_of_a_dump_cannot_forge_lines_of_a_report() {
    let image = program(Machine::X64);
    let mut dump = crashed(Machine::X64, &image, false);
    dump.modules[0].name = "C:\\path\\\u{1b}[31mapp.exe\r\nVERDICT fine".into();
    let target = open_bytes(dump.dump().unwrap(), "crashed.dmp", &OpenOptions::default()).unwrap();
    let module = target.modules().unwrap()[0].clone();
    assert!(module.image_path.contains("[31mapp.exe"), "{module:?}");
    let process = target.facts().process.clone().unwrap().name.unwrap();
    for name in [&module.image_name, &module.image_path, &module.name, &process] {
        assert!(!name.contains(char::is_control), "{name:?}");
    }
}

#[test]
fn what_an_image_does_not_hold_is_one_region_on_each_side() {
    let target = open_bytes(program(Machine::X64).file, "app.exe", &OpenOptions::default()).unwrap();
    let module = target.modules().unwrap()[0].clone();
    let below = target.region(0x1234).unwrap();
    assert_eq!((below.base, below.base + below.size), (0x1000, module.base));
    let above = target.region(module.base + module.size + 0x5000).unwrap();
    assert!(above.size > 1 << 60, "{above:?}");
}
