//! What the engine asks of this program.

use windows::Win32::System::Diagnostics::Debug::Extensions::{
    IDebugControl4, IDebugInputCallbacks, IDebugInputCallbacks_Impl,
};
use windows::core::{implement, w};

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
