//! What a machine does for a debugger.

use kd_api::{Continue2, FileReply, FileRequest, FillSpace, StateChange, Version, status};

/// Why a machine does not do what it is asked: the NTSTATUS that the debugger gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused with status {0:#010x}")]
pub struct Refusal(pub u32);

impl Default for Refusal {
    fn default() -> Self {
        Self(status::UNSUCCESSFUL)
    }
}

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// CONTINUE: a status, nothing about the processor.
    Plain { status: u32 },
    /// CONTINUE2.
    Controlled(Continue2),
}

/// A stop to tell the debugger.
pub type Stop = StateChange;

/// What a machine tells while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetMessage {
    /// It stopped; [`KdBackend::stop`] tells the same until it goes on.
    Stopped(Box<Stop>),
    /// It prints.
    Print(Vec<u8>),
    /// It asks for a line; it waits for [`KdBackend::string_answered`].
    GetString { prompt: Vec<u8>, most: u32 },
    /// It wants a file; it waits for [`KdBackend::file_answered`].
    File(FileRequest),
}

type Answer<T> = Result<T, Refusal>;

/// A machine. Addresses are virtual in the current address space of the current processor unless said.
/// What a machine has not is refused: the defaults do.
pub trait KdBackend {
    fn version(&mut self) -> Version;

    /// The stop it is in; `None` while it runs.
    fn stop(&mut self) -> Option<Stop>;

    /// Runs a while, for as long as a debugger may wait for the answer to a break-in. Not called while it
    /// is stopped.
    fn run(&mut self) -> Option<TargetMessage>;

    /// The debugger wants it to stop; [`run`](Self::run) tells when it did.
    fn break_in(&mut self);

    /// Goes on.
    fn resume(&mut self, how: Resume);

    /// Up to `buffer`'s length of the bytes at `address`; how many from the first on are readable.
    ///
    /// # Errors
    /// Not even the first is.
    fn read_virtual(&mut self, address: u64, buffer: &mut [u8]) -> Answer<usize>;

    /// A processor's CONTEXT, whole.
    ///
    /// # Errors
    /// There is no such processor.
    fn context(&mut self, processor: u16) -> Answer<Vec<u8>>;

    /// A control space's bytes.
    ///
    /// # Errors
    /// There is no such selector or processor.
    fn control_space(&mut self, processor: u16, selector: u64) -> Answer<Vec<u8>>;

    /// How many bytes were written.
    ///
    /// # Errors
    /// None was.
    fn write_virtual(&mut self, _address: u64, _data: &[u8]) -> Answer<usize> {
        Err(Refusal::default())
    }
    /// # Errors
    /// Not even the first byte is there.
    fn read_physical(&mut self, _address: u64, _buffer: &mut [u8]) -> Answer<usize> {
        Err(Refusal::default())
    }
    /// # Errors
    /// None was written.
    fn write_physical(&mut self, _address: u64, _data: &[u8]) -> Answer<usize> {
        Err(Refusal::default())
    }
    /// What an address is: its space (0 process, 1 session, 2 kernel) and flags (1 read, 2 write, 4
    /// execute, 8 fixed). DbgEng sets no breakpoint where this is refused.
    ///
    /// # Errors
    /// Nothing is there.
    fn query_memory(&mut self, _address: u64) -> Answer<(u32, u32)> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such processor, or it is not a CONTEXT.
    fn set_context(&mut self, _processor: u16, _context: &[u8]) -> Answer<()> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such selector or processor, or it cannot be written.
    fn set_control_space(&mut self, _processor: u16, _selector: u64, _data: &[u8]) -> Answer<()> {
        Err(Refusal::default())
    }
    /// A breakpoint's handle, from 1.
    ///
    /// # Errors
    /// It cannot be inserted there.
    fn insert_breakpoint(&mut self, _address: u64) -> Answer<u32> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such breakpoint.
    fn remove_breakpoint(&mut self, _handle: u32) -> Answer<()> {
        Err(Refusal::default())
    }
    /// Makes `processor` the current one; [`stop`](Self::stop) tells its state then.
    ///
    /// # Errors
    /// There is no such processor.
    fn switch_processor(&mut self, _processor: u16) -> Answer<()> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such register.
    fn msr(&mut self, _msr: u32) -> Answer<u64> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such register, or it cannot be written.
    fn set_msr(&mut self, _msr: u32, _value: u64) -> Answer<()> {
        Err(Refusal::default())
    }
    /// A port's value; `size` is 1, 2 or 4 bytes.
    ///
    /// # Errors
    /// There is no such port.
    fn port(&mut self, _port: u64, _size: u32) -> Answer<u32> {
        Err(Refusal::default())
    }
    /// # Errors
    /// There is no such port.
    fn set_port(&mut self, _port: u64, _size: u32, _value: u32) -> Answer<()> {
        Err(Refusal::default())
    }
    /// Where `pattern` begins first within `length` bytes of `start`.
    ///
    /// # Errors
    /// `STATUS_NO_MORE_ENTRIES`: nowhere.
    fn search(&mut self, _start: u64, _length: u64, _pattern: &[u8]) -> Answer<u64> {
        Err(Refusal::default())
    }
    /// How many bytes were filled.
    ///
    /// # Errors
    /// None was. DbgEng has no other way to fill.
    fn fill(&mut self, _space: FillSpace, _address: u64, _length: u32, _pattern: &[u8]) -> Answer<u32> {
        Err(Refusal::default())
    }
    /// # Errors
    /// It has no bug checks.
    fn bug_check(&mut self, _code: u32) -> Answer<()> {
        Err(Refusal::default())
    }
    /// # Errors
    /// It does not restart.
    fn reboot(&mut self) -> Answer<()> {
        Err(Refusal::default())
    }
    /// The line that was asked for.
    fn string_answered(&mut self, _text: &[u8]) {}
    /// The file's answer.
    fn file_answered(&mut self, _reply: &FileReply) {}
}
