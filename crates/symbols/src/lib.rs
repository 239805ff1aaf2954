//! Symbols of one image: names, source lines, inline frames, types and locals, whatever file they
//! come from. Every source answers the one trait [`SymbolFile`]; all positions are RVAs of the image.
//!
//! Symbol files are hostile input: a file that lies makes errors or missing answers, never a panic,
//! a hang or an allocation beyond a small multiple of the file.

pub mod builds;
pub mod demangle;
pub mod error;
pub mod exports;
pub mod glob;
pub mod image;
pub mod isf;
mod literal;
mod packed;
pub mod pdb;
mod place;
mod table;

use std::path::Path;

use target::{PdbIdentity, SourceLine, SymbolKind, SymbolState, TypeLayout, TypeRef};

pub use builds::{Build, BuildTable};
pub use error::{Result, SymbolError};
pub use exports::{ExportSymbols, NearestExport};
pub use image::ImageSymbols;
pub use isf::IsfFile;
pub use pdb::PdbFile;
pub use place::{frame_base, place_local};

/// A named place of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sym {
    /// As a debugger shows it: undecorated, a function without its parameters.
    pub name: String,
    /// As stored, when that differs (`?f@@YAXXZ`).
    pub raw_name: Option<String>,
    pub rva: u64,
    /// Bytes of the function or datum, if the file records them.
    pub size: Option<u64>,
    pub kind: SymbolKind,
}

impl Sym {
    /// Whether `rva` lies inside the symbol's recorded bytes; `false` when no size is recorded.
    #[must_use]
    pub fn covers(&self, rva: u64) -> bool {
        self.size.is_some_and(|size| rva >= self.rva && rva - self.rva < size)
    }
}

/// One inlined function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineFrame {
    /// The inlined function, qualified by namespace or class (`stackTestClass::stackMethod`).
    pub name: String,
    /// First RVA of the inlined body: what DbgEng counts the frame's displacement from. The body
    /// may have gaps between it and the address.
    pub start: u64,
    /// Position in the inlined body itself.
    pub line: Option<SourceLine>,
}

/// How an x86 function's caller is found (spec 80 section 10.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameProgram {
    Data(FrameData),
    Fpo(Fpo),
}

/// A `FRAMEDATA` record ("new FPO", cvinfo.h), sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameData {
    pub start: u64,
    pub code_size: u32,
    pub locals: u32,
    pub params: u32,
    pub max_stack: u32,
    pub saved_registers: u16,
    pub prolog: u16,
    pub has_seh: bool,
    pub has_eh: bool,
    pub function_start: bool,
    /// Postfix program, e.g. `$T0 .raSearch = $eip $T0 ^ = $esp $T0 4 + =`.
    pub program: String,
}

/// An `FPO_DATA` record (winnt.h), sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fpo {
    pub start: u64,
    pub code_size: u32,
    pub locals: u32,
    pub params: u32,
    pub prolog: u8,
    pub saved_registers: u8,
    pub has_seh: bool,
    pub uses_base_pointer: bool,
    pub frame: FpoFrame,
}

/// `FPO_DATA.cbFrame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpoFrame {
    Fpo,
    Trap,
    Tss,
    NonFpo,
}

/// A local or parameter that is alive at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalVar {
    pub name: String,
    pub parameter: bool,
    /// Index in [`SymbolFile::inline_chain`] of the inlined function it belongs to; `None` is the
    /// physical function's own.
    pub inlined: Option<usize>,
    pub ty: TypeRef,
    pub location: VarLocation,
}

/// Where a local lives. Registers are those of the frame, not of the innermost context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VarLocation {
    Register(Register),
    /// At `register + offset`.
    RegisterRelative {
        register: Register,
        offset: i64,
    },
    /// x86 only: at `$T0 + offset`, the virtual frame that the [`FrameProgram`] computes. On a
    /// function with an `ebp` frame this equals `ebp + offset`.
    VirtualFrame {
        offset: i64,
    },
    /// A static or global: at this RVA.
    Image {
        rva: u64,
    },
    Constant(i64),
    /// In pieces: each is the bytes of the variable from `offset` on.
    Pieces(Vec<Piece>),
    /// Nowhere at this address, and why.
    Unavailable(&'static str),
}

