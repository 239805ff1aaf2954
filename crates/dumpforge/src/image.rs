//! PE images: compiled ones, and ones made here with real code and unwind data.

use std::collections::BTreeMap;

use pe::{DirectoryIndex, FileImage, ImageSource, Pe, PeError};
use target::{Guid, Machine, reg};

use crate::image_layout;

/// What a function does to the stack once its prolog has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFacts {
    /// RVAs.
    pub begin: u32,
    pub end: u32,
    /// First instruction behind the prolog.
    pub body: u32,
    /// Bytes from the stack pointer to the return address (x64) or to the caller's stack pointer
    /// (ARM64).
    pub frame_size: u32,
    /// Saved registers (`target::reg` numbers) and where, from the stack pointer.
    pub saved: Vec<(usize, u32)>,
    /// The frame pointer register and its distance from the stack pointer, if one is set up.
    pub frame_pointer: Option<(usize, u32)>,
    /// A trap handler: the processor pushed a machine frame, with or without an error code, instead
    /// of a return address.
    pub machine_frame: Option<bool>,
    /// RVAs that calls in the body return to.
    pub returns: Vec<u32>,
}

impl FunctionFacts {
    /// The stack pointer went down.
    pub(crate) fn grow(&mut self, bytes: u32) {
        self.frame_size += bytes;
        self.saved.iter_mut().for_each(|(_, offset)| *offset += bytes);
        if let Some((_, offset)) = &mut self.frame_pointer {
            *offset += bytes;
        }
    }
    /// The stack pointer went up. A frame pointer may then lie below it.
    pub(crate) fn shrink(&mut self, bytes: u32) {
        self.frame_size -= bytes;
        self.saved.iter_mut().for_each(|(_, offset)| *offset -= bytes);
        if let Some((_, offset)) = &mut self.frame_pointer {
            *offset = offset.wrapping_sub(bytes);
        }
    }
}

/// An instruction of a built function and what the frame is like when it is about to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub rva: u32,
    pub facts: FunctionFacts,
}

/// A function for [`ImageBuilder`]. Both machines: saves `saved`, makes room for `locals`, calls
/// something `calls` times, returns.
#[derive(Clone, Debug, Default)]
pub struct Function {
    pub name: String,
    /// Non-volatile registers: x64 hardware numbers (3 rbx, 5 rbp, 6 rsi, 7 rdi, 12..15), ARM64
    /// 19..28 (at most 10, consecutive from 19).
    pub saved: Vec<usize>,
    /// Bytes of locals: x64 multiples of 8; ARM64 the frame stays within 504 bytes.
    pub locals: u32,
    /// x64: `lea rbp, [rsp+offset]` behind the allocation; saves rbp first. ARM64 always has one.
    pub frame_pointer: Option<u8>,
    pub calls: u32,
    pub exported: bool,
    /// x64: a trap handler (`true`: the processor pushes an error code too).
    pub machine_frame: Option<bool>,
}

impl Function {
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), locals: 0x28, calls: 1, ..Self::default() }
    }
    #[must_use]
    pub fn saving(mut self, registers: &[usize]) -> Self {
        self.saved = registers.to_vec();
        self
    }
    #[must_use]
    pub fn locals(mut self, bytes: u32) -> Self {
        self.locals = bytes;
        self
    }
    #[must_use]
    pub fn framed(mut self, offset: u8) -> Self {
        self.frame_pointer = Some(offset & 0xf0);
        self
    }
    #[must_use]
    pub fn calling(mut self, times: u32) -> Self {
        self.calls = times;
        self
    }
    #[must_use]
    pub fn trap_handler(mut self, error_code: bool) -> Self {
        self.machine_frame = Some(error_code);
        self
    }
    #[must_use]
    pub fn exported(mut self) -> Self {
        self.exported = true;
        self
    }
}

/// A PE image.
#[derive(Clone, Debug)]
pub struct Image {
    /// File name, `ntkrnlmp.exe`.
    pub name: String,
    pub machine: Machine,
    /// The file.
    pub file: Vec<u8>,
    pub size: u32,
    pub timestamp: u32,
    pub checksum: u32,
    pub entry_point: u32,
    pub preferred_base: u64,
    /// `(RVA, size)` of the exception directory.
    pub exception_directory: (u32, u32),
    /// The CodeView record, empty for none.
    pub codeview: Vec<u8>,
    /// Names to RVAs: functions and variables of built images, whatever a test adds to others.
    pub symbols: BTreeMap<String, u32>,
    /// Of built images, by name.
    pub functions: BTreeMap<String, FunctionFacts>,
    /// Of built images, by function: every instruction, in order.
    pub positions: BTreeMap<String, Vec<Position>>,
}

