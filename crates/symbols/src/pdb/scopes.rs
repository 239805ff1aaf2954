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
const S_WITH32: u16 = 0x1104;
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

/// Walks the records of the procedure whose record is at `start`. What `enter` makes of each block
/// and inline site is given to `visit` with every record inside it, outermost first, and with the
/// opening record itself. Ends where the procedure ends.
pub(crate) fn walk<'a, T>(
    symbols: &'a [u8],
    start: usize,
    mut enter: impl FnMut(Record<'a>) -> T,
    mut visit: impl FnMut(Record<'a>, &[T]),
) {
    let mut scopes: Vec<T> = Vec::new();
    for record in Records::new(symbols, start).skip(1) {
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
            S_BLOCK32 | S_WITH32 | S_INLINESITE | S_INLINESITE2 => {
                if scopes.len() >= MAX_NESTING {
                    return;
                }
                scopes.push(enter(record));
            }
            _ => {}
        }
        visit(record, &scopes);
    }
}

/// Whether a block or inline site record is an inline site.
pub(crate) fn is_inline_site(kind: u16) -> bool {
    matches!(kind, S_INLINESITE | S_INLINESITE2)
}

#[cfg(test)]
mod tests {
    use super::{ProcedureKind, S_BLOCK32, S_END, procedure_name, procedures, walk};

    fn record(kind: u16, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len() + 2).unwrap();
        [&length.to_le_bytes(), &kind.to_le_bytes(), data].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn function(offset: u32, size: u32, name: &str) -> Vec<u8> {
        let data = [words(&[0, 0, 0, size, 0, 0, 0, offset]), vec![1, 0, 0], name.into(), vec![0]].concat();
        record(0x1110, &data)
    }

    #[test]
    fn functions_and_their_cold_parts() {
        let cold = [words(&[0, 0, 0x20, 0, 0x900, 0x100]), vec![1, 0, 1, 0]].concat();
        let symbols = [vec![4, 0, 0, 0], function(0x100, 0x40, "f"), record(0x1132, &cold)].concat();
        let found = procedures(&symbols);
        assert_eq!(found.len(), 2);
        assert_eq!(procedure_name(&symbols, &found[0]).as_deref(), Some("f"));
        assert_eq!(found[1].kind, ProcedureKind::Separated { section: 1, offset: 0x100 });
        assert!(found[1].covers(1, 0x91f) && !found[1].covers(1, 0x920));
    }

    #[test]
    fn scopes_close_and_the_procedure_ends() {
        let block = record(S_BLOCK32, &[0; 20]);
        let (end, local) = (record(S_END, &[]), record(0x113e, &[0; 8]));
        let inside =
            [function(0, 1, "f"), local.clone(), block, local.clone(), end.clone(), local.clone(), end];
        let symbols = [vec![4, 0, 0, 0], inside.concat(), local].concat();
        let mut depths = Vec::new();
        walk(
            &symbols,
            4,
            |_| (),
            |record, scopes: &[()]| {
                if record.kind == 0x113e {
                    depths.push(scopes.len());
                }
            },
        );
        assert_eq!(depths, [0, 1, 0]);
    }
}
