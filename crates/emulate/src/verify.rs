//! Does a control code reach an address? The second opinion on what an analysis of code claims.

use std::ops::Range;
use std::rc::Rc;

use target::{Halt, Machine};

use crate::emulator::{Call, Emulator, UnknownAddress};
use crate::explore::{CallAction, Host, Limits, Visit, explore, return_address};
use crate::memory::{Backing, Memory, Outside};
use crate::value::Value;

/// How a routine gets its control code (driver ABI: `wdm.h`, `wdfio.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// `(DeviceObject, Irp)`.
    Wdm,
    /// `FAST_IO_DEVICE_CONTROL(FileObject, Wait, InputBuffer, InputBufferLength, OutputBuffer,
    /// OutputBufferLength, IoControlCode, IoStatus, DeviceObject)`.
    FastIo,
    /// `(Queue, Request, OutputBufferLength, InputBufferLength, IoControlCode)`.
    WdfDeviceControl,
    /// `(Queue or Device, Request)`: the code comes from `WdfRequestGetParameters` or
    /// `WdfRequestWdmGetIrp`.
    WdfRequest,
}

/// The framework's functions as a client calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WdfTable {
    /// Address of the array of functions (`WDF_BIND_INFO.FuncTable`).
    pub table: u64,
    /// `table` is a variable that holds the array's address.
    pub pointer: bool,
    /// Functions of the array; at most 1,024 are used.
    pub count: u32,
}

/// A routine and how it is entered.
#[derive(Clone)]
pub struct Routine {
    pub machine: Machine,
    pub entry: u64,
    pub convention: Convention,
    /// Where the image lies and its bytes; what is outside, or does not read, is unknown.
    pub image: Range<u64>,
    pub bytes: Rc<dyn Backing>,
    pub wdf: Option<WdfTable>,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub code: u32,
    /// `MajorFunction` of the stack location.
    pub major: u8,
    /// `None`: unknown.
    pub input_length: Option<u32>,
    pub output_length: Option<u32>,
}

/// What a run showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Reached,
    /// Every path ended elsewhere.
    NotReached,
    /// A limit came first, or a path met what the interpreter does not know.
    Undecided,
}

/// The answer to [`reaches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    pub verdict: Verdict,
    pub steps: u64,
    pub forks: u32,
}

/// Runs `routine` on `request` and says whether the instruction at `landing` is reached, or called.
/// Calls return unknown, but for callees in `follow`, which are entered, and what of the framework
/// hands out the request's own data. `popped` gives the bytes of arguments that a callee takes off an
/// x86 stack, if it knows (else: its `ret n`, else what was pushed).
pub fn reaches(
    routine: &Routine,
    request: &Request,
    landing: u64,
    follow: &[u64],
    popped: &dyn Fn(&Call) -> Option<u32>,
    limits: &Limits,
    halt: &Halt,
) -> Verification {
    let mut emulator = enter(routine, request);
    emulator.registers.ip = routine.entry;
    let places = Places::of(routine);
    let mut host = Landing { landing, follow, popped, places, request: *request, reached: false };
    let run = explore(emulator, limits, halt, &mut host);
    let doubt = run.cut_short
        || run
            .ends
            .iter()
            .any(|(end, _)| matches!(end, crate::End::Stopped(s) if !matches!(s, crate::Stop::Trap { .. })));
    let verdict = match (host.reached, doubt) {
        (true, _) => Verdict::Reached,
        (false, true) => Verdict::Undecided,
        (false, false) => Verdict::NotReached,
    };
    Verification { verdict, steps: run.steps, forks: run.forks }
}

/// Where the request's structures lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub device: u64,
    pub irp: u64,
    pub stack_location: u64,
    /// Initial stack pointer's neighbourhood.
    pub stack: u64,
    /// Stubs of framework functions, 16 bytes each.
    pub wdf: u64,
}

impl Places {
    /// Away from the image.
    #[must_use]
    pub fn of(routine: &Routine) -> Self {
        let base = if routine.machine == Machine::X86 {
            [0x6000_0000, 0x2000_0000, 0xa000_0000]
                .into_iter()
                .find(|&b| routine.image.end <= b || routine.image.start >= b + 0x100_0000)
                .unwrap_or(0x6000_0000)
        } else {
            0x6000_0000_0000
        };
        Self {
            device: base,
            irp: base + 0x1_0000,
            stack_location: base + 0x1_0400,
            stack: base + 0x20_0000,
            wdf: base + 0x40_0000,
        }
    }
}

/// A machine at `routine.entry` with `request` in place: what the convention passes, everything else
/// unknown.
#[must_use]
pub fn enter(routine: &Routine, request: &Request) -> Emulator {
    let places = Places::of(routine);
    let mut memory = Memory::new(Outside::Unknown);
    memory.limit_pages(0x800);
    memory.map_backed(
        routine.image.start,
        routine.image.end.saturating_sub(routine.image.start),
        Rc::clone(&routine.bytes),
    );
    let mut emulator = Emulator::new(routine.machine, memory);
    emulator.unknown_address = UnknownAddress::Ignore;
    emulator.add_stubs(places.wdf..places.wdf + 0x4000);
    emulator.registers.ip = routine.entry;
    // The memory above cannot fail: outside its regions it is unknown, and few pages are in use.
    let _ = set_up(&mut emulator, routine, request, &places);
    emulator
}

fn length(length: Option<u32>) -> Value {
    length.map_or(Value::unknown(4), |l| Value::known(u64::from(l)))
}