impl Image {
    /// A compiled image.
    pub fn from_file(name: &str, bytes: Vec<u8>) -> Result<Self, PeError> {
        let image = FileImage::new(&bytes[..])?;
        let pe = image.pe();
        let codeview = pe.pdb(&image).map(|pdb| rsds(pdb.guid, pdb.age, &pdb.name)).unwrap_or_default();
        Ok(Self {
            name: name.into(),
            machine: pe.machine.unwrap_or(Machine::X64),
            size: pe.size_of_image,
            timestamp: pe.timestamp,
            checksum: pe.checksum,
            entry_point: pe.entry_point,
            preferred_base: pe.image_base,
            exception_directory: pe.directory(DirectoryIndex::Exception).unwrap_or_default(),
            codeview,
            symbols: BTreeMap::new(),
            functions: BTreeMap::new(),
            positions: BTreeMap::new(),
            file: bytes,
        })
    }

    /// The headers, as the reader sees them.
    pub fn headers(&self) -> Result<Pe, PeError> {
        Ok(FileImage::new(&self.file[..])?.pe().clone())
    }

    /// The image as the loader lays it out at `base`, relocated; gaps are zero.
    #[must_use]
    pub fn mapped_at(&self, base: u64) -> Vec<u8> {
        let mut out = vec![0; self.size as usize];
        let Ok(image) = FileImage::new(&self.file[..]) else { return out };
        for (index, page) in out.chunks_mut(0x1000).enumerate() {
            let rva = u32::try_from(index * 0x1000).unwrap_or(u32::MAX);
            let read = image.read_rva_at(rva, base, page);
            if read < page.len() && read == 0 {
                let _ = image.read_rva(rva, page);
            }
        }
        out
    }

    /// RVA of a symbol; 0 (the image's start) for one that is not there.
    #[must_use]
    pub fn rva(&self, symbol: &str) -> u32 {
        self.symbols.get(symbol).copied().unwrap_or(0)
    }

    /// What a built function does; empty for one that is not there.
    #[must_use]
    pub fn function(&self, name: &str) -> FunctionFacts {
        self.functions.get(name).cloned().unwrap_or_default()
    }

    /// Reads the facts of an x64 function from its unwind codes. `None`: no such function, a chained
    /// one, or one with codes that are not plain (XMM saves are skipped over).
    #[must_use]
    pub fn x64_facts(&self, rva: u32) -> Option<FunctionFacts> {
        let image = FileImage::new(&self.file[..]).ok()?;
        let entry = image.pe().exception_table(&image)?.find(rva).ok()??;
        if rva >= entry.end || entry.unwind & 1 != 0 {
            return None;
        }
        let head: [u8; 4] = pe::ImageSourceExt::array(&image, entry.unwind)?;
        let codes = pe::ImageSourceExt::prefix(&image, entry.unwind + 4, 2 * usize::from(head[2]));
        let mut facts = plain_codes(head, &codes)?;
        (facts.begin, facts.end, facts.body) = (entry.begin, entry.end, entry.begin + u32::from(head[1]));
        Some(facts)
    }
}

/// Effect of all codes of an `UNWIND_INFO` (version 1, not chained).
fn plain_codes(head: [u8; 4], codes: &[u8]) -> Option<FunctionFacts> {
    if head[0] & 7 != 1 || head[0] >> 3 & 4 != 0 {
        return None;
    }
    let slot =
        |index: usize| codes.get(2 * index..2 * index + 2).map(|s| u32::from(s[0]) | u32::from(s[1]) << 8);
    let mut facts = FunctionFacts::default();
    let mut index = 0;
    while let Some(code) = slot(index) {
        let (operation, info) = (code >> 8 & 15, code >> 12);
        let register = info as usize;
        let wide = || Some(slot(index + 1)? | slot(index + 2)? << 16);
        // Codes undo from the stack pointer up: frame_size is how far we are.
        let used = match (operation, info) {
            (0, _) => {
                facts.saved.push((register, facts.frame_size));
                facts.frame_size += 8;
                1
            }
            (1, 0) => {
                facts.frame_size += 8 * slot(index + 1)?;
                2
            }
            (1, _) => {
                facts.frame_size += wide()?;
                3
            }
            (2, _) => {
                facts.frame_size += 8 * info + 8;
                1
            }
            (3, _) => {
                facts.frame_pointer = Some((usize::from(head[3] & 15), u32::from(head[3] >> 4) * 16));
                1
            }
            (4, _) => {
                facts.saved.push((register, 8 * slot(index + 1)?));
                2
            }
            (5, _) => {
                facts.saved.push((register, wide()?));
                3
            }
            (8, _) => 2,
            (9, _) => 3,
            (10, _) => {
                facts.machine_frame = Some(info != 0);
                1
            }
            _ => return None,
        };
        index += used;
    }
    Some(facts)
}

