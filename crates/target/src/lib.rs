//! The vocabulary of the debugger and the one interface both engines answer through.
//!
//! A [`Target`] is whatever is being debugged: a crash dump, a bare image, later a live process or
//! kernel. Analyses, commands and tools see only this crate. What only some targets can do is a
//! capability asked for by name ([`Target::write`], [`Target::run`], ...).
//!
//! *Unknown is not absent*: every look-up has three answers (yes, no, could not ask), and the third
//! never becomes the second.

pub mod capability;
pub mod conformance;
pub mod context;
mod context_bytes;
pub mod error;
pub mod execution;
pub mod facts;
pub mod frame;
pub mod halt;
mod hidden;
mod image_facts;
pub mod machine;
pub mod memory;
pub mod module;
pub mod scripted;
pub mod symbol;
pub mod transaction;
pub mod value;

use std::sync::Arc;

pub use capability::{Breakpoints, Command, DataModel, Driven, Physical, Reverse, Run, Write};
pub use context::{Context, ContextSource, ListedRegister, RegisterValue, reg};
pub use error::{Result, TargetError};
pub use execution::{
    BugCheck, ContextOf, ExceptionRecord, Flow, Instruction, KernelThread, Process, Region, RegionState,
    Selection, StoredEvent, Thread, View,
};
pub use facts::{Ability, DumpFacts, DumpFormat, Facts, Identity, OsVersion, ProcessFacts, TargetKind};
pub use frame::{Found, Frame, FrameInfo, SourceInfo, Stack, WalkEnd};
pub use halt::{Halt, Stop};
pub use hidden::acts;
pub use image_facts::{ImageFacts, ImageSection, ImageSignature, ImageSigner, ImageVersion};
pub use machine::Machine;
pub use memory::{Memory, MemoryExt, ReadError, ReadOutcome, RegionMemory, Space, Unreadable};
pub use module::{Attribution, Module, PdbIdentity, SymbolState, SymbolStatus, UnloadedModule, base_name};
pub use symbol::{
    Field, Local, LocalLocation, SourceLine, SymbolHit, SymbolKind, TypeKind, TypeLayout, TypeRef,
};
pub use transaction::Transaction;
pub use value::{Address, Code, Guid, HexBytes, Rva};

/// Where symbols and images are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolPaths {
    /// `_NT_SYMBOL_PATH` grammar (spec 80 section 11.2).
    pub symbols: String,
    /// `_NT_EXECUTABLE_IMAGE_PATH` grammar.
    pub images: String,
    /// Whether URL elements may be used.
    pub network: bool,
}

/// What a `reload` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Modules whose symbols will be looked for again.
    pub modules: usize,
}

/// One debug target. Lives on the engine thread: not `Send`, all methods take `&self` so that a
/// walk may read memory and symbols at once; implementations cache behind interior mutability.
pub trait Target: Memory {
    fn facts(&self) -> &Facts;
    fn identity(&self) -> Identity;
    /// What the file of an image session says of itself; `None` on every other target.
    fn image_facts(&self) -> Option<ImageFacts> {
        None
    }
    /// [`Self::identity`] as the engine says it now, from its own state and never from command text
    /// (spec 20 section 2.8).
    ///
    /// # Errors
    /// `Gone` when there is no target any more; others mean that it could not be read.
    fn identify(&self) -> Result<Identity> {
        Ok(self.identity())
    }
    /// Selects the target and process that [`Identity::aim`] named, so that a write lands there again.
    ///
    /// # Errors
    /// When this engine holds one target only and is not aimed at it, or what was named is gone.
    fn aim_at(&self, aim: &str) -> Result<()> {
        if self.identity().aim == aim {
            return Ok(());
        }
        Err(TargetError::unsupported(
            "single_target",
            format!("this engine holds one target and cannot select {aim}"),
        ))
    }
    /// What this target serves; computed from the capabilities below.
    fn abilities(&self) -> Vec<Ability>;

