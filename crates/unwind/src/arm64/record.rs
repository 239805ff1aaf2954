//! A function's record, packed or `.xdata`, and what is left to undo at a position in it.

use pe::{FunctionEntry, ImageSource, ImageSourceExt};

use super::codes::{Operation, decode_codes};
use super::packed::{Packed, packed_epilog_length, packed_operations};

/// An epilog: instructions `[start, start + operations + 1)`, the last one the return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epilog {
    /// In instructions from the function's begin.
    pub start: u32,
    /// What it undoes, in order.
    pub operations: Vec<Operation>,
}

/// One function's unwind data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub begin: u32,
    /// Bytes.
    pub length: u32,
    /// All operations, last executed first, the parent's of a fragment included.
    pub operations: Vec<Operation>,
    /// How many of them are this fragment's own prolog, one an instruction.
    pub prolog_length: u32,
    pub epilogs: Vec<Epilog>,
}

/// Most epilogs read of one function.
const MAX_EPILOGS: u32 = 4096;

impl Record {
    /// What to undo when `position` instructions of the function have been executed.
    #[must_use]
    pub fn remaining(&self, position: u32) -> &[Operation] {
        if position < self.prolog_length {
            let skip = (self.prolog_length - position) as usize;
            return self.operations.get(skip..).unwrap_or_default();
        }
        for epilog in &self.epilogs {
            if let Some(done) = position.checked_sub(epilog.start)
                && done as usize <= epilog.operations.len()
            {
                return epilog.operations.get(done as usize..).unwrap_or_default();
            }
        }
        &self.operations
    }
}

/// Reads the record of `entry`. The error says what is wrong with it.
pub fn record(source: &dyn ImageSource, entry: &FunctionEntry) -> Result<Record, &'static str> {
    match entry.unwind & 3 {
        0 => xdata(source, entry.begin, entry.unwind),
        3 => Err("its entry has a reserved kind"),
        _ => packed(entry.begin, &Packed::new(entry.unwind)),
    }
}

fn packed(begin: u32, packed: &Packed) -> Result<Record, &'static str> {
    let operations = packed_operations(packed)?;
    let count = u32::try_from(operations.len()).unwrap_or(0);
    let mut record =
        Record { begin, length: packed.length, operations, prolog_length: 0, epilogs: Vec::new() };
    if !packed.fragment {
        record.prolog_length = count;
        let size = u32::try_from(packed_epilog_length(&record.operations)).unwrap_or(0);
        if let Some(start) = (packed.length / 4).checked_sub(size) {
            let undone = |o: &&Operation| !matches!(o, Operation::SetFrame | Operation::Nothing);
            let operations = record.operations.iter().filter(undone).copied().collect();
            record.epilogs.push(Epilog { start, operations });
        }
    }
    Ok(record)
}

fn xdata(source: &dyn ImageSource, begin: u32, rva: u32) -> Result<Record, &'static str> {
    const CUT: &str = "its .xdata is not readable";
    let header = source.u32(rva).ok_or(CUT)?;
    let length = (header & 0x3_ffff) * 4;
    if header >> 18 & 3 != 0 {
        return Err("its .xdata has an unknown version");
    }
    let single_epilog = header >> 21 & 1 == 1;
    let (mut epilog_count, mut words) = (header >> 22 & 31, header >> 27);
    let mut at = rva.checked_add(4).ok_or(CUT)?;
    if epilog_count == 0 && words == 0 {
        let extension = source.u32(at).ok_or(CUT)?;
        (epilog_count, words) = (extension & 0xffff, extension >> 16 & 0xff);
        at = at.checked_add(4).ok_or(CUT)?;
    }
    let scope_count = if single_epilog { 0 } else { epilog_count };
    let scopes = source.prefix(at, scope_count.min(MAX_EPILOGS) as usize * 4);
    at = at.checked_add(scope_count * 4).ok_or(CUT)?;
    let bytes = source.prefix(at, words as usize * 4);
    if bytes.len() < words as usize * 4 {
        return Err(CUT);
    }
    let codes = decode_codes(&bytes);
    let all: Vec<Operation> = until_end(&codes, 0, false).ok_or("its .xdata has no unwind codes")?;
    let prolog = all.iter().take_while(|o| !matches!(o, Operation::EndOfProlog)).count();
    let mut record = Record {
        begin,
        length,
        prolog_length: u32::try_from(prolog).unwrap_or(0),
        operations: all,
        epilogs: Vec::new(),
    };
    if single_epilog && let Some(operations) = until_end(&codes, epilog_count as usize, true) {
        let size = u32::try_from(operations.len() + 1).unwrap_or(u32::MAX);
        if let Some(start) = (length / 4).checked_sub(size) {
            record.epilogs.push(Epilog { start, operations });
        }
    }
    for scope in scopes.chunks_exact(4) {
        let scope = u32::from_le_bytes([scope[0], scope[1], scope[2], scope[3]]);
        if let Some(operations) = until_end(&codes, (scope >> 22) as usize, true) {
            record.epilogs.push(Epilog { start: scope & 0x3_ffff, operations });
        }
    }
    Ok(record)
}

/// Operations from the code at byte `index` to the end code, which is left out. `None` when no code
/// starts there. In an epilog an `end_c` ends it too.
fn until_end(codes: &[(usize, Operation)], index: usize, epilog: bool) -> Option<Vec<Operation>> {
    let start = codes.iter().position(|(at, _)| *at == index)?;
    let rest = codes[start..].iter().map(|(_, operation)| *operation);
    Some(
        rest.take_while(|o| !(matches!(o, Operation::End) || epilog && matches!(o, Operation::EndOfProlog)))
            .collect(),
    )
}
