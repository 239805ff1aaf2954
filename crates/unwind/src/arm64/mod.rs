//! ARM64 frames from `.pdata` and `.xdata` ("ARM64 exception handling", Microsoft).

mod codes;
mod packed;
mod record;

pub use codes::{Operation, decode_codes};
pub use packed::{Packed, packed_epilog_length, packed_operations};
pub use record::{Record, record};

use pe::ExceptionTable;
use target::{Context, Found, Machine, MemoryExt, reg};

use crate::source::{UnwindImage, UnwindSource};
use crate::step::{Step, StepError, call_before, caller_of, check_return, check_unwound};

/// x0-x17 and the flags do not survive a call; x18 is the platform's.
const VOLATILE: [usize; 19] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, reg::A64_CPSR];

/// Removes a pointer-authentication code: user and kernel addresses have 48 bits and bit 55 says
/// which half they belong to.
#[must_use]
pub fn strip_authentication(address: u64) -> u64 {
    if address >> 55 & 1 == 1 { address | 0xffff << 48 } else { address & 0x0000_ffff_ffff_ffff }
}

enum Lookup {
    Record(Box<Record>),
    Leaf,
    Unknown,
}

fn find(image: &UnwindImage, rva: u32) -> Result<Lookup, &'static str> {
    let (directory, size) = image.exception_directory;
    let table = ExceptionTable::new(&*image.source, Machine::Arm64, directory, size);
    let Some(table) = table.filter(|t| !t.is_empty()) else { return Ok(Lookup::Unknown) };
    match table.find(rva) {
        Err(_) => Ok(Lookup::Unknown),
        Ok(None) => Ok(Lookup::Leaf),
        Ok(Some(entry)) => {
            let record = record(&*image.source, &entry)?;
            let inside = rva - entry.begin < record.length;
            Ok(if inside { Lookup::Record(Box::new(record)) } else { Lookup::Leaf })
        }
    }
}

/// Goes to the caller of `context`.
pub fn step(source: &dyn UnwindSource, context: &Context, exact_ip: bool) -> Result<Step, StepError> {
    let ip = context.ip();
    let lookup = if exact_ip { ip } else { ip.wrapping_sub(4) };
    let image = source.image_at(lookup).or_else(|| source.dynamic_image_at(lookup));
    let Some((image, rva)) = image.and_then(|image| image.rva(lookup).map(|rva| (image, rva))) else {
        return leaf_or_chain(source, context, exact_ip);
    };
    match find(&image, rva).map_err(|what| StepError::Damaged { ip, what })? {
        Lookup::Leaf if exact_ip => leaf(source, context),
        Lookup::Leaf => Err(StepError::NoUnwindData { ip }),
        Lookup::Unknown => leaf_or_chain(source, context, exact_ip),
        Lookup::Record(record) => unwind(source, &image, &record, rva, context),
    }
}

/// Without unwind data: a leaf if the link register holds a return address, else the frame chain
/// that the ARM64 calling convention of Windows keeps.
fn leaf_or_chain(source: &dyn UnwindSource, context: &Context, exact_ip: bool) -> Result<Step, StepError> {
    if exact_ip {
        match leaf(source, context) {
            Ok(step) if call_before(source, Machine::Arm64, step.context.ip()) != Some(false) => {
                return Ok(step);
            }
            Err(StepError::Outermost) => return Err(StepError::Outermost),
            _ => {}
        }
    }
    let no_data = StepError::NoUnwindData { ip: context.ip() };
    let fp = context.get(reg::A64_FP).ok_or(no_data)?;
    // A frame record is 16-byte aligned and not below the stack pointer.
    if fp % 16 != 0 || fp < context.sp() || fp - context.sp() > 1 << 20 {
        return Err(if fp == 0 { StepError::Outermost } else { no_data });
    }
    let mut caller = caller_of(context, &VOLATILE);
    for number in 19..=28 {
        caller.forget(number);
    }
    let next = word(source, fp)?;
    let address = strip_authentication(word(source, fp.wrapping_add(8))?);
    caller.set_fp(next);
    caller.set(reg::A64_LR, address);
    caller.set_ip(address);
    caller.set_sp(fp.wrapping_add(16));
    check_return(source, Machine::Arm64, address)?;
    Ok(Step { context: caller, found: Found::FramePointer, bounds: None, machine_frame: false })
}