    /// Loaded modules, in load order.
    fn modules(&self) -> Result<Arc<[Module]>>;
    fn unloaded_modules(&self) -> Result<Arc<[UnloadedModule]>>;
    /// Looks at the target's module list again. On a dump nothing changes.
    fn resync(&self) -> Result<()>;
    /// Loads symbols of the module at `base` if it has not been tried, and says what it has.
    fn symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus>;
    fn symbol_paths(&self) -> SymbolPaths;
    /// Sets the paths; modules that have no symbols yet look again.
    fn set_symbol_paths(&self, paths: SymbolPaths) -> Result<()>;
    /// Forgets symbols of the modules `pattern` names (all when `None`).
    fn reload(&self, pattern: Option<&str>, force: bool) -> Result<Reloaded>;

    /// Threads of a user target, processors of a kernel target.
    fn threads(&self) -> Result<Arc<[Thread]>>;
    /// Processes of a kernel target, as far as they can be found.
    fn processes(&self, halt: &Halt) -> Result<Vec<Process>>;
    /// Threads of a process of a kernel target.
    fn kernel_threads(&self, process: u64, halt: &Halt) -> Result<Vec<KernelThread>>;
    /// The kernel thread running on the selected processor.
    fn current_kernel_thread(&self) -> Result<KernelThread>;
    /// One process of a kernel target by EPROCESS.
    fn process(&self, object: u64) -> Result<Process>;

    fn selection(&self) -> Selection;
    /// Selects; refuses what does not exist and then changes nothing.
    fn select(&self, selection: Selection) -> Result<()>;

