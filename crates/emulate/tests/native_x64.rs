//! The interpreter against the processor this test runs on: random sequences of integer and SSE2
//! instructions, with some input bits unknown to the interpreter. What it says it knows must be true.
#![cfg(all(target_arch = "x86_64", unix))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use emulate::{Emulator, Event, Memory, Outside, Value};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};
use proptest::prelude::*;
use target::Machine;

/// Registers in and out of the code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Frame {
    general: [u64; 16],
    flags: u64,
    vector: [[u64; 2]; 16],
    code: u64,
}

unsafe extern "C" {
    /// Loads the registers from the frame, calls its code, stores them back.
    fn emulate_test_native(frame: *mut Frame);
}

std::arch::global_asm!(
    ".globl emulate_test_native",
    "emulate_test_native:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15; push rdi",
    "push qword ptr [rdi + 392]",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movdqu xmm\\n, [rdi + 136 + 16 * \\n]",
    ".endr",
    "push qword ptr [rdi + 128]; popfq",
    "mov rax, [rdi]; mov rcx, [rdi + 8]; mov rdx, [rdi + 16]; mov rbx, [rdi + 24]",
    "mov rbp, [rdi + 40]; mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]; mov r9, [rdi + 72]; mov r10, [rdi + 80]; mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]; mov r13, [rdi + 104]; mov r14, [rdi + 112]; mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "call qword ptr [rsp]",
    "push rax",
    "mov rax, [rsp + 16]",
    "mov [rax + 8], rcx; mov [rax + 16], rdx; mov [rax + 24], rbx; mov [rax + 40], rbp",
    "mov [rax + 48], rsi; mov [rax + 56], rdi; mov [rax + 64], r8; mov [rax + 72], r9",
    "mov [rax + 80], r10; mov [rax + 88], r11; mov [rax + 96], r12; mov [rax + 104], r13",
    "mov [rax + 112], r14; mov [rax + 120], r15",
    "pop qword ptr [rax]",
    "pushfq; pop qword ptr [rax + 128]",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movdqu [rax + 136 + 16 * \\n], xmm\\n",
    ".endr",
    "add rsp, 16",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "cld",
    "ret",
);

const CODE_BYTES: usize = 0x1000;
/// Where memory operands point: this far into the page behind the code.
const DATA_BYTES: usize = 0x200;

/// Two pages of our own: code, and data for memory operands.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        // SAFETY: a fresh private mapping; nothing else refers to it.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * CODE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }
    fn code(&self) -> u64 {
        self.0 as u64
    }
    fn data(&self) -> u64 {
        self.0 as u64 + CODE_BYTES as u64
    }
    fn run(&self, code: &[u8], data: &mut [u8; DATA_BYTES], frame: &mut Frame) {
        assert!(code.len() < CODE_BYTES);
        // SAFETY: both regions are inside the mapping; the code was decoded, touches only the registers
        // of the frame and the data bytes, and ends with `ret`.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.0, code.len());
            std::ptr::copy_nonoverlapping(data.as_ptr(), self.0.add(CODE_BYTES), DATA_BYTES);
            emulate_test_native(frame);
            std::ptr::copy_nonoverlapping(self.0.add(CODE_BYTES), data.as_mut_ptr(), DATA_BYTES);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.0.cast(), 2 * CODE_BYTES) };
    }
}

