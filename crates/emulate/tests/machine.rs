//! Calls, forks, unknown values, verification: on literal code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::rc::Rc;

use emulate::{
    Convention, Emulator, Event, Fault, Limits, Memory, Outside, Request, Routine, Stop, Value, Verdict,
    reaches,
};
use target::{Halt, Machine};

const CODE: u64 = 0x40_1000;

fn machine(machine: Machine, code: &[u8]) -> Emulator {
    let mut memory = Memory::new(Outside::Stop);
    memory.map_zero(CODE & !0xfff, 0x1000);
    memory.map_zero(0x60_0000, 0x4000);
    memory.write_bytes(CODE, code).unwrap();
    let mut emulator = Emulator::new(machine, memory);
    emulator.registers.general[emulate::RSP] = Value::known(0x60_2000);
    emulator.registers.ip = CODE;
    emulator
}

#[test]
fn an_unknown_branch_forks_and_changes_nothing() {
    // test eax,eax; je +2; nop; nop; nop
    let mut emulator = machine(Machine::X64, &[0x85, 0xc0, 0x74, 2, 0x90, 0x90, 0x90]);
    assert_eq!(emulator.step(), Event::Ran);
    let Event::Fork(fork) = emulator.step() else { panic!() };
    assert_eq!((fork.at, fork.taken, fork.fallthrough), (CODE + 2, CODE + 6, CODE + 4));
    assert_eq!(emulator.registers.ip, CODE + 2);
    let mut other = emulator.clone();
    other.take(&fork, true);
    emulator.take(&fork, false);
    assert_eq!((other.registers.ip, emulator.registers.ip), (CODE + 6, CODE + 4));
}

#[test]
fn known_bits_of_unknown_values_decide() {
    // and eax,0fh; cmp eax,10h; jb +1; int3; nop
    let mut emulator = machine(Machine::X64, &[0x83, 0xe0, 0x0f, 0x83, 0xf8, 0x10, 0x72, 1, 0xcc, 0x90]);
    assert_eq!(emulator.run(3), Event::Ran);
    assert_eq!(emulator.registers.ip, CODE + 9);
    // or al,1; test al,1; jne
    let mut emulator = machine(Machine::X86, &[0x0c, 1, 0xa8, 1, 0x75, 1, 0xcc, 0x90]);
    assert_eq!(emulator.run(3), Event::Ran);
    assert_eq!(emulator.registers.ip, CODE + 7);
}

#[test]
fn memory_is_copied_on_write_and_unknown_bytes_stay_apart() {
    let mut first = Memory::new(Outside::Stop);
    first.map_zero(0x1000, 0x2000);
    first.write(0x1ffe, 4, Value::known(0x0403_0201)).unwrap();
    let mut second = first.clone();
    second.write(0x1fff, 1, Value::unknown(1)).unwrap();
    assert_eq!(first.read(0x1ffe, 4).unwrap(), Value::known(0x0403_0201));
    assert_eq!(second.read(0x1ffe, 4).unwrap(), Value::new(0x0403_0001, 0xff00));
    assert_eq!(second.read(0x1ffe, 1).unwrap(), Value::known(1));
    assert!(matches!(first.read(0x2fff, 2), Err(Fault::Unmapped { address: 0x3000, .. })));
    // Neither half is written when one page is missing.
    assert!(first.write(0x2ffe, 4, Value::known(u64::MAX)).is_err());
    assert_eq!(first.read(0x2ffe, 2).unwrap(), Value::ZERO);
}

#[test]
fn pages_are_bounded() {
    let mut memory = Memory::new(Outside::Stop);
    memory.limit_pages(2);
    memory.map_zero(0, 1 << 30);
    memory.write(0x1000, 1, Value::ZERO).unwrap();
    memory.write(0x5000, 1, Value::ZERO).unwrap();
    assert_eq!(memory.write(0x9000, 1, Value::ZERO), Err(Fault::TooManyPages { address: 0x9000 }));
}

#[test]
fn a_call_reports_and_returns_with_unknown_volatiles() {
    // push 7; call rax (x86, stdcall)
    let mut emulator = machine(Machine::X86, &[0x6a, 7, 0xff, 0xd0, 0x90]);
    emulator.registers.general[0] = Value::known(0x1234_5678);
    emulator.registers.general[3] = Value::known(3);
    assert_eq!(emulator.step(), Event::Ran);
    let Event::Called(call) = emulator.step() else { panic!() };
    assert_eq!((call.target, call.indirect, call.return_address), (Some(0x1234_5678), true, CODE + 4));
    assert_eq!(emulator.argument(0), Value::known(7));
    emulator.return_from_call(Value::known(9), 4).unwrap();
    assert_eq!(emulator.registers.ip, CODE + 4);
    assert_eq!(emulator.stack_pointer(), Value::known(0x60_2000));
    assert_eq!(emulator.registers.general[0], Value::known(9));
    assert_eq!(emulator.registers.general[1].low(4), None);
    assert_eq!(emulator.registers.general[3], Value::known(3));
}

