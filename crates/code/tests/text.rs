//! How instructions read.

use target::{Flow, Machine};

fn show(machine: Machine, address: u64, bytes: &[u8]) -> String {
    let names = |a: u64| (a == 0x7ff6_0000_2000).then(|| "app!main".to_owned());
    let i = code::decode(machine, address, bytes, Some(&names));
    let text = i.text.clone().unwrap_or_else(|| "???".into());
    format!("{text} | {:?} {:x?} {:x?} {}", i.flow, i.target, i.data_address, i.bytes)
}

#[test]
fn x64_reads_like_the_debugger() {
    let at = 0x7ff6_0000_1000;
    let lines: Vec<String> = [
        &[0x48, 0x89, 0x5c, 0x24, 0x08][..],
        &[0xcd, 0x29],
        &[0xcc],
        &[0xe8, 0xfb, 0x0f, 0, 0],
        &[0xff, 0x15, 0xfa, 0x0f, 0, 0],
        &[0x48, 0x8b, 0x05, 0, 1, 0, 0],
        &[0x74, 0x10],
        &[0xeb, 0xfe],
        &[0xc3],
        &[0xc2, 0x0c, 0],
        &[0x0f, 0x05],
        &[0x48, 0x83, 0xec, 0x28],
        &[0x48, 0x81, 0xec, 0xa8, 0, 0, 0],
        &[0x65, 0x48, 0x8b, 0x04, 0x25, 0x30, 0, 0, 0],
        &[0xf3, 0x48, 0xa5],
        &[0x8b, 0x44, 0x91, 0xf0],
        &[0xff, 0xe0],
        &[0x41, 0xff, 0xd2],
        &[0x0f, 0x1f, 0x44, 0, 0],
        &[0x0f, 0x0b],
        &[0xf0, 0x0f, 0xb1, 0x0a],
        &[0x66, 0x0f, 0x6f, 0x44, 0x24, 0x20],
        &[0x06],
        &[0xc7, 0x05],
    ]
    .iter()
    .map(|b| show(Machine::X64, at, b))
    .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn x86_reads_like_the_debugger() {
    let lines: Vec<String> = [
        &[0xc7, 0x05, 0x45, 0, 0, 0, 5, 0, 0, 0][..],
        &[0xa1, 0x10, 0x20, 0x40, 0],
        &[0x83, 0xc4, 0x04],
        &[0x55],
        &[0x8b, 0xec],
        &[0x85, 0x00],
        &[0xe8, 0x10, 0, 0, 0],
        &[0x64, 0xa1, 0, 0, 0, 0],
    ]
    .iter()
    .map(|b| show(Machine::X86, 0x401000, b))
    .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn arm64_reads_like_the_debugger() {
    let words: [u32; 24] = [
        0x9101_0360,
        0xd65f_03c0,
        0xd65f_0bff,
        0x9400_0400,
        0x1400_0001,
        0x5400_0040,
        0xb400_0080,
        0x3608_0060,
        0xd61f_0200,
        0xd63f_0100,
        0xb000_0000,
        0x1000_0040,
        0x5800_0040,
        0xa9bf_7bfd,
        0x9100_03fd,
        0xd503_233f,
        0xf840_0c20,
        0xaa01_03e0,
        0xd280_0020,
        0xd43e_0000,
        0xf940_0020,
        0xd503_201f,
        0,
        0xffff_ffff,
    ];
    let at = 0x7ff6_0000_1000;
    let lines: Vec<String> = words.iter().map(|w| show(Machine::Arm64, at, &w.to_le_bytes())).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn bytes_that_are_nothing_are_said_to_be_nothing() {
    for machine in [Machine::X64, Machine::X86, Machine::Arm64, Machine::Arm32] {
        let i = code::decode(machine, 0, &[], None);
        assert_eq!((i.flow, i.text, i.bytes.0.len()), (Flow::Invalid, None, 0));
    }
}
