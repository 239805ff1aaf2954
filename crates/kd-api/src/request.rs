//! What a debugger asks (`STATE_MANIPULATE`, host to target).

use crate::DecodeError;
use crate::bytes::{Fields, Record, length32};
use crate::manipulate::{Api, ENVELOPE};

/// `DBGKD_CONTINUE2` of x64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continue2 {
    /// NTSTATUS: [`status`](crate::status).
    pub status: u32,
    /// Stop after one instruction.
    pub trace: bool,
    /// DR7 to run with.
    pub dr7: u64,
    /// A range to step through: begin 1 and end 0 is none.
    pub symbols: (u64, u64),
}

impl Continue2 {
    /// Go on without a range.
    #[must_use]
    pub fn new(status: u32, trace: bool, dr7: u64) -> Self {
        Self { status, trace, dr7, symbols: (1, 0) }
    }
}

/// Which memory a fill is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillSpace {
    Virtual,
    Physical,
}

/// A request. Addresses, selectors and ports are as the target sees them; `processor` is a number from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    ReadVirtual {
        address: u64,
        count: u32,
    },
    WriteVirtual {
        address: u64,
        data: Vec<u8>,
    },
    GetContext {
        processor: u16,
    },
    /// `context` is a whole CONTEXT.
    SetContext {
        processor: u16,
        context: Vec<u8>,
    },
    WriteBreakpoint {
        address: u64,
    },
    RestoreBreakpoint {
        handle: u32,
    },
    Continue {
        status: u32,
    },
    ReadControlSpace {
        processor: u16,
        selector: u64,
        count: u32,
    },
    WriteControlSpace {
        processor: u16,
        selector: u64,
        data: Vec<u8>,
    },
    /// `size` is 1, 2 or 4.
    ReadIo {
        port: u64,
        size: u32,
    },
    WriteIo {
        port: u64,
        size: u32,
        value: u32,
    },
    Reboot,
    Continue2(Continue2),
    /// `cache` 0 is the default caching.
    ReadPhysical {
        address: u64,
        count: u32,
        cache: u32,
    },
    WritePhysical {
        address: u64,
        data: Vec<u8>,
        cache: u32,
    },
    QuerySpecialCalls,
    SetSpecialCall {
        address: u64,
    },
    ClearSpecialCalls,
    SetInternalBreakpoint {
        address: u64,
        flags: u32,
    },
    GetInternalBreakpoint {
        address: u64,
    },
    ReadIoExtended {
        size: u32,
        interface: u32,
        bus: u32,
        space: u32,
        port: u64,
    },
    WriteIoExtended {
        size: u32,
        interface: u32,
        bus: u32,
        space: u32,
        port: u64,
        value: u32,
    },
    GetVersion,
    /// `breakpoints` are pairs of address and handle; a handle of 0 inserts, an address of 0 removes.
    WriteBreakpointEx {
        status: u32,
        breakpoints: Vec<(u64, u32)>,
    },
    RestoreBreakpointEx {
        status: u32,
        handles: Vec<u32>,
    },
    CauseBugCheck {
        code: u32,
    },
    SwitchProcessor {
        processor: u16,
    },
    PageIn {
        address: u64,
    },
    ReadMsr {
        msr: u32,
    },
    WriteMsr {
        msr: u32,
        value: u64,
    },
    SearchMemory {
        start: u64,
        length: u64,
        pattern: Vec<u8>,
    },
    GetBusData {
        kind: u32,
        bus: u32,
        slot: u32,
        offset: u32,
        length: u32,
    },
    SetBusData {
        kind: u32,
        bus: u32,
        slot: u32,
        offset: u32,
        data: Vec<u8>,
    },
    CheckLowMemory,
    ClearAllInternal,
    FillMemory {
        address: u64,
        length: u32,
        space: FillSpace,
        pattern: Vec<u8>,
    },
    QueryMemory {
        address: u64,
    },
    SwitchPartition {
        partition: u32,
    },
    WriteCustomBreakpoint {
        address: u64,
        instruction: u64,
        size: u8,
        alignment: u8,
    },
    GetContextEx {
        processor: u16,
        offset: u32,
        count: u32,
    },
    SetContextEx {
        processor: u16,
        offset: u32,
        data: Vec<u8>,
    },
    /// A number that is none of the above; its fields are not known.
    Unknown {
        api: u32,
    },
}

