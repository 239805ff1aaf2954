//! Any bytes at all: nothing panics, every bound holds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::rc::Rc;

use emulate::{
    Convention, Emulator, Event, Limits, Memory, Outside, Request, Routine, UnknownAddress, Value, WdfTable,
    reaches,
};
use proptest::prelude::*;
use target::{Halt, Machine};

fn machine() -> impl Strategy<Value = Machine> {
    prop_oneof![Just(Machine::X64), Just(Machine::X86), Just(Machine::Arm64), Just(Machine::Arm32)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_run_or_stop(
        machine in machine(),
        code in prop::collection::vec(any::<u8>(), 0..200),
        values in prop::collection::vec((any::<u64>(), prop_oneof![3 => Just(0u64), 1 => any::<u64>()]), 32),
        ignore in any::<bool>(),
    ) {
        let mut memory = Memory::new(if ignore { Outside::Unknown } else { Outside::Stop });
        memory.limit_pages(64);
        memory.map_zero(0x1_0000, 0x2000);
        memory.write_bytes(0x1_0000, &code).unwrap();
        let mut emulator = Emulator::new(machine, memory);
        emulator.unknown_address = if ignore { UnknownAddress::Ignore } else { UnknownAddress::Stop };
        for (register, (bits, unknown)) in emulator.registers.general.iter_mut().zip(values) {
            *register = Value::new(bits, unknown);
        }
        emulator.registers.general[if machine == Machine::Arm64 { 31 } else { 4 }] = Value::known(0x1_1800);
        emulator.registers.ip = 0x1_0000;
        for _ in 0..300 {
            match emulator.run(50) {
                Event::Ran => {}
                Event::Fork(fork) => emulator.take(&fork, fork.at & 4 == 0),
                Event::Called(_) => {
                    if emulator.return_from_call(Value::UNKNOWN, 8).is_err() {
                        break;
                    }
                }
                Event::Stub(_) | Event::Stopped(_) => break,
            }
        }
        prop_assert!(emulator.steps <= 15_000);
    }

    #[test]
    fn verification_of_any_bytes_ends(
        machine in machine(),
        code in prop::collection::vec(any::<u8>(), 64..400),
        convention in prop_oneof![
            Just(Convention::Wdm), Just(Convention::FastIo),
            Just(Convention::WdfDeviceControl), Just(Convention::WdfRequest)],
        at in 0u64..64,
        numbers in any::<(u32, u64)>(),
    ) {
        let routine = Routine {
            machine,
            entry: 0x40_0000 + at,
            convention,
            image: 0x40_0000..0x40_0000 + code.len() as u64,
            bytes: Rc::new(move |address: u64, buffer: &mut [u8]| {
                let start = (address - 0x40_0000) as usize;
                let rest = code.get(start..).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                count
            }),
            wdf: Some(WdfTable { table: numbers.1, pointer: numbers.0 & 1 == 1, count: numbers.0 }),
        };
        let request = Request { code: numbers.0, major: 14, input_length: None, output_length: Some(8) };
        let limits = Limits::default();
        let answer = reaches(&routine, &request, 0x40_0020, &[], &|_| None, &limits, &Halt::unbounded());
        prop_assert!(answer.steps <= limits.steps + 1 && answer.forks <= limits.forks);
    }
}
