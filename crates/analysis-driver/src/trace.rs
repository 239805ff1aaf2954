//! Control codes recorded as they arrive at a dispatch routine (spec 40 section 9.5): an observed
//! breakpoint on its first instruction, where the arguments still are in their places.

use std::any::Any;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, ContextOf, HexBytes, Machine, MemoryExt as _, Target, View, memory::ReadError};

use crate::control_code::{ControlCode, Method};
use crate::irp::RequestorMode;
use crate::layout::{IrpLayout, StackLocationLayout};

/// Where a routine finds what it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TraceConvention {
    /// `(DeviceObject, Irp)`.
    #[default]
    Wdm,
    /// `(Queue, Request, OutputBufferLength, InputBufferLength, IoControlCode)`.
    WdfDeviceControl,
}

/// One request that arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceRecord {
    pub seq: u64,
    /// Since the trace began.
    pub at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    pub code: Code,
    /// The macro call that gives the code.
    pub decoded: String,
    pub in_len: u32,
    pub out_len: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor_mode: Option<RequestorMode>,
    /// The IRP, or the framework's request handle.
    pub irp: Address,
    /// The device object, or the framework's queue handle.
    pub device: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type3: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_buffer: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_buffer: Option<Address>,
    /// The first bytes of the input, as far as they read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<HexBytes>,
}

/// What is recorded and how much of it is kept.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    pub convention: TraceConvention,
    /// Only these; all when empty.
    pub codes: Vec<u32>,
    pub capture_input: usize,
    /// The oldest records give way.
    pub max_records: usize,
}

const MAX_ERRORS: usize = 8;

/// A running trace.
#[derive(Debug)]
pub struct Trace {
    pub at: u64,
    options: TraceOptions,
    began: Instant,
    ring: VecDeque<TraceRecord>,
    total: u64,
    dropped: u64,
    unreadable: u64,
    errors: Vec<String>,
    hits: u64,
    spent: Duration,
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracePage {
    pub records: Vec<TraceRecord>,
    pub next_since: u64,
    pub held: usize,
    pub total: u64,
    /// Records that gave way to newer ones.
    pub dropped: u64,
    /// Hits whose request did not read.
    pub unreadable: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Hits seen, those the filter left out too.
    pub hits: u64,
    /// Time one hit took to read, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micros_per_hit: Option<u64>,
}

impl Trace {
    #[must_use]
    pub fn new(at: u64, options: TraceOptions) -> Self {
        Self {
            at,
            options,
            began: Instant::now(),
            ring: VecDeque::new(),
            total: 0,
            dropped: 0,
            unreadable: 0,
            errors: Vec::new(),
            hits: 0,
            spent: Duration::ZERO,
        }
    }

    /// Records from number `since` on.
    #[must_use]
    pub fn page(&self, since: u64, limit: usize) -> TracePage {
        let records: Vec<TraceRecord> =
            self.ring.iter().filter(|record| record.seq >= since).take(limit).cloned().collect();
        let next = records.last().map_or(since.max(self.dropped).min(self.total), |record| record.seq + 1);
        TracePage {
            records,
            next_since: next,
            held: self.ring.len(),
            total: self.total,
            dropped: self.dropped,
            unreadable: self.unreadable,
            errors: self.errors.clone(),
            hits: self.hits,
            micros_per_hit: u64::try_from(self.spent.as_micros())
                .ok()
                .and_then(|all| all.checked_div(self.hits)),
        }
    }

    fn keep(&mut self, mut record: TraceRecord) {
        record.seq = self.total;
        self.total += 1;
        if self.ring.len() >= self.options.max_records {
            self.ring.pop_front();
            self.dropped += 1;
        }
        self.ring.push_back(record);
    }

