//! What a target answers (`STATE_MANIPULATE`, target to host).

use crate::DecodeError;
use crate::bytes::{Fields, Record, length32};
use crate::manipulate::{Api, ENVELOPE, status};
use crate::request::{Request, breakpoint_array, breakpoints, count32};
use crate::version::Version;

/// The results of one API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// No result: the API has none, or it failed.
    None,
    /// Bytes read; fewer than asked for is a short success. A CONTEXT is whole.
    Data(Vec<u8>),
    /// Bytes written.
    Written(u32),
    /// An inserted breakpoint's handle.
    Handle(u32),
    /// What a port holds.
    Value(u32),
    /// What a model-specific register holds.
    Msr(u64),
    /// Where a search found its pattern.
    Found(u64),
    /// Bytes filled.
    Filled(u32),
    /// What an address is. `space`: 0 process, 1 session, 2 kernel; `flags`: 1 read, 2 write, 4 execute,
    /// 8 fixed.
    Memory {
        space: u32,
        flags: u32,
    },
    /// The breakpoints with their handles.
    Breakpoints(Vec<(u64, u32)>),
    /// The breakpoints that are gone.
    Restored(Vec<u32>),
    /// An internal breakpoint's counts.
    InternalBreakpoint {
        flags: u32,
        calls: u32,
        period: u32,
        min: u32,
        max: u32,
        total: u32,
    },
    Version(Version),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// NTSTATUS; its top bit set is a failure.
    pub status: u32,
    pub body: ReplyBody,
}

impl Reply {
    /// A refusal.
    #[must_use]
    pub fn failure(status: u32) -> Self {
        Self { status, body: ReplyBody::None }
    }

    /// A success.
    #[must_use]
    pub fn success(body: ReplyBody) -> Self {
        Self { status: status::SUCCESS, body }
    }

    /// Whether the target did what was asked.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.status & 0x8000_0000 == 0
    }

    /// The payload that answers the request of these bytes: its envelope (as much as came), the status,
    /// the results. A refusal's counts are 0.
    #[must_use]
    pub fn encode(&self, request: &[u8]) -> Vec<u8> {
        let mut r = Record::zeroed(ENVELOPE);
        let envelope = request.get(..ENVELOPE).unwrap_or(request);
        r.put(0, envelope).u32(8, self.status);
        let api = Api(Fields(request).u32(0));
        if !self.succeeded() {
            if let Some((at, width)) = count_field(api) {
                r.put(at, &vec![0; width]);
            }
            return r.0;
        }
        match &self.body {
            ReplyBody::None => {}
            ReplyBody::Data(data) => {
                let at = count_field(api).map_or(0x1C, |(at, _)| at);
                if !matches!(api, Api::GET_CONTEXT) {
                    r.u32(at, length32(data));
                }
                r.append(data);
            }
            ReplyBody::Written(count) => {
                r.u32(count_field(api).map_or(0x1C, |(at, _)| at), *count);
            }
            ReplyBody::Handle(handle) => {
                r.u32(if api == Api::WRITE_CUSTOM_BREAKPOINT { 0x20 } else { 0x18 }, *handle);
            }
            ReplyBody::Value(value) => {
                r.u32(if api == Api::READ_IO_EXTENDED { 0x28 } else { 0x1C }, *value);
            }
            ReplyBody::Msr(value) => {
                r.u64(0x14, *value);
            }
            ReplyBody::Found(address) => {
                r.u64(0x10, *address);
            }
            ReplyBody::Filled(count) => {
                r.u32(0x18, *count);
            }
            ReplyBody::Memory { space, flags } => {
                r.u32(0x20, *space).u32(0x24, *flags);
            }
            ReplyBody::Breakpoints(list) => {
                r.u32(0x10, count32(list.len())).append(&breakpoint_array(list));
            }
            ReplyBody::Restored(list) => {
                r.u32(0x10, count32(list.len()));
                r.append(&list.iter().flat_map(|h| h.to_le_bytes()).collect::<Vec<u8>>());
            }
            ReplyBody::InternalBreakpoint { flags, calls, period, min, max, total } => {
                r.u32(0x18, *flags).u32(0x1C, *calls).u32(0x20, *period);
                r.u32(0x24, *min).u32(0x28, *max).u32(0x2C, *total);
            }
            ReplyBody::Version(version) => version.put(&mut r),
        }
        r.0
    }

    /// The answer to `request` from a packet's payload.
    ///
    /// # Errors
    /// The answer to another request, or counts that do not agree with the bytes that came or with what
    /// was asked for.
    pub fn decode(request: &Request, bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, ENVELOPE, "a manipulate reply")?;
        let (asked, answered) = (request.api().0, f.u32(0));
        if asked != answered {
            return Err(DecodeError::OtherApi { asked, answered });
        }
        let status = f.u32(8);
        if status & 0x8000_0000 != 0 {
            return Ok(Self::failure(status));
        }
        Ok(Self { status, body: body(request, f)? })
    }
}

