#![no_main]
//! Any bytes as code of each machine: the interpreter runs or stops.

use emulate::{Emulator, Event, Memory, Outside, Value};
use target::Machine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&kind, code)) = data.split_first() else { return };
    let machine = [Machine::X64, Machine::X86, Machine::Arm64][usize::from(kind % 3)];
    let mut memory = Memory::new(if kind & 0x80 == 0 { Outside::Stop } else { Outside::Unknown });
    memory.limit_pages(64);
    memory.map_zero(0x1_0000, 0x4000);
    if memory.write_bytes(0x1_0000, &code[..code.len().min(0x1000)]).is_err() {
        return;
    }
    let mut emulator = Emulator::new(machine, memory);
    let stack = if machine == Machine::Arm64 { emulate::SP_ARM64 } else { emulate::RSP };
    emulator.registers.general = [Value::known(0x1_2000); 32];
    emulator.registers.general[stack] = Value::known(0x1_3000);
    emulator.registers.ip = 0x1_0000;
    for _ in 0..64 {
        match emulator.run(64) {
            Event::Ran => {}
            Event::Fork(fork) => emulator.take(&fork, true),
            Event::Called(_) => {
                if emulator.return_from_call(Value::UNKNOWN, 4).is_err() {
                    return;
                }
            }
            Event::Stub(_) | Event::Stopped(_) => return,
        }
    }
});
