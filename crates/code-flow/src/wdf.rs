//! Calls of a KMDF client into the framework's function table, from the file alone: where the table
//! is, which sites use which index. `WDF_BIND_INFO` as Microsoft's stub libraries lay it out.

use std::collections::BTreeSet;

use code::record::{Family, Operand, Transfer};
use code::{Decoded, Recorder};
use pe::ImageSourceExt;

use crate::callee::decode_at;
use crate::image::CodeImage;
use crate::references::{ImageIndex, Reference, XrefKind, data_pointers};
use crate::vocabulary::Standing;

/// `KmdfLibrary`, UTF-16 with its end.
const COMPONENT: &str = "KmdfLibrary\0";
/// Most bytes of data searched for it.
const MAX_SEARCH: usize = 16 << 20;
/// Plausible numbers of functions.
const FUNCTIONS: std::ops::RangeInclusive<u64> = 100..=1024;
/// Instructions looked at after the table's pointer was loaded.
const WINDOW: usize = 24;

/// The client's function table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WdfTable {
    /// `WDF_BIND_INFO`.
    pub bind: u64,
    /// The table, or the pointer to it: which one it is, its uses decide.
    pub table: u64,
    pub count: u64,
}

/// A site that calls through the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WdfSite {
    pub index: u32,
    pub at: u64,
    pub standing: Standing,
}

/// The table of a KMDF client.
#[must_use]
pub fn wdf_table(image: &CodeImage<'_>) -> Option<WdfTable> {
    names(image).into_iter().find_map(|name| {
        data_pointers(image, name).into_iter().find_map(|pointer| bind_info(image, pointer.at))
    })
}

/// Addresses of the component's name.
fn names(image: &CodeImage<'_>) -> Vec<u64> {
    let wanted: Vec<u8> = COMPONENT.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut out = Vec::new();
    let mut left = MAX_SEARCH;
    for section in image.pe.sections.iter().filter(|section| !section.is_executable()) {
        let bytes = image.prefix(section.rva, (section.virtual_size as usize).min(left));
        left -= bytes.len();
        let found = bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
        out.extend(found.map(|(at, _)| image.base + u64::from(section.rva) + at as u64).take(8));
    }
    out
}

/// The bind info whose component field is at `field`.
fn bind_info(image: &CodeImage<'_>, field: u64) -> Option<WdfTable> {
    let wide = image.pe.is_64;
    let (component, size, count_at, table_at) =
        if wide { (8, 0x30, 0x1c, 0x20) } else { (4, 0x20, 0x14, 0x18) };
    let bind = field.checked_sub(component)?;
    let count = image.value(bind.checked_add(count_at)?, 4)?;
    let table = image.value(bind.checked_add(table_at)?, image.pointer_size())?;
    let whole = image.value(bind, 4)? >= size && FUNCTIONS.contains(&count);
    (whole && image.contains(table)).then_some(WdfTable { bind, table, count })
}

/// Sites that use the table: `call [table+i*8]`, and `call [reg+i*8]` after the pointer was loaded.
#[must_use]
pub fn wdf_sites(image: &CodeImage<'_>, index: &ImageIndex, table: &WdfTable) -> Vec<WdfSite> {
    let size = image.pointer_size() as u64;
    let mut out = BTreeSet::new();
    let last = table.table.saturating_add((table.count * size).saturating_sub(1));
    let used = index.references_between(table.table, last);
    for reference in used.filter(|reference| reference.kind == XrefKind::Access) {
        let instruction = decode_at(image, &mut Recorder::new(image.machine), reference.at);
        let number = (reference.target - table.table) / size;
        match instruction.transfer {
            Transfer::Call(None) | Transfer::Jump(None) => {
                if let Ok(index) = u32::try_from(number) {
                    out.insert(WdfSite { index, at: reference.at, standing: reference.standing });
                }
            }
            _ if number == 0 => out.extend(after_load(image, &reference, &instruction, table, size)),
            _ => {}
        }
    }
    out.into_iter().collect()
}

/// The call after `mov reg, [table]`, by the displacement off the register.
fn after_load(
    image: &CodeImage<'_>,
    reference: &Reference,
    load: &Decoded,
    table: &WdfTable,
    size: u64,
) -> Option<WdfSite> {
    let mut holder = load.destination()?.register()?.family;
    let mut recorder = Recorder::new(image.machine);
    let mut at = load.end();
    let mut number = None;
    for _ in 0..WINDOW {
        let instruction = decode_at(image, &mut recorder, at);
        let through = instruction.memory().filter(|memory| memory.index.is_none());
        let through = through.filter(|memory| memory.base.map(|base| base.family) == Some(holder));
        if let Some(memory) = through {
            number = u64::try_from(memory.displacement).ok().map(|offset| offset / size);
        }
        match instruction.transfer {
            Transfer::Call(None) | Transfer::Jump(None) => {
                let by_register = is_register(&instruction, holder) || through.is_some();
                let guarded = number.is_some() && !by_register;
                let index = number.filter(|n| *n < table.count && (by_register || guarded))?;
                let (at, standing) = (instruction.address, reference.standing);
                return Some(WdfSite { index: u32::try_from(index).ok()?, at, standing });
            }
            Transfer::Fallthrough => {}
            _ => return None,
        }
        if through.is_some() {
            holder = instruction.destination()?.register()?.family;
        } else if instruction.writes_family(holder) {
            return None;
        }
        at = instruction.end();
    }
    None
}

fn is_register(instruction: &Decoded, family: Family) -> bool {
    matches!(instruction.operands.first(), Some(Operand::Register(register)) if register.family == family)
}