/// Where a reply tells how many bytes were read, written, filled or copied, and the field's width.
fn count_field(api: Api) -> Option<(usize, usize)> {
    match api {
        Api::READ_VIRTUAL
        | Api::WRITE_VIRTUAL
        | Api::READ_PHYSICAL
        | Api::WRITE_PHYSICAL
        | Api::READ_CONTROL_SPACE
        | Api::WRITE_CONTROL_SPACE => Some((0x1C, 4)),
        Api::GET_CONTEXT_EX | Api::SET_CONTEXT_EX | Api::FILL_MEMORY => Some((0x18, 4)),
        Api::GET_BUS_DATA | Api::SET_BUS_DATA => Some((0x20, 4)),
        Api::SEARCH_MEMORY => Some((0x10, 8)),
        Api::WRITE_BREAKPOINT_EX | Api::RESTORE_BREAKPOINT_EX => Some((0x10, 4)),
        _ => None,
    }
}

fn body(request: &Request, f: Fields<'_>) -> Result<ReplyBody, DecodeError> {
    let count = |at: usize, asked: u64, what| {
        let told = f.u32(at);
        if u64::from(told) > asked {
            return Err(DecodeError::Length { what, told: told.into(), found: f.rest(ENVELOPE).len() });
        }
        Ok(told)
    };
    let data = |at: usize, asked: u32| {
        let told = count(at, asked.into(), "a read")?;
        let bytes = f.rest(ENVELOPE);
        if bytes.len() as u64 != u64::from(told) {
            return Err(DecodeError::Length { what: "a read", told: told.into(), found: bytes.len() });
        }
        Ok(ReplyBody::Data(bytes.to_vec()))
    };
    let written = |at: usize, asked: &[u8]| Ok(ReplyBody::Written(count(at, asked.len() as u64, "a write")?));
    match request {
        Request::ReadVirtual { count, .. }
        | Request::ReadPhysical { count, .. }
        | Request::ReadControlSpace { count, .. } => data(0x1C, *count),
        Request::GetContextEx { count, .. } => data(0x18, *count),
        Request::GetBusData { length, .. } => data(0x20, *length),
        Request::GetContext { .. } => Ok(ReplyBody::Data(f.rest(ENVELOPE).to_vec())),
        Request::WriteVirtual { data, .. }
        | Request::WritePhysical { data, .. }
        | Request::WriteControlSpace { data, .. } => written(0x1C, data),
        Request::SetContextEx { data, .. } => written(0x18, data),
        Request::SetBusData { data, .. } => written(0x20, data),
        Request::WriteBreakpoint { .. } => Ok(ReplyBody::Handle(f.u32(0x18))),
        Request::WriteCustomBreakpoint { .. } => Ok(ReplyBody::Handle(f.u32(0x20))),
        Request::ReadIo { .. } => Ok(ReplyBody::Value(f.u32(0x1C))),
        Request::ReadIoExtended { .. } => Ok(ReplyBody::Value(f.u32(0x28))),
        Request::ReadMsr { .. } => Ok(ReplyBody::Msr(f.u64(0x14))),
        Request::SearchMemory { .. } => Ok(ReplyBody::Found(f.u64(0x10))),
        Request::FillMemory { length, .. } => Ok(ReplyBody::Filled(count(0x18, (*length).into(), "a fill")?)),
        Request::QueryMemory { .. } => Ok(ReplyBody::Memory { space: f.u32(0x20), flags: f.u32(0x24) }),
        Request::GetVersion => Ok(ReplyBody::Version(Version::read(f))),
        Request::WriteBreakpointEx { breakpoints: asked, .. } => {
            let told = count(0x10, asked.len() as u64, "a list of breakpoints")?;
            Ok(ReplyBody::Breakpoints(breakpoints(f, told.into())?))
        }
        Request::RestoreBreakpointEx { handles, .. } => {
            let told = count(0x10, handles.len() as u64, "a list of handles")?;
            let list = f.exactly(ENVELOPE, u64::from(told) * 4, "a list of handles")?;
            Ok(ReplyBody::Restored(list.chunks_exact(4).map(|h| Fields(h).u32(0)).collect()))
        }
        Request::GetInternalBreakpoint { .. } => Ok(ReplyBody::InternalBreakpoint {
            flags: f.u32(0x18),
            calls: f.u32(0x1C),
            period: f.u32(0x20),
            min: f.u32(0x24),
            max: f.u32(0x28),
            total: f.u32(0x2C),
        }),
        _ => Ok(ReplyBody::None),
    }
}
