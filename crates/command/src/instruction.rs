//! One disassembled line, laid out as `u` does, names in place of addresses.

use target::{Context, Flow, Instruction, Machine, MemoryExt as _, Target, TargetExt as _, reg};

use crate::notation::{Notation, known_place};

/// ``fffff804`7bdf5a80 48894c2408      mov     qword ptr [rsp+8],rcx``.
pub(crate) fn line(target: &dyn Target, notation: Notation, instruction: &Instruction) -> String {
    let address = notation.address(instruction.address);
    let arm64 = target.facts().machine == Machine::Arm64;
    let bytes = if arm64 {
        // The word, most significant digit first.
        instruction.bytes.0.iter().rev().map(|b| format!("{b:02x}")).collect()
    } else {
        instruction.bytes.to_string()
    };
    let (bytes_width, mnemonic_width) = if arm64 { (8, 11) } else { (15, 7) };
    let Some(text) = &instruction.text else {
        return format!("{address} {bytes:<bytes_width$} ???");
    };
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let operands = operands.trim_start().replace(", ", ",");
    let operands = with_names(target, notation, instruction, &operands);
    // Columns count from the line's start: long encodings push the mnemonic into its padding.
    let head = format!("{bytes:<bytes_width$} {mnemonic}");
    let column = bytes_width + 1 + mnemonic_width;
    format!("{address} {head:<column$} {operands}").trim_end().to_owned()
}

/// A line whose bytes cannot be read.
pub(crate) fn unreadable(notation: Notation, address: u64) -> String {
    format!("{} ??              ???", notation.address(address))
}

/// Targets of branches and `rip`-relative data by name: `nt!Foo (address)`.
fn with_names(target: &dyn Target, notation: Notation, instruction: &Instruction, operands: &str) -> String {
    let named = |address: u64| {
        let shown = notation.address(address);
        known_place(target, address).map_or(shown.clone(), |place| format!("{place} ({shown})"))
    };
    let branches = matches!(instruction.flow, Flow::Branch | Flow::ConditionalBranch | Flow::Call);
    if let Some(to) = instruction.target.filter(|_| branches) {
        // ARM64's compare-and-branch has registers before its target (`tbz x0,#3,TARGET`); x86 has the
        // target alone, and it may be a C++ name with commas of its own.
        let arm64 = target.facts().machine == Machine::Arm64;
        let before = operands.rfind(',').filter(|_| arm64).map_or("", |comma| &operands[..=comma]);
        return format!("{before}{}", named(to));
    }
    if let Some(data) = instruction.data_address
        && let (Some(open), Some(close)) = (operands.find('['), operands.rfind(']'))
        && open < close
        && known_place(target, data).is_some()
    {
        let import =
            imported(target, instruction, data).map(|name| format!(" {{{name}}}")).unwrap_or_default();
        return format!("{}[{}]{}{import}", &operands[..open], named(data), &operands[close + 1..]);
    }
    operands.to_owned()
}

/// The import that a call or jump through the slot at `slot` goes to, unless the slot has a symbol.
fn imported(target: &dyn Target, instruction: &Instruction, slot: u64) -> Option<String> {
    let indirect = matches!(instruction.flow, Flow::IndirectCall | Flow::IndirectBranch);
    let symbol = || target.symbol_at(slot).ok().flatten().is_some_and(|hit| hit.displacement == 0);
    if !indirect || symbol() {
        return None;
    }
    let module = target.module_at(slot).ok().flatten()?;
    expression::slot_name(&expression::imports(target, module.base), slot.checked_sub(module.base)?)
}

/// A line with what `r` prints behind a memory operand, where its registers are known:
/// `` ss:0018:ffff8504`29890ef0=000000000000007e``.
pub(crate) fn line_with_operand(
    target: &dyn Target,
    notation: Notation,
    instruction: &Instruction,
    context: &Context,
) -> String {
    let line = line(target, notation, instruction);
    match find_effective_address(target, instruction, context) {
        Some(operand) => format!("{line} {operand}"),
        None => line,
    }
}