pub(crate) fn rsds(guid: Guid, age: u32, path: &str) -> Vec<u8> {
    let mut record = b"RSDS".to_vec();
    record.extend(guid.0);
    record.extend(age.to_le_bytes());
    record.extend(path.as_bytes());
    record.push(0);
    record
}

/// Builds an image from functions and variables.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) base: u64,
    pub(crate) timestamp: u32,
    pub(crate) pdb: Option<(Guid, u32, String)>,
    pub(crate) functions: Vec<Function>,
    /// Name, size and content.
    pub(crate) variables: Vec<(String, u32, Vec<u8>)>,
    pub(crate) dll: bool,
}

impl ImageBuilder {
    /// An x64 or ARM64 image.
    #[must_use]
    pub fn new(machine: Machine, name: &str) -> Self {
        Self {
            name: name.into(),
            machine,
            base: 0x1_4000_0000,
            timestamp: 0x5f5e_1000,
            pdb: None,
            functions: Vec::new(),
            variables: Vec::new(),
            dll: true,
        }
    }
    #[must_use]
    pub fn base(mut self, base: u64) -> Self {
        self.base = base;
        self
    }
    #[must_use]
    pub fn timestamp(mut self, timestamp: u32) -> Self {
        self.timestamp = timestamp;
        self
    }
    #[must_use]
    pub fn pdb(mut self, guid: Guid, age: u32, path: &str) -> Self {
        self.pdb = Some((guid, age, path.into()));
        self
    }
    #[must_use]
    pub fn program(mut self) -> Self {
        self.dll = false;
        self
    }
    #[must_use]
    pub fn function(mut self, function: Function) -> Self {
        self.functions.push(function);
        self
    }
    /// A variable in `.data`, zeroed behind `content`.
    #[must_use]
    pub fn variable(mut self, name: &str, size: u32, content: &[u8]) -> Self {
        self.variables.push((name.into(), size, content.to_vec()));
        self
    }
    #[must_use]
    pub fn build(self) -> Image {
        image_layout::build(&self)
    }
}

/// The stand-in kernel: functions of a bug check's path and the variables debuggers look for.
#[must_use]
pub fn stand_in_kernel(machine: Machine) -> Image {
    let saved: &[usize] = if machine == Machine::Arm64 { &[19, 20] } else { &[reg::RBX, reg::RSI] };
    let mut builder = ImageBuilder::new(machine, "ntkrnlmp.exe")
        .pdb(Guid(*b"stand-in kernel!"), 1, "ntkrnlmp.pdb")
        .program()
        .function(Function::new("KeBugCheckEx").exported())
        .function(Function::new("KiSystemStartup").calling(2))
        .function(Function::new("KiBugCheckDispatch").saving(saved))
        .function(Function::new("IofCallDriver").locals(0x38).exported())
        .function(Function::new("NtDeviceIoControlFile").saving(saved).locals(0x68).exported())
        .function(Function::new("KiSystemServiceCopyEnd").locals(0x118))
        .function(Function::new("KiPageFault").saving(&[reg::RBP]).locals(0x158).trap_handler(true))
        .function(Function::new("KiSwapContext").saving(saved).locals(0x108))
        .function(Function::new("KiSwapThread").locals(0x88))
        .function(Function::new("KeWaitForSingleObject").saving(saved).locals(0x78).exported())
        .function(Function::new("PspSystemThreadStartup").locals(0x38).calling(2));
    for (name, size) in KERNEL_VARIABLES {
        builder = builder.variable(name, size, b"");
    }
    builder.variable("NtBuildLab", 64, b"19041.1.amd64fre.forge.000000-0000\0").build()
}

const KERNEL_VARIABLES: [(&str, u32); 17] = [
    ("PsLoadedModuleList", 16),
    ("PsActiveProcessHead", 16),
    ("KdDebuggerDataBlock", 0x400),
    ("KdpDataBlockEncoded", 8),
    ("KiProcessorBlock", 0x400),
    ("KiBugCheckData", 40),
    ("MmHighestUserAddress", 8),
    ("MmSystemRangeStart", 8),
    ("MmUserProbeAddress", 8),
    ("MmUnloadedDrivers", 8),
    ("MmLastUnloadedDriver", 8),
    ("PsInitialSystemProcess", 8),
    ("KiWaitNever", 8),
    ("KiWaitAlways", 8),
    ("KeNumberProcessors", 8),
    ("MmPfnDatabase", 8),
    ("PspCidTable", 8),
];
