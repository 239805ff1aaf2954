//! `what()` of a thrown `std::exception` (spec 60 section 3.6).

use target::{MemoryExt as _, Target};

use crate::layout::{pointer, printable};
use crate::thrown::TypeGraph;

const EXCEPTION: &str = ".?AVexception@std@@";
const WHAT_LIMIT: usize = 1024;

/// Address of the `std::exception` part of `object`, if it has one that is not a virtual base.
pub(crate) fn exception_part(graph: &TypeGraph, object: u64) -> Option<u64> {
    let entry = graph.types.iter().find(|t| t.mangled == EXCEPTION)?;
    (entry.pdisp == u32::MAX).then(|| object.checked_add(u64::from(entry.mdisp)))?
}

/// The text: the object's own string, else a literal that its `what` returns.
pub(crate) fn what(target: &dyn Target, graph: &TypeGraph, object: u64, wide: bool) -> Option<String> {
    let part = exception_part(graph, object)?;
    let width = if wide { 8 } else { 4 };
    let text_at = target.read_pointer(part.checked_add(u64::from(width))?, width).ok()?;
    if text_at != 0 {
        return printable(&target.read_c_string(text_at, WHAT_LIMIT)?);
    }
    literal(target, part, wide)
}

/// The virtual `what` when it is `lea rax,[rip+x]; ret` or `mov eax,imm32; ret`.
fn literal(target: &dyn Target, part: u64, wide: bool) -> Option<String> {
    let vtable = pointer(target, part)?;
    let function =
        target.read_pointer(vtable.checked_add(if wide { 8 } else { 4 })?, if wide { 8 } else { 4 }).ok()?;
    let text_at = if wide {
        let code: [u8; 8] = target.read_array(function).ok()?;
        let [0x48, 0x8d, 0x05, a, b, c, d, 0xc3] = code else { return None };
        function.checked_add(7)?.checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))?
    } else {
        let code: [u8; 6] = target.read_array(function).ok()?;
        let [0xb8, a, b, c, d, 0xc3] = code else { return None };
        u64::from(u32::from_le_bytes([a, b, c, d]))
    };
    printable(&target.read_c_string(text_at, WHAT_LIMIT)?)
}