fn find_effective_address(
    target: &dyn Target,
    instruction: &Instruction,
    context: &Context,
) -> Option<String> {
    let text = instruction.text.as_deref()?;
    if !matches!(context.machine, Machine::X64 | Machine::X86) || text.starts_with("lea") {
        return None;
    }
    let open = text.find('[')?;
    let inside = text.get(open + 1..text[open..].find(']')? + open)?;
    let notation = Notation::of(context.machine);
    let address = match instruction.data_address {
        Some(address) => address,
        None => sum(inside, context)?,
    };
    let address = if notation.is_32_bit() { address & 0xffff_ffff } else { address };
    let on_stack = ["rsp", "rbp", "esp", "ebp"].iter().any(|r| inside.contains(r));
    let named = ["cs:", "ds:", "es:", "fs:", "gs:", "ss:"].iter().find(|s| text[..open].ends_with(**s));
    let segment = named.map_or(if on_stack { "ss" } else { "ds" }, |s| &s[..2]);
    let selector = context.get(match segment {
        "cs" => reg::CS,
        "es" => reg::ES,
        "fs" => reg::FS,
        "gs" => reg::GS,
        "ss" => reg::SS,
        _ => reg::DS,
    })?;
    if matches!(segment, "fs" | "gs") {
        // Their bases are not in a context: the address would be wrong.
        return None;
    }
    let size = operand_size(&text[..open]).unwrap_or(usize::from(notation.pointer_size));
    let mut bytes = vec![0; size];
    let value = match target.read_exact(address, &mut bytes) {
        Ok(()) => bytes.iter().rev().map(|b| format!("{b:02x}")).collect(),
        Err(_) => "?".repeat(2 * size),
    };
    // 64-bit user code is flat and its selectors are not shown.
    let flat = context.machine == Machine::X64 && !target.facts().kind.is_kernel();
    let selector = if flat { String::new() } else { format!("{selector:04x}:") };
    Some(format!("{segment}:{selector}{}={value}", notation.address(address)))
}

fn operand_size(before: &str) -> Option<usize> {
    const SIZES: [(&str, usize); 7] = [
        ("xmmword ptr", 16),
        ("ymmword ptr", 32),
        ("qword ptr", 8),
        ("dword ptr", 4),
        ("tbyte ptr", 10),
        ("byte ptr", 1),
        ("word ptr", 2),
    ];
    SIZES.iter().find(|(name, _)| before.contains(name)).map(|(_, size)| *size)
}

/// Base, index times scale and displacement, as masm syntax writes them.
fn sum(inside: &str, context: &Context) -> Option<u64> {
    let mut total = 0u64;
    let mut rest = inside;
    let mut negative = false;
    while !rest.is_empty() {
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let term = product(rest[..end].trim(), context)?;
        total = if negative { total.wrapping_sub(term) } else { total.wrapping_add(term) };
        negative = rest[end..].starts_with('-');
        rest = rest.get(end + 1..).unwrap_or("");
    }
    Some(total)
}

fn product(term: &str, context: &Context) -> Option<u64> {
    term.split('*').try_fold(1u64, |product, factor| {
        let factor = factor.trim();
        let value = if Context::is_register(context.machine, factor) {
            context.by_name(factor)?
        } else {
            let digits = factor.trim_end_matches(['h', 'H']).trim_start_matches("0x");
            u64::from_str_radix(digits, 16).ok()?
        };
        Some(product.wrapping_mul(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::ContextSource;

    #[test]
    fn operands_add_up() {
        let mut context = Context::new(Machine::X64, ContextSource::Thread);
        context.set(reg::RSP, 0x1000);
        context.set(reg::RAX, 2);
        assert_eq!(sum("rsp+8", &context), Some(0x1008));
        assert_eq!(sum("rsp+rax*8-10h", &context), Some(0x1000));
        assert_eq!(sum("rsp-0FFh", &context), Some(0xf01));
        assert_eq!(sum("rbx", &context), None);
        assert_eq!(sum("nonsense", &context), None);
        assert_eq!(operand_size("mov qword ptr "), Some(8));
        assert_eq!(operand_size("mov byte ptr ds:"), Some(1));
    }
}
