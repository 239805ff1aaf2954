//! `r`: the register block, single registers, and `$t` pseudo-registers.

use target::{Context, Machine, Result, TargetError, reg};

use crate::instruction;
use crate::notation::{Notation, frame_place, known_place};
use crate::run::{Run, usage};

/// The registers of a context, laid out as `r` does, without the instruction below.
#[must_use]
pub fn registers_text(context: &Context) -> String {
    match context.machine {
        Machine::X64 => x64(context),
        Machine::X86 => x86(context),
        Machine::Arm64 => arm64(context),
        Machine::Arm32 => String::new(),
    }
}

fn value(context: &Context, number: usize, digits: usize) -> String {
    match context.get(number) {
        Some(value) => format!("{value:0digits$x}"),
        None => "?".repeat(digits),
    }
}

fn x64(context: &Context) -> String {
    const ROWS: [&[usize]; 6] = [
        &[reg::RAX, reg::RBX, reg::RCX],
        &[reg::RDX, reg::RSI, reg::RDI],
        &[reg::RIP, reg::RSP, reg::RBP],
        &[8, 9, 10],
        &[11, 12, 13],
        &[14, 15],
    ];
    let mut text = String::new();
    for row in ROWS {
        let cells: Vec<String> = row
            .iter()
            .map(|&n| {
                let name = Context::register_name(Machine::X64, n).unwrap_or("");
                format!("{name:>3}={}", value(context, n, 16))
            })
            .collect();
        text.push_str(&cells.join(" "));
        text.push('\n');
    }
    text.push_str(&flags_row(context));
    text.push('\n');
    text.push_str(&segments(context));
    text
}

fn x86(context: &Context) -> String {
    let cell = |n: usize| {
        format!("{}={}", Context::register_name(Machine::X86, n).unwrap_or(""), value(context, n, 8))
    };
    let first = [reg::RAX, reg::RBX, reg::RCX, reg::RDX, reg::RSI, reg::RDI].map(cell).join(" ");
    let second = [reg::RIP, reg::RSP, reg::RBP].map(cell).join(" ");
    format!("{first}\n{second} {}\n{}", flags_row(context), segments(context))
}

fn flags_row(context: &Context) -> String {
    match context.get(reg::EFLAGS) {
        None => "iopl=?         ?? ?? ?? ?? ?? ?? ?? ??".to_owned(),
        Some(flags) => {
            let pending = |bit: u32, name: &'static str| if flags >> bit & 1 == 1 { name } else { "   " };
            format!(
                "iopl={} {} {} {}",
                flags >> 12 & 3,
                pending(20, "vip"),
                pending(19, "vif"),
                flags_text(flags)
            )
        }
    }
}

/// The eight flags as two-letter words: `nv up ei pl zr na pe nc`. `pe` is a set parity flag on every
/// machine; DbgEng swaps `pe` and `po` on x64 (10.0.15063 does, and so do later ones).
#[must_use]
pub fn flags_text(flags: u64) -> String {
    const FLAGS: [(u32, &str, &str); 8] = [
        (11, "ov", "nv"),
        (10, "dn", "up"),
        (9, "ei", "di"),
        (7, "ng", "pl"),
        (6, "zr", "nz"),
        (4, "ac", "na"),
        (2, "pe", "po"),
        (0, "cy", "nc"),
    ];
    FLAGS.map(|(bit, set, clear)| if flags >> bit & 1 == 1 { set } else { clear }).join(" ")
}

fn segments(context: &Context) -> String {
    let cells: Vec<String> = [
        ("cs", reg::CS),
        ("ss", reg::SS),
        ("ds", reg::DS),
        ("es", reg::ES),
        ("fs", reg::FS),
        ("gs", reg::GS),
    ]
    .iter()
    .map(|(name, n)| format!("{name}={}", value(context, *n, 4)))
    .collect();
    format!("{}             efl={}\n", cells.join("  "), value(context, reg::EFLAGS, 8))
}

fn arm64(context: &Context) -> String {
    let mut text = String::new();
    for row in 0..8 {
        let cells: Vec<String> = (0..4)
            .map(|column| {
                let n = 4 * row + column;
                let name = Context::register_name(Machine::Arm64, n).unwrap_or("");
                format!("{name:>3}={}", value(context, n, 16))
            })
            .collect();
        text.push_str(&cells.join("  "));
        text.push('\n');
    }
    let state = match context.get(reg::A64_CPSR) {
        None => "????????".to_owned(),
        Some(psr) => {
            let flag = |bit: u32, name: char| if psr >> bit & 1 == 1 { name } else { '-' };
            format!(
                "{psr:08x} {}{}{}{} EL{}",
                flag(31, 'N'),
                flag(30, 'Z'),
                flag(29, 'C'),
                flag(28, 'V'),
                psr >> 2 & 3
            )
        }
    };
    text.push_str(&format!(" pc={}  psr={state}\n", value(context, reg::A64_PC, 16)));
    text
}