impl Request {
    /// Its API's number.
    #[must_use]
    pub fn api(&self) -> Api {
        match self {
            Self::ReadVirtual { .. } => Api::READ_VIRTUAL,
            Self::WriteVirtual { .. } => Api::WRITE_VIRTUAL,
            Self::GetContext { .. } => Api::GET_CONTEXT,
            Self::SetContext { .. } => Api::SET_CONTEXT,
            Self::WriteBreakpoint { .. } => Api::WRITE_BREAKPOINT,
            Self::RestoreBreakpoint { .. } => Api::RESTORE_BREAKPOINT,
            Self::Continue { .. } => Api::CONTINUE,
            Self::ReadControlSpace { .. } => Api::READ_CONTROL_SPACE,
            Self::WriteControlSpace { .. } => Api::WRITE_CONTROL_SPACE,
            Self::ReadIo { .. } => Api::READ_IO,
            Self::WriteIo { .. } => Api::WRITE_IO,
            Self::Reboot => Api::REBOOT,
            Self::Continue2(_) => Api::CONTINUE2,
            Self::ReadPhysical { .. } => Api::READ_PHYSICAL,
            Self::WritePhysical { .. } => Api::WRITE_PHYSICAL,
            Self::QuerySpecialCalls => Api::QUERY_SPECIAL_CALLS,
            Self::SetSpecialCall { .. } => Api::SET_SPECIAL_CALL,
            Self::ClearSpecialCalls => Api::CLEAR_SPECIAL_CALLS,
            Self::SetInternalBreakpoint { .. } => Api::SET_INTERNAL_BREAKPOINT,
            Self::GetInternalBreakpoint { .. } => Api::GET_INTERNAL_BREAKPOINT,
            Self::ReadIoExtended { .. } => Api::READ_IO_EXTENDED,
            Self::WriteIoExtended { .. } => Api::WRITE_IO_EXTENDED,
            Self::GetVersion => Api::GET_VERSION,
            Self::WriteBreakpointEx { .. } => Api::WRITE_BREAKPOINT_EX,
            Self::RestoreBreakpointEx { .. } => Api::RESTORE_BREAKPOINT_EX,
            Self::CauseBugCheck { .. } => Api::CAUSE_BUGCHECK,
            Self::SwitchProcessor { .. } => Api::SWITCH_PROCESSOR,
            Self::PageIn { .. } => Api::PAGE_IN,
            Self::ReadMsr { .. } => Api::READ_MSR,
            Self::WriteMsr { .. } => Api::WRITE_MSR,
            Self::SearchMemory { .. } => Api::SEARCH_MEMORY,
            Self::GetBusData { .. } => Api::GET_BUS_DATA,
            Self::SetBusData { .. } => Api::SET_BUS_DATA,
            Self::CheckLowMemory => Api::CHECK_LOW_MEMORY,
            Self::ClearAllInternal => Api::CLEAR_ALL_INTERNAL,
            Self::FillMemory { .. } => Api::FILL_MEMORY,
            Self::QueryMemory { .. } => Api::QUERY_MEMORY,
            Self::SwitchPartition { .. } => Api::SWITCH_PARTITION,
            Self::WriteCustomBreakpoint { .. } => Api::WRITE_CUSTOM_BREAKPOINT,
            Self::GetContextEx { .. } => Api::GET_CONTEXT_EX,
            Self::SetContextEx { .. } => Api::SET_CONTEXT_EX,
            Self::Unknown { api } => Api(*api),
        }
    }

