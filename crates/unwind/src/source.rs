//! What the walker asks an engine.

use std::rc::Rc;

use pe::ImageSource;
use target::{Machine, Memory};

/// The image an instruction pointer lies in, as far as unwinding needs it.
#[derive(Clone)]
pub struct UnwindImage {
    /// Load address; RVAs below count from it.
    pub base: u64,
    /// `SizeOfImage`.
    pub size: u64,
    /// Machine of the image's header (an x64 process holds x86 images too).
    pub machine: Machine,
    /// RVA and size in bytes of the exception directory (`.pdata`), `(0, 0)` for none.
    pub exception_directory: (u32, u32),
    /// Bytes by RVA: target memory, with the image file behind it where there is one.
    pub source: Rc<dyn ImageSource>,
}

impl UnwindImage {
    /// `address - base` when the address lies in the image.
    #[must_use]
    pub fn rva(&self, address: u64) -> Option<u32> {
        let distance = address.checked_sub(self.base)?;
        if distance >= self.size { None } else { u32::try_from(distance).ok() }
    }
}

/// Which record a [`FrameProgram`] was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A FrameData record ("new FPO"): its postfix program text.
    FrameData(String),
    /// An `FPO_DATA` record (winnt.h).
    Fpo {
        /// `cbRegs`: registers pushed.
        saved_registers: u8,
        /// `fUseBP`: ebp is used as a general register and saved.
        uses_ebp: bool,
        /// `cbFrame`: 0 FPO, 1 trap, 2 TSS, 3 standard ebp frame.
        frame_type: u8,
    },
}

/// How one x86 function (or part) lays out its frame, from a PDB. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameProgram {
    /// First address covered.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    pub locals: u32,
    pub parameters: u32,
    pub saved_registers: u32,
    pub prolog: u32,
    pub kind: ProgramKind,
}

/// The engine's side of a walk. Every method may say "unknown"; none may block for long.
pub trait UnwindSource {
    /// Memory of the thread being walked.
    fn memory(&self) -> &dyn Memory;
    /// The image that contains `address`.
    fn image_at(&self, address: u64) -> Option<UnwindImage>;
    /// Whether code may run at `address`: `None` when nothing is known of it (not in an image, no
    /// page state). Images answer from their section flags.
    fn is_executable(&self, address: u64) -> Option<bool>;
    /// Whether a loaded module contains `address`, readable or not.
    fn in_module(&self, address: u64) -> bool {
        self.image_at(address).is_some()
    }
    /// x86: the frame record that covers `address`. FrameData before FPO; of nested records the one
    /// with the largest start not above `address`.
    fn frame_program(&self, address: u64) -> Option<FrameProgram> {
        let _ = address;
        None
    }
    /// Start of the function around `address` from symbols (private or public, not exports of
    /// unknown extent). Sharpens x86 walks without FPO records and drops scan candidates that are
    /// function entries.
    fn function_start(&self, address: u64) -> Option<u64> {
        let _ = address;
        None
    }
    /// Lowest and one-past-highest address of the stack `sp` lies on, if known (TEB, KTHREAD).
    fn stack_bounds(&self, sp: u64) -> Option<(u64, u64)> {
        let _ = sp;
        None
    }
    /// Generated code: the x64/ARM64 function-table entry a dump or process registered for
    /// `address`, as an image whose directory holds it (`RtlAddFunctionTable`, MDMP FunctionTable).
    fn dynamic_image_at(&self, address: u64) -> Option<UnwindImage> {
        let _ = address;
        None
    }
}
