//! Parameters and locals of a procedure at one address.

use target::Machine;

use super::bytes::{Bytes, Record};
use super::registers::{VIRTUAL_FRAME, frame_register, register};
use super::scopes::S_FRAMEPROC;
use crate::{Piece, Register, VarLocation};

const S_LOCAL: u16 = 0x113e;
const S_REGREL32: u16 = 0x1111;
const S_BPREL32: u16 = 0x110b;
const S_REGISTER: u16 = 0x1106;
const S_LDATA32: u16 = 0x110c;
const S_GDATA32: u16 = 0x110d;
const S_CONSTANT: u16 = 0x1107;
/// `CV_LVARFLAGS` (cvinfo.h).
const IS_PARAMETER: u16 = 1;
const IS_COMPILER_GENERATED: u16 = 4;
const IS_OPTIMIZED_OUT: u16 = 0x100;
/// A global or static that the function keeps in a register: no local.
const IS_ENREGISTERED_GLOBAL: u16 = 0x600;
/// More pieces than a variable can have.
const MAX_PIECES: usize = 64;
/// More variables than a function has.
const MAX_LOCALS: usize = 4096;

/// A variable before its type and place in the image are looked up.
#[derive(Clone, Debug)]
pub(super) struct RawLocal {
    pub(super) name: String,
    pub(super) ty: u32,
    pub(super) parameter: bool,
    /// Not from an `S_LOCAL`, which says itself whether it is a parameter.
    pub(super) positional: bool,
    /// Depth of inline sites around it, 0 in the physical function.
    pub(super) inline_depth: usize,
    pub(super) in_block: bool,
    pub(super) location: VarLocation,
    /// Section and offset of a static, translated by the caller.
    pub(super) place: Option<(u16, u32)>,
    pieces: Vec<Piece>,
}

/// Collects the variables of one procedure, record by record.
pub(super) struct Collector {
    machine: Machine,
    section: u16,
    offset: u32,
    local_frame: u32,
    parameter_frame: u32,
    open: bool,
    pub(super) locals: Vec<RawLocal>,
}

impl Collector {
    /// For the address `offset` of `section`.
    pub(super) fn new(machine: Machine, section: u16, offset: u32) -> Self {
        let locals = Vec::new();
        Self { machine, section, offset, local_frame: 0, parameter_frame: 0, open: false, locals }
    }

    /// Takes one record of the procedure that is in scope at the address.
    pub(super) fn take(&mut self, record: Record<'_>, inline_depth: usize, in_block: bool) {
        if self.locals.len() >= MAX_LOCALS {
            return;
        }
        match record.kind {
            0x113f..=0x1145 | 0x1177 => {
                if self.open {
                    self.range(record);
                }
                return;
            }
            _ => self.open = false,
        }
        if let Some(mut local) = self.variable(record) {
            local.inline_depth = inline_depth;
            local.in_block = in_block;
            self.open = record.kind == S_LOCAL;
            self.locals.push(local);
        }
    }

    /// A record out of scope: ranges behind it belong to it and must not be taken.
    pub(super) fn skip(&mut self, record: Record<'_>) {
        if !matches!(record.kind, 0x113f..=0x1145 | 0x1177) {
            self.open = false;
        }
    }

    /// Takes `S_FRAMEPROC`, which may come after the variables that need it.
    pub(super) fn frame_procedure(&mut self, record: Record<'_>) {
        if record.kind != S_FRAMEPROC {
            return;
        }
        let flags = Bytes::at(record.data, 22).and_then(|mut b| b.u32()).unwrap_or(0);
        self.local_frame = (flags >> 14) & 3;
        self.parameter_frame = (flags >> 16) & 3;
    }

    fn variable(&self, record: Record<'_>) -> Option<RawLocal> {
        let mut data = Bytes::new(record.data);
        let (mut parameter, mut positional, mut place) = (false, false, None);
        let (ty, location) = match record.kind {
            S_LOCAL => {
                let (ty, flags) = (data.u32()?, data.u16()?);
                if flags & (IS_COMPILER_GENERATED | IS_ENREGISTERED_GLOBAL) != 0 {
                    return None;
                }
                parameter = flags & IS_PARAMETER != 0;
                let why = if flags & IS_OPTIMIZED_OUT != 0 { "optimized out" } else { "not live here" };
                (ty, VarLocation::Unavailable(why))
            }
            S_REGREL32 => {
                positional = true;
                let (offset, ty, base) = (data.i32()?, data.u32()?, data.u16()?);
                (ty, self.relative(base, offset))
            }
            S_BPREL32 => {
                let (offset, ty) = (data.i32()?, data.u32()?);
                parameter = offset > 0;
                (
                    ty,
                    VarLocation::RegisterRelative {
                        register: register(self.machine, 22),
                        offset: i64::from(offset),
                    },
                )
            }
            S_REGISTER => {
                positional = true;
                let (ty, number) = (data.u32()?, data.u16()?);
                (ty, VarLocation::Register(register(self.machine, number)))
            }
            S_LDATA32 | S_GDATA32 => {
                let (ty, offset, section) = (data.u32()?, data.u32()?, data.u16()?);
                place = Some((section, offset));
                (ty, VarLocation::Unavailable("optimized out"))
            }
            S_CONSTANT => {
                let (ty, value) = (data.u32()?, data.number()?);
                (ty, VarLocation::Constant(value as i64))
            }
            _ => return None,
        };
        let name = data.name().into_owned();
        let (inline_depth, in_block, pieces) = (0, false, Vec::new());
        Some(RawLocal { name, ty, parameter, positional, inline_depth, in_block, location, place, pieces })
    }

