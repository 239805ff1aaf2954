//! A state change as a stop.

use engine_native::live::{KernelEvent, KernelStop};
use kd_api::{StateChange, StopReason};
use target::ExceptionRecord;

/// Processors believed; Windows serves 2,048.
const MOST_PROCESSORS: u32 = 4096;

pub(crate) fn kernel_stop(change: &StateChange) -> KernelStop {
    let processor = u32::from(change.processor);
    KernelStop {
        processor,
        // A target that names no count, or one that leaves out the processor it is on.
        processors: change.processors.clamp(1, MOST_PROCESSORS).max(processor.saturating_add(1)),
        thread: change.thread,
        ip: change.program_counter,
        event: event(change),
        dr6: Some(change.control.dr6),
    }
}

fn event(change: &StateChange) -> KernelEvent {
    match &change.reason {
        StopReason::Exception(exception) => {
            let count = exception.parameters.len().min(exception.parameter_count as usize);
            KernelEvent::Exception {
                record: ExceptionRecord {
                    code: exception.code,
                    flags: exception.flags,
                    nested: exception.record,
                    address: exception.address,
                    parameters: exception.parameters[..count].to_vec(),
                },
                first_chance: exception.first_chance,
            }
        }
        StopReason::LoadSymbols(load) if load.forgets_all() => KernelEvent::Rebooting,
        StopReason::LoadSymbols(load) => KernelEvent::Module {
            base: load.base,
            path: load.path.iter().map(|&b| char::from(b)).collect(),
            unloaded: load.unload,
        },
        StopReason::CommandString { .. } | StopReason::Other(_) => KernelEvent::Other,
    }
}

/// The same stop told again, after the link was made good.
pub(crate) fn same(a: &StateChange, b: &StateChange) -> bool {
    (a.processor, a.thread, a.program_counter) == (b.processor, b.thread, b.program_counter)
}
