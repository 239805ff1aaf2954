//! Threads, processes, events, and what the selection is.

use crate::context::Context;
use crate::value::HexBytes;

/// What queries without an explicit thread refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// System thread id (user targets).
    pub thread: Option<u32>,
    /// Processor (kernel targets).
    pub processor: Option<u32>,
    /// EPROCESS whose user half is visible (kernel targets), `None` for the current thread's.
    pub process: Option<u64>,
}

/// Which side of a WoW64 process is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The target's default: x86 for a WoW64 process.
    #[default]
    Default,
    Native,
    Wow64,
}

/// Whose registers are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextOf {
    /// The selected thread or processor, as the debugger would show it (the stored exception's
    /// context for the thread that raised it).
    Selected,
    /// A user thread by system id.
    Thread(u32),
    Processor(u32),
    /// A kernel thread by ETHREAD.
    KernelThread(u64),
}

/// A thread of a user target, or a processor of a kernel target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The debugger's dense index.
    pub index: u32,
    /// System thread id; on a kernel target the processor number.
    pub system_id: u32,
    pub process_id: Option<u32>,
    pub processor: Option<u32>,
    pub teb: Option<u64>,
    /// ETHREAD of what runs on the processor.
    pub thread_object: Option<u64>,
    pub name: Option<String>,
    pub suspend_count: Option<u32>,
    pub priority: Option<u32>,
    pub start_address: Option<u64>,
    /// The thread the last event happened on.
    pub event: bool,
}

/// A process of a kernel target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// EPROCESS.
    pub object: u64,
    pub pid: u64,
    pub parent_pid: Option<u64>,
    pub name: String,
    pub directory_table_base: u64,
    pub peb: Option<u64>,
    pub wow64: bool,
    pub exited: bool,
}

/// A thread of a kernel target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// ETHREAD.
    pub object: u64,
    /// EPROCESS it is attached to.
    pub process: u64,
    pub tid: Option<u64>,
    pub pid: Option<u64>,
    pub processor: Option<u32>,
    /// KTHREAD.State, if readable.
    pub state: Option<u8>,
    pub wait_reason: Option<u8>,
    pub irql: Option<u8>,
    pub stack_base: Option<u64>,
    pub stack_limit: Option<u64>,
    pub teb: Option<u64>,
}

/// An exception record, widened to 64 bits, addresses zero-extended on 32-bit targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExceptionRecord {
    pub code: u32,
    pub flags: u32,
    /// Address of a nested record, 0 for none.
    pub nested: u64,
    pub address: u64,
    pub parameters: Vec<u64>,
}

/// The event a target stopped on, or a dump was written for.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    pub thread: Option<u32>,
    pub record: ExceptionRecord,
    pub first_chance: Option<bool>,
    /// The context stored with the event, if it holds up.
    pub context: Option<Context>,
    /// The stored context did not validate and is not used.
    pub context_invalid: bool,
}

/// A bug check as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BugCheck {
    pub code: u32,
    pub parameters: [u64; 4],
    /// `KiBugCheckDriver`, if readable.
    pub driver: Option<String>,
}

/// Page state, as `VirtualQuery` or the page tables give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub base: u64,
    pub size: u64,
    pub allocation_base: Option<u64>,
    pub state: RegionState,
    /// `PAGE_*` bits (winnt.h), if known.
    pub protect: Option<u32>,
    /// What lives there, in words: `Stack of thread 1a4`, `Image nt`, `TEB`.
    pub usage: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    Committed,
    Reserved,
    Free,
    /// Mapped by the page tables of a kernel target.
    Valid,
    /// The target cannot say. Never reported as free.
    Unknown,
}

/// One decoded instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub address: u64,
    /// In memory order; of ARM64 the four bytes of the word.
    pub bytes: HexBytes,
    /// `None` when the bytes decode to nothing.
    pub text: Option<String>,
    /// Where a direct branch or call goes.
    pub target: Option<u64>,
    pub flow: Flow,
    /// Address of the memory operand when it needs no registers but the instruction pointer.
    pub data_address: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    Branch,
    ConditionalBranch,
    Call,
    IndirectBranch,
    IndirectCall,
    Return,
    Trap,
    Invalid,
}
