//! Damaged dumps made from sound forged ones: whatever happens is an answer, and soon.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../dump/tests/support/exercise.rs"]
mod exercise;

use dumpforge::{DumpType, FrameSpec, KernelForge, StackBuilder, ThreadState, UserDump, UserThread};
use proptest::prelude::*;
use target::Machine;

fn seeds() -> Vec<Vec<u8>> {
    let mut forge = KernelForge::new(Machine::X64);
    let kernel = forge.kernel.clone();
    let frames = [
        FrameSpec::inside(&kernel, forge.kernel_base, "KeBugCheckEx"),
        FrameSpec::calling(&kernel, forge.kernel_base, "KiSystemStartup"),
    ];
    let system = forge.system_process();
    forge.add_thread(system, 8, ThreadState::Running { processor: 0 }, &frames);
    forge.add_unloaded_driver("gone.sys", 0xffff_f803_5000_0000, 0xffff_f803_5001_0000);
    forge.blobs.push((*b"secondary  data!", vec![0x5a; 100]));
    let mut seeds: Vec<Vec<u8>> = DumpType::ALL.iter().map(|&kind| forge.dump(kind).unwrap()).collect();
    for full_memory in [true, false] {
        let mut dump = UserDump::new(Machine::X64);
        let stack = StackBuilder::new(Machine::X64, 0x20_0000, 0x1000).build(&frames, 0);
        dump.full_memory = full_memory;
        dump.threads.push(UserThread::new(1, &stack).named("main"));
        dump.add_image(&kernel, 0x1_4000_0000, r"C:\fx\a.exe", true);
        dump.handles.push((4, "Event".into(), "done".into()));
        dump.unloaded.push(("gone.dll".into(), 0x7ff8_0000_0000, 0x3000));
        seeds.push(dump.dump().unwrap());
    }
    seeds
}

#[test]
fn damage_is_answered() {
    let seeds = seeds();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    // Headers and tables are at the start: most damage goes there.
    let place = prop_oneof![0usize..0x100, 0usize..0x2100, 0x2000usize..0x2400, any::<usize>()];
    let value = prop_oneof![Just(0u64), Just(u64::MAX), Just(0x7fff_ffff), any::<u64>(), 0u64..0x10000];
    let damage = proptest::collection::vec((place, value, 1usize..9), 1..10);
    let strategy = (0..seeds.len(), damage, prop_oneof![3 => Just(1.0), 1 => 0.0..1.0f64]);
    let outcome = runner.run(&strategy, |(seed, damage, keep)| {
        let mut bytes = seeds[seed].clone();
        for (at, value, width) in damage {
            let at = at % bytes.len();
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        bytes.truncate((keep * bytes.len() as f64) as usize);
        let before = std::time::Instant::now();
        exercise::exercise(&bytes);
        prop_assert!(before.elapsed().as_secs() < 10, "took {:?}", before.elapsed());
        Ok(())
    });
    outcome.unwrap();
}
