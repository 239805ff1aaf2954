//! What was accessed, how, and what kind of address that is (spec 60 section 2.2).

use target::{
    Address, Attribution, BugCheck, Context, ExceptionRecord, KernelThread, Machine, MemoryExt as _,
    RegionState, Target, TargetExt as _,
};

use crate::frames::is_kernel_half;
use crate::result::{AddressClass, Lead, Operation};

/// The access that faulted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) operation: Operation,
    pub(crate) address: u64,
    /// Of the instruction, 0 when not told.
    pub(crate) ip: u64,
    /// The address came from decoding the instruction: the record has all ones for it.
    pub(crate) computed: bool,
}

pub(crate) const ACCESS_VIOLATION: u32 = 0xc000_0005;
/// Below it a pointer is null plus a small offset.
const NULL_LIMIT: u64 = 0x10000;

/// Operation of an exception record's first parameter.
pub(crate) fn operation(parameter: u64) -> Operation {
    match parameter {
        0 => Operation::Read,
        1 => Operation::Write,
        8 => Operation::Execute,
        _ => Operation::Unknown,
    }
}

/// The access a bug check is about, if it is about one.
pub(crate) fn of_bug_check(
    target: &dyn Target,
    base: u32,
    bug: &BugCheck,
    record: Option<&ExceptionRecord>,
    context: Option<&Context>,
) -> Option<Fault> {
    let [p1, p2, p3, p4] = bug.parameters;
    let told = |operation, address, ip| Some(Fault { operation, address, ip, computed: false });
    let paged = |kind: u64| match kind {
        0 => Operation::Read,
        1 => Operation::Write,
        2 | 0x10 => Operation::Execute,
        _ => Operation::Unknown,
    };
    match base {
        0x0a | 0xd1 => {
            let how = if p3 & 8 != 0 {
                Operation::Execute
            } else if p3 & 1 != 0 {
                Operation::Write
            } else {
                Operation::Read
            };
            told(how, p1, p4)
        }
        0x50 | 0xcc | 0xcd | 0xce | 0xd5 | 0xd6 => told(paged(p2), p1, p3),
        0xc5 => told(paged(p3), p1, p4),
        0xfc => told(Operation::Execute, p1, p1),
        0xbe => told(Operation::Write, p1, 0),
        0x1e if exception_code(p1) == ACCESS_VIOLATION => told(operation(p3), p4, p2),
        0x3b | 0x7e | 0x8e if exception_code(p1) == ACCESS_VIOLATION => {
            let recorded = of_record(record, p2);
            let told = recorded.clone().filter(|f| f.address != u64::MAX);
            let computed = || {
                let fault = of_instruction(target, context?)?;
                // The record's operation is sound even where its address is not.
                let operation = recorded.as_ref().map_or(fault.operation, |r| r.operation);
                Some(Fault { operation, ..fault })
            };
            told.or_else(computed).or(recorded)
        }
        _ => None,
    }
}

/// An exception code as a parameter holds it: sign-extended.
pub(crate) fn exception_code(parameter: u64) -> u32 {
    (parameter & 0xffff_ffff) as u32
}

fn of_record(record: Option<&ExceptionRecord>, ip: u64) -> Option<Fault> {
    let record = record.filter(|r| r.code == ACCESS_VIOLATION)?;
    let (&how, &address) = (record.parameters.first()?, record.parameters.get(1)?);
    Some(Fault { operation: operation(how), address, ip, computed: false })
}

/// The faulting operand decoded with the registers of the moment: the first explicit one that is not
/// canonical, else the first explicit one, else the implicit one.
pub(crate) fn of_instruction(target: &dyn Target, context: &Context) -> Option<Fault> {
    let (bytes, _) = target.read_prefix(context.ip(), code::MAX_INSTRUCTION);
    let operands = code::memory_operands(context, &bytes);
    let real = |o: &&code::MemoryOperand| o.access != code::MemoryAccess::Address && o.address.is_some();
    let chosen =
        operands.iter().filter(real).find(|o| o.non_canonical).or_else(|| operands.iter().find(real))?;
    let how = match chosen.access {
        code::MemoryAccess::Write => Operation::Write,
        code::MemoryAccess::ReadWrite | code::MemoryAccess::Read => Operation::Read,
        code::MemoryAccess::Address => Operation::Unknown,
    };
    Some(Fault { operation: how, address: chosen.address?, ip: context.ip(), computed: true })
}

