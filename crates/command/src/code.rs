//! `u`, `ub`, `uf`.

use target::{Flow, Instruction, Result, TargetError, TargetExt as _};

use crate::instruction;
use crate::notation::known_place;
use crate::run::{Run, usage};

/// Instructions shown unless a range is given.
const COUNT: u64 = 8;
/// Instructions of one command.
const LIMIT: u64 = 0x4000;

pub(crate) fn u(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (range, rest) = run.range(arguments, 1, run.session.next_code, COUNT)?;
    reject(rest)?;
    let stop = if range.by_end { range.start.checked_add(range.count) } else { None };
    list(run, range.start, range.count.min(LIMIT), stop)
}

fn reject(rest: &str) -> Result<()> {
    if rest.is_empty() { Ok(()) } else { Err(usage(format!("extra text '{rest}'"))) }
}

fn list(run: &mut Run<'_>, start: u64, count: u64, stop: Option<u64>) -> Result<()> {
    let found = run.target.disassemble(start, usize::try_from(count).unwrap_or(usize::MAX))?;
    if found.is_empty() {
        let line = instruction::unreadable(run.notation(), start);
        run.say(line);
        return Err(unreadable(run, start));
    }
    print(run, found.iter().take_while(|i| stop.is_none_or(|stop| i.address < stop)))?;
    let end = found.last().map(|i| i.address.wrapping_add(i.bytes.0.len().max(1) as u64));
    run.session.next_code = end;
    Ok(())
}

fn unreadable(run: &Run<'_>, at: u64) -> TargetError {
    let at = run.notation().address(at);
    TargetError::failed_because("unreadable", format!("Memory access error: no code can be read at {at}"))
}

/// Lines, with a label where the function changes.
fn print<'i>(run: &mut Run<'_>, instructions: impl Iterator<Item = &'i Instruction>) -> Result<()> {
    let notation = run.notation();
    let mut function: Option<String> = None;
    for instruction in instructions {
        run.check()?;
        let name = function_name(run, instruction.address);
        if name.is_some() && name != function {
            let place = known_place(run.target, instruction.address);
            run.say(format!("{}:", place.or(name.clone()).unwrap_or_default()));
            function = name;
        }
        let line = instruction::line(run.target, notation, instruction);
        run.say(line);
    }
    Ok(())
}

/// What a label names: the function, or the module where no function is known.
fn function_name(run: &Run<'_>, address: u64) -> Option<String> {
    if let Ok(Some(hit)) = run.target.symbol_at(address) {
        return Some(hit.qualified());
    }
    run.target.module_at(address).ok().flatten().map(|m| m.name)
}

/// Backwards: from the function's start forward, the last `count` before the address.
pub(crate) fn ub(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (range, rest) = run.range(arguments, 1, None, COUNT)?;
    reject(rest)?;
    let count = usize::try_from(range.count.min(LIMIT)).unwrap_or(usize::MAX);
    let end = range.start;
    let bounds = run.target.function_bounds(end)?.filter(|(start, stop)| *start < end && end <= *stop);
    let before = match bounds {
        Some((start, _)) if end - start <= 0x10_0000 => ending_at(run, start, end)?,
        _ => approximate(run, end, count)?,
    };
    if before.is_empty() {
        return Err(TargetError::failed_because(
            "unreadable",
            format!("no instructions that end at {} can be read", run.notation().address(end)),
        ));
    }
    let skip = before.len().saturating_sub(count);
    print(run, before[skip..].iter())
}

/// Instructions from `start` whose last ends at `end`; empty when none does.
fn ending_at(run: &Run<'_>, start: u64, end: u64) -> Result<Vec<Instruction>> {
    const BLOCK: usize = 256;
    let mut found: Vec<Instruction> = Vec::new();
    let mut at = start;
    while at < end {
        run.check()?;
        let block = run.target.disassemble(at, BLOCK)?;
        if block.is_empty() {
            return Ok(Vec::new());
        }
        for instruction in block {
            let next = instruction.address.wrapping_add(instruction.bytes.0.len().max(1) as u64);
            if instruction.text.is_none() || next > end || next <= at {
                return Ok(Vec::new());
            }
            found.push(instruction);
            at = next;
            if at == end {
                return Ok(found);
            }
        }
    }
    Ok(Vec::new())
}

/// Without a function: the alignment whose chain of instructions is longest.
fn approximate(run: &Run<'_>, end: u64, count: usize) -> Result<Vec<Instruction>> {
    const LONGEST: u64 = 15;
    let reach = LONGEST.saturating_mul(count as u64 + 2).min(0x1000);
    let mut best: Vec<Instruction> = Vec::new();
    for back in 1..=reach {
        run.check()?;
        let Some(start) = end.checked_sub(back) else { break };
        let chain = ending_at(run, start, end).unwrap_or_default();
        if chain.len() > best.len() {
            best = chain;
        }
        if best.len() >= count + 4 {
            break;
        }
    }
    Ok(best)
}

/// A whole function; with `/c` its calls only.
pub(crate) fn uf(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (mut calls_only, mut rest) = (false, arguments);
    while let Some(after) = rest.strip_prefix('/') {
        let (option, after) = crate::operand::word(after);
        match option {
            "c" => calls_only = true,
            "i" | "m" | "o" | "D" | "O" => {}
            _ => return Err(usage(format!("uf /{option} is not served (/c is)"))),
        }
        rest = after;
    }
    let address = if rest.is_empty() { run.context()?.ip() } else { run.evaluate(rest)? };
    let notation = run.notation();
    let Some((start, end)) = run.target.function_bounds(address)? else {
        return Err(TargetError::failed_because(
            "no_function",
            format!("no code found at {}: no unwind data or symbol bounds it", notation.address(address)),
        ));
    };
    let end = start.saturating_add(end.saturating_sub(start).clamp(1, 0x10_0000));
    if calls_only { calls(run, start, end) } else { list(run, start, LIMIT.min(end - start), Some(end)) }
}

fn calls(run: &mut Run<'_>, start: u64, end: u64) -> Result<()> {
    let notation = run.notation();
    let count = usize::try_from(LIMIT.min(end - start)).unwrap_or(usize::MAX);
    let found = run.target.disassemble(start, count)?;
    if found.is_empty() {
        return Err(unreadable(run, start));
    }
    let name = known_place(run.target, start).unwrap_or_default();
    run.say(format!("{name} ({})", notation.address(start)));
    for instruction in found.iter().take_while(|i| i.address < end) {
        run.check()?;
        if matches!(instruction.flow, Flow::Call | Flow::IndirectCall) {
            let place = known_place(run.target, instruction.address).unwrap_or_default();
            run.say(format!("  {place} ({}):", notation.address(instruction.address)));
            let line = instruction::line(run.target, notation, instruction);
            run.say(format!("    {}", line.split_once(' ').map_or(line.as_str(), |(_, text)| text)));
        }
    }
    Ok(())
}
