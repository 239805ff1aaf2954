//! The load configuration directory, as far as a debugger reads it.

use crate::field;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

/// Fields of `IMAGE_LOAD_CONFIG_DIRECTORY` (winnt.h). Pointers are VAs at the base the image is
/// linked for (or, in memory, loaded at). What the image's directory is too short for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadConfig {
    /// Address of `__security_cookie`, not its value.
    pub security_cookie: Option<u64>,
    pub guard_check_function: Option<u64>,
    pub guard_dispatch_function: Option<u64>,
    pub guard_function_table: Option<u64>,
    pub guard_function_count: Option<u64>,
    /// `IMAGE_GUARD_*`.
    pub guard_flags: Option<u32>,
    /// x86: table of safe exception handlers and their number.
    pub safe_seh: Option<(u64, u64)>,
}

impl Pe {
    /// The load configuration, if the image has one.
    #[must_use]
    pub fn load_config(&self, source: &dyn ImageSource) -> Option<LoadConfig> {
        let (rva, _) = self.directory(DirectoryIndex::LoadConfig)?;
        let declared = source.u32(rva)? as usize;
        // The header's size field is the truth; the directory entry's is 64 on XP-era images.
        let bytes = source.prefix(rva, declared.clamp(64, 0x200));
        let bytes = bytes.get(..bytes.len().min(declared.max(64)))?;
        let pointer = |at32: usize, at64: usize| {
            let (at, size) = if self.is_64 { (at64, 8) } else { (at32, 4) };
            (bytes.len() >= at + size)
                .then(|| if self.is_64 { field::le64(bytes, at) } else { u64::from(field::le32(bytes, at)) })
        };
        let flags_at = if self.is_64 { 0x90 } else { 0x58 };
        Some(LoadConfig {
            security_cookie: pointer(0x3c, 0x58),
            safe_seh: if self.is_64 { None } else { pointer(0x40, 0).zip(pointer(0x44, 0)) },
            guard_check_function: pointer(0x48, 0x70),
            guard_dispatch_function: pointer(0x4c, 0x78),
            guard_function_table: pointer(0x50, 0x80),
            guard_function_count: pointer(0x54, 0x88),
            guard_flags: (bytes.len() >= flags_at + 4).then(|| field::le32(bytes, flags_at)),
        })
    }
}
