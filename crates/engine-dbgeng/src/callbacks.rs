//! What the engine asks of this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windows::Win32::System::Diagnostics::Debug::EXCEPTION_RECORD64;
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_EVENT_CREATE_THREAD, DEBUG_EVENT_SESSION_STATUS, DEBUG_STATUS_BREAK, IDebugBreakpoint2,
    IDebugControl4, IDebugEventCallbacksWide, IDebugEventCallbacksWide_Impl, IDebugInputCallbacks,
    IDebugInputCallbacks_Impl,
};
use windows::core::{HRESULT, PCWSTR, Ref, Result, implement, w};

use crate::inject::Injection;

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

/// Stops the target at the creation of the thread that breaks in ([`Injection`]), and counts sessions
/// that begin or end.
#[implement(IDebugEventCallbacksWide)]
pub(crate) struct EventCallbacks {
    pub(crate) injection: Option<Arc<Injection>>,
    pub(crate) sessions: Arc<AtomicU64>,
}

impl IDebugEventCallbacksWide_Impl for EventCallbacks_Impl {
    fn GetInterestMask(&self) -> Result<u32> {
        // Not the process's end: asked for it the engine's wait fails under Wine.
        let threads = if self.injection.is_some() { DEBUG_EVENT_CREATE_THREAD } else { 0 };
        Ok(threads | DEBUG_EVENT_SESSION_STATUS)
    }
    fn Breakpoint(&self, _: Ref<IDebugBreakpoint2>) -> Result<()> {
        Ok(())
    }
    fn Exception(&self, _: *const EXCEPTION_RECORD64, _: u32) -> Result<()> {
        Ok(())
    }
    fn CreateThread(&self, _: u64, _: u64, start: u64) -> Result<()> {
        // The answer is a DEBUG_STATUS; S_OK is DEBUG_STATUS_NO_CHANGE.
        if self.injection.as_ref().is_some_and(|injection| injection.meets(start)) {
            Err(HRESULT(DEBUG_STATUS_BREAK.cast_signed()).into())
        } else {
            Ok(())
        }
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
        self.sessions.fetch_add(1, Ordering::AcqRel);
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
