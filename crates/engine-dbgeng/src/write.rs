//! Writing memory and registers of a live target.

use target::{Result, Space, TargetError, Write};
use windows::Win32::System::Diagnostics::Debug::Extensions::{DEBUG_VALUE, DEBUG_VALUE_INT64};
use windows::core::HSTRING;

use crate::engine::{DbgEng, EngineResult};

impl Write for DbgEng {
    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<usize> {
        self.alive()?;
        if space != Space::Virtual {
            return Err(TargetError::unsupported(
                "wrong_target_kind",
                "only virtual memory of a live process is written",
            ));
        }
        let length = u32::try_from(bytes.len())
            .map_err(|_| TargetError::InvalidArgument("more than 4 GiB at once".to_owned()))?;
        let mut written = 0;
        // SAFETY: the buffer is as long as said.
        unsafe {
            self.spaces.WriteVirtual(self.widen(address), bytes.as_ptr().cast(), length, Some(&mut written))
        }
        .said(&format!("write {} bytes at {address:#x}", bytes.len()))?;
        // Past the engine's cache, which would answer what it was just told.
        let mut now = vec![0; (written as usize).min(bytes.len())];
        let mut read = 0;
        // SAFETY: the buffer is as long as said.
        let outcome = unsafe {
            self.spaces.ReadVirtualUncached(
                self.widen(address),
                now.as_mut_ptr().cast(),
                u32::try_from(now.len()).unwrap_or(0),
                Some(&mut read),
            )
        };
        now.truncate(if outcome.is_ok() { read as usize } else { 0 });
        Ok(now.iter().zip(bytes).take_while(|(now, wanted)| now == wanted).count())
    }

    fn set_register(&self, name: &str, value: u64) -> Result<()> {
        self.alive()?;
        let bare = name.trim_start_matches('@');
        // SAFETY: the string lives for the call.
        let index = unsafe { self.registers.GetIndexByNameWide(&HSTRING::from(bare)) }
            .map_err(|_| TargetError::InvalidArgument(format!("there is no register {bare}")))?;
        let mut record = DEBUG_VALUE { Type: DEBUG_VALUE_INT64, ..Default::default() };
        record.Anonymous.Anonymous.I64 = value;
        // SAFETY: the record lives for the call.
        unsafe { self.registers.SetValue(index, &record) }.said(&format!("set {bare}"))
    }
}
