//! A live kernel: the same reading as of a kernel dump, over memory that a debugger connection serves
//! and that changes whenever the target runs.
//!
//! The connection is a [`LiveKernel`]. Everything above single requests is here, so that every
//! protocol gets it: the page cache of one stop, discovery, breakpoints, steps and runs.

mod breakpoints;
mod discovery;
mod memory;
mod release;
mod run;
mod steps;
mod watch;
mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use target::{Context, ExceptionRecord, Halt, Machine, ReadOutcome, Result, Target, TargetError};

use crate::error::OpenError;
use crate::open::OpenOptions;

pub(crate) use breakpoints::Table;
pub(crate) use memory::{LivePages, read_virtual};
pub use watch::{SLOTS, Slot};

/// What a connection learnt of its target when it was made; none of it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// `None` stands for one that is not served.
    pub machine: Option<Machine>,
    pub build: u32,
    /// Base of the kernel image.
    pub kernel_base: u64,
    /// Address of `PsLoadedModuleList`, 0 when the target has none.
    pub loaded_modules: u64,
    /// Address of the list head whose first entry is `KDDEBUGGER_DATA64`, 0 when there is none.
    pub debugger_data_list: u64,
    /// What the target is connected to, in words that hold no secret.
    pub aim: String,
    /// What a caller would assume of such a target and cannot have.
    pub limitations: Vec<String>,
}

/// Where and why the target stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStop {
    pub processor: u32,
    pub processors: u32,
    /// KTHREAD, 0 when the target does not say.
    pub thread: u64,
    /// Where the processor will go on, of a break instruction its own address.
    pub ip: u64,
    pub event: KernelEvent,
    /// DR6 of x64 at the stop, if the target says.
    pub dr6: Option<u64>,
}

/// What stopped the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    Exception {
        record: ExceptionRecord,
        first_chance: bool,
    },
    /// A driver was loaded, or unloaded.
    Module {
        base: u64,
        path: String,
        unloaded: bool,
    },
    /// It goes down, to start again.
    Rebooting,
    /// Anything else; what there is to say of it is in the output.
    Other,
}

/// How a wait for a stop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    Stopped(KernelStop),
    /// The bound passed; the target runs.
    Bound,
    /// The halt said so; the target runs.
    Halted,
}

/// How to let the target move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// One instruction of the stopped processor.
    pub step: bool,
    /// Whether the exception it stands at is dealt with. `false` passes it on to the target.
    pub handled: bool,
    /// What hardware breakpoints are on while it moves; the slots' addresses stay as they were set.
    pub armed: [bool; SLOTS],
}

/// One debugger connection to a kernel. Requests are answered while the target is stopped only, and
/// every one is bounded by the connection's own timeout.
pub trait LiveKernel {
    fn origin(&self) -> &Origin;
    /// The present stop; `None` while it runs.
    fn stop(&self) -> Option<KernelStop>;
    /// How often it stopped: another number means that nothing read before is known to be so.
    fn stops(&self) -> u64;
    /// Why nothing reaches the target any more.
    fn lost(&self) -> Option<String>;

    /// Virtual memory as the stopped processor sees it. A short read says how far it got.
    fn read_virtual(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome;
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome;
    /// Bytes written from the start of `bytes`.
    ///
    /// # Errors
    /// What the target or the connection said; nothing is known to be written then.
    fn write_virtual(&self, address: u64, bytes: &[u8]) -> Result<usize>;
    /// See [`Self::write_virtual`].
    fn write_physical(&self, address: u64, bytes: &[u8]) -> Result<usize>;

    /// Registers of a processor; a register the target does not send is not in it.
    fn context(&self, processor: u32) -> Result<Context>;
    /// Changes registers (numbers of [`target::reg`]) and keeps all others; verified by reading back.
    fn set_registers(&self, processor: u32, values: &[(usize, u64)]) -> Result<()>;
    /// CR3 of x64 or its like, and whether it is the root of five levels.
    fn translation_root(&self, processor: u32) -> Result<(u64, bool)>;

    /// Hardware breakpoints that somebody else has set: not to be touched.
    fn taken_slots(&self) -> [bool; SLOTS];
    /// Puts a break instruction at `address`; its handle.
    fn insert(&self, address: u64) -> Result<u32>;
    /// Takes it out again.
    fn take_out(&self, handle: u32) -> Result<()>;
    /// Gives every processor these hardware breakpoints. Nothing is armed by it.
    fn set_slots(&self, slots: &[Option<Slot>; SLOTS]) -> Result<()>;

    /// Lets the target move; returns when it has acknowledged.
    fn go(&self, how: Going) -> Result<()>;
    /// Waits until it stops.
    ///
    /// # Errors
    /// The connection is gone.
    fn wait(&self, bound: Duration, halt: &Halt) -> Result<Waited>;
    /// Asks the running target to stop; the stop comes by [`Self::wait`].
    fn break_in(&self) -> Result<()>;
    /// What the target printed since the last call.
    fn output(&self) -> String;

    /// Tries a connection once more that was lost to silence; nothing to do on a good one.
    ///
    /// # Errors
    /// The target still does not answer, or cannot any more.
    fn reach_again(&self) -> Result<()>;

    /// Lets the stopped target run on for good and ends the connection.
    ///
    /// # Errors
    /// The target did not acknowledge: whether it runs is not known. May be called again.
    fn release(&self) -> Result<()>;
}

/// The parts of a live target that its reading side knows nothing of.
pub(crate) struct Live {
    pub(crate) kernel: Rc<dyn LiveKernel>,
    pub(crate) table: RefCell<Table>,
    /// Generation of [`target::Identity`]: rises when the target starts again.
    pub(crate) generation: Cell<u64>,
    /// The instruction pointer was changed since the stop: what it stands at is not what stopped it.
    pub(crate) moved: Cell<bool>,
    /// A break-in was sent whose stop has not come: the target stopped by itself.
    pub(crate) owed: Cell<bool>,
    /// The module list may be another one than was read.
    pub(crate) modules_changed: Cell<bool>,
    /// Why there is no target any more.
    pub(crate) gone: RefCell<Option<String>>,
    /// [`LiveKernel::stops`] of the stop that is known.
    pub(crate) seen: Cell<u64>,
    /// It was let go.
    pub(crate) released: Cell<bool>,
}

impl Live {
    pub(crate) fn new(kernel: Rc<dyn LiveKernel>) -> Self {
        Self {
            seen: Cell::new(kernel.stops()),
            kernel,
            table: RefCell::default(),
            generation: Cell::new(1),
            moved: Cell::new(false),
            owed: Cell::new(false),
            modules_changed: Cell::new(false),
            gone: RefCell::default(),
            released: Cell::new(false),
        }
    }

    /// The present stop.
    ///
    /// # Errors
    /// `Running`, or `Gone`.
    pub(crate) fn stopped(&self) -> Result<KernelStop> {
        if let Some(why) = &*self.gone.borrow() {
            return Err(TargetError::Gone(why.clone()));
        }
        if let Some(why) = self.kernel.lost() {
            return Err(TargetError::failed_because("link_lost", why));
        }
        self.kernel.stop().ok_or(TargetError::Running)
    }
}

/// A target over a stopped live kernel.
///
/// # Errors
/// The machine is not served, or the target is not stopped.
pub fn live_kernel(kernel: Rc<dyn LiveKernel>, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    discovery::assemble(kernel, options)
}
