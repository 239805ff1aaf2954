//! `UNWIND_INFO` as stored.

use pe::{FunctionEntry, ImageSource, ImageSourceExt};

/// Most chained or indirect entries followed.
pub const MAX_CHAIN: usize = 32;

/// What one unwind code undoes. Sizes and offsets in bytes; registers in hardware numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Push(u8),
    Allocate(u32),
    SetFrame,
    Save {
        register: u8,
        offset: u32,
    },
    SaveVector {
        register: u8,
        offset: u32,
    },
    /// Version 2: raw offset field and info of an epilog code.
    Epilog {
        offset: u8,
        info: u8,
    },
    Spare,
    MachineFrame {
        error_code: bool,
    },
}

/// One code: the prolog offset just behind its instruction, and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub offset: u8,
    pub operation: Operation,
}

/// One `UNWIND_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub version: u8,
    /// 1 exception handler, 2 termination handler, 4 chained.
    pub flags: u8,
    pub prolog_size: u8,
    /// 0 for none (rax is never one).
    pub frame_register: u8,
    /// Distance from rsp to the frame register at the time it was set.
    pub frame_offset: u32,
    /// In stored order: the last executed first.
    pub codes: Vec<Code>,
    /// The entry this one continues.
    pub parent: Option<FunctionEntry>,
}

impl Info {
    /// Whether an epilog can be at `offset` of a function of `length` bytes. Version 2 lists its
    /// epilogs; version 1 does not, so the instructions decide.
    pub(crate) fn epilog_may_cover(&self, offset: u32, length: u32) -> bool {
        let mut epilogs = self.codes.iter().filter_map(|code| match code.operation {
            Operation::Epilog { offset, info } => Some((offset, info)),
            _ => None,
        });
        let Some((size, flags)) = epilogs.next() else { return self.version < 2 };
        let size = u32::from(size);
        let covers = |distance: u32| {
            length.checked_sub(distance).is_some_and(|start| offset >= start && offset - start < size)
        };
        // The first code's offset is the size of every epilog; its bit 0: one ends the function.
        (flags & 1 != 0 && covers(size))
            || epilogs.any(|(low, high)| {
                let distance = u32::from(low) | u32::from(high) << 8;
                distance != 0 && covers(distance)
            })
    }
}

/// Reads the `UNWIND_INFO` at `rva`. The error says what is wrong with it.
pub fn parse(source: &dyn ImageSource, rva: u32) -> Result<Info, &'static str> {
    let header: [u8; 4] = source.array(rva).ok_or("it is not readable")?;
    let version = header[0] & 7;
    if !(1..=2).contains(&version) {
        return Err("its version is neither 1 nor 2");
    }
    let flags = header[0] >> 3;
    let count = usize::from(header[2]);
    let codes_rva = rva.checked_add(4).ok_or("it lies at the end of the address range")?;
    let slots = source.prefix(codes_rva, count * 2);
    if slots.len() < count * 2 {
        return Err("its codes are not readable");
    }
    let parent = if flags & 4 != 0 {
        let padded = u32::try_from(count.next_multiple_of(2) * 2).unwrap_or(0);
        let at = codes_rva.checked_add(padded).ok_or("it lies at the end of the address range")?;
        let entry: [u8; 12] = source.array(at).ok_or("its chained entry is not readable")?;
        let field = |i: usize| u32::from_le_bytes([entry[i], entry[i + 1], entry[i + 2], entry[i + 3]]);
        Some(FunctionEntry { begin: field(0), end: field(4), unwind: field(8) })
    } else {
        None
    };
    Ok(Info {
        version,
        flags,
        prolog_size: header[1],
        frame_register: header[3] & 15,
        frame_offset: u32::from(header[3] >> 4) * 16,
        codes: codes(version, &slots)?,
        parent,
    })
}

fn codes(version: u8, slots: &[u8]) -> Result<Vec<Code>, &'static str> {
    let slot = |index: usize| -> Result<u32, &'static str> {
        let pair = slots.get(index * 2..index * 2 + 2).ok_or("a code is cut off")?;
        Ok(u32::from(u16::from_le_bytes([pair[0], pair[1]])))
    };
    let wide = |index: usize| Ok::<u32, &'static str>(slot(index)? | slot(index + 1)? << 16);
    let mut out = Vec::new();
    let mut index = 0;
    while index * 2 < slots.len() {
        let raw = slot(index)?;
        let (offset, kind, info) = ((raw & 0xff) as u8, raw >> 8 & 15, (raw >> 12) as u8);
        let (operation, used) = match kind {
            0 => (Operation::Push(info), 1),
            1 if info == 0 => (Operation::Allocate(slot(index + 1)? * 8), 2),
            1 if info == 1 => (Operation::Allocate(wide(index + 1)?), 3),
            2 => (Operation::Allocate(u32::from(info) * 8 + 8), 1),
            3 => (Operation::SetFrame, 1),
            4 => (Operation::Save { register: info, offset: slot(index + 1)? * 8 }, 2),
            5 => (Operation::Save { register: info, offset: wide(index + 1)? }, 3),
            6 if version >= 2 => (Operation::Epilog { offset, info }, 1),
            // Version 1 wrote 8-byte xmm saves here, long ago.
            6 => (Operation::Spare, 2),
            7 => (Operation::Spare, 3),
            8 => (Operation::SaveVector { register: info, offset: slot(index + 1)? * 16 }, 2),
            9 => (Operation::SaveVector { register: info, offset: wide(index + 1)? }, 3),
            10 if info <= 1 => (Operation::MachineFrame { error_code: info == 1 }, 1),
            _ => return Err("it has an unknown code"),
        };
        // Every slot of the code must be there, its unread ones too.
        slot(index + used - 1)?;
        out.push(Code { offset, operation });
        index += used;
    }
    Ok(out)
}
