//! ARM64 instructions as QEMU 7.2 executes them: recorded vectors, and the recorder.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use emulate::{Emulator, Event, Memory, Outside, Stop, Value};
use target::Machine;

/// x0..x28, nzcv, v0..v31, then scratch memory that x28 points into.
const GENERAL: usize = 29;
const STATE: usize = 0x400;
const FLAGS_AT: usize = GENERAL * 8;
const VECTORS_AT: usize = FLAGS_AT + 8;
const SCRATCH_AT: usize = 0x300;
/// Where the recorder's program keeps its states.
const STATES: u64 = 0x1000_0000;
const CODE: u64 = 0x20_0000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
    fn interesting(&mut self) -> u64 {
        match self.next() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 63,
            3 => 0x7fff_ffff,
            4 => self.next() % 70,
            _ => self.next(),
        }
    }
}

/// The state vector `index` begins with.
fn initial(index: usize) -> Vec<u8> {
    let mut random = Random(index as u64 ^ 0x00c0_ffee);
    let mut state = Vec::new();
    for _ in 0..GENERAL - 1 {
        state.extend(random.interesting().to_le_bytes());
    }
    state.extend((STATES + (index * STATE + SCRATCH_AT + 0x80) as u64).to_le_bytes());
    state.extend((random.next() & 0xf000_0000).to_le_bytes());
    while state.len() < STATE {
        state.extend(random.interesting().to_le_bytes());
    }
    state
}

fn word(state: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(state[at..at + 8].try_into().unwrap())
}

