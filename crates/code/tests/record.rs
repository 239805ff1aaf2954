//! The instruction record: what it says of encodings, and that it holds together on any bytes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use code::record::{
    Condition, Family, Flags, Modifier, Operand, Operation, Privilege, Transfer, pointer_bits,
};
use code::{Decoded, Recorder, record, scan};
use proptest::prelude::*;
use target::Machine;

fn x64(bytes: &[u8]) -> Decoded {
    record(Machine::X64, 0x1_4000_1000, bytes)
}

fn arm64(word: u32) -> Decoded {
    record(Machine::Arm64, 0x1_4000_1000, &word.to_le_bytes())
}

/// `operation destination, sources` in one line.
fn spell(decoded: &Decoded) -> String {
    let machine = decoded.machine;
    let operand = |operand: &Operand| match operand {
        Operand::Register(register) => register.name(machine),
        Operand::Modified(register, modifier) => format!("{} {modifier:?}", register.name(machine)),
        Operand::Immediate(value) => format!("#{value:x}"),
        Operand::Target(target) => format!("->{target:x}"),
        Operand::Memory(memory) => {
            let part = |register: &Option<code::record::Register>| {
                register.map(|r| r.name(machine)).unwrap_or_default()
            };
            let address = memory.address.map(|a| format!("={a:x}")).unwrap_or_default();
            let sign = if memory.displacement < 0 { '-' } else { '+' };
            format!(
                "[{}{}*{}{sign}{:x} {}{address}{}]",
                part(&memory.base),
                part(&memory.index),
                memory.scale,
                memory.displacement.unsigned_abs(),
                memory.size,
                match memory.update {
                    code::record::BaseUpdate::None => "",
                    code::record::BaseUpdate::Before => " before",
                    code::record::BaseUpdate::After => " after",
                }
            )
        }
        Operand::Opaque => "?".to_owned(),
    };
    let list: Vec<String> = decoded.operands.iter().map(operand).collect();
    let mark = if decoded.has_destination { "" } else { " (none)" };
    format!("{:?}{mark} {}", decoded.operation, list.join(", "))
}

#[test]
fn x64_operands_have_the_destination_first() {
    let rows: &[(&[u8], &str)] = &[
        (&[0x01, 0xc8], "Add eax, eax, ecx"),
        (&[0x48, 0x83, 0xec, 0x28], "Subtract rsp, rsp, #28"),
        (&[0x83, 0xf8, 0xff], "Compare (none) eax, #ffffffff"),
        (&[0x48, 0x3d, 0x00, 0x00, 0x00, 0x80], "Compare (none) rax, #ffffffff80000000"),
        (&[0x66, 0x81, 0xf9, 0x03, 0x20], "Compare (none) cx, #2003"),
        (&[0x8d, 0x82, 0xfd, 0xdf, 0xdd, 0xff], "Address eax, [rdx*1-222003 0]"),
        (&[0x8b, 0x42, 0x18], "Move eax, [rdx*1+18 4]"),
        (&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], "Move rax, [*1+0 8=140001017]"),
        (&[0x0f, 0xb6, 0x44, 0x08, 0x10], "ZeroExtend eax, [raxrcx*1+10 1]"),
        (&[0x48, 0x63, 0x0c, 0x8a], "SignExtend rcx, [rdxrcx*4+0 4]"),
        (&[0xff, 0xc0], "Add eax, eax, #1"),
        (&[0xf7, 0xd8], "Negate eax, eax"),
        (&[0xc1, 0xc0, 0x1e], "RotateLeft eax, eax, #1e"),
        (&[0xd1, 0xe8], "ShiftRight eax, eax, #1"),
        (&[0x69, 0x42, 0x18, 0xb1, 0x79, 0x37, 0x9e], "Multiply eax, [rdx*1+18 4], #9e3779b1"),
        (&[0x0f, 0x44, 0xc1], "Select eax, ecx, eax"),
        (&[0x0f, 0x94, 0xc0], "SetCondition al"),
        (&[0x0f, 0xa3, 0xc1], "BitTest (none) ecx, eax"),
        (&[0x87, 0xca], "Exchange (none) edx, ecx"),
        (&[0x98], "SignExtend eax, ax"),
        (&[0x48, 0x98], "SignExtend rax, eax"),
        (&[0x8a, 0xe1], "Move ah, cl"),
        (&[0x89, 0x4c, 0x24, 0x08], "Move [rsp*1+8 4], ecx"),
        (&[0xff, 0x15, 0x10, 0, 0, 0], "Call (none) [*1+0 8=140001016]"),
        (&[0xc4, 0xe2, 0x78, 0xf2, 0xc1], "AndNot eax, ecx, eax"),
    ];
    for (bytes, expected) in rows {
        assert_eq!(spell(&x64(bytes)), *expected, "{bytes:02x?}");
    }
}