fn set_up(
    emulator: &mut Emulator,
    routine: &Routine,
    request: &Request,
    places: &Places,
) -> Result<(), crate::Fault> {
    let narrow = emulator.pointer() == 4;
    let pointer = emulator.pointer();
    let memory = &mut emulator.memory;
    // IRP and IO_STACK_LOCATION (wdm.h).
    let current = places.irp + if narrow { 0x60 } else { 0xb8 };
    memory.write(current, pointer, Value::known(places.stack_location))?;
    memory.write(places.stack_location, 1, Value::known(u64::from(request.major)))?;
    let field =
        |wide: u64, narrow_offset: u64| places.stack_location + if narrow { narrow_offset } else { wide };
    memory.write(field(8, 4), 4, length(request.output_length))?;
    memory.write(field(0x10, 8), 4, length(request.input_length))?;
    memory.write(field(0x18, 0xc), 4, Value::known(u64::from(request.code)))?;
    memory.write(field(0x28, 0x14), pointer, Value::known(places.device))?;
    if let Some(wdf) = routine.wdf {
        let mut table = wdf.table;
        if wdf.pointer {
            table = places.wdf + 0x8000;
            memory.write(wdf.table, pointer, Value::known(table))?;
        }
        for index in 0..u64::from(wdf.count.min(1024)) {
            memory.write(
                table + index * u64::from(pointer),
                pointer,
                Value::known(places.wdf + 16 * index),
            )?;
        }
    }
    emulator.begin_call(places.stack)?;
    let code = Value::known(u64::from(request.code));
    let arguments: Vec<Value> = match routine.convention {
        Convention::Wdm => vec![Value::known(places.device), Value::known(places.irp)],
        Convention::FastIo => vec![
            Value::UNKNOWN,
            Value::known(1),
            Value::UNKNOWN,
            length(request.input_length),
            Value::UNKNOWN,
            length(request.output_length),
            code,
            Value::UNKNOWN,
            Value::known(places.device),
        ],
        Convention::WdfDeviceControl => vec![
            Value::UNKNOWN,
            Value::UNKNOWN,
            length(request.output_length),
            length(request.input_length),
            code,
        ],
        Convention::WdfRequest => Vec::new(),
    };
    for (index, value) in (0u32..).zip(arguments) {
        emulator.set_argument(index, value)?;
    }
    Ok(())
}

impl Emulator {
    /// Prepares the entry of a routine: stack pointer below `stack` (aligned to 64 KiB), the return
    /// address [`return_address`] in place. Arguments are set afterwards, ip by the caller.
    pub fn begin_call(&mut self, stack: u64) -> Result<(), crate::Fault> {
        let back = return_address(self);
        let pointer = self.pointer();
        if self.machine == Machine::Arm64 {
            self.registers.general[crate::SP_ARM64] = Value::known(stack);
            self.registers.general[30] = Value::known(back);
            return Ok(());
        }
        let sp = stack - u64::from(pointer);
        self.registers.general[crate::RSP] = Value::known(sp);
        self.memory.write(sp, pointer, Value::known(back))
    }
}

struct Landing<'a> {
    landing: u64,
    follow: &'a [u64],
    popped: &'a dyn Fn(&Call) -> Option<u32>,
    places: Places,
    request: Request,
    reached: bool,
}

/// Framework functions that hand out the request (indices of the KMDF function table).
const GET_PARAMETERS: u64 = 266;
const WDM_GET_IRP: u64 = 285;

impl Landing<'_> {
    fn framework(&mut self, emulator: &mut Emulator, index: u64) -> Value {
        match index {
            WDM_GET_IRP => Value::known(self.places.irp),
            GET_PARAMETERS => {
                // (DriverGlobals, Request, Parameters)
                if let Some(at) = emulator.argument(2).get() {
                    let _ = self.parameters(emulator, at);
                }
                Value::UNKNOWN
            }
            _ => Value::UNKNOWN,
        }
    }

    /// `WDF_REQUEST_PARAMETERS` (wdfrequest.h).
    fn parameters(&self, emulator: &mut Emulator, at: u64) -> Result<(), crate::Fault> {
        let narrow = emulator.pointer() == 4;
        let field = |wide: u64, narrow_offset: u64| at + if narrow { narrow_offset } else { wide };
        let memory = &mut emulator.memory;
        memory.forget(at + 2, 1)?;
        memory.write(at + 4, 4, Value::known(u64::from(self.request.major)))?;
        memory.write(field(8, 8), pointer_width(narrow), length(self.request.output_length))?;
        memory.write(field(0x10, 0xc), pointer_width(narrow), length(self.request.input_length))?;
        memory.write(field(0x18, 0x10), 4, Value::known(u64::from(self.request.code)))?;
        memory.write(field(0x20, 0x14), pointer_width(narrow), Value::UNKNOWN)
    }
}

fn pointer_width(narrow: bool) -> u32 {
    if narrow { 4 } else { 8 }
}

impl Host for Landing<'_> {
    fn visit(&mut self, emulator: &mut Emulator) -> Visit {
        self.reached |= emulator.registers.ip == self.landing;
        if self.reached { Visit::Finish } else { Visit::Continue }
    }

    fn call(&mut self, emulator: &mut Emulator, call: &Call) -> CallAction {
        if call.target == Some(self.landing) {
            self.reached = true;
            return CallAction::Finish;
        }
        if call.target.is_some_and(|target| self.follow.contains(&target)) {
            return CallAction::Enter;
        }
        let popped = (self.popped)(call).unwrap_or_else(|| crate::stack_bytes::inferred(emulator, call));
        let stub = call.target.filter(|t| (self.places.wdf..self.places.wdf + 0x4000).contains(t));
        let value = match stub {
            Some(stub) => self.framework(emulator, (stub - self.places.wdf) / 16),
            None => Value::UNKNOWN,
        };
        CallAction::Return { value, popped }
    }
}
