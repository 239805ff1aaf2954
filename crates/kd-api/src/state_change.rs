//! A target that stopped (`STATE_CHANGE64`, `DBGKD_ANY_WAIT_STATE_CHANGE`).

use crate::DecodeError;
use crate::bytes::{Fields, Record, length32};

const RECORD: usize = 0xF0;
const EXCEPTION: u32 = 0x3030;
const LOAD_SYMBOLS: u32 = 0x3031;
const COMMAND_STRING: u32 = 0x3032;
/// Set in the state's number by an alternate source.
const ALTERNATE: u32 = 0x1_0000;

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    pub processor_level: u16,
    pub processor: u16,
    pub processors: u32,
    /// The current KTHREAD; 0 when the target does not know.
    pub thread: u64,
    pub program_counter: u64,
    pub reason: StopReason,
    pub control: ControlReport,
    /// Told by an alternate source (a hypervisor's partition).
    pub alternate: bool,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    Exception(Exception),
    /// A module was loaded or unloaded.
    LoadSymbols(LoadSymbols),
    /// Text for the debugger to run. Whoever runs it lets the target run commands on its host.
    CommandString {
        flags: u32,
        name: Vec<u8>,
        command: Vec<u8>,
    },
    /// A number that is none of these.
    Other(u32),
}

/// `DBGKM_EXCEPTION64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Exception {
    pub code: u32,
    pub flags: u32,
    pub record: u64,
    pub address: u64,
    /// As told; at most 15 are carried.
    pub parameter_count: u32,
    pub parameters: [u64; 15],
    pub first_chance: bool,
}

/// `DBGKD_LOAD_SYMBOLS64`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LoadSymbols {
    /// The path's bytes (ANSI), without the NUL.
    pub path: Vec<u8>,
    pub base: u64,
    /// All ones: the kernel.
    pub process: u64,
    pub checksum: u32,
    /// Bytes of the image.
    pub size: u32,
    pub unload: bool,
}

impl LoadSymbols {
    /// "Forget every module": what a target tells as it goes down to reboot.
    #[must_use]
    pub fn forgets_all(&self) -> bool {
        self.unload && self.base == u64::MAX && self.path.is_empty() && self.process == 0
    }
}

/// `DBGKD_CONTROL_REPORT` of x64: what is needed of the registers at once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ControlReport {
    pub dr6: u64,
    pub dr7: u64,
    pub eflags: u32,
    /// 1 the segments are told, 2 CS is the kernel's own.
    pub flags: u16,
    /// The bytes at the program counter, at most 16; none is legal.
    pub instructions: Vec<u8>,
    pub cs: u16,
    pub ds: u16,
    pub es: u16,
    pub fs: u16,
}

impl StateChange {
    /// The packet's payload. Instruction bytes over 16 are cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(RECORD);
        r.u16(4, self.processor_level).u16(6, self.processor).u32(8, self.processors);
        r.u64(0x10, self.thread).u64(0x18, self.program_counter);
        let state = match &self.reason {
            StopReason::Exception(exception) => {
                exception.put(&mut r);
                EXCEPTION
            }
            StopReason::LoadSymbols(load) => {
                load.put(&mut r);
                LOAD_SYMBOLS
            }
            StopReason::CommandString { flags, name, command } => {
                r.u32(0x20, *flags).append(name).append(&[0]).append(command).append(&[0]);
                COMMAND_STRING
            }
            StopReason::Other(state) => *state,
        };
        r.u32(0, state | if self.alternate { ALTERNATE } else { 0 });
        self.control.put(&mut r);
        r.0
    }

    /// A stop from a packet's payload.
    ///
    /// # Errors
    /// Shorter than the record, or a path longer than what came.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, RECORD, "a state change")?;
        let state = f.u32(0);
        let reason = match state & !ALTERNATE {
            EXCEPTION => StopReason::Exception(Exception::read(f)),
            LOAD_SYMBOLS => StopReason::LoadSymbols(LoadSymbols::read(f)?),
            COMMAND_STRING => {
                let mut texts = f.rest(RECORD).split(|&b| b == 0);
                let mut text = || texts.next().unwrap_or_default().to_vec();
                StopReason::CommandString { flags: f.u32(0x20), name: text(), command: text() }
            }
            other => StopReason::Other(other),
        };
        Ok(Self {
            processor_level: f.u16(4),
            processor: f.u16(6),
            processors: f.u32(8),
            thread: f.u64(0x10),
            program_counter: f.u64(0x18),
            reason,
            control: ControlReport::read(f),
            alternate: state & ALTERNATE != 0,
        })
    }
}

impl Exception {
    fn put(&self, r: &mut Record) {
        r.u32(0x20, self.code).u32(0x24, self.flags).u64(0x28, self.record).u64(0x30, self.address);
        r.u32(0x38, self.parameter_count).u32(0xB8, u32::from(self.first_chance));
        for (index, parameter) in self.parameters.iter().enumerate() {
            r.u64(0x40 + 8 * index, *parameter);
        }
    }

    fn read(f: Fields<'_>) -> Self {
        Self {
            code: f.u32(0x20),
            flags: f.u32(0x24),
            record: f.u64(0x28),
            address: f.u64(0x30),
            parameter_count: f.u32(0x38),
            parameters: std::array::from_fn(|index| f.u64(0x40 + 8 * index)),
            first_chance: f.u32(0xB8) != 0,
        }
    }
}

impl LoadSymbols {
    fn put(&self, r: &mut Record) {
        // "Forget every module" has no path, and no NUL either.
        let length = if self.path.is_empty() { 0 } else { length32(&self.path).saturating_add(1) };
        r.u32(0x20, length).u64(0x28, self.base).u64(0x30, self.process);
        r.u32(0x38, self.checksum).u32(0x3C, self.size).u8(0x40, u8::from(self.unload));
        if length != 0 {
            r.append(&self.path).append(&[0]);
        }
    }

    fn read(f: Fields<'_>) -> Result<Self, DecodeError> {
        let path = f.exactly(RECORD, u64::from(f.u32(0x20)), "a module's path")?;
        Ok(Self {
            path: path.split(|&b| b == 0).next().unwrap_or_default().to_vec(),
            base: f.u64(0x28),
            process: f.u64(0x30),
            checksum: f.u32(0x38),
            size: f.u32(0x3C),
            unload: f.u8(0x40) != 0,
        })
    }
}

impl ControlReport {
    fn put(&self, r: &mut Record) {
        let shown = self.instructions.get(..16).unwrap_or(&self.instructions);
        r.u64(0xC0, self.dr6).u64(0xC8, self.dr7).u32(0xD0, self.eflags);
        r.u16(0xD4, u16::try_from(shown.len()).unwrap_or(16)).u16(0xD6, self.flags).put(0xD8, shown);
        r.u16(0xE8, self.cs).u16(0xEA, self.ds).u16(0xEC, self.es).u16(0xEE, self.fs);
    }

    fn read(f: Fields<'_>) -> Self {
        let count = usize::from(f.u16(0xD4)).min(16);
        Self {
            dr6: f.u64(0xC0),
            dr7: f.u64(0xC8),
            eflags: f.u32(0xD0),
            flags: f.u16(0xD6),
            instructions: f.0.get(0xD8..0xD8 + count).unwrap_or_default().to_vec(),
            cs: f.u16(0xE8),
            ds: f.u16(0xEA),
            es: f.u16(0xEC),
            fs: f.u16(0xEE),
        }
    }
}