#[test]
fn implicit_operands_are_there() {
    let families =
        |list: &[code::record::Register]| -> Vec<Family> { list.iter().map(|r| r.family).collect() };
    let general = Family::General;
    let mul = x64(&[0xf7, 0xe1]);
    assert_eq!(mul.operation, Operation::Other);
    assert!(mul.writes_family(general(0)) && mul.writes_family(general(2)) && mul.reads_family(general(0)));
    let cpuid = x64(&[0x0f, 0xa2]);
    assert!((0..4).all(|n| cpuid.writes_family(general(n))), "{:?}", families(&cpuid.writes));
    let stos = x64(&[0xf3, 0x48, 0xab]);
    assert!(stos.repeats && stos.writes_memory && !stos.reads_memory);
    assert!(
        stos.writes_family(general(7)) && stos.writes_family(general(1)) && stos.reads_family(general(0))
    );
    let cmpxchg = x64(&[0x0f, 0xb1, 0x0a]);
    assert!(cmpxchg.writes_family(general(0)) && cmpxchg.writes_memory && cmpxchg.reads_memory);
    let xadd = x64(&[0x0f, 0xc1, 0xc8]);
    assert!(xadd.writes_family(general(0)) && xadd.writes_family(general(1)));
    let push = x64(&[0x50]);
    assert!(push.writes_family(Family::StackPointer) && push.writes_memory);
    assert!(!x64(&[0x33, 0xc0]).reads_family(general(0)), "xor eax, eax reads nothing");
}

#[test]
fn partial_writes_keep_the_rest() {
    let written = |bytes: &[u8]| {
        let decoded = x64(bytes);
        let register = decoded.destination().unwrap().register().unwrap();
        (register.write_is_whole(Machine::X64), register.full(Machine::X64).name(Machine::X64))
    };
    assert_eq!(written(&[0xb8, 1, 0, 0, 0]), (true, "rax".to_owned()));
    assert_eq!(written(&[0x66, 0xb8, 1, 0]), (false, "rax".to_owned()));
    assert_eq!(written(&[0xb4, 1]), (false, "rax".to_owned()));
    let x86 = record(Machine::X86, 0x1000, &[0xb8, 1, 0, 0, 0]);
    let register = x86.destination().unwrap().register().unwrap();
    assert_eq!(register.full(Machine::X86).name(Machine::X86), "eax");
}

