//! x64 and ARM64 walks against what DbgEng printed for the same dumps.
#![allow(clippy::unwrap_used)]

mod support;

use support::data;
use support::minidump::Dump;
use target::{Found, Halt, WalkEnd, reg};
use unwind::{scan, walk};

/// `(Child-SP, RetAddr)` of the physical frames of the transcript's first `k`.
fn oracle(text: &str) -> Vec<(u64, u64)> {
    let section = text.split("\n---- ").find(|s| s.lines().next() == Some("k")).unwrap();
    let number = |w: &str| {
        let digits = w.replace('`', "");
        (w.len() == 17 && digits.len() == 16).then(|| u64::from_str_radix(&digits, 16).ok()).flatten()
    };
    section
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').map(number);
            Some((words.next()??, words.next()??))
        })
        .collect()
}

fn open(name: &str) -> Option<(Dump, Vec<(u64, u64)>)> {
    let data = data()?;
    let transcript = data.join("oracle").join(format!("{}.txt", name.replace('/', "_")));
    Some((Dump::open(&data.join(name)), oracle(&std::fs::read_to_string(transcript).unwrap())))
}

#[test]
fn a_thrown_exception_through_system_dlls() {
    let Some((mut dump, expected)) = open("user/cxx_eh_x64/cxx_eh_x64.dmp.xz") else { return };
    let folder = data().unwrap().join("user/cxx_eh_x64");
    dump.add_image("crashwithexception.exe", &folder.join("CrashWithException.exe"));
    let context = dump.threads[0].1.clone().unwrap();
    // The dump holds no code or unwind data of Wine's DLLs: the scan finds the callers.
    let guesses = scan(&dump, &context, 256, &Halt::unbounded());
    let found: Vec<u64> = guesses.iter().map(|f| f.context.ip()).collect();
    for frame in &expected[..expected.len() - 1] {
        assert!(found.contains(&frame.1), "{:x}", frame.1);
    }
    // The oracle had them from its own Wine; so has a machine with that very build.
    let Some(wine) = test_data::wine_images() else { return };
    for name in ["kernelbase.dll", "ucrtbase.dll", "kernel32.dll", "ntdll.dll"] {
        let image = wine.join(name);
        if !dump.add_matching_image(name, &image) {
            test_data::not_run(&format!("{name} is not of the Wine build that made the dump"));
            return;
        }
    }
    let stack = walk(&dump, &context, 64, &Halt::unbounded());
    let got: Vec<(u64, u64)> = stack.frames.iter().map(|f| (f.context.sp(), f.return_address)).collect();
    assert_eq!(got, expected, "{:?} {:?}", stack.end, stack.limitations);
    assert_eq!(stack.end, WalkEnd::Outermost);
    assert!(stack.frames[1..].iter().all(|f| f.found == Found::Unwind));
    // Non-volatile registers come along, volatile ones do not.
    let outer = &stack.frames[3].context;
    assert!(outer.get(reg::RBX).is_some() && outer.get(12).is_some());
    assert_eq!(outer.get(reg::RCX), None);
}

#[test]
fn a_forged_arm64_stack() {
    let Some((mut dump, expected)) = open("user/forged_arm64/forged_arm64.dmp") else { return };
    dump.add_image("xcpt4.exe", &data().unwrap().join("user/forged_arm64/xcpt4.exe"));
    let context = dump.threads[0].1.as_ref().unwrap();
    let stack = walk(&dump, context, 64, &Halt::unbounded());
    let got: Vec<(u64, u64)> = stack.frames.iter().map(|f| (f.context.sp(), f.return_address)).collect();
    assert_eq!(got, expected, "{:?} {:?}", stack.end, stack.limitations);
    let outer = &stack.frames[2].context;
    assert_eq!([19, 20, 21].map(|n| outer.get(n)), [Some(0x1919), Some(0x2020), Some(0x2121)]);
}

/// Without images the oracle shows stack words as frames; only the true top is a frame.
#[test]
fn stack_words_are_not_frames() {
    for name in ["user/llvm_sigsegv_x64.dmp", "user/kt2/kt2_vector_oob_debugbreak_x64.dmp"] {
        let Some((dump, _)) = open(name) else { return };
        let context = dump.exception.as_ref().unwrap();
        let stack = walk(&dump, context, 64, &Halt::unbounded());
        println!("{name}: {} frames, {:?} {:?}", stack.frames.len(), stack.end, stack.limitations);
        assert_eq!(stack.frames.len(), 1);
        assert!(matches!(stack.end, WalkEnd::Lost(_)));
        assert!(!stack.limitations.is_empty());
    }
}

/// The 64-bit side of a WoW64 process, all memory present: system DLLs' own unwind data.
#[test]
fn sixty_four_bit_frames_under_wow64() {
    let Some(data) = data() else { return };
    let dump = Dump::open(&data.join("user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz"));
    // Thread 0 runs 32-bit code, whose frames are not x64 frames.
    let stack = walk(&dump, dump.threads[0].1.as_ref().unwrap(), 64, &Halt::unbounded());
    assert_eq!((stack.frames.len(), stack.end), (1, WalkEnd::Lost("no unwind data")));
    // The others wait: ntdll, wow64, wow64cpu, wow64, and the start of the thread in ntdll.
    for (id, context) in &dump.threads[1..] {
        let stack = walk(&dump, context.as_ref().unwrap(), 64, &Halt::unbounded());
        let modules: Vec<String> = stack
            .frames
            .iter()
            .map(|f| {
                let ip = f.context.ip();
                let module = dump.modules.iter().find(|m| ip >= m.base && ip - m.base < m.size).unwrap();
                target::base_name(&module.name).to_ascii_lowercase()
            })
            .collect();
        let (ntdll, wow64, cpu) = ("ntdll.dll", "wow64.dll", "wow64cpu.dll");
        assert_eq!(modules, [ntdll, wow64, wow64, cpu, cpu, wow64, wow64, ntdll, ntdll, ntdll], "{id:x}");
        assert!(stack.frames[1..].iter().all(|f| f.found == Found::Unwind));
        assert_eq!(stack.end, WalkEnd::Outermost);
    }
}
