//! Damaged dumps: an answer or an error, never a panic, a hang or a flood of memory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
mod shared;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use dumpforge::{DumpType, FrameSpec, KernelForge, ThreadState};
use engine_native::{OpenOptions, open_bytes};
use proptest::prelude::*;
use target::{ContextOf, Halt, Machine, MemoryExt, Target, View};

/// Asks a target for everything.
fn touch(target: &dyn Target) {
    let halt = Halt::within(Duration::from_secs(5));
    let _ = target.stored_event();
    let _ = target.bug_check();
    let _ = target.unloaded_modules();
    for module in target.modules().iter().flat_map(|m| m.iter()).take(8) {
        let _ = target.symbol_status(module.base, true);
        let _ = target.find_symbols(&format!("{}!*", module.name), 4, &halt);
        let _ = target.read_prefix(module.base, 0x2000);
        let _ = target.function_bounds(module.base + module.size / 2);
        let _ = target.region(module.base);
    }
    for thread in target.threads().iter().flat_map(|t| t.iter()).take(4) {
        for view in [View::Default, View::Native, View::Wow64] {
            let _ = target.context(ContextOf::Thread(thread.system_id), view);
            let _ = target.context(ContextOf::Processor(thread.system_id), view);
        }
    }
    if let Ok(Some(context)) = target.context(ContextOf::Selected, View::Default) {
        let _ = target.stack(&context, 64, &halt);
        let _ = target.scan_stack(&context, 16, &halt);
        let _ = target.disassemble(context.ip(), 4);
        let _ = target.region(context.sp());
        let _ = target.evaluate("poi(@$csp)", &halt);
    }
    if let Ok(thread) = target.current_kernel_thread() {
        let _ = target.kernel_threads(thread.process, &halt);
        let _ = target.context(ContextOf::KernelThread(thread.object), View::Default);
    }
    let _ = target.processes(&halt);
}

const SMALL: [&str; 9] = [
    "user/bp_minidump2.dmp",
    "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
    "user/llvm_sigsegv_x64.dmp",
    "user/forged_arm64/forged_arm64.dmp",
    "user/kd_wow64_release/wow64_release_mini.dmp",
    "kernel/full_header_only_19045.dmp",
    "synthetic/syn_full_x64.dmp",
    "synthetic/syn_bmp6_x64.dmp",
    "negative/foreign_linux.dmp",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn damaged_dumps(
        which in 0..SMALL.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..24),
        keep in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let Some(data) = shared::data() else { return Ok(()) };
        let mut bytes = std::fs::read(data.join(SMALL[which])).unwrap();
        let length = bytes.len();
        for (place, value, kind) in edits {
            // Most of what steers a reader is at the start.
            let room = if kind == 0 { length } else { length.min(0x2400) };
            bytes[place.index(room)] = value;
        }
        if let Some(keep) = keep {
            bytes.truncate(keep.index(length));
        }
        let start = Instant::now();
        if let Ok(target) = open_bytes(bytes, "damaged.dmp", &OpenOptions::default()) {
            touch(target.as_ref());
        }
        prop_assert!(start.elapsed() < Duration::from_secs(10), "{} took {:?}", SMALL[which], start.elapsed());
    }
}

/// Whole kernels: damage hits page tables, lists, structures and images alike.
static KERNELS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut out = Vec::new();
    for machine in [Machine::X64, Machine::Arm64] {
        for kind in [DumpType::Full, DumpType::BitmapKernel, DumpType::Triage] {
            let mut forge = KernelForge::new(machine);
            let (kernel, base) = (forge.kernel.clone(), forge.kernel_base);
            let frames = [
                FrameSpec::inside(&kernel, base, "KeBugCheckEx"),
                FrameSpec::calling(&kernel, base, "IofCallDriver"),
            ];
            let process = forge.add_process("app.exe", 0x1234);
            forge.add_user_module(process, &kernel, r"C:\app.exe");
            forge.add_thread(process, 0x1238, ThreadState::Running { processor: 0 }, &frames);
            forge.add_thread(process, 0x123c, ThreadState::Waiting { reason: 6 }, &frames);
            out.push(forge.dump(kind).unwrap());
        }
    }
    out
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn damaged_kernels(
        which in 0..6usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u8..4), 1..48),
    ) {
        let mut bytes = KERNELS[which].clone();
        let words = bytes.len() / 8;
        for (place, value, kind) in edits {
            let at = place.index(words) * 8;
            let old = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            // Pointers that stay near where they pointed make the nastiest lists.
            let new = match kind {
                0 => value,
                1 => old ^ (1 << (value % 64)),
                2 => old.wrapping_add(value % 0x400 * 8),
                _ => old.wrapping_sub(value % 0x40 * 8),
            };
            bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        let start = Instant::now();
        if let Ok(target) = open_bytes(bytes, "damaged.dmp", &OpenOptions::default()) {
            touch(target.as_ref());
        }
        prop_assert!(start.elapsed() < Duration::from_secs(10), "{which} took {:?}", start.elapsed());
    }
}

#[test]
fn a_triage_dump_cut_anywhere() {
    let Some(data) = shared::data() else { return };
    let bytes = std::fs::read(data.join("kernel/triage_x64_19041_7e.dmp")).unwrap();
    for part in 0..24 {
        let cut = bytes[..bytes.len() * part / 24].to_vec();
        if let Ok(target) = open_bytes(cut, "cut.dmp", &OpenOptions::default()) {
            touch(target.as_ref());
        }
    }
}
