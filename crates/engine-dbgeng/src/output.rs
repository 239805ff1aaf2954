//! What the engine prints, collected for the command that is running.

use std::sync::{Arc, Mutex, PoisonError};

use windows::Win32::System::Diagnostics::Debug::Extensions::{
    IDebugOutputCallbacksWide, IDebugOutputCallbacksWide_Impl,
};
use windows::core::{PCWSTR, implement};

/// At most this much of one command's output is kept; the rest is counted.
const LIMIT: usize = 8 << 20;

/// Text collected since the last [`Collected::take`].
#[derive(Default)]
pub(crate) struct Collected {
    text: String,
    dropped: usize,
}

impl Collected {
    pub(crate) fn take(buffer: &Arc<Mutex<Self>>) -> String {
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = std::mem::take(&mut buffer.text);
        let dropped = std::mem::take(&mut buffer.dropped);
        if dropped > 0 {
            text.push_str(&format!("\n[{dropped} bytes of output left out]\n"));
        }
        text
    }
}

/// `windows` answers `E_NOINTERFACE` for every other interface, which the engine relies on: answering
/// success makes it call through a larger vtable.
#[implement(IDebugOutputCallbacksWide)]
pub(crate) struct OutputCallbacks(pub(crate) Arc<Mutex<Collected>>);

impl IDebugOutputCallbacksWide_Impl for OutputCallbacks_Impl {
    fn Output(&self, _mask: u32, text: &PCWSTR) -> windows::core::Result<()> {
        if text.is_null() {
            return Ok(());
        }
        // SAFETY: the engine passes a NUL-terminated string that lives for the call.
        let text = unsafe { text.to_string() }.unwrap_or_default();
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.text.len() + text.len() > LIMIT {
            buffer.dropped += text.len();
        } else {
            buffer.text.push_str(&text);
        }
        Ok(())
    }
}
