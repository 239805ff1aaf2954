//! Letting the target move, waiting for it, and letting it go: the connection as the engine drives it.

use std::time::{Duration, Instant};

use engine_native::live::{Going, KernelEvent, KernelStop, LiveKernel, Origin, SLOTS, Slot, Waited};
use kd_api::{Continue2, ReplyBody, Request, status};
use target::{Context, Halt, ReadOutcome, Result, TargetError, Unreadable, reg};

use crate::kernel::{Came, Kernel, State};

impl State {
    /// Waits until the target stands.
    pub(crate) fn wait_stopped(&mut self, bound: Duration, halt: &Halt) -> Result<Waited> {
        let until = Instant::now().checked_add(bound);
        loop {
            if let Some(standing) = &self.standing {
                return Ok(Waited::Stopped(standing.stop.clone()));
            }
            if halt.stop().is_some() {
                return Ok(Waited::Halted);
            }
            let left = until.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Waited::Bound);
            }
            if let Some(Came::Stopped) = self.turn(left)? {
                self.name_thread();
            }
        }
    }

    /// A stop that names no thread: the processor itself may (spec 71 section 7.4).
    pub(crate) fn name_thread(&mut self) {
        let Some(standing) = self.standing.as_ref().filter(|standing| standing.stop.thread == 0) else {
            return;
        };
        let Ok(processor) = u16::try_from(standing.stop.processor) else { return };
        let request = Request::ReadControlSpace { processor, selector: kd_api::selector::THREAD, count: 8 };
        if let Ok(ReplyBody::Data(data)) = self.read(&request)
            && let Ok(bytes) = <[u8; 8]>::try_from(data)
            && let Some(standing) = &mut self.standing
        {
            standing.stop.thread = u64::from_le_bytes(bytes);
        }
    }

    /// Continues; returns when the target has acknowledged, which is all the answer there is.
    pub(crate) fn proceed(&mut self, status: u32, how: &Going) -> Result<()> {
        let Some(standing) = &self.standing else { return Err(TargetError::Running) };
        let processor = standing.stop.processor;
        let dr7 = self.dr7(processor, &how.armed)?;
        let before = self.stops;
        let request = Request::Continue2(Continue2::new(status, how.step, dr7));
        match self.tell_going(&request) {
            Ok(()) => {
                // Its next stop may be here already.
                if self.stops == before {
                    self.moving();
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Self::tell`]; a stop that comes after the acknowledgement stays.
    fn tell_going(&mut self, request: &Request) -> Result<()> {
        self.tell(request)
    }

    pub(crate) fn status_of(&self, handled: bool) -> u32 {
        match self.standing.as_ref().map(|standing| &standing.stop.event) {
            Some(KernelEvent::Exception { .. }) if handled => status::DBG_EXCEPTION_HANDLED,
            Some(KernelEvent::Exception { .. }) => status::DBG_EXCEPTION_NOT_HANDLED,
            _ => status::DBG_CONTINUE,
        }
    }
}

impl LiveKernel for Kernel {
    fn origin(&self) -> &Origin {
        &self.origin
    }
    fn stop(&self) -> Option<KernelStop> {
        self.state().standing.as_ref().map(|standing| standing.stop.clone())
    }
    fn stops(&self) -> u64 {
        self.state().stops
    }
    fn lost(&self) -> Option<String> {
        self.state().lost.clone()
    }

    fn read_virtual(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        if !canonical(address) {
            return ReadOutcome::stopped(0, Unreadable::NonCanonical);
        }
        self.state().read_memory(address, buffer, |address, count| Request::ReadVirtual { address, count })
    }
    fn read_physical(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let request = |address, count| Request::ReadPhysical { address, count, cache: 0 };
        self.state().read_memory(address, buffer, request)
    }
    fn write_virtual(&self, address: u64, bytes: &[u8]) -> Result<usize> {
        self.state().write_memory(&Request::WriteVirtual { address, data: bytes.to_vec() })
    }
    fn write_physical(&self, address: u64, bytes: &[u8]) -> Result<usize> {
        self.state().write_memory(&Request::WritePhysical { address, data: bytes.to_vec(), cache: 0 })
    }

    fn context(&self, processor: u32) -> Result<Context> {
        self.state().context(processor)
    }
    fn set_registers(&self, processor: u32, values: &[(usize, u64)]) -> Result<()> {
        if values.iter().any(|(number, _)| (reg::DR0..=reg::DR7).contains(number)) {
            return Err(TargetError::unsupported(
                "debug_register",
                "debug registers are set through hardware breakpoints, which keep all processors alike",
            ));
        }
        self.state().write_registers(processor, values)
    }
    fn translation_root(&self, processor: u32) -> Result<(u64, bool)> {
        self.state().translation_root(processor)
    }

    fn taken_slots(&self) -> [bool; SLOTS] {
        self.state().taken_slots()
    }
    fn insert(&self, address: u64) -> Result<u32> {
        match self.state().must(&Request::WriteBreakpoint { address })? {
            ReplyBody::Handle(handle) if handle != 0 => Ok(handle),
            _ => Err(TargetError::failed("the target says it did and names no breakpoint")),
        }
    }
    fn take_out(&self, handle: u32) -> Result<()> {
        self.state().must(&Request::RestoreBreakpoint { handle }).map(drop)
    }
    fn set_slots(&self, slots: &[Option<Slot>; SLOTS]) -> Result<()> {
        self.state().set_slots(slots)
    }

    fn go(&self, how: Going) -> Result<()> {
        let mut state = self.state();
        let status = state.status_of(how.handled);
        state.proceed(status, &how)
    }
    fn wait(&self, bound: Duration, halt: &Halt) -> Result<Waited> {
        self.state().wait_stopped(bound, halt)
    }
    fn break_in(&self) -> Result<()> {
        let mut state = self.state();
        state.alive()?;
        match state.link.break_in() {
            Ok(()) => Ok(()),
            Err(error) => Err(state.transport(&error)),
        }
    }
    fn output(&self) -> String {
        self.state().output.take()
    }

    fn reach_again(&self) -> Result<()> {
        self.state().reach_again()
    }

    fn release(&self) -> Result<()> {
        let going = Going { step: false, handled: true, armed: [false; SLOTS] };
        self.state().proceed(status::DBG_CONTINUE, &going)
    }
}

/// Of 48 or 57 bits; which one it is the target knows.
fn canonical(address: u64) -> bool {
    let top = address.cast_signed() >> 56;
    top == 0 || top == -1
}
