//! Files of the debugger's machine that a target wants (`FILE_IO`).

use crate::DecodeError;
use crate::bytes::{Fields, Record, length32};

const RECORD: usize = 0x40;
const CREATE: u32 = 0x3430;
const READ: u32 = 0x3431;
const WRITE: u32 = 0x3432;
const CLOSE: u32 = 0x3433;

/// `STATUS_NO_SUCH_FILE`: what a debugger that serves no file answers to every request.
pub const NO_SUCH_FILE: u32 = 0xC000_000F;

/// What a target asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRequest {
    Create {
        access: u32,
        attributes: u32,
        share: u32,
        disposition: u32,
        options: u32,
        /// UTF-16, without the NUL.
        path: Vec<u16>,
    },
    Read {
        handle: u64,
        offset: u64,
        length: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Close {
        handle: u64,
    },
    /// Another API; it is answered like the others.
    Unknown {
        api: u32,
    },
}

/// The answer, less what it repeats of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReply {
    /// NTSTATUS.
    pub status: u32,
    /// Of a create.
    pub handle: u64,
    /// A create's file length; bytes read or written.
    pub length: u64,
    /// What was read.
    pub data: Vec<u8>,
}

impl FileRequest {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(RECORD);
        match self {
            Self::Create { access, attributes, share, disposition, options, path } => {
                r.u32(0, CREATE).u32(8, *access).u32(0xC, *attributes).u32(0x10, *share);
                r.u32(0x14, *disposition).u32(0x18, *options);
                r.append(&path.iter().chain(&[0]).flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>());
            }
            Self::Read { handle, offset, length } => {
                r.u32(0, READ).u64(8, *handle).u64(0x10, *offset).u32(0x18, *length);
            }
            Self::Write { handle, offset, data } => {
                r.u32(0, WRITE).u64(8, *handle).u64(0x10, *offset).u32(0x18, length32(data)).append(data);
            }
            Self::Close { handle } => {
                r.u32(0, CLOSE).u64(8, *handle);
            }
            Self::Unknown { api } => {
                r.u32(0, *api);
            }
        }
        r.0
    }

    /// # Errors
    /// Shorter than the record, or than it tells.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, RECORD, "a file request")?;
        Ok(match f.u32(0) {
            CREATE => Self::Create {
                access: f.u32(8),
                attributes: f.u32(0xC),
                share: f.u32(0x10),
                disposition: f.u32(0x14),
                options: f.u32(0x18),
                path: f
                    .rest(RECORD)
                    .chunks_exact(2)
                    .map(|c| Fields(c).u16(0))
                    .take_while(|&c| c != 0)
                    .collect(),
            },
            READ => Self::Read { handle: f.u64(8), offset: f.u64(0x10), length: f.u32(0x18) },
            WRITE => Self::Write {
                handle: f.u64(8),
                offset: f.u64(0x10),
                data: f.exactly(RECORD, f.u32(0x18).into(), "data to write to a file")?.to_vec(),
            },
            CLOSE => Self::Close { handle: f.u64(8) },
            api => Self::Unknown { api },
        })
    }
}

impl FileReply {
    /// A refusal.
    #[must_use]
    pub fn failure(status: u32) -> Self {
        Self { status, handle: 0, length: 0, data: Vec::new() }
    }

    /// The payload that answers the request of these bytes: its record, the status and the results.
    #[must_use]
    pub fn encode(&self, request: &[u8]) -> Vec<u8> {
        let mut r = Record::zeroed(RECORD);
        r.put(0, request.get(..RECORD).unwrap_or(request)).u32(4, self.status);
        if self.status & 0x8000_0000 != 0 {
            return r.0;
        }
        match Fields(request).u32(0) {
            CREATE => {
                r.u64(0x20, self.handle).u64(0x28, self.length);
            }
            READ => {
                r.u32(0x18, length32(&self.data)).append(&self.data);
            }
            WRITE => {
                r.u32(0x18, u32::try_from(self.length).unwrap_or(u32::MAX));
            }
            _ => {}
        }
        r.0
    }

    /// # Errors
    /// Shorter than the record, or than it tells.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, RECORD, "a file answer")?;
        let status = f.u32(4);
        if status & 0x8000_0000 != 0 {
            return Ok(Self::failure(status));
        }
        Ok(match f.u32(0) {
            CREATE => Self { status, handle: f.u64(0x20), length: f.u64(0x28), data: Vec::new() },
            READ => {
                let data = f.exactly(RECORD, f.u32(0x18).into(), "data of a file")?.to_vec();
                Self { status, handle: 0, length: data.len() as u64, data }
            }
            WRITE => Self { status, handle: 0, length: f.u32(0x18).into(), data: Vec::new() },
            _ => Self { status, handle: 0, length: 0, data: Vec::new() },
        })
    }
}