    fn relative(&self, base: u16, offset: i32) -> VarLocation {
        let offset = i64::from(offset);
        match base {
            VIRTUAL_FRAME if self.machine == Machine::X86 => VarLocation::VirtualFrame { offset },
            VIRTUAL_FRAME => self.at_frame(self.local_frame, offset),
            _ => VarLocation::RegisterRelative { register: register(self.machine, base), offset },
        }
    }

    /// At an offset from the frame pointer the function chose for locals or for parameters.
    fn frame_relative(&self, parameter: bool, offset: i32) -> VarLocation {
        let encoded = if parameter { self.parameter_frame } else { self.local_frame };
        self.at_frame(encoded, i64::from(offset))
    }

    fn at_frame(&self, encoded: u32, offset: i64) -> VarLocation {
        match frame_register(self.machine, encoded) {
            Some(Some(register)) => VarLocation::RegisterRelative { register, offset },
            Some(None) => VarLocation::VirtualFrame { offset },
            None => VarLocation::Unavailable("the function records no frame register"),
        }
    }

    /// An `S_DEFRANGE_*` of the variable last seen.
    fn range(&mut self, record: Record<'_>) {
        let parameter = self.locals.last().is_some_and(|l| l.parameter);
        let Some((piece, location)) = self.located(record, parameter) else { return };
        let Some(local) = self.locals.last_mut() else { return };
        match piece {
            None => local.location = location,
            // The whole variable in one place is the better answer.
            Some(_) if !matches!(local.location, VarLocation::Unavailable(_) | VarLocation::Pieces(_)) => {}
            Some(offset) => {
                if local.pieces.len() < MAX_PIECES {
                    local.pieces.push(Piece { offset, location: Box::new(location) });
                }
                local.location = VarLocation::Pieces(local.pieces.clone());
            }
        }
    }

    /// Offset within the variable (of a piece) and location, when the range covers the address.
    fn located(&self, record: Record<'_>, parameter: bool) -> Option<(Option<u32>, VarLocation)> {
        let mut data = Bytes::new(record.data);
        let (piece, location) = match record.kind {
            // REGISTER
            0x1141 => {
                let number = data.u16()?;
                data.u16()?;
                (None, VarLocation::Register(self.numbered(number)))
            }
            // FRAMEPOINTER_REL
            0x1142 => (None, self.frame_relative(parameter, data.i32()?)),
            // SUBFIELD_REGISTER
            0x1143 => {
                let number = data.u16()?;
                data.u16()?;
                let offset = data.u32()? & 0xfff;
                (Some(offset), VarLocation::Register(self.numbered(number)))
            }
            // FRAMEPOINTER_REL_FULL_SCOPE: everywhere
            0x1144 => return Some((None, self.frame_relative(parameter, data.i32()?))),
            // REGISTER_REL
            0x1145 => {
                let (number, flags, offset) = (data.u16()?, data.u16()?, data.i32()?);
                let piece = (flags & 1 != 0).then_some(u32::from(flags >> 4));
                (piece, self.relative(number, offset))
            }
            // REGISTER_REL_INDIR: the variable is where the value there points to.
            0x1177 => return None,
            // DEFRANGE, SUBFIELD: a DIA program
            _ => return None,
        };
        self.covers(&mut data).then_some((piece, location))
    }

    fn numbered(&self, number: u16) -> Register {
        register(self.machine, number)
    }

    /// `CV_LVAR_ADDR_RANGE` and the gaps behind it.
    fn covers(&self, data: &mut Bytes<'_>) -> bool {
        let (Some(start), Some(section), Some(length)) = (data.u32(), data.u16(), data.u16()) else {
            return false;
        };
        let Some(at) = self.offset.checked_sub(start) else { return false };
        if section != self.section || at >= u32::from(length) {
            return false;
        }
        while let (Some(gap), Some(bytes)) = (data.u16(), data.u16()) {
            if at >= u32::from(gap) && at - u32::from(gap) < u32::from(bytes) {
                return false;
            }
        }
        true
    }
}
