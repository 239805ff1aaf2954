//! Register contexts as Windows stores them.

use target::{Context, Machine, reg};

use crate::bytes::{low16, put16, put32, put64};

/// The whole `CONTEXT` record of a context's machine; unknown registers are written as zero.
#[must_use]
pub fn context_bytes(context: &Context) -> Vec<u8> {
    let mut out = vec![0; Context::record_size(context.machine)];
    let get = |number| context.get(number).unwrap_or(0);
    match context.machine {
        Machine::X64 => x64(&mut out, get),
        Machine::X86 => x86(&mut out, get),
        Machine::Arm64 | Machine::Arm32 => arm64(&mut out, get),
    }
    out
}

fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

fn x64(out: &mut Vec<u8>, get: impl Fn(usize) -> u64) {
    // Control, integer, segments, floating point, debug.
    put32(out, 0x30, 0x10_001f);
    put32(out, 0x34, 0x1f80);
    for (index, number) in [reg::CS, reg::DS, reg::ES, reg::FS, reg::GS, reg::SS].into_iter().enumerate() {
        put16(out, 0x38 + 2 * index, low16(get(number)));
    }
    put32(out, 0x44, low(get(reg::EFLAGS)));
    for (index, number) in (reg::DR0..=reg::DR7).enumerate() {
        put64(out, 0x48 + 8 * index, get(number));
    }
    for number in 0..16 {
        put64(out, 0x78 + 8 * number, get(number));
    }
    put64(out, 0xf8, get(reg::RIP));
    put16(out, 0x100, 0x27f);
    put32(out, 0x118, 0x1f80);
}

fn x86(out: &mut Vec<u8>, get: impl Fn(usize) -> u64) {
    put32(out, 0, 0x1_003f);
    for (index, number) in [reg::GS, reg::FS, reg::ES, reg::DS].into_iter().enumerate() {
        put32(out, 0x8c + 4 * index, low(get(number)));
    }
    let order = [reg::RDI, reg::RSI, reg::RBX, reg::RDX, reg::RCX, reg::RAX];
    for (index, number) in order.into_iter().enumerate() {
        put32(out, 0x9c + 4 * index, low(get(number)));
    }
    let order = [reg::RBP, reg::RIP, reg::CS, reg::EFLAGS, reg::RSP, reg::SS];
    for (index, number) in order.into_iter().enumerate() {
        put32(out, 0xb4 + 4 * index, low(get(number)));
    }
}

fn arm64(out: &mut Vec<u8>, get: impl Fn(usize) -> u64) {
    put32(out, 0, 0x40_0007);
    put32(out, 4, low(get(reg::A64_CPSR)));
    for number in 0..=reg::A64_PC {
        put64(out, 8 + 8 * number, get(number));
    }
}
