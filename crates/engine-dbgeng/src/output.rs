//! What the engine prints, collected for the command that is running.

use std::sync::{Arc, Mutex, PoisonError};

use windows::Win32::System::Diagnostics::Debug::Extensions::{
    IDebugOutputCallbacksWide, IDebugOutputCallbacksWide_Impl,
};
use windows::core::{PCWSTR, implement};

/// Of one operation's output this much is kept from its start and as much from its end.
const HALF: usize = 4 << 20;

/// Text collected since the last [`Collected::take`].
#[derive(Default)]
pub(crate) struct Collected {
    head: String,
    tail: String,
    dropped: usize,
    /// Called once when a kernel's link is announced.
    pub(crate) when_connected: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// How the engine announces that a kernel has answered, in every version seen.
const CONNECTED: [&str; 2] = ["Kernel Debugger connection established", "Connected to "];

impl Collected {
    /// Text comes in pieces, so all of it is looked at.
    fn announce(&mut self) {
        if self.when_connected.is_some()
            && CONNECTED.iter().any(|words| self.head.contains(words))
            && let Some(connected) = self.when_connected.take()
        {
            connected();
        }
    }

    fn push(&mut self, text: &str) {
        if self.tail.is_empty() && self.head.len() + text.len() <= HALF {
            self.head.push_str(text);
            return;
        }
        self.tail.push_str(text);
        // Twice the half before cutting, so that a flood is not moved about on every line.
        if self.tail.len() > 2 * HALF {
            let mut cut = self.tail.len() - HALF;
            while !self.tail.is_char_boundary(cut) {
                cut += 1;
            }
            self.tail.drain(..cut);
            self.dropped += cut;
        }
    }

    pub(crate) fn take(buffer: &Arc<Mutex<Self>>) -> String {
        let taken = std::mem::take(&mut *buffer.lock().unwrap_or_else(PoisonError::into_inner));
        let mut text = taken.head;
        if taken.dropped > 0 {
            text.push_str(&format!("\n[{} bytes of output left out]\n", taken.dropped));
        }
        text.push_str(&taken.tail);
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
        let text = String::from_utf16_lossy(unsafe { text.as_wide() });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(&text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).announce();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_announced_once() {
        let heard = Arc::<std::sync::atomic::AtomicU32>::default();
        let counted = Arc::clone(&heard);
        let mut said = Collected {
            when_connected: Some(Arc::new(move || {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            })),
            ..Collected::default()
        };
        for (piece, times) in
            [("Waiting to reconnect...\nConn", 0), ("ected to Windows 10", 1), ("Connected to", 1)]
        {
            said.push(piece);
            said.announce();
            assert_eq!(heard.load(std::sync::atomic::Ordering::Relaxed), times, "{piece}");
        }
    }

    #[test]
    fn a_flood_keeps_its_ends_and_counts_the_rest() {
        let buffer = Arc::new(Mutex::new(Collected::default()));
        buffer.lock().unwrap().push("first\n");
        for _ in 0..300_000 {
            buffer.lock().unwrap().push("the same line of sixty-four bytes, said again and again and so\n");
        }
        buffer.lock().unwrap().push("last\n");
        let text = Collected::take(&buffer);
        assert!(text.starts_with("first\n") && text.ends_with("last\n"));
        assert!(text.len() < 3 * (HALF + 100) && text.contains("bytes of output left out"));
        assert_eq!(Collected::take(&buffer), "");
    }
}