/// The state after `instruction`, all of it known; an error where the machine stops.
fn emulated(index: usize, instruction: u32) -> Result<Vec<u8>, Event> {
    let mut state = initial(index);
    let base = STATES + (index * STATE) as u64;
    let mut memory = Memory::new(Outside::Stop);
    memory.map_zero(CODE, 0x1000);
    memory.map_zero(base & !0xfff, 0x1000);
    memory.write_bytes(CODE, &instruction.to_le_bytes()).unwrap();
    // Only the scratch part is anybody's business: the rest of the page stays unknown.
    memory.forget(base & !0xfff, 0x1000).unwrap();
    memory.write_bytes(base + SCRATCH_AT as u64, &state[SCRATCH_AT..]).unwrap();
    let mut emulator = Emulator::new(Machine::Arm64, memory);
    for i in 0..GENERAL {
        emulator.registers.general[i] = Value::known(word(&state, i * 8));
    }
    let own = Value::known(0x5aa5_5aa5_5aa5_5aa5);
    emulator.registers.general[29..31].fill(own);
    emulator.registers.flags = Value::known(word(&state, FLAGS_AT));
    for i in 0..32 {
        emulator.registers.vector[i] =
            [0, 8].map(|half| Value::known(word(&state, VECTORS_AT + i * 16 + half)));
    }
    emulator.registers.ip = CODE;
    emulator.watch(base & !0xfff..(base & !0xfff) + 0x1000);
    match emulator.step() {
        Event::Ran if emulator.registers.ip == CODE + 4 => {}
        event => return Err(event),
    }
    let unknown = || Event::Stopped(Stop::UnknownValue { at: CODE, what: "result" });
    let outside = emulator.writes().iter().any(|w| {
        w.address < base + SCRATCH_AT as u64 || w.address + u64::from(w.bytes) > base + STATE as u64
    });
    let other = [29, 30].iter().any(|&r| emulator.registers.general[r] != own);
    if outside || other {
        return Err(unknown());
    }
    for i in 0..GENERAL {
        let value = emulator.registers.general[i].get().ok_or_else(unknown)?;
        state[i * 8..i * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    let flags = emulator.registers.flags.get().ok_or_else(unknown)? & 0xf000_0000;
    state[FLAGS_AT..FLAGS_AT + 8].copy_from_slice(&flags.to_le_bytes());
    for i in 0..32 {
        for half in 0..2 {
            let at = VECTORS_AT + i * 16 + half * 8;
            let value = emulator.registers.vector[i][half].get().ok_or_else(unknown)?;
            state[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let mut scratch = vec![0; STATE - SCRATCH_AT];
    emulator.memory.read_bytes(base + SCRATCH_AT as u64, &mut scratch).map_err(|_| unknown())?;
    state[SCRATCH_AT..].copy_from_slice(&scratch);
    Ok(state)
}

/// What differs from the initial state, as one line.
fn difference(index: usize, after: &[u8]) -> String {
    let before = initial(index);
    let mut line = String::new();
    for at in (0..STATE).step_by(8) {
        if word(&before, at) != word(after, at) {
            let _ = write!(line, " {at:x}={:x}", word(after, at));
        }
    }
    line
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arm64_vectors.txt")
}

#[test]
fn instructions_do_what_qemu_does() {
    let text = std::fs::read_to_string(vectors()).unwrap();
    let mut checked = 0;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (number, rest) = line.split_once(' ').unwrap();
        let (instruction, expected) = rest.split_at(8);
        let index: usize = number.parse().unwrap();
        let instruction = u32::from_str_radix(instruction, 16).unwrap();
        let after = emulated(index, instruction)
            .unwrap_or_else(|event| panic!("vector {index}, {instruction:08x}: {event:?}"));
        assert_eq!(difference(index, &after), expected, "vector {index}, {instruction:08x}");
        checked += 1;
    }
    assert!(checked >= 2500, "{checked}");
}

/// An instruction of each class by turns that the interpreter takes; none that depends on where it is.
fn candidate(index: usize, random: &mut Random) -> u32 {
    /// (fixed bits, random bits).
    const CLASSES: [(u32, u32); 21] = [
        (0x1200_0000, 0xe07f_ffff),
        (0x1300_0000, 0xe07f_ffff),
        (0x1380_0000, 0x803f_ffff),
        (0x1280_0000, 0xe07f_ffff),
        (0x0a00_0000, 0xe0ff_ffff),
        (0x0b00_0000, 0xe0ff_ffff),
        (0x1a00_0000, 0xe01f_03ff),
        (0x1a40_0000, 0xe01f_fbef),
        (0x1a80_0000, 0xc01f_f7ff),
        (0x1ac0_0000, 0x801f_2fff),
        (0x5ac0_0000, 0x8000_17ff),
        (0x1b00_0000, 0x80ff_ffff),
        (0x3800_0000, 0xc5ff_ffff),
        (0x3900_0000, 0xc4ff_ffff),
        (0x2800_0000, 0xc5ff_ffff),
        (0x0e00_0400, 0x60ff_7bff),
        (0x0f00_0400, 0x607f_fbff),
        (0x0e20_0400, 0x60df_fbff),
        (0x0e00_0800, 0x40df_73ff),
        (0x2e00_0000, 0x401f_7bff),
        (0x1e20_0000, 0x80cf_03ff),
    ];
    loop {
        let (fixed, free) = CLASSES[index % CLASSES.len()];
        let mut instruction = fixed | random.next() as u32 & free;
        if matches!(instruction >> 25 & 0xf, 4 | 6 | 12 | 14) {
            instruction = instruction & !0x3e0 | 28 << 5;
            // Small offsets, or nothing would be in reach.
            if instruction & 0x3b00_0000 == 0x3900_0000 {
                instruction &= !0x003f_f000;
                instruction |= random.next() as u32 & 0x7000;
            }
        }
        // x29 and x30 are the recorder's own: nothing may name them.
        let own = [0, 5, 10, 16].iter().any(|at| matches!(instruction >> at & 31, 29 | 30));
        if !own && emulated(index, instruction).is_ok() {
            return instruction;
        }
    }
}

/// Records the vectors with `clang`, `ld.lld` and `qemu-aarch64` (Debian: clang, lld, qemu-user).
#[test]
#[ignore = "writes tests/arm64_vectors.txt"]
fn record() {
    const COUNT: usize = 2800;
    let folder = std::env::temp_dir().join(format!("arm64-vectors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut random = Random(1);
    let instructions: Vec<u32> = (0..COUNT).map(|i| candidate(i, &mut random)).collect();
    let states: Vec<u8> = (0..COUNT).flat_map(initial).collect();
    std::fs::write(folder.join("states.bin"), &states).unwrap();
    std::fs::write(folder.join("program.s"), program(&instructions)).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output =
            std::process::Command::new(program).args(arguments).current_dir(&folder).output().unwrap();
        assert!(
            output.status.success(),
            "{program}: {:?} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    run("clang", &["--target=aarch64-linux-gnu", "-march=armv8.2-a", "-c", "program.s", "-o", "program.o"]);
    run(
        "ld.lld",
        &[
            "--section-start=.states=0x10000000",
            "--section-start=.text=0x200000",
            "program.o",
            "-o",
            "program",
        ],
    );
    let after = run("qemu-aarch64", &["./program"]);
    assert_eq!(after.len(), COUNT * STATE);
    let mut text = String::from(
        "# index instruction offset=value...: what changes in the state (see arm64_vectors.rs)\n",
    );
    for (index, (state, instruction)) in after.chunks(STATE).zip(&instructions).enumerate() {
        let _ = writeln!(text, "{index} {instruction:08x}{}", difference(index, state));
    }
    std::fs::write(vectors(), text).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

fn program(instructions: &[u32]) -> String {
    let mut text = String::from(".text\n.globl _start\n_start:\nldr x29, =states\n");
    for instruction in instructions {
        let _ = writeln!(text, "bl load\n.inst {instruction:#x}\nbl save");
    }
    text.push_str("mov x0, #1\nldr x1, =states\nldr x2, =states_end\nsub x2, x2, x1\n");
    text.push_str("1: mov x8, #64\nsvc #0\nadd x1, x1, x0\nsubs x2, x2, x0\nmov x0, #1\nb.ne 1b\n");
    text.push_str("mov x0, #0\nmov x8, #93\nsvc #0\n.ltorg\n");
    text.push_str("load:\n");
    let _ = writeln!(text, "ldr x0, [x29, #{FLAGS_AT}]\nmsr nzcv, x0");
    for i in 0..32 {
        let _ = writeln!(text, "ldr q{i}, [x29, #{}]", VECTORS_AT + i * 16);
    }
    for i in 0..GENERAL {
        let _ = writeln!(text, "ldr x{i}, [x29, #{}]", i * 8);
    }
    text.push_str("ret\nsave:\n");
    for i in 0..GENERAL {
        let _ = writeln!(text, "str x{i}, [x29, #{}]", i * 8);
    }
    let _ = writeln!(text, "mrs x0, nzcv\nstr x0, [x29, #{FLAGS_AT}]");
    for i in 0..32 {
        let _ = writeln!(text, "str q{i}, [x29, #{}]", VECTORS_AT + i * 16);
    }
    let _ = writeln!(text, "add x29, x29, #{STATE:#x}\nret");
    text.push_str(".section .states,\"aw\"\nstates: .incbin \"states.bin\"\nstates_end:\n");
    text
}