/// Opcodes whose operands are ModRM and nothing else.
const PLAIN: &[&[u8]] = &[
    &[0x00],
    &[0x01],
    &[0x02],
    &[0x03],
    &[0x08],
    &[0x09],
    &[0x0a],
    &[0x0b],
    &[0x10],
    &[0x11],
    &[0x12],
    &[0x13],
    &[0x18],
    &[0x19],
    &[0x1a],
    &[0x1b],
    &[0x20],
    &[0x21],
    &[0x22],
    &[0x23],
    &[0x28],
    &[0x29],
    &[0x2a],
    &[0x2b],
    &[0x30],
    &[0x31],
    &[0x32],
    &[0x33],
    &[0x38],
    &[0x39],
    &[0x3a],
    &[0x3b],
    &[0x63],
    &[0x84],
    &[0x85],
    &[0x86],
    &[0x87],
    &[0x88],
    &[0x89],
    &[0x8a],
    &[0x8b],
    &[0xd0],
    &[0xd1],
    &[0xd2],
    &[0xd3],
    &[0xfe],
    &[0x0f, 0x40],
    &[0x0f, 0x41],
    &[0x0f, 0x42],
    &[0x0f, 0x43],
    &[0x0f, 0x44],
    &[0x0f, 0x45],
    &[0x0f, 0x46],
    &[0x0f, 0x47],
    &[0x0f, 0x48],
    &[0x0f, 0x49],
    &[0x0f, 0x4a],
    &[0x0f, 0x4b],
    &[0x0f, 0x4c],
    &[0x0f, 0x4d],
    &[0x0f, 0x4e],
    &[0x0f, 0x4f],
    &[0x0f, 0x90],
    &[0x0f, 0x91],
    &[0x0f, 0x92],
    &[0x0f, 0x93],
    &[0x0f, 0x94],
    &[0x0f, 0x95],
    &[0x0f, 0x96],
    &[0x0f, 0x97],
    &[0x0f, 0x98],
    &[0x0f, 0x99],
    &[0x0f, 0x9a],
    &[0x0f, 0x9b],
    &[0x0f, 0x9c],
    &[0x0f, 0x9d],
    &[0x0f, 0x9e],
    &[0x0f, 0x9f],
    &[0x0f, 0xa5],
    &[0x0f, 0xad],
    &[0x0f, 0xaf],
    &[0x0f, 0xb0],
    &[0x0f, 0xb1],
    &[0x0f, 0xb6],
    &[0x0f, 0xb7],
    &[0x0f, 0xbc],
    &[0x0f, 0xbd],
    &[0x0f, 0xbe],
    &[0x0f, 0xbf],
    &[0x0f, 0xc0],
    &[0x0f, 0xc1],
    &[0xf7],
    &[0xf6],
];
/// Opcodes with ModRM and a byte.
const WITH_BYTE: &[&[u8]] =
    &[&[0x80], &[0x83], &[0xc0], &[0xc1], &[0x6b], &[0xc6], &[0x0f, 0xa4], &[0x0f, 0xac], &[0x0f, 0xba]];
/// Bit tests whose register index reaches beyond memory operands: registers only.
const REGISTER_ONLY: &[&[u8]] = &[&[0x0f, 0xa3], &[0x0f, 0xab], &[0x0f, 0xb3], &[0x0f, 0xbb]];
const ALONE: &[&[u8]] =
    &[&[0x98], &[0x99], &[0xf5], &[0xf8], &[0xf9], &[0x9e], &[0x9f], &[0x0f, 0xc8], &[0x0f, 0xcb]];
/// `66 0f xx`, register or memory.
const VECTOR: &[u8] = &[
    0x10, 0x11, 0x14, 0x15, 0x28, 0x54, 0x55, 0x56, 0x57, 0x60, 0x61, 0x62, 0x64, 0x65, 0x66, 0x68, 0x69,
    0x6a, 0x6c, 0x6d, 0x6e, 0x6f, 0x74, 0x75, 0x76, 0x7e, 0x7f, 0xd4, 0xd5, 0xd6, 0xd7, 0xdb, 0xdf, 0xeb,
    0xef, 0xf4, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0x50, 0xd1, 0xd2, 0xd3, 0xf1, 0xf2, 0xf3,
];
const VECTOR_BYTE: &[u8] = &[0x70, 0xc4, 0xc5, 0xc6, 0x71, 0x72, 0x73];

/// One instruction from random bytes, or nothing when they make none that may be run.
fn instruction(random: &[u8; 16]) -> Option<Vec<u8>> {
    let pick = |list: &[&[u8]]| list[usize::from(random[0]) % list.len()].to_vec();
    let wide = 0x48 & random[2] & 0x4f | 0x40;
    let mut bytes = Vec::new();
    if random[3] & 7 == 0 {
        bytes.push(0x66);
    }
    let memory = random[1] & 3 == 0;
    let mut modrm = random[4] | 0xc0;
    let mut rex = wide | random[2] & 0x07;
    let mut displacement = None;
    if memory {
        // [r15 + disp8]
        modrm = modrm & 0x38 | 0x47;
        rex |= 1;
        displacement = Some(random[5] & 0x70);
    }
    let (opcode, tail) = match random[6] % 8 {
        0..=2 => (pick(PLAIN), 0),
        3 => (pick(WITH_BYTE), 1),
        4 if !memory => (pick(REGISTER_ONLY), 0),
        5 => {
            let opcode = pick(ALONE);
            bytes.push(rex);
            bytes.extend(opcode);
            return allowed(bytes);
        }
        6 => {
            bytes = vec![[0x66, 0xf3, 0xf2][usize::from(random[7] % 8).saturating_sub(5)]];
            (vec![0x0f, VECTOR[usize::from(random[0]) % VECTOR.len()]], 0)
        }
        7 => {
            bytes = vec![[0x66, 0xf3, 0xf2][usize::from(random[7] % 8).saturating_sub(5)]];
            (vec![0x0f, VECTOR_BYTE[usize::from(random[0]) % VECTOR_BYTE.len()]], 1)
        }
        _ => (vec![0x69], 4),
    };
    let short = bytes.first() == Some(&0x66) && opcode == [0x69] && rex & 8 == 0;
    bytes.push(rex);
    bytes.extend(opcode);
    bytes.push(modrm);
    bytes.extend(displacement);
    bytes.extend(&random[8..8 + if short { 2 } else { tail }]);
    allowed(bytes)
}