#[test]
fn flow_of_both_machines() {
    let at = 0x1_4000_1000;
    let x64 = |bytes: &[u8]| x64(bytes).transfer;
    assert_eq!(x64(&[0xe8, 0, 0, 0, 0]), Transfer::Call(Some(at + 5)));
    assert_eq!(x64(&[0x74, 0x10]), Transfer::Branch(Some(at + 0x12)));
    assert_eq!(x64(&[0xff, 0xe0]), Transfer::Jump(None));
    assert_eq!(x64(&[0xff, 0x25, 0, 0, 0, 0]), Transfer::Jump(None));
    assert_eq!(x64(&[0xe3, 0x10]), Transfer::Branch(Some(at + 0x12)));
    for trap in [&[0xcc][..], &[0x0f, 0x0b], &[0xcd, 0x29], &[0xcd, 3]] {
        assert_eq!(x64(trap), Transfer::Trap, "{trap:02x?}");
    }
    for goes_on in [&[0x0f, 0x05][..], &[0xcd, 0x2e], &[0xcd, 0x2c], &[0x0f, 0x01, 0xc1]] {
        assert_eq!(x64(goes_on), Transfer::Fallthrough, "{goes_on:02x?}");
    }
    assert_eq!(x64(&[0xc3]), Transfer::Return);
    assert_eq!(x64(&[0x06]), Transfer::Undecodable);
    assert_eq!(x64(&[0xe8, 0]), Transfer::Undecodable, "cut short");
    let arm64 = |word| arm64(word).transfer;
    assert_eq!(arm64(0x9400_0004), Transfer::Call(Some(at + 16)));
    assert_eq!(arm64(0x17ff_ffff), Transfer::Jump(Some(at - 4)));
    assert_eq!(arm64(0xb400_0040), Transfer::Branch(Some(at + 8)));
    assert_eq!(arm64(0xd61f_0100), Transfer::Jump(None));
    assert_eq!(arm64(0xd65f_03c0), Transfer::Return);
    assert_eq!(arm64(0xd43e_0000), Transfer::Trap);
    assert_eq!(arm64(0xd65f_0bff), Transfer::Return, "retaa, which yaxpeax does not know");
}

#[test]
fn conditions() {
    let condition = |bytes: &[u8]| x64(bytes).condition.unwrap();
    assert_eq!(condition(&[0x77, 0]), Condition::Above);
    assert_eq!(condition(&[0x7e, 0]), Condition::LessOrEqual);
    let rcx = code::record::Register::general(1, 64);
    assert_eq!(condition(&[0xe3, 0]), Condition::Zero(rcx));
    assert_eq!(condition(&[0xe1, 0]), Condition::Counter(rcx, Some(true)));
    assert!(x64(&[0xe3, 0]).flags_read.is_empty());
    assert!(x64(&[0xe1, 0]).flags_read.intersects(Flags::ZERO));
    let arm = |word| arm64(word).condition.unwrap();
    assert_eq!(arm(0x5400_0008), Condition::Above);
    assert_eq!(arm(0x5400_000b), Condition::Less);
    let w0 = code::record::Register::general(0, 32);
    assert_eq!(arm(0x3500_0000), Condition::NotZero(w0));
    let x8 = code::record::Register::general(8, 64);
    assert_eq!(arm(0x3618_0008), Condition::BitClear(x8, 3));
    assert_eq!(arm(0xb748_0008), Condition::BitSet(x8, 41));
    assert!(arm64(0x3618_0008).reads_family(Family::General(8)));
}

/// Words as clang 14 assembles the text beside them.
#[test]
fn arm64_meanings() {
    let rows: &[(u32, &str)] = &[
        (0x5288_8888, "Move w8, #4444"),
        (0x72a6_6668, "MoveKeep w8, #33330000, #10"),
        (0x1280_0008, "Move w8, #ffffffff"),
        (0x7144_0d1f, "Compare (none) w8, #103000"),
        (0x5148_8908, "Subtract w8, w8, #222000"),
        (0x1388_0908, "RotateRight w8, w8, #2"),
        (0xb940_1828, "Move w8, [x1*1+18 4]"),
        (0x3868_692b, "ZeroExtend w11, [x9x8*1+0 1]"),
        (0x8b0b_094a, "Add x10, x10, x11 ShiftLeft(2)"),
        (0xb868_5928, "Move w8, [x9w8*4+0 4]"),
        (0xb888_5b28, "?"),
        (0xa9be_7bfd, "StorePair (none) x29, x30, [sp*1-20 8 before]"),
        (0xa8c2_7bfd, "LoadPair (none) x29, x30, [sp*1+20 8 after]"),
        (0x1a80_0508, "SelectIncrement w8, w8, w0"),
        (0x7200_0d1f, "Test (none) w8, #f"),
        (0x1200_0d08, "And w8, w8, #f"),
        (0x531e_7508, "ShiftLeft w8, w8, #2"),
        (0x5302_7d08, "ShiftRight w8, w8, #2"),
        (0x5302_1508, "ExtractBits w8, w8, #2, #4"),
        (0x9340_7d08, "SignExtend x8, w8"),
        (0x9b08_7d29, "Multiply x9, x9, x8"),
        (0x1b08_a929, "MultiplySubtract w9, w9, w8, w10"),
        (
            0x9ba8_7d29,
            "Multiply x9, w9 ZeroExtend { bits: 32, shift: 0 }, w8 ZeroExtend { bits: 32, shift: 0 }",
        ),
        (0x4b08_03e8, "Negate w8, w8"),
        (0x2a28_03e8, "Not w8, w8"),
        (0xaa08_03e0, "Move x0, x8"),
        (0x9100_03fd, "Move x29, sp"),
        (0x9000_0008, "Address x8, [*1+0 0=140001000]"),
        (0x1800_0048, "Move w8, [*1+0 4=140001008]"),
        (0x7a48_1920, "ConditionalCompare (none) w9, #8, #0"),
    ];
    for (word, expected) in rows.iter().filter(|(_, expected)| *expected != "?") {
        assert_eq!(spell(&arm64(*word)), *expected, "{word:08x}");
    }
}

