//! The throw behind a fail-fast (spec 60 section 3.8): an uncaught exception ends in `abort()`, and its
//! record is still on the stack. Where it lies says how much it is worth.

use target::{Context, ContextSource, Frame, FrameInfo, Halt, Machine, MemoryExt as _, Target};

use crate::fault_context::exception_record;
use crate::frames;
use crate::kinds::CPP_THROW;
use crate::result::{Provenance, Thrown, ThrownSearch};
use crate::thrown::{MAGICS, decode_throw};

/// Stack bytes searched at most.
const SCAN: usize = 64 * 1024;
const CANDIDATES: usize = 8;
const CHUNK: usize = 4096;

/// What the search found.
pub(crate) struct Buried {
    pub(crate) search: ThrownSearch,
    pub(crate) thrown: Option<Thrown>,
    /// The stack of a dispatched throw.
    pub(crate) frames: Vec<FrameInfo>,
}

impl Buried {
    pub(crate) fn nothing(search: ThrownSearch) -> Self {
        Self { search, thrown: None, frames: vec![] }
    }
}

/// Searches from frame 0 of `walked`: dispatcher frames first, then the stack's words up to `stack_base`.
pub(crate) fn search(
    target: &dyn Target,
    machine: Machine,
    walked: &[Frame],
    stack_base: Option<u64>,
    limit: usize,
    halt: &Halt,
) -> Buried {
    let Some(anchor) = walked.first().map(|f| f.sp).filter(|&sp| sp != 0) else {
        return Buried::nothing(ThrownSearch::NoAnchor);
    };
    if let Some((thrown, context)) = walked.iter().find_map(|f| dispatched(target, machine, f)) {
        let walk = frames::walk(target, &context, limit, halt);
        return Buried { search: ThrownSearch::Found, thrown: Some(thrown), frames: walk.infos };
    }
    match scanned(target, machine, anchor, stack_base, halt) {
        Some(thrown) => Buried { search: ThrownSearch::Found, thrown: Some(thrown), frames: vec![] },
        None => Buried::nothing(ThrownSearch::SearchedNone),
    }
}

fn is_dispatcher(frame: &Frame) -> bool {
    frame
        .symbol
        .as_ref()
        .is_some_and(|s| matches!(s.name.as_str(), "KiUserExceptionDispatch" | "KiUserExceptionDispatcher"))
}

/// The record exactly where the kernel puts it for the dispatcher of this frame.
fn dispatched(target: &dyn Target, machine: Machine, frame: &Frame) -> Option<(Thrown, Context)> {
    if !is_dispatcher(frame) {
        return None;
    }
    let sp = frame.sp;
    let (record_at, context_at) = match machine {
        Machine::X64 => (sp.checked_add(0x4f0)?, sp),
        Machine::Arm64 => (sp.checked_add(0x390)?, sp),
        Machine::X86 => {
            (u64::from(target.read_u32(sp).ok()?), u64::from(target.read_u32(sp.checked_add(4)?).ok()?))
        }
        Machine::Arm32 => return None,
    };
    let record = exception_record(target, record_at).filter(|r| r.code == CPP_THROW)?;
    let mut bytes = vec![0; Context::record_size(machine)];
    target.read_exact(context_at, &mut bytes).ok()?;
    let context = Context::from_bytes(machine, &bytes, ContextSource::ContextRecord)?;
    if context.sp() <= sp {
        return None;
    }
    let thrown = decode_throw(target, &record.parameters, Provenance::Dispatched)?;
    Some((thrown, context))
}

/// A record by its pattern. The object must lie on the scanned stack: a thrown object is copied there,
/// and a code address in its place is noise.
fn scanned(
    target: &dyn Target,
    machine: Machine,
    anchor: u64,
    stack_base: Option<u64>,
    halt: &Halt,
) -> Option<Thrown> {
    let end = anchor.checked_add(SCAN as u64)?;
    let end = stack_base.filter(|&base| base > anchor).map_or(end, |base| base.min(end));
    let wide = machine.pointer_size() == 8;
    let mut seen = 0;
    let mut at = anchor & !3;
    while at < end && halt.stop().is_none() {
        let wanted = usize::try_from(end - at).ok()?.min(CHUNK);
        let (bytes, _) = target.read_prefix(at, wanted);
        let words = bytes.chunks_exact(4).enumerate();
        for (index, _) in words.filter(|(_, w)| **w == CPP_THROW.to_le_bytes()) {
            let address = at + 4 * index as u64;
            let Some(parameters) = candidate(target, address, wide) else { continue };
            seen += 1;
            let object = parameters.get(1).copied().unwrap_or(0);
            if (anchor..end).contains(&object) {
                return decode_throw(target, &parameters, Provenance::Scanned);
            }
            if seen >= CANDIDATES {
                return None;
            }
        }
        // Step over what was read; an unreadable page is left behind whole.
        at = if bytes.len() < wanted {
            (at + bytes.len() as u64 + 0x1000) & !0xfff
        } else {
            at + wanted as u64
        };
    }
    None
}

fn candidate(target: &dyn Target, address: u64, wide: bool) -> Option<Vec<u64>> {
    let record = exception_record(target, address)?;
    let least = if wide { 4 } else { 3 };
    let magic = *record.parameters.first()?;
    (record.parameters.len() >= least && MAGICS.contains(&magic)).then_some(record.parameters)
}