    /// The payload of the packet. Fields that the API does not define are 0.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut r = Record::zeroed(ENVELOPE);
        r.u32(0, self.api().0);
        if let Some(processor) = self.processor() {
            r.u16(6, processor);
        }
        match self {
            Self::ReadVirtual { address, count } => r.u64(0x10, *address).u32(0x18, *count),
            Self::WriteVirtual { address, data } => counted(&mut r, *address, data),
            Self::SetContext { context, .. } => r.append(context),
            Self::ReadControlSpace { selector, count, .. } => r.u64(0x10, *selector).u32(0x18, *count),
            Self::WriteControlSpace { selector, data, .. } => counted(&mut r, *selector, data),
            Self::ReadPhysical { address, count, cache } => {
                r.u64(0x10, *address).u32(0x18, *count).u32(0x1C, *cache)
            }
            Self::WritePhysical { address, data, cache } => counted(&mut r, *address, data).u32(0x1C, *cache),
            Self::WriteBreakpoint { address }
            | Self::PageIn { address }
            | Self::SetSpecialCall { address }
            | Self::GetInternalBreakpoint { address }
            | Self::QueryMemory { address } => r.u64(0x10, *address),
            Self::RestoreBreakpoint { handle: number }
            | Self::Continue { status: number }
            | Self::CauseBugCheck { code: number }
            | Self::SwitchPartition { partition: number }
            | Self::ReadMsr { msr: number } => r.u32(0x10, *number),
            Self::WriteMsr { msr, value } => r.u32(0x10, *msr).u64(0x14, *value),
            Self::SetInternalBreakpoint { address, flags } => r.u64(0x10, *address).u32(0x18, *flags),
            Self::ReadIo { port, size } => r.u64(0x10, *port).u32(0x18, *size),
            Self::WriteIo { port, size, value } => r.u64(0x10, *port).u32(0x18, *size).u32(0x1C, *value),
            Self::Continue2(go) => continue2(&mut r, go),
            Self::GetContextEx { offset, count, .. } => r.u32(0x10, *offset).u32(0x14, *count),
            Self::SetContextEx { offset, data, .. } => {
                r.u32(0x10, *offset).u32(0x14, length32(data)).append(data)
            }
            _ => self.encode_rare(&mut r),
        };
        r.0
    }

    fn encode_rare<'a>(&self, r: &'a mut Record) -> &'a mut Record {
        match self {
            Self::ReadIoExtended { size, interface, bus, space, port } => {
                r.u32(0x10, *size).u32(0x14, *interface).u32(0x18, *bus).u32(0x1C, *space).u64(0x20, *port)
            }
            Self::WriteIoExtended { size, interface, bus, space, port, value } => {
                r.u32(0x10, *size).u32(0x14, *interface).u32(0x18, *bus).u32(0x1C, *space);
                r.u64(0x20, *port).u32(0x28, *value)
            }
            Self::WriteBreakpointEx { status, breakpoints } => {
                r.u32(0x10, count32(breakpoints.len())).u32(0x14, *status);
                r.append(&breakpoint_array(breakpoints))
            }
            Self::RestoreBreakpointEx { status, handles } => {
                r.u32(0x10, count32(handles.len())).u32(0x14, *status);
                r.append(&handles.iter().flat_map(|h| h.to_le_bytes()).collect::<Vec<u8>>())
            }
            Self::SearchMemory { start, length, pattern } => {
                r.u64(0x10, *start).u64(0x18, *length).u32(0x20, length32(pattern)).append(pattern)
            }
            Self::GetBusData { kind, bus, slot, offset, length } => {
                bus_data(r, [*kind, *bus, *slot, *offset, *length])
            }
            Self::SetBusData { kind, bus, slot, offset, data } => {
                bus_data(r, [*kind, *bus, *slot, *offset, length32(data)]).append(data)
            }
            Self::FillMemory { address, length, space, pattern } => {
                let flags = match space {
                    FillSpace::Virtual => 1,
                    FillSpace::Physical => 2,
                };
                let count = u16::try_from(pattern.len()).unwrap_or(u16::MAX);
                r.u64(0x10, *address).u32(0x18, *length).u16(0x1C, flags).u16(0x1E, count).append(pattern)
            }
            Self::WriteCustomBreakpoint { address, instruction, size, alignment } => {
                r.u64(0x10, *address).u64(0x18, *instruction).u8(0x24, *size).u8(0x25, *alignment)
            }
            _ => r,
        }
    }

    fn processor(&self) -> Option<u16> {
        match self {
            Self::GetContext { processor }
            | Self::SetContext { processor, .. }
            | Self::ReadControlSpace { processor, .. }
            | Self::WriteControlSpace { processor, .. }
            | Self::SwitchProcessor { processor }
            | Self::GetContextEx { processor, .. }
            | Self::SetContextEx { processor, .. } => Some(*processor),
            _ => None,
        }
    }

    /// A request from a packet's payload.
    ///
    /// # Errors
    /// Shorter than the envelope, or with fewer variable bytes than its fields tell: a target refuses it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let f = Fields::of(bytes, ENVELOPE, "a manipulate request")?;
        let processor = f.u16(6);
        let api = Api(f.u32(0));
        Ok(match api {
            Api::READ_VIRTUAL => Self::ReadVirtual { address: f.u64(0x10), count: f.u32(0x18) },
            Api::WRITE_VIRTUAL => Self::WriteVirtual { address: f.u64(0x10), data: counted_data(f)? },
            Api::GET_CONTEXT => Self::GetContext { processor },
            Api::SET_CONTEXT => Self::SetContext { processor, context: f.rest(ENVELOPE).to_vec() },
            Api::WRITE_BREAKPOINT => Self::WriteBreakpoint { address: f.u64(0x10) },
            Api::RESTORE_BREAKPOINT => Self::RestoreBreakpoint { handle: f.u32(0x10) },
            Api::CONTINUE => Self::Continue { status: f.u32(0x10) },
            Api::READ_CONTROL_SPACE => {
                Self::ReadControlSpace { processor, selector: f.u64(0x10), count: f.u32(0x18) }
            }
            Api::WRITE_CONTROL_SPACE => {
                Self::WriteControlSpace { processor, selector: f.u64(0x10), data: counted_data(f)? }
            }
            Api::CONTINUE2 => Self::Continue2(Continue2 {
                status: f.u32(0x10),
                trace: f.u32(0x14) != 0,
                dr7: f.u64(0x18),
                symbols: (f.u64(0x20), f.u64(0x28)),
            }),
            Api::READ_PHYSICAL => {
                Self::ReadPhysical { address: f.u64(0x10), count: f.u32(0x18), cache: f.u32(0x1C) }
            }
            Api::WRITE_PHYSICAL => {
                Self::WritePhysical { address: f.u64(0x10), data: counted_data(f)?, cache: f.u32(0x1C) }
            }
            Api::GET_VERSION => Self::GetVersion,
            Api::SWITCH_PROCESSOR => Self::SwitchProcessor { processor },
            Api::GET_CONTEXT_EX => Self::GetContextEx { processor, offset: f.u32(0x10), count: f.u32(0x14) },
            Api::SET_CONTEXT_EX => Self::SetContextEx {
                processor,
                offset: f.u32(0x10),
                data: f.exactly(ENVELOPE, u64::from(f.u32(0x14)), "a context's part")?.to_vec(),
            },
            _ => Self::decode_rare(api, f)?,
        })
    }

    fn decode_rare(api: Api, f: Fields<'_>) -> Result<Self, DecodeError> {
        Ok(match api {
            Api::READ_IO => Self::ReadIo { port: f.u64(0x10), size: f.u32(0x18) },
            Api::WRITE_IO => Self::WriteIo { port: f.u64(0x10), size: f.u32(0x18), value: f.u32(0x1C) },
            Api::REBOOT => Self::Reboot,
            Api::QUERY_SPECIAL_CALLS => Self::QuerySpecialCalls,
            Api::SET_SPECIAL_CALL => Self::SetSpecialCall { address: f.u64(0x10) },
            Api::CLEAR_SPECIAL_CALLS => Self::ClearSpecialCalls,
            Api::SET_INTERNAL_BREAKPOINT => {
                Self::SetInternalBreakpoint { address: f.u64(0x10), flags: f.u32(0x18) }
            }
            Api::GET_INTERNAL_BREAKPOINT => Self::GetInternalBreakpoint { address: f.u64(0x10) },
            Api::READ_IO_EXTENDED | Api::WRITE_IO_EXTENDED => extended_io(api, f),
            Api::WRITE_BREAKPOINT_EX => Self::WriteBreakpointEx {
                status: f.u32(0x14),
                breakpoints: breakpoints(f, u64::from(f.u32(0x10)))?,
            },
            Api::RESTORE_BREAKPOINT_EX => {
                let length = u64::from(f.u32(0x10)).saturating_mul(4);
                let handles = f.exactly(ENVELOPE, length, "a list of breakpoint handles")?;
                let handles = handles.chunks_exact(4).map(|h| Fields(h).u32(0)).collect();
                Self::RestoreBreakpointEx { status: f.u32(0x14), handles }
            }
            Api::CAUSE_BUGCHECK => Self::CauseBugCheck { code: f.u32(0x10) },
            Api::PAGE_IN => Self::PageIn { address: f.u64(0x10) },
            Api::READ_MSR => Self::ReadMsr { msr: f.u32(0x10) },
            Api::WRITE_MSR => Self::WriteMsr { msr: f.u32(0x10), value: f.u64(0x14) },
            Api::SEARCH_MEMORY => Self::SearchMemory {
                start: f.u64(0x10),
                length: f.u64(0x18),
                pattern: f.exactly(ENVELOPE, u64::from(f.u32(0x20)), "a search pattern")?.to_vec(),
            },
            Api::GET_BUS_DATA | Api::SET_BUS_DATA => bus_request(api, f)?,
            Api::CHECK_LOW_MEMORY => Self::CheckLowMemory,
            Api::CLEAR_ALL_INTERNAL => Self::ClearAllInternal,
            Api::FILL_MEMORY => Self::FillMemory {
                address: f.u64(0x10),
                length: f.u32(0x18),
                space: match f.u16(0x1C) {
                    1 => FillSpace::Virtual,
                    2 => FillSpace::Physical,
                    other => {
                        return Err(DecodeError::Unknown { what: "a fill's flags", found: other.into() });
                    }
                },
                pattern: f.exactly(ENVELOPE, u64::from(f.u16(0x1E)), "a fill pattern")?.to_vec(),
            },
            Api::QUERY_MEMORY => Self::QueryMemory { address: f.u64(0x10) },
            Api::SWITCH_PARTITION => Self::SwitchPartition { partition: f.u32(0x10) },
            Api::WRITE_CUSTOM_BREAKPOINT => Self::WriteCustomBreakpoint {
                address: f.u64(0x10),
                instruction: f.u64(0x18),
                size: f.u8(0x24),
                alignment: f.u8(0x25),
            },
            Api(api) => Self::Unknown { api },
        })
    }
}

