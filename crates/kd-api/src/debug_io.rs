//! Text, trace data and hardware breakpoints that a target tells of or asks for.

use crate::DecodeError;
use crate::bytes::{Fields, Record, length32};

const PRINT: u32 = 0x3230;
const GET_STRING: u32 = 0x3231;
const DEBUG_IO: usize = 0x10;
const TRACE_PRINT: u32 = 0x3330;
const TRACE_IO: usize = 0x40;
const REQUEST_HBP: u32 = 0x4300;
const RELEASE_HBP: u32 = 0x4301;

/// `DEBUG_IO`. Text is bytes of the target's code page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugIo {
    /// The target prints. Nothing is answered.
    Print { processor: u16, text: Vec<u8> },
    /// The target asks; it is stopped until a [`DebugIo::Answer`] comes.
    GetString { processor: u16, prompt: Vec<u8>, most: u32 },
    /// Host to target: what was asked for.
    Answer { processor: u16, text: Vec<u8> },
}

impl DebugIo {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(DEBUG_IO);
        let (api, processor, first, second, text) = match self {
            Self::Print { processor, text } => (PRINT, processor, length32(text), 0, text),
            Self::GetString { processor, prompt, most } => {
                (GET_STRING, processor, length32(prompt), *most, prompt)
            }
            Self::Answer { processor, text } => (GET_STRING, processor, 0, length32(text), text),
        };
        r.u32(0, api).u16(6, *processor).u32(8, first).u32(0xC, second).append(text);
        r.0
    }

    /// What a target sent.
    ///
    /// # Errors
    /// Shorter than it tells, or another API.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, DEBUG_IO, "a debug I/O packet")?;
        let text = |length: u32| Ok(f.exactly(DEBUG_IO, length.into(), "debug I/O text")?.to_vec());
        let processor = f.u16(6);
        match f.u32(0) {
            PRINT => Ok(Self::Print { processor, text: text(f.u32(8))? }),
            GET_STRING => Ok(Self::GetString { processor, prompt: text(f.u32(8))?, most: f.u32(0xC) }),
            other => Err(DecodeError::Unknown { what: "the debug I/O API", found: other.into() }),
        }
    }

    /// What a host answered.
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    pub fn decode_answer(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, DEBUG_IO, "a debug I/O answer")?;
        match f.u32(0) {
            GET_STRING => {
                let text = f.exactly(DEBUG_IO, f.u32(0xC).into(), "a debug I/O answer")?.to_vec();
                Ok(Self::Answer { processor: f.u16(6), text })
            }
            other => Err(DecodeError::Unknown { what: "the debug I/O API", found: other.into() }),
        }
    }
}

/// `TRACE_IO`: data of the target, which nothing answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceIo {
    pub processor: u16,
    pub data: Vec<u8>,
}

impl TraceIo {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(TRACE_IO);
        r.u32(0, TRACE_PRINT).u16(6, self.processor).u32(8, length32(&self.data)).append(&self.data);
        r.0
    }

    /// # Errors
    /// Shorter than it tells, or another API.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, TRACE_IO, "a trace packet")?;
        match f.u32(0) {
            TRACE_PRINT => {
                let data = f.exactly(TRACE_IO, f.u32(8).into(), "trace data")?.to_vec();
                Ok(Self { processor: f.u16(6), data })
            }
            other => Err(DecodeError::Unknown { what: "the trace API", found: other.into() }),
        }
    }
}

/// `CONTROL_REQUEST`: the target wants a debug register, or gives one back. The answer has the same
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Given back, not asked for.
    pub release: bool,
    pub number: u32,
    /// In the answer: it is available, or released.
    pub granted: bool,
}

impl ControlRequest {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(12);
        let api = if self.release { RELEASE_HBP } else { REQUEST_HBP };
        r.u32(0, api).u32(4, self.number).u32(8, u32::from(self.granted));
        r.0
    }

    /// # Errors
    /// Shorter than the record, or another API.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, 12, "a control request")?;
        let release = match f.u32(0) {
            REQUEST_HBP => false,
            RELEASE_HBP => true,
            other => {
                return Err(DecodeError::Unknown { what: "the control request", found: other.into() });
            }
        };
        Ok(Self { release, number: f.u32(4), granted: f.u32(8) != 0 })
    }
}