    fn read(&self, target: &dyn Target) -> Result<TraceRecord, String> {
        let context = target
            .context(ContextOf::Selected, View::Default)
            .map_err(|error| error.to_string())?
            .ok_or("the thread has no registers")?;
        let machine = target.facts().machine;
        let argument = |index: u64| -> Result<u64, String> {
            let register = match (machine, index) {
                (Machine::X64, 0) => Some("rcx"),
                (Machine::X64, 1) => Some("rdx"),
                (Machine::X64, 2) => Some("r8"),
                (Machine::X64, 3) => Some("r9"),
                (Machine::Arm64, 0) => Some("x0"),
                (Machine::Arm64, 1) => Some("x1"),
                (Machine::Arm64, 2) => Some("x2"),
                (Machine::Arm64, 3) => Some("x3"),
                (Machine::Arm64, 4) => Some("x4"),
                _ => None,
            };
            match register {
                Some(name) => context.by_name(name).ok_or_else(|| format!("{name} is unknown")),
                // The return address lies below the arguments; x64 keeps four slots for the registers.
                None if machine == Machine::X64 => target
                    .read_u64(context.sp().wrapping_add(8 + index * 8))
                    .map_err(|error| error.to_string()),
                None => target
                    .read_u32(context.sp().wrapping_add(4 + index * 4))
                    .map(u64::from)
                    .map_err(|error| error.to_string()),
            }
        };
        let selection = target.selection();
        let mut record = match self.options.convention {
            TraceConvention::Wdm => {
                wdm(target, argument(0)?, argument(1)?).map_err(|error| error.to_string())?
            }
            TraceConvention::WdfDeviceControl => framework(&argument)?,
        };
        record.at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        (record.thread, record.processor) = (selection.thread, selection.processor);
        record.input = input(target, &record, self.options.capture_input);
        Ok(record)
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or_default()
}

fn record(code: u32, irp: u64, device: u64) -> TraceRecord {
    TraceRecord {
        seq: 0,
        at_ms: 0,
        processor: None,
        thread: None,
        code: Code(code),
        decoded: ControlCode(code).decode().ctl_code,
        in_len: 0,
        out_len: 0,
        requestor_mode: None,
        irp: Address(irp),
        device: Address(device),
        file: None,
        type3: None,
        user_buffer: None,
        system_buffer: None,
        input: None,
    }
}

fn framework(argument: &dyn Fn(u64) -> Result<u64, String>) -> Result<TraceRecord, String> {
    let mut out = record(low(argument(4)?), argument(1)?, argument(0)?);
    (out.out_len, out.in_len) = (low(argument(2)?), low(argument(3)?));
    Ok(out)
}

fn wdm(target: &dyn Target, device: u64, irp: u64) -> Result<TraceRecord, ReadError> {
    let machine = target.facts().machine;
    let width = machine.pointer_size();
    let step = u64::from(width);
    // The ABI: a symbol look-up at every hit would cost more than the request.
    let (packet, location) = (IrpLayout::abi(machine), StackLocationLayout::abi(machine));
    let pointer = |at: u64| target.read_pointer(irp.wrapping_add(at), width);
    let current = pointer(packet.current_stack_location)?;
    let parameters = current.wrapping_add(location.parameters);
    let word = |index: u64| target.read_u32(parameters.wrapping_add(index * step));
    let some = |value: u64| (value != 0).then_some(Address(value));
    let mut out = record(word(2)?, irp, device);
    (out.out_len, out.in_len) = (word(0)?, word(1)?);
    out.type3 = some(target.read_pointer(parameters.wrapping_add(3 * step), width)?);
    out.file = some(target.read_pointer(current.wrapping_add(location.file), width)?);
    out.user_buffer = some(pointer(packet.user_buffer)?);
    out.system_buffer = some(pointer(packet.system_buffer)?);
    let mode = target.read_u8(irp.wrapping_add(packet.requestor_mode))?;
    out.requestor_mode = Some(if mode == 0 { RequestorMode::Kernel } else { RequestorMode::User });
    Ok(out)
}

fn input(target: &dyn Target, record: &TraceRecord, wanted: usize) -> Option<HexBytes> {
    let length = wanted.min(record.in_len as usize);
    let from = match ControlCode(record.code.0).method() {
        Method::Neither => record.type3,
        _ => record.system_buffer,
    };
    let from = from.filter(|_| length > 0)?;
    let (bytes, _) = target.read_prefix(from.0, length);
    (!bytes.is_empty()).then_some(HexBytes(bytes))
}

impl control::Observer for Trace {
    fn hit(&mut self, target: &dyn Target) {
        let began = Instant::now();
        self.hits += 1;
        match self.read(target) {
            Ok(record) if self.options.codes.is_empty() || self.options.codes.contains(&record.code.0) => {
                self.keep(record);
            }
            Ok(_) => {}
            Err(error) => {
                self.unreadable += 1;
                if self.errors.len() < MAX_ERRORS && !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
        }
        self.spent += began.elapsed();
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::Observer as _;
    use target::scripted::ScriptedTarget;
    use target::{Context, ContextSource, Thread};

    const IRP: u64 = 0x5000;
    const LOCATION: u64 = 0x6000;

    fn target(code: u32) -> ScriptedTarget {
        let (packet, location) = (IrpLayout::abi(Machine::X64), StackLocationLayout::abi(Machine::X64));
        let mut irp = vec![0u8; 0xd0];
        let mut put = |at: u64, value: u64| {
            let at = usize::try_from(at).unwrap();
            irp[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(packet.current_stack_location, LOCATION);
        put(packet.system_buffer, 0x7000);
        put(packet.requestor_mode, 1);
        let mut stack = vec![0u8; 0x48];
        let at = usize::try_from(location.parameters).unwrap();
        stack[at..at + 4].copy_from_slice(&64u32.to_le_bytes());
        stack[at + 8..at + 12].copy_from_slice(&16u32.to_le_bytes());
        stack[at + 16..at + 20].copy_from_slice(&code.to_le_bytes());
        let mut context = Context::new(Machine::X64, ContextSource::Exception);
        context.set(1, 0x4000);
        context.set(2, IRP);
        ScriptedTarget::new(Machine::X64)
            .with_memory(IRP, irp)
            .with_memory(LOCATION, stack)
            .with_memory(0x7000, *b"0123456789abcdef")
            .with_thread(Thread { system_id: 9, event: true, ..Thread::default() }, Some(context))
    }

    fn trace(options: TraceOptions) -> Trace {
        Trace::new(0x1000, options)
    }
    fn options(max_records: usize, codes: Vec<u32>) -> TraceOptions {
        TraceOptions { convention: TraceConvention::Wdm, codes, capture_input: 4, max_records }
    }

    #[test]
    fn a_request_is_read_where_the_abi_has_it() {
        let mut trace = trace(options(8, Vec::new()));
        trace.hit(&target(0x9c40_2408));
        let page = trace.page(0, 100);
        let row = &page.records[0];
        assert_eq!((row.code, row.in_len, row.out_len), (Code(0x9c40_2408), 16, 64));
        assert_eq!((row.irp, row.device, row.thread), (Address(IRP), Address(0x4000), Some(9)));
        assert_eq!(row.input, Some(HexBytes(b"0123".to_vec())));
        assert_eq!(row.requestor_mode, Some(RequestorMode::User));
    }

    #[test]
    fn the_ring_drops_the_oldest_and_pages_go_on() {
        let mut trace = trace(options(2, Vec::new()));
        for code in 1..=5 {
            trace.hit(&target(code));
        }
        let page = trace.page(0, 1);
        assert_eq!((page.held, page.total, page.dropped, page.next_since), (2, 5, 3, 4));
        let rest = trace.page(page.next_since, 10);
        assert_eq!(rest.records.iter().map(|row| row.code.0).collect::<Vec<_>>(), [5]);
        assert!(trace.page(rest.next_since, 10).records.is_empty());
    }

    #[test]
    fn the_filter_counts_hits_it_leaves_out() {
        let mut trace = trace(options(8, vec![2]));
        for code in 1..=3 {
            trace.hit(&target(code));
        }
        let page = trace.page(0, 10);
        assert_eq!((page.total, page.hits, page.unreadable), (1, 3, 0));
    }

    #[test]
    fn what_does_not_read_is_counted_and_said() {
        let mut trace = trace(options(8, Vec::new()));
        let thread = Thread { system_id: 9, event: true, ..Thread::default() };
        let mut context = Context::new(Machine::X64, ContextSource::Exception);
        context.set(1, 1);
        context.set(2, 2);
        trace.hit(&ScriptedTarget::new(Machine::X64).with_thread(thread, Some(context)));
        let page = trace.page(0, 10);
        assert_eq!((page.unreadable, page.records.len()), (1, 0));
        assert!(page.errors[0].contains("cannot read"), "{:?}", page.errors);
    }
}