/// The block with the current instruction below, as `r`, `.cxr` and thread switches print it.
pub(crate) fn block(run: &mut Run<'_>, context: &Context) -> Result<()> {
    let text = registers_text(context);
    if text.is_empty() {
        return Err(TargetError::unsupported("foreign_architecture", "32-bit ARM registers are not decoded"));
    }
    run.say_block(&text);
    let notation = Notation::of(context.machine);
    if let Some(label) = label(run, context, notation) {
        run.say(format!("{label}:"));
    }
    let ip = context.ip();
    let line = match run.target.disassemble(ip, 1) {
        Ok(found) if !found.is_empty() => {
            instruction::line_with_operand(run.target, notation, &found[0], context)
        }
        _ => instruction::unreadable(notation, ip),
    };
    run.say(line.trim_end());
    Ok(())
}

/// `crash!start [inlined in crash!main+0x12d]`, or the plain place.
fn label(run: &Run<'_>, context: &Context, notation: Notation) -> Option<String> {
    let stack = run.target.stack(context, 1, run.halt).ok();
    let frames = stack.map(|s| s.frames).unwrap_or_default();
    match (frames.first(), frames.iter().find(|f| !f.inline)) {
        (Some(inner), Some(outer)) if inner.inline && outer.ip == context.ip() => Some(format!(
            "{} [inlined in {}]",
            frame_place(run.target, notation, inner),
            frame_place(run.target, notation, outer)
        )),
        _ => known_place(run.target, context.ip()),
    }
}

/// `r`, `r rax`, `r eax,ebx`, `r $t0`, `r $t0 = EXPRESSION`.
pub(crate) fn r(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if arguments.is_empty() {
        let context = run.context()?;
        return block(run, &context);
    }
    if let Some((name, expression)) = arguments.split_once('=') {
        return assign(run, name.trim(), expression);
    }
    let context = run.context()?;
    for name in arguments.split([',', ' ']).filter(|n| !n.is_empty()) {
        let name = name.trim_start_matches('@').to_ascii_lowercase();
        let text = if name.starts_with('$') {
            let value = run.evaluate(&name)?;
            run.notation().digits(value)
        } else {
            one(&context, &name)?
        };
        run.say(format!("{name}={text}"));
    }
    Ok(())
}

fn one(context: &Context, name: &str) -> Result<String> {
    if let Some(vector) =
        name.strip_prefix("xmm").or(name.strip_prefix('v')).and_then(|n| n.parse::<usize>().ok())
    {
        let bytes = context.vectors.get(vector).ok_or_else(|| unavailable(name))?;
        let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
        return Ok(format!("{} {}", &digits[..16], &digits[16..]));
    }
    if !Context::is_register(context.machine, name) {
        return Err(usage(format!("Bad register error at '{name}'")));
    }
    let value = context.by_name(name).ok_or_else(|| unavailable(name))?;
    Ok(format!("{value:0width$x}", width = digits_of(context.machine, name)))
}

fn unavailable(name: &str) -> TargetError {
    TargetError::failed_because("register_unavailable", format!("{name} is not available in this context"))
}

/// Digits a register is shown with: asks how much of an all-ones context the name takes.
fn digits_of(machine: Machine, name: &str) -> usize {
    let mut ones = Context::new(machine, target::ContextSource::Live);
    (0..reg::COUNT).for_each(|n| ones.set(n, u64::MAX));
    match name {
        "cs" | "ds" | "es" | "fs" | "gs" | "ss" | "fpcw" | "fpsw" | "fptw" => 4,
        "efl" | "eflags" | "mxcsr" | "cpsr" => 8,
        _ => ones.by_name(name).map_or(16, |mask| (mask.count_ones() as usize).div_ceil(4)),
    }
}

fn assign(run: &mut Run<'_>, name: &str, expression: &str) -> Result<()> {
    let index = name.trim_start_matches('@').strip_prefix("$t").and_then(|n| n.parse::<usize>().ok());
    match index {
        Some(index) if index < run.session.user_registers.len() => {
            run.session.user_registers[index] = run.evaluate(expression)?;
            Ok(())
        }
        _ => Err(TargetError::unsupported(
            "unknown_command",
            "registers of the target are not written here; only $t0 to $t19 can be set. No session on a dump takes writes, with either engine.",
        )),
    }
}
