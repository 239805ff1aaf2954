//! The engine's callbacks for events and for input.

use std::sync::{Arc, Mutex, PoisonError};

use windows::Win32::System::Diagnostics::Debug::EXCEPTION_RECORD64;
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_EXIT_PROCESS, IDebugBreakpoint2, IDebugControl4, IDebugEventCallbacksWide,
    IDebugEventCallbacksWide_Impl, IDebugInputCallbacks, IDebugInputCallbacks_Impl,
};
use windows::core::{PCWSTR, Ref, implement, w};

/// What the event callbacks saw since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) exit_code: Option<u32>,
}

pub(crate) type SeenEvents = Arc<Mutex<Seen>>;

/// What was seen, and forgets it.
pub(crate) fn take(seen: &SeenEvents) -> Seen {
    std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Every answer is S_OK, which is `DEBUG_STATUS_NO_CHANGE`: the filters decide about stopping.
#[implement(IDebugEventCallbacksWide)]
pub(crate) struct EventCallbacks(pub(crate) SeenEvents);

impl IDebugEventCallbacksWide_Impl for EventCallbacks_Impl {
    fn GetInterestMask(&self) -> windows::core::Result<u32> {
        Ok(DEBUG_EVENT_EXIT_PROCESS)
    }
    fn Breakpoint(&self, _: Ref<IDebugBreakpoint2>) -> windows::core::Result<()> {
        Ok(())
    }
    fn Exception(&self, _: *const EXCEPTION_RECORD64, _: u32) -> windows::core::Result<()> {
        Ok(())
    }
    fn CreateThread(&self, _: u64, _: u64, _: u64) -> windows::core::Result<()> {
        Ok(())
    }
    fn ExitThread(&self, _: u32) -> windows::core::Result<()> {
        Ok(())
    }
    fn CreateProcessA(
        &self,
        _: u64,
        _: u64,
        _: u64,
        _: u32,
        _: &PCWSTR,
        _: &PCWSTR,
        _: u32,
        _: u32,
        _: u64,
        _: u64,
        _: u64,
    ) -> windows::core::Result<()> {
        Ok(())
    }
    fn ExitProcess(&self, code: u32) -> windows::core::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).exit_code = Some(code);
        Ok(())
    }
    fn LoadModule(
        &self,
        _: u64,
        _: u64,
        _: u32,
        _: &PCWSTR,
        _: &PCWSTR,
        _: u32,
        _: u32,
    ) -> windows::core::Result<()> {
        Ok(())
    }
    fn UnloadModule(&self, _: &PCWSTR, _: u64) -> windows::core::Result<()> {
        Ok(())
    }
    fn SystemError(&self, _: u32, _: u32) -> windows::core::Result<()> {
        Ok(())
    }
    fn SessionStatus(&self, _: u32) -> windows::core::Result<()> {
        Ok(())
    }
    fn ChangeDebuggeeState(&self, _: u32, _: u64) -> windows::core::Result<()> {
        Ok(())
    }
    fn ChangeEngineState(&self, _: u32, _: u64) -> windows::core::Result<()> {
        Ok(())
    }
    fn ChangeSymbolState(&self, _: u32, _: u64) -> windows::core::Result<()> {
        Ok(())
    }
}

/// Answers every prompt with an empty line: without it a command that asks (`eb addr`, `a`) blocks
/// for ever.
#[implement(IDebugInputCallbacks)]
pub(crate) struct InputCallbacks(pub(crate) IDebugControl4);

impl IDebugInputCallbacks_Impl for InputCallbacks_Impl {
    fn StartInput(&self, _: u32) -> windows::core::Result<()> {
        // SAFETY: a constant string.
        unsafe { self.0.ReturnInputWide(w!("")) }
    }
    fn EndInput(&self) -> windows::core::Result<()> {
        Ok(())
    }
}