/// Only what decodes whole, leaves rsp and r15 alone, stays within the data and does not trap.
fn allowed(bytes: Vec<u8>) -> Option<Vec<u8>> {
    use iced_x86::Mnemonic::{
        Div, INVALID, Idiv, Lzcnt, Popcnt, Rdsspd, Rdsspq, Tzcnt, Xabort, Xbegin, Xchg,
    };
    let decoded = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode();
    if decoded.is_invalid() || decoded.len() != bytes.len() {
        return None;
    }
    if matches!(
        decoded.mnemonic(),
        Xabort | Xbegin | Div | Idiv | INVALID | Popcnt | Lzcnt | Tzcnt | Rdsspd | Rdsspq
    ) {
        return None;
    }
    // Aligned SSE operands: displacements are multiples of 16. Memory of a locked exchange is too.
    if decoded.mnemonic() == Xchg && decoded.has_lock_prefix() {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&decoded);
    let touched = info.used_registers().iter().any(|used| {
        let full = used.register().full_register();
        let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        full == Register::RSP || full == Register::R15 && writes || used.register().is_mm()
    });
    let far = info.used_memory().iter().any(|m| m.base() != Register::R15 || m.index() != Register::None);
    (!touched && !far).then_some(bytes)
}

const FLAGS: u64 = 0x8d5;

#[derive(Clone)]
struct Case {
    code: Vec<Vec<u8>>,
    general: [u64; 16],
    vector: [[u64; 2]; 16],
    flags: u64,
    data: Vec<u8>,
    /// Bits of the inputs the interpreter is not told, per register (rsp and r15 excepted).
    hidden: [u64; 16],
    hidden_vector: [[u64; 2]; 16],
    hidden_flags: u64,
    hidden_data: Vec<u8>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?} general {:x?} hidden {:x?}", self.code, self.general, self.hidden)
    }
}