/// What kind of address it is, and in words.
pub(crate) fn classify(
    target: &dyn Target,
    address: u64,
    thread: Option<&KernelThread>,
) -> (AddressClass, String) {
    let machine = target.facts().machine;
    if address < NULL_LIMIT {
        let text =
            if address == 0 { "a null pointer".into() } else { format!("a null pointer plus {address:#x}") };
        return (AddressClass::NullPage, text);
    }
    if !code::is_canonical(machine, address) {
        return (AddressClass::NonCanonical, "not a canonical address".into());
    }
    match target.attribute(address) {
        Attribution::Module { name, rva, .. } => {
            return (AddressClass::ModuleImage, format!("in {name}+{rva:#x}"));
        }
        Attribution::NoModule { unloaded: Some(name) } => {
            return (AddressClass::UnloadedModule, format!("in the unloaded module {name}"));
        }
        _ => {}
    }
    if let Some((base, limit)) = thread.and_then(|t| t.stack_base.zip(t.stack_limit))
        && (limit..base).contains(&address)
    {
        return (AddressClass::Stack, "on the thread's stack".into());
    }
    if let Some(found) = in_page_tables(target, machine, address).or_else(|| by_region(target, address)) {
        return found;
    }
    if is_kernel_half(machine, address) {
        (AddressClass::Kernel, "in kernel space".into())
    } else {
        (AddressClass::User, "in user space".into())
    }
}

/// The self-map of the page tables: 512 GiB from `nt!MmPteBase`.
fn in_page_tables(target: &dyn Target, machine: Machine, address: u64) -> Option<(AddressClass, String)> {
    if machine != Machine::X64 || !target.facts().kind.is_kernel() {
        return None;
    }
    let symbol = target.resolve("nt!MmPteBase").ok()?.first()?.address;
    let base = target.read_u64(symbol).ok()?;
    let inside = address >= base && address - base < 0x80_0000_0000;
    inside.then(|| (AddressClass::PageTables, "in the page tables' self-map".into()))
}

fn by_region(target: &dyn Target, address: u64) -> Option<(AddressClass, String)> {
    let region = target.region(address).ok()?;
    let usage = region.usage.clone().unwrap_or_default();
    let lower = usage.to_ascii_lowercase();
    match region.state {
        RegionState::Free => Some((AddressClass::Unmapped, "in free address space".into())),
        RegionState::Reserved => Some((AddressClass::Unmapped, "in reserved, uncommitted memory".into())),
        _ if lower.starts_with("stack") => Some((AddressClass::Stack, format!("in {usage}"))),
        _ if lower.contains("special pool") => Some((AddressClass::SpecialPool, "in special pool".into())),
        _ if lower.contains("pool") => Some((AddressClass::Pool, format!("in {usage}"))),
        RegionState::Committed | RegionState::Valid => {
            let text = if usage.is_empty() { "in committed memory".into() } else { format!("in {usage}") };
            Some((AddressClass::Committed, text))
        }
        RegionState::Unknown => None,
    }
}

/// The lead that says what kind of address was touched.
pub(crate) fn address_lead(target: &dyn Target, fault: &Fault, thread: Option<&KernelThread>) -> Lead {
    let (_, place) = classify(target, fault.address, thread);
    let verb = match fault.operation {
        Operation::Read => "Read of",
        Operation::Write => "Write to",
        Operation::Execute => "Execution of",
        Operation::Unknown => "Access to",
    };
    let how = if fault.computed { " (the instruction's operand; the record has no address)" } else { "" };
    let pageable = if fault.address == fault.ip && fault.ip != 0 {
        "; the instruction pointer itself: pageable code, or code that is gone"
    } else {
        ""
    };
    let module = match target.attribute(fault.address) {
        Attribution::Module { name, .. } => Some(name),
        Attribution::NoModule { unloaded } => unloaded,
        Attribution::LookupFailed => None,
    };
    Lead {
        kind: "address_class".into(),
        text: format!("{verb} {}{how}: {place}{pageable}.", Address(fault.address)),
        address: Some(Address(fault.address)),
        module,
    }
}
