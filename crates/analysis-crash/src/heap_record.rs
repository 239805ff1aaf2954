//! `HEAP_FAILURE_INFORMATION`, parameter 0 of a heap corruption.

use analysis_status::heap_failure_name;
use target::{Address, MemoryExt as _, Rva, Target};

use crate::result::{HeapFailure, HeapLayout};

/// Field offsets, in the order type, heap, address, three parameters, previous, next.
struct Offsets {
    at: [u64; 8],
    layout: HeapLayout,
}

fn offsets(target: &dyn Target, wide: bool) -> Offsets {
    const NAMES: [&str; 8] =
        ["FailureType", "HeapAddress", "Address", "Param1", "Param2", "Param3", "PreviousBlock", "NextBlock"];
    if let Ok(layout) = target.type_layout("ntdll!_HEAP_FAILURE_INFORMATION") {
        let found = NAMES.map(|name| layout.fields.iter().find(|f| f.name == name).map(|f| f.offset));
        if found.iter().all(Option::is_some) {
            return Offsets { at: found.map(Option::unwrap_or_default), layout: HeapLayout::Pdb };
        }
    }
    let at = if wide {
        [8, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x40]
    } else {
        [8, 0xc, 0x10, 0x14, 0x18, 0x1c, 0x20, 0x24]
    };
    Offsets { at, layout: HeapLayout::Assumed }
}

/// Reads the record at `address`; `None` when its type, heap or address cannot be read.
pub(crate) fn read(target: &dyn Target, address: u64) -> Option<HeapFailure> {
    let width = target.facts().machine.pointer_size();
    let offsets = offsets(target, width == 8);
    let word = |index: usize| {
        let at = address.checked_add(*offsets.at.get(index)?)?;
        target.read_pointer(at, width).ok().map(Address)
    };
    let kind = address.checked_add(offsets.at[0]).and_then(|at| target.read_u32(at).ok())?;
    let zero = Address(0);
    Some(HeapFailure {
        failure_type: Rva(u64::from(kind)),
        failure_name: enum_name(target, kind)
            .or_else(|| heap_failure_name(u64::from(kind)).map(str::to_owned)),
        heap: word(1)?,
        address: word(2)?,
        param1: word(3).unwrap_or(zero),
        param2: word(4).unwrap_or(zero),
        param3: word(5).unwrap_or(zero),
        previous_block: word(6).filter(|a| *a != zero),
        next_block: word(7).filter(|a| *a != zero),
        layout: offsets.layout,
    })
}

/// The PDB's own enumerator: numbering shifted between releases.
fn enum_name(target: &dyn Target, kind: u32) -> Option<String> {
    let layout = target.type_layout("ntdll!_HEAP_FAILURE_TYPE").ok()?;
    layout.fields.iter().find(|f| f.value == Some(i64::from(kind))).map(|f| f.name.clone())
}