#[test]
fn privilege_is_of_the_encoding() {
    let rows: &[(&[u8], Option<Privilege>)] = &[
        (&[0xec], Some(Privilege::PortIo)),
        (&[0x6c], Some(Privilege::PortIo)),
        (&[0x0f, 0x32], Some(Privilege::ModelSpecificRegister)),
        (&[0x0f, 0x30], Some(Privilege::ModelSpecificRegister)),
        (&[0x0f, 0x22, 0xc0], Some(Privilege::ControlRegister)),
        (&[0x0f, 0x23, 0xf8], Some(Privilege::ControlRegister)),
        (&[0xfa], Some(Privilege::InterruptFlag)),
        (&[0xfb], Some(Privilege::InterruptFlag)),
        (&[0x0f, 0x01, 0x10], Some(Privilege::DescriptorTable)),
        (&[0x0f, 0x00, 0xd8], Some(Privilege::DescriptorTable)),
        (&[0x0f, 0x01, 0x38], Some(Privilege::CacheOrTlb)),
        (&[0x0f, 0x09], Some(Privilege::CacheOrTlb)),
        (&[0x0f, 0x01, 0xc1], Some(Privilege::Virtualization)),
        (&[0xf4], Some(Privilege::Other)),
        (&[0x0f, 0x01, 0xf8], Some(Privilege::Other)),
        (&[0x0f, 0x01, 0x00], None),
        (&[0x0f, 0x00, 0xc8], None),
        (&[0x0f, 0xa2], None),
        (&[0x0f, 0x31], None),
        (&[0x90], None),
    ];
    for (bytes, expected) in rows {
        assert_eq!(x64(bytes).privilege, *expected, "{bytes:02x?}");
    }
    let arm: &[(u32, Option<Privilege>)] = &[
        (0xd538_1000, Some(Privilege::ControlRegister)), // mrs x0, sctlr_el1
        (0xd518_2000, Some(Privilege::ControlRegister)), // msr ttbr0_el1, x0
        (0xd538_4100, Some(Privilege::ModelSpecificRegister)), // mrs x0, sp_el0
        (0xd503_42df, Some(Privilege::InterruptFlag)),   // msr daifset, #2
        (0xd508_871f, Some(Privilege::CacheOrTlb)),      // tlbi vmalle1
        (0xd508_751f, Some(Privilege::CacheOrTlb)),      // ic iallu
        (0xd69f_03e0, Some(Privilege::Other)),           // eret
        (0xd400_0002, Some(Privilege::Virtualization)),  // hvc #0
        (0xd50b_7e20, None),                             // dc civac, x0
        (0xd53b_4200, None),                             // mrs x0, nzcv
        (0xd53b_d040, None),                             // mrs x0, tpidr_el0
        (0xb900_0001, None),                             // str, which is no x86 str
    ];
    for (word, expected) in arm {
        assert_eq!(arm64(*word).privilege, *expected, "{word:08x}");
    }
    assert!(scan(Machine::X64, 0, &[0x0f, 0x01, 0x00]).reads_descriptor_state());
    assert!(scan(Machine::X64, 0, &[0x0f, 0x00, 0xc8]).reads_descriptor_state());
    assert!(!scan(Machine::Arm64, 0, &0xb900_0001u32.to_le_bytes()).reads_descriptor_state());
}