fn counted<'a>(r: &'a mut Record, address: u64, data: &[u8]) -> &'a mut Record {
    r.u64(0x10, address).u32(0x18, length32(data)).append(data)
}

/// The variable bytes that a count at 0x18 tells.
fn counted_data(f: Fields<'_>) -> Result<Vec<u8>, DecodeError> {
    Ok(f.exactly(ENVELOPE, u64::from(f.u32(0x18)), "data to write")?.to_vec())
}

fn continue2<'a>(r: &'a mut Record, go: &Continue2) -> &'a mut Record {
    r.u32(0x10, go.status).u32(0x14, u32::from(go.trace)).u64(0x18, go.dr7);
    r.u64(0x20, go.symbols.0).u64(0x28, go.symbols.1)
}

fn bus_data(r: &mut Record, fields: [u32; 5]) -> &mut Record {
    for (index, value) in fields.into_iter().enumerate() {
        r.u32(0x10 + 4 * index, value);
    }
    r
}

fn bus_request(api: Api, f: Fields<'_>) -> Result<Request, DecodeError> {
    let (kind, bus, slot, offset, length) = (f.u32(0x10), f.u32(0x14), f.u32(0x18), f.u32(0x1C), f.u32(0x20));
    Ok(if api == Api::GET_BUS_DATA {
        Request::GetBusData { kind, bus, slot, offset, length }
    } else {
        let data = f.exactly(ENVELOPE, u64::from(length), "bus data")?.to_vec();
        Request::SetBusData { kind, bus, slot, offset, data }
    })
}

fn extended_io(api: Api, f: Fields<'_>) -> Request {
    let (size, interface, bus, space, port) =
        (f.u32(0x10), f.u32(0x14), f.u32(0x18), f.u32(0x1C), f.u64(0x20));
    if api == Api::READ_IO_EXTENDED {
        Request::ReadIoExtended { size, interface, bus, space, port }
    } else {
        Request::WriteIoExtended { size, interface, bus, space, port, value: f.u32(0x28) }
    }
}

pub(crate) fn count32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// `DBGKD_WRITE_BREAKPOINT64[]`: address, handle, pad.
pub(crate) fn breakpoint_array(breakpoints: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(breakpoints.len() * 16);
    for (address, handle) in breakpoints {
        bytes.extend_from_slice(&address.to_le_bytes());
        bytes.extend_from_slice(&handle.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes
}

pub(crate) fn breakpoints(f: Fields<'_>, count: u64) -> Result<Vec<(u64, u32)>, DecodeError> {
    let array = f.exactly(ENVELOPE, count.saturating_mul(16), "a list of breakpoints")?;
    Ok(array.chunks_exact(16).map(|b| (Fields(b).u64(0), Fields(b).u32(8))).collect())
}