#[test]
fn pushed_arguments_are_counted_where_nobody_knows_the_callee() {
    // push ebx (a saved register); push 1; push 2; call rax
    let mut emulator = machine(Machine::X86, &[0x53, 0x6a, 1, 0x6a, 2, 0xff, 0xd0, 0x90]);
    emulator.registers.general[0] = Value::known(0x60_3000);
    let Event::Called(call) = emulator.run(4) else { panic!() };
    emulator.memory.forget(0x60_3000, 0x1000).unwrap();
    assert_eq!(emulate::stack_bytes::inferred(&mut emulator, &call), 8);
    // ret 0ch there
    emulator.memory.write_bytes(0x60_3000, &[0xc2, 0x0c, 0]).unwrap();
    assert_eq!(emulate::stack_bytes::inferred(&mut emulator, &call), 12);
}

#[test]
fn what_is_not_known_stops_with_its_address() {
    // movaps ymm0,ymm1 (AVX): vmovaps
    let mut emulator = machine(Machine::X64, &[0xc5, 0xfc, 0x28, 0xc1]);
    assert!(matches!(emulator.step(), Event::Stopped(Stop::UnknownInstruction { at: CODE, .. })));
    let mut emulator = machine(Machine::X64, &[0xcc]);
    assert!(matches!(emulator.step(), Event::Stopped(Stop::Trap { at: CODE, what: "int3" })));
    let mut emulator = machine(Machine::X64, &[0xff, 0xe0]);
    assert_eq!(emulator.step(), Event::Stopped(Stop::UnknownTarget { at: CODE }));
    // rdmsr, in al,dx, mov rax,cr3: privileged reads are 0.
    let mut emulator = machine(Machine::X64, &[0x0f, 0x32, 0xec, 0x0f, 0x20, 0xd8]);
    assert_eq!(emulator.run(3), Event::Ran);
    assert_eq!(emulator.registers.general[0], Value::ZERO);
}

#[test]
fn rep_is_bounded_by_steps() {
    // mov ecx,-1; rep stosb, the direction flag known clear
    let mut emulator = machine(Machine::X64, &[0xf3, 0xaa, 0x90]);
    emulator.registers.general[1] = Value::known(1000);
    emulator.registers.general[7] = Value::known(0x60_0000);
    emulator.registers.general[0] = Value::known(0x41);
    assert_eq!(emulator.run(10), Event::Ran);
    assert_eq!((emulator.registers.ip, emulator.registers.general[1]), (CODE, Value::known(990)));
    assert_eq!(emulator.run(990), Event::Ran);
    assert_eq!(emulator.registers.ip, CODE + 2);
}

fn routine(code: &'static [u8]) -> Routine {
    Routine {
        machine: Machine::X64,
        entry: CODE,
        convention: Convention::Wdm,
        image: CODE..CODE + 0x1000,
        bytes: Rc::new(move |address: u64, buffer: &mut [u8]| {
            let rest = code.get((address - CODE) as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        }),
        wdf: None,
    }
}

/// mov rax,[rdx+0b8h]; mov eax,[rax+18h]; cmp eax,222003h; je +3; xor eax,eax; ret; mov eax,1; ret
const DISPATCH: &[u8] = &[
    0x48, 0x8b, 0x82, 0xb8, 0, 0, 0, 0x8b, 0x40, 0x18, 0x3d, 0x03, 0x20, 0x22, 0, 0x74, 3, 0x31, 0xc0, 0xc3,
    0xb8, 1, 0, 0, 0, 0xc3,
];

#[test]
fn a_code_reaches_its_case_and_no_other_does() {
    let routine = routine(DISPATCH);
    let request = |code| Request { code, major: 14, input_length: None, output_length: None };
    let limits = Limits::default();
    let hit = |code, landing, limits: &Limits| {
        reaches(&routine, &request(code), landing, &[], &|_| None, limits, &Halt::unbounded())
    };
    assert_eq!(hit(0x22_2003, CODE + 20, &limits).verdict, Verdict::Reached);
    assert_eq!(hit(0x22_2003, CODE + 17, &limits).verdict, Verdict::NotReached);
    assert_eq!(hit(0x22_2007, CODE + 20, &limits).verdict, Verdict::NotReached);
    let none = Limits { steps: 2, forks: 0 };
    assert_eq!(hit(0x22_2003, CODE + 20, &none).verdict, Verdict::Undecided);
}