/// One piece of a split variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the variable's start.
    pub offset: u32,
    pub location: Box<VarLocation>,
}

/// A register as CodeView numbers them, placed in [`target::Context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its own name (`al`, `r8d`, `xmm6`).
    pub name: &'static str,
    pub slot: RegisterSlot,
    /// Bits of the slot below it (8 for `ah`).
    pub shift: u8,
    /// Its width in bits.
    pub bits: u16,
}

/// Where [`target::Context`] holds a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterSlot {
    /// A number of [`target::reg`].
    Integer(usize),
    /// An index of `Context::vectors`.
    Vector(usize),
    /// An index of `Context::x87`.
    X87(usize),
    /// A register contexts do not hold.
    Unknown,
}

/// What one file knows of one image. Methods of a source that never has the answer say so with
/// an empty one; `Err` means that the file is damaged where the answer would be.
pub trait SymbolFile {
    /// Which kind of source this is.
    fn state(&self) -> SymbolState;
    /// The identity the file carries. `age` is the one to compare with an image's (spec 80 11.1).
    fn identity(&self) -> Option<&PdbIdentity>;
    /// The nearest symbol at or before `rva`: a procedure that covers it, else data or a public.
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>>;
    /// Symbols of exactly this name, decorated or not; failing that, in any case. At most 256.
    fn by_name(&self, name: &str) -> Result<Vec<Sym>>;
    /// Symbols whose shown or stored name matches `pattern` (`*`, `?`, any case), by RVA.
    fn matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>>;
    /// The source position of `rva` in the physical function; inside an inlined body that is the
    /// call. Positions in the body are in [`Self::inline_chain`].
    fn line_at(&self, _rva: u64) -> Result<Option<SourceLine>> {
        Ok(None)
    }
    /// Functions inlined at `rva`, innermost first. Empty when the address is the function's own.
    fn inline_chain(&self, _rva: u64) -> Result<Vec<InlineFrame>> {
        Ok(Vec::new())
    }
    /// How to find the caller of the x86 function at `rva`; FrameData before FPO.
    fn frame_program(&self, _rva: u64) -> Result<Option<FrameProgram>> {
        Ok(None)
    }
    /// Names of everything that starts exactly at `rva`, shortest first, at most four: identical
    /// functions are folded into one.
    fn aliases(&self, rva: u64) -> Result<Vec<String>> {
        let at = self.symbol_at(rva)?.filter(|s| s.rva == rva);
        Ok(at.map(|s| s.name).into_iter().collect())
    }
    /// A type's layout by name (`_EPROCESS`, `struct Item`, a typedef, `unsigned long`). Its
    /// `module` is empty: the caller knows it. `Err(NoSuchType)` when the file does not define it.
    /// Types without a name of their own come as `<unnamed-tag>#1a2b` and are found by that name.
    fn type_layout(&self, name: &str) -> Result<TypeLayout>;
    /// Names of defined types matching `pattern` (`*`, `?`, any case), sorted.
    fn types_matching(&self, _pattern: &str, _limit: usize) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Parameters and locals in scope at `rva`, in declaration order.
    fn locals_at(&self, _rva: u64) -> Result<Vec<LocalVar>> {
        Ok(Vec::new())
    }
    /// The type of a global variable, to read it by.
    fn type_of(&self, _symbol: &str) -> Result<Option<TypeRef>> {
        Ok(None)
    }
    /// Start and end of the function that covers `rva`, if the file records it.
    fn function_bounds(&self, rva: u64) -> Result<Option<(u64, u64)>> {
        let hit = self.symbol_at(rva)?.filter(|s| s.kind == SymbolKind::Function && s.covers(rva));
        Ok(hit.and_then(|s| Some((s.rva, s.rva.checked_add(s.size?)?))))
    }
}

/// Opens a PDB (MSF or MSFZ) or an ISF (`.json`, `.json.xz`) by its content.
pub fn open(path: &Path) -> Result<Box<dyn SymbolFile>> {
    let head = error::read_head(path)?;
    if head.starts_with(b"\xfd7zXZ\0") || head.trim_ascii_start().starts_with(b"{") {
        return Ok(Box::new(IsfFile::open(path)?));
    }
    Ok(Box::new(PdbFile::open(path)?))
}
