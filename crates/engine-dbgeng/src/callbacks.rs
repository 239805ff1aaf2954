//! What the engine asks of this program.

use windows::Win32::System::Diagnostics::Debug::EXCEPTION_RECORD64;
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_BREAKPOINT, DEBUG_EVENT_EXCEPTION, IDebugBreakpoint2, IDebugControl4,
    IDebugEventCallbacksWide, IDebugEventCallbacksWide_Impl, IDebugInputCallbacks, IDebugInputCallbacks_Impl,
};
use windows::core::{PCWSTR, Ref, Result, implement, w};

use crate::watchdog::Breaker;

/// Answers every prompt with an empty line: without it a command that asks (`eb addr`, `a`) blocks
/// for ever.
#[implement(IDebugInputCallbacks)]
pub(crate) struct InputCallbacks(pub(crate) IDebugControl4);

impl IDebugInputCallbacks_Impl for InputCallbacks_Impl {
    fn StartInput(&self, _: u32) -> Result<()> {
        // SAFETY: a constant string.
        unsafe { self.0.ReturnInputWide(w!("")) }
    }
    fn EndInput(&self) -> Result<()> {
        Ok(())
    }
}

/// Tells the watchdog that the target has stopped, so that it raises no break into a stopped target.
/// Every answer is S_OK, which is `DEBUG_STATUS_NO_CHANGE`: the filters decide about stopping.
#[implement(IDebugEventCallbacksWide)]
pub(crate) struct EventCallbacks(pub(crate) Breaker);

impl IDebugEventCallbacksWide_Impl for EventCallbacks_Impl {
    fn GetInterestMask(&self) -> Result<u32> {
        // Not the process's end: asked for it the engine's wait fails under Wine.
        Ok(DEBUG_EVENT_BREAKPOINT | DEBUG_EVENT_EXCEPTION)
    }
    fn Breakpoint(&self, _: Ref<IDebugBreakpoint2>) -> Result<()> {
        self.0.hold();
        Ok(())
    }
    fn Exception(&self, _: *const EXCEPTION_RECORD64, _: u32) -> Result<()> {
        self.0.hold();
        Ok(())
    }
    fn CreateThread(&self, _: u64, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn ExitThread(&self, _: u32) -> Result<()> {
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
    ) -> Result<()> {
        Ok(())
    }
    fn ExitProcess(&self, _: u32) -> Result<()> {
        Ok(())
    }
    fn LoadModule(&self, _: u64, _: u64, _: u32, _: &PCWSTR, _: &PCWSTR, _: u32, _: u32) -> Result<()> {
        Ok(())
    }
    fn UnloadModule(&self, _: &PCWSTR, _: u64) -> Result<()> {
        Ok(())
    }
    fn SystemError(&self, _: u32, _: u32) -> Result<()> {
        Ok(())
    }
    fn SessionStatus(&self, _: u32) -> Result<()> {
        Ok(())
    }
    fn ChangeDebuggeeState(&self, _: u32, _: u64) -> Result<()> {
        Ok(())
    }
    fn ChangeEngineState(&self, _: u32, _: u64) -> Result<()> {
        Ok(())
    }
    fn ChangeSymbolState(&self, _: u32, _: u64) -> Result<()> {
        Ok(())
    }
}