    /// Registers. `Ok(None)`: there is no context, an answer and not an error.
    fn context(&self, of: ContextOf, view: View) -> Result<Option<Context>>;
    /// The registers as the engine itself lists them, where that is more than a [`Context`] holds: the
    /// whole registers a debugger shows unasked, or with `all` every part and lane. `Ok(None)`: the
    /// context says all there is.
    fn listed_registers(&self, of: ContextOf, view: View, all: bool) -> Result<Option<Vec<ListedRegister>>> {
        let _ = (of, view, all);
        Ok(None)
    }
    /// The stack from any context, innermost first, at most `limit` physical frames.
    fn stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack>;
    /// Guesses beyond the walked frames: stack words that look like return addresses.
    fn scan_stack(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Vec<Frame>>;

    fn stored_event(&self) -> Result<Option<StoredEvent>>;
    fn bug_check(&self) -> Result<Option<BugCheck>>;

    fn region(&self, address: u64) -> Result<Region>;

    /// Virtual memory of the target alone, without the image files behind its holes.
    fn read_own(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        self.read(Space::Virtual, address, buffer)
    }
    /// Bytes from `rva` on of the image file that matches the module at `base`, laid out and
    /// relocated as if loaded there; how many. `None`: no matching file is known here.
    fn read_image_file(&self, base: u64, rva: u32, buffer: &mut [u8]) -> Option<usize> {
        let _ = (base, rva, buffer);
        None
    }

    /// The nearest symbol at or before `address`. `Ok(None)`: none in that module, or no module.
    fn symbol_at(&self, address: u64) -> Result<Option<SymbolHit>>;
    /// Addresses of `module!name` or `name` (exact, or undecorated; case as given, then any case).
    fn resolve(&self, name: &str) -> Result<Vec<SymbolHit>>;
    /// Symbols whose qualified name matches `module!pattern` with `*` and `?`.
    fn find_symbols(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>>;
    fn source_line(&self, address: u64) -> Result<Option<SourceLine>>;
    /// A type by `module!name` or bare name.
    fn type_layout(&self, name: &str) -> Result<TypeLayout>;
    /// Type names matching `module!pattern`.
    fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>>;
    /// The type of the global variable `module!name` or `name`, and the module that has it. `Ok(None)`:
    /// no symbols say.
    fn variable_type(&self, name: &str) -> Result<Option<(String, TypeRef)>> {
        let _ = name;
        Ok(None)
    }
    /// Locals of a walked frame at its instruction.
    fn locals(&self, frame: &Frame) -> Result<Vec<Local>>;

    /// `count` instructions from `address`; fewer when the code ends.
    fn disassemble(&self, address: u64, count: usize) -> Result<Vec<Instruction>>;
    /// Start and end of the function around `address`, from unwind data or symbols.
    fn function_bounds(&self, address: u64) -> Result<Option<(u64, u64)>>;
    /// A MASM expression to a number (spec 20 section 2.11). The operand guard has already passed.
    fn evaluate(&self, expression: &str, halt: &Halt) -> Result<u64>;

    fn write(&self) -> Option<&dyn Write> {
        None
    }
    fn run(&self) -> Option<&dyn Run> {
        None
    }
    fn breakpoints(&self) -> Option<&dyn Breakpoints> {
        None
    }
    fn reverse(&self) -> Option<&dyn Reverse> {
        None
    }
    fn physical(&self) -> Option<&dyn Physical> {
        None
    }
    /// The engine's own command interpreter, if it has one.
    fn command(&self) -> Option<&dyn Command> {
        None
    }
    fn data_model(&self) -> Option<&dyn DataModel> {
        None
    }

    /// Lets go of the target. Returns whether a live target was left running.
    fn release(&self) -> Result<Ending>;
}

/// How a session's target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Closed,
    Detached,
    Terminated,
    ResumedAndDetached,
}

/// Module look-ups shared by everything above a target.
pub trait TargetExt: Target {
    fn module_at(&self, address: u64) -> Result<Option<Module>> {
        Ok(self.modules()?.iter().find(|m| m.contains(address)).cloned())
    }
    /// A loaded module by the name symbols are qualified by, or by image name, any case.
    fn module_named(&self, name: &str) -> Result<Option<Module>> {
        let modules = self.modules()?;
        let by_name = modules.iter().find(|m| m.name.eq_ignore_ascii_case(name));
        Ok(by_name.or_else(|| modules.iter().find(|m| m.image_name.eq_ignore_ascii_case(name))).cloned())
    }
    fn attribute(&self, address: u64) -> Attribution {
        match self.modules() {
            Err(_) => Attribution::LookupFailed,
            Ok(modules) => match modules.iter().find(|m| m.contains(address)) {
                Some(m) => Attribution::Module { name: m.name.clone(), base: m.base, rva: address - m.base },
                None => Attribution::NoModule { unloaded: self.unloaded_at(address) },
            },
        }
    }
    /// Name of the unloaded module whose range held `address`.
    fn unloaded_at(&self, address: u64) -> Option<String> {
        let unloaded = self.unloaded_modules().ok()?;
        let hit = unloaded.iter().rev().find(|m| address >= m.base && address - m.base < m.size);
        hit.map(|m| m.image_name.clone())
    }
    /// `module!symbol+0x..`, `module+0x..`, or the address: for people.
    fn describe(&self, address: u64) -> String {
        if let Ok(Some(hit)) = self.symbol_at(address) {
            return match hit.displacement {
                0 => hit.qualified(),
                displacement => format!("{}+{displacement:#x}", hit.qualified()),
            };
        }
        match self.attribute(address) {
            Attribution::Module { name, rva, .. } => format!("{name}+{rva:#x}"),
            _ => Address(address).to_string(),
        }
    }
    /// Runs `action` with another selection and restores the old one, on errors too.
    fn with_selection<T>(&self, selection: Selection, action: impl FnOnce() -> Result<T>) -> Result<T>
    where
        Self: Sized,
    {
        let before = self.selection();
        self.select(selection)?;
        let result = action();
        self.select(before)?;
        result
    }
}

impl<T: Target + ?Sized> TargetExt for T {}

/// What a running operation reports while it works.
pub trait Progress {
    /// A step in words, e.g. "loading symbols of nt".
    fn step(&self, text: &str);
    /// The target moves now: a run is on its way, and nothing can be read until it stops.
    fn moving(&self) {}
    /// The session around the operation; `None` where nobody tears one down.
    fn transaction(&self) -> Option<&dyn Transaction> {
        None
    }
}

/// Progress nobody listens to.
pub struct Silent;
impl Progress for Silent {
    fn step(&self, _: &str) {}
}