fn leaf(source: &dyn UnwindSource, context: &Context) -> Result<Step, StepError> {
    let mut caller = caller_of(context, &VOLATILE);
    let address = strip_authentication(context.get(reg::A64_LR).ok_or(StepError::RegisterUnknown("lr"))?);
    caller.set(reg::A64_LR, address);
    caller.set_ip(address);
    check_return(source, Machine::Arm64, address)?;
    Ok(Step { context: caller, found: Found::Leaf, bounds: None, machine_frame: false })
}

fn word(source: &dyn UnwindSource, address: u64) -> Result<u64, StepError> {
    source.memory().read_u64(address).map_err(|_| StepError::StackUnreadable { address })
}

fn unwind(
    source: &dyn UnwindSource,
    image: &UnwindImage,
    record: &Record,
    rva: u32,
    context: &Context,
) -> Result<Step, StepError> {
    let mut caller = caller_of(context, &VOLATILE);
    let operations = record.remaining((rva - record.begin) / 4);
    let machine_frame = apply(source, operations, context.ip(), &mut caller)?;
    let begin = image.base.wrapping_add(u64::from(record.begin));
    let bounds = Some((begin, begin.wrapping_add(u64::from(record.length))));
    if !machine_frame {
        let lr = caller.get(reg::A64_LR).ok_or(StepError::RegisterUnknown("lr"))?;
        let address = strip_authentication(lr);
        caller.set(reg::A64_LR, address);
        caller.set_ip(address);
    }
    check_unwound(source, Machine::Arm64, caller.ip())?;
    Ok(Step { context: caller, found: Found::Unwind, bounds, machine_frame })
}

/// Undoes `operations`. True when the last one restored a whole machine state.
fn apply(
    source: &dyn UnwindSource,
    operations: &[Operation],
    ip: u64,
    caller: &mut Context,
) -> Result<bool, StepError> {
    for operation in operations {
        let sp = caller.get(reg::A64_SP).ok_or(StepError::RegisterUnknown("sp"))?;
        match *operation {
            Operation::Allocate(size) => caller.set_sp(sp.wrapping_add(u64::from(size))),
            Operation::Save { first, second, offset, release } => {
                for (index, register) in [Some(first), second].into_iter().flatten().enumerate() {
                    let at = sp.wrapping_add(u64::from(offset)).wrapping_add(8 * index as u64);
                    caller.set(usize::from(register), word(source, at)?);
                }
                caller.set_sp(sp.wrapping_add(u64::from(release)));
            }
            Operation::SaveVector { release, .. } => caller.set_sp(sp.wrapping_add(u64::from(release))),
            Operation::SetFrame => {
                caller.set_sp(caller.fp().ok_or(StepError::RegisterUnknown("fp"))?);
            }
            Operation::AddFrame(size) => {
                let fp = caller.fp().ok_or(StepError::RegisterUnknown("fp"))?;
                caller.set_sp(fp.wrapping_sub(u64::from(size)));
            }
            Operation::Nothing | Operation::Authenticate | Operation::EndOfProlog => {}
            Operation::End => break,
            Operation::MachineFrame => {
                let (new_sp, pc) = (word(source, sp)?, word(source, sp.wrapping_add(8))?);
                caller.set_sp(new_sp);
                caller.set_ip(pc);
                caller.forget(reg::A64_LR);
                return Ok(true);
            }
            Operation::Context => {
                let bytes = source.memory().read_array::<0x390>(sp);
                let bytes = bytes.map_err(|_| StepError::StackUnreadable { address: sp })?;
                let restored = Context::from_arm64(&bytes, target::ContextSource::Unwound)
                    .ok_or(StepError::Damaged { ip, what: "no valid CONTEXT where its unwind code says" })?;
                *caller = restored;
                return Ok(true);
            }
            Operation::Unsupported(what) => return Err(StepError::Damaged { ip, what }),
        }
    }
    Ok(false)
}
