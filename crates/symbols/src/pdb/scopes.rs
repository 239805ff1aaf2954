//! The symbols of one module: procedures, and the scopes inside one.

use super::bytes::{Bytes, Record, Records};

pub(crate) const S_END: u16 = 0x0006;
pub(crate) const S_FRAMEPROC: u16 = 0x1012;
pub(crate) const S_BLOCK32: u16 = 0x1103;
pub(crate) const S_INLINESITE: u16 = 0x114d;
pub(crate) const S_INLINESITE_END: u16 = 0x114e;
pub(crate) const S_PROC_ID_END: u16 = 0x114f;
pub(crate) const S_INLINESITE2: u16 = 0x115d;
const S_THUNK32: u16 = 0x1102;
const S_SEPCODE: u16 = 0x1132;

/// Deepest nesting of blocks and inline sites that is followed.
const MAX_NESTING: usize = 256;

/// A stretch of code a record of a module names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Procedure {
    pub(crate) section: u16,
    pub(crate) offset: u32,
    pub(crate) size: u32,
    /// Offset of its record in the module's stream.
    pub(crate) record: usize,
    pub(crate) kind: ProcedureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcedureKind {
    Function,
    Thunk,
    /// The cold part of the function at this section and offset.
    Separated {
        section: u16,
        offset: u32,
    },
}

impl Procedure {
    pub(crate) fn covers(&self, section: u16, offset: u32) -> bool {
        self.section == section && offset >= self.offset && offset - self.offset < self.size
    }
}

/// `S_GPROC32` and its kin: all have the same layout.
pub(crate) fn is_procedure(kind: u16) -> bool {
    matches!(kind, 0x110f | 0x1110 | 0x1146 | 0x1147 | 0x1155 | 0x1156)
}

/// Procedures, thunks and separated code of a module, by section and offset.
pub(crate) fn procedures(symbols: &[u8]) -> Vec<Procedure> {
    let mut found: Vec<Procedure> = Records::new(symbols, 4).filter_map(read_procedure).collect();
    // Of two at one place (folded COMDATs) the first record stays first.
    found.sort_by_key(|p| (p.section, p.offset));
    found
}

fn read_procedure(record: Record<'_>) -> Option<Procedure> {
    let mut data = Bytes::new(record.data);
    match record.kind {
        kind if is_procedure(kind) => {
            data.take(12)?;
            let size = data.u32()?;
            data.take(12)?;
            let (offset, section) = (data.u32()?, data.u16()?);
            Some(Procedure { section, offset, size, record: record.offset, kind: ProcedureKind::Function })
        }
        S_THUNK32 => {
            data.take(12)?;
            let (offset, section, size) = (data.u32()?, data.u16()?, u32::from(data.u16()?));
            Some(Procedure { section, offset, size, record: record.offset, kind: ProcedureKind::Thunk })
        }
        S_SEPCODE => {
            data.take(8)?;
            let size = data.u32()?;
            data.take(4)?;
            let (offset, parent_offset) = (data.u32()?, data.u32()?);
            let (section, parent_section) = (data.u16()?, data.u16()?);
            let kind = ProcedureKind::Separated { section: parent_section, offset: parent_offset };
            Some(Procedure { section, offset, size, record: record.offset, kind })
        }
        _ => None,
    }
}

/// The name and type index of a procedure or thunk record.
pub(crate) fn procedure_name(symbols: &[u8], procedure: &Procedure) -> Option<String> {
    let record = Records::one(symbols, procedure.record)?;
    let mut data = Bytes::new(record.data);
    match procedure.kind {
        ProcedureKind::Function => data.take(12 + 4 + 8 + 4 + 4 + 2 + 1)?,
        ProcedureKind::Thunk => data.take(12 + 4 + 2 + 2 + 1)?,
        ProcedureKind::Separated { .. } => return None,
    };
    Some(data.name().into_owned())
}

/// A record inside a procedure and the scopes around it.
pub(crate) struct Scoped<'a> {
    pub(crate) record: Record<'a>,
    /// Records of the blocks and inline sites around it, outermost first; not the procedure itself.
    pub(crate) scopes: Vec<Record<'a>>,
}

/// Walks the records of the procedure whose record is at `start`, telling each with its scopes;
/// ends where the procedure ends.
pub(crate) fn walk<'a>(symbols: &'a [u8], start: usize, mut visit: impl FnMut(&Scoped<'a>)) {
    let mut records = Records::new(symbols, start);
    if records.next().is_none() {
        return;
    }
    let mut scopes: Vec<Record<'a>> = Vec::new();
    for record in records {
        if is_procedure(record.kind) {
            return;
        }
        match record.kind {
            S_END | S_PROC_ID_END | S_INLINESITE_END => {
                if scopes.pop().is_none() {
                    return;
                }
                continue;
            }
            _ => {}
        }
        let scoped = Scoped { record, scopes };
        visit(&scoped);
        scopes = scoped.scopes;
        if matches!(record.kind, S_BLOCK32 | S_INLINESITE | S_INLINESITE2 | 0x1104) {
            if scopes.len() >= MAX_NESTING {
                return;
            }
            scopes.push(record);
        }
    }
}

/// Whether a block or inline site record is an inline site.
pub(crate) fn is_inline_site(kind: u16) -> bool {
    matches!(kind, S_INLINESITE | S_INLINESITE2)
}