/// yaxpeax's operand list is a second reading of the same word: every general register it names is
/// read or written in the record.
fn names_of(instruction: &yaxpeax_arm::armv8::a64::Instruction) -> Vec<u16> {
    use yaxpeax_arm::armv8::a64::Operand as Y;
    let mut out = Vec::new();
    for operand in instruction.operands {
        match operand {
            Y::Register(_, n) | Y::RegisterOrSP(_, n) | Y::RegShift(_, _, _, n) => out.push(n),
            Y::RegPreIndex(n, _, _) | Y::RegPostIndex(n, _) => out.push(n),
            Y::RegRegOffset(n, m, ..) | Y::RegPostIndexReg(n, m) => out.extend([n, m]),
            _ => {}
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_make_a_record(bytes in proptest::collection::vec(any::<u8>(), 0..20), which in 0usize..4) {
        let machine = [Machine::X64, Machine::X86, Machine::Arm64, Machine::Arm32][which];
        let address = 0xffff_f800_1234_5000;
        let decoded = Recorder::new(machine).record(address, &bytes);
        let short = code::decode(machine, address, &bytes, None);
        prop_assert_eq!(usize::from(decoded.length), short.bytes.0.len());
        prop_assert_eq!(decoded.transfer == Transfer::Undecodable, short.flow == target::Flow::Invalid);
        let light = scan(machine, address, &bytes);
        if decoded.transfer != Transfer::Undecodable {
            prop_assert_eq!(light.transfer, decoded.transfer);
            prop_assert_eq!(light.length, decoded.length);
            prop_assert_eq!(light.privilege(), decoded.privilege);
        }
        for register in decoded.reads.iter().chain(&decoded.writes) {
            prop_assert!(register.width > 0 && !register.name(machine).is_empty());
        }
        if let Some(destination) = decoded.destination().and_then(Operand::register)
            && destination.family != Family::Zero
        {
            prop_assert!(decoded.writes_family(destination.family), "{}", decoded.text());
        }
        prop_assert!(pointer_bits(machine) >= 32);
    }

    #[test]
    fn every_register_of_an_arm64_word_is_in_its_record(word: u32) {
        let decoded = arm64(word);
        if let code::record::Raw::Arm64(_, instruction) = decoded.raw
            && decoded.operation != Operation::Nothing
        {
            // yaxpeax reads some reserved structure loads and stores as if bits did not matter.
            let structure = word >> 25 & 0x1f == 0b00110;
            for number in names_of(&instruction).into_iter().filter(|n| *n != 31 && !structure) {
                let family = Family::General(number as u8);
                prop_assert!(
                    decoded.reads_family(family) || decoded.writes_family(family),
                    "{:08x} {} misses x{number}: {}", word, decoded.text(), spell(&decoded)
                );
            }
        }
    }
}

#[test]
fn msr_names_its_register_in_five_bits() {
    let decoded = arm64(0xd513_6430);
    assert_eq!(decoded.text(), "msr s2_3_c6_c4_1, x16");
    assert!(decoded.reads_family(Family::General(16)));
}

#[test]
fn modifiers_name_what_they_do() {
    let add = arm64(0x8b28_c920); // add x0, x9, w8, sxtw #2
    assert_eq!(
        add.sources()[1],
        Operand::Modified(
            code::record::Register::general(8, 32),
            Modifier::SignExtend { bits: 32, shift: 2 },
        )
    );
}