/// A generator of its own (splitmix64): the many values of a case come from one seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    fn interesting(&mut self) -> u64 {
        match self.next() % 9 {
            0 => 0,
            1 => u64::MAX,
            2 => 0x8000_0000,
            3 => 1 << 63,
            4 => self.next() % 70,
            _ => self.next(),
        }
    }
    /// Mostly nothing, else some bits or all.
    fn hidden(&mut self) -> u64 {
        match self.next() % 9 {
            0 => self.next(),
            1 => self.next() & self.next(),
            2 => u64::MAX,
            _ => 0,
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let code = prop::collection::vec(any::<[u8; 16]>(), 1..10);
    (code, any::<u64>()).prop_map(|(random, seed)| {
        let mut rng = Random(seed);
        let cut = if rng.next() & 1 == 0 { 0 } else { u64::MAX };
        Case {
            code: random.iter().filter_map(instruction).collect(),
            general: std::array::from_fn(|_| rng.interesting()),
            vector: std::array::from_fn(|_| [rng.interesting(), rng.interesting()]),
            flags: rng.next() & FLAGS,
            data: (0..DATA_BYTES).map(|_| rng.next() as u8).collect(),
            hidden: std::array::from_fn(|_| rng.hidden() & cut),
            hidden_vector: std::array::from_fn(|_| [rng.hidden() & cut, rng.hidden() & cut]),
            hidden_flags: rng.hidden() & FLAGS & cut,
            hidden_data: (0..DATA_BYTES)
                .map(|_| if rng.next().is_multiple_of(9) { (rng.hidden() & cut) as u8 } else { 0 })
                .collect(),
        }
    })
}

fn disagrees(value: Value, actual: u64) -> bool {
    (value.bits() ^ actual) & !value.unknown_bits() != 0
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let pages = Pages::new();
    let mut code: Vec<u8> = case.code.concat();
    code.push(0xc3);
    let mut general = case.general;
    general[15] = pages.data();
    let mut frame = Frame { general, flags: case.flags | 0x202, vector: case.vector, code: pages.code() };
    let mut data: [u8; DATA_BYTES] = case.data.clone().try_into().unwrap();

    let mut memory = Memory::new(Outside::Stop);
    memory.map_zero(pages.code(), 2 * CODE_BYTES as u64);
    memory.map_zero(0x1000, 0x2000);
    memory.write_bytes(pages.code(), &code).unwrap();
    for (i, (&byte, &hidden)) in case.data.iter().zip(&case.hidden_data).enumerate() {
        let value = Value::new(u64::from(byte), u64::from(hidden));
        memory.write(pages.data() + i as u64, 1, value).unwrap();
    }
    let mut emulator = Emulator::new(Machine::X64, memory);
    let hidden = |i: usize| if i == 4 || i == 15 { 0 } else { case.hidden[i] };
    for (i, &bits) in general.iter().enumerate() {
        emulator.registers.general[i] = Value::new(bits, hidden(i));
        emulator.registers.vector[i] =
            [0, 1].map(|half| Value::new(case.vector[i][half], case.hidden_vector[i][half]));
    }
    emulator.registers.general[4] = Value::known(0x2000);
    emulator.registers.flags = Value::new(case.flags | 0x202, case.hidden_flags);
    emulator.registers.ip = pages.code();
    for instruction in &case.code {
        let event = emulator.step();
        let text = Decoder::new(64, instruction, DecoderOptions::NONE).decode();
        prop_assert_eq!(event, Event::Ran, "{:?} {:02x?}", text, instruction);
    }
    prop_assert_eq!(emulator.registers.ip, pages.code() + code.len() as u64 - 1);

    pages.run(&code, &mut data, &mut frame);
    let text: Vec<String> = case
        .code
        .iter()
        .map(|i| format!("{:?} {i:02x?}", Decoder::new(64, i, DecoderOptions::NONE).decode().code()))
        .collect();
    for i in (0..16).filter(|&i| i != 4) {
        let value = emulator.registers.general[i];
        prop_assert!(
            !disagrees(value, frame.general[i]),
            "register {i}: {value:x?}, really {:#x}: {text:#?}",
            frame.general[i]
        );
        for half in 0..2 {
            let value = emulator.registers.vector[i][half];
            prop_assert!(
                !disagrees(value, frame.vector[i][half]),
                "xmm{i}[{half}]: {value:x?}, really {:#x}: {text:#?}",
                frame.vector[i][half]
            );
        }
    }
    let flags = emulator.registers.flags & Value::known(FLAGS);
    prop_assert!(
        !disagrees(flags, frame.flags & FLAGS),
        "flags {flags:x?}, really {:#x}: {text:#?}",
        frame.flags & FLAGS
    );
    for (i, &actual) in data.iter().enumerate() {
        let value = emulator.memory.read(pages.data() + i as u64, 1).unwrap();
        prop_assert!(
            !disagrees(value, u64::from(actual)),
            "byte {i}: {value:x?}, really {actual:#x}: {text:#?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_the_interpreter_knows_is_what_the_processor_does(case in case()) {
        check(&case)?;
    }
}

/// The generator must reach the instructions the interpreter claims, or the property says nothing.
#[test]
fn the_generator_makes_many_instructions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let case = case().new_tree(&mut runner).unwrap().current();
        for bytes in case.code {
            seen.insert(format!("{:?}", Decoder::new(64, &bytes, DecoderOptions::NONE).decode().mnemonic()));
        }
    }
    assert!(seen.len() > 140, "{}: {seen:?}", seen.len());
}

/// With everything known, nothing but what the manual calls undefined may become unknown.
#[test]
fn known_inputs_give_known_results() {
    let pages = 0x10_0000;
    let mut memory = Memory::new(Outside::Stop);
    memory.map_zero(pages, 0x1000);
    // add rax,rcx; adc rdx,rbx; shl rsi,5; imul rdi,rax; movzx r8d,al; bswap r9
    let code = [
        0x48, 0x01, 0xc8, 0x48, 0x11, 0xda, 0x48, 0xc1, 0xe6, 5, 0x48, 0x0f, 0xaf, 0xf8, 0x44, 0x0f, 0xb6,
        0xc0, 0x49, 0x0f, 0xc9,
    ];
    memory.write_bytes(pages, &code).unwrap();
    let mut emulator = Emulator::new(Machine::X64, memory);
    emulator.registers.general = [Value::known(0x1234_5678_9abc_def0); 32];
    emulator.registers.ip = pages;
    for _ in 0..6 {
        assert_eq!(emulator.step(), Event::Ran);
    }
    assert!(emulator.registers.general[..16].iter().all(|v| v.get().is_some()));
}
