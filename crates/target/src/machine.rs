//! Processor architectures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The architecture code is decoded and unwound as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Machine {
    X86,
    X64,
    Arm64,
    /// 32-bit ARM (Thumb-2): header facts only.
    Arm32,
}

impl Machine {
    /// `IMAGE_FILE_HEADER.Machine` (winnt.h): 0x14c, 0x8664, 0xaa64, 0x1c4/0x1c0.
    #[must_use]
    pub fn from_image(machine: u16) -> Option<Self> {
        match machine {
            0x014c => Some(Self::X86),
            0x8664 => Some(Self::X64),
            0xaa64 => Some(Self::Arm64),
            0x01c0 | 0x01c4 => Some(Self::Arm32),
            _ => None,
        }
    }

    /// `SYSTEM_INFO.wProcessorArchitecture` as minidumps store it; 0x8003 is Breakpad's old ARM64.
    #[must_use]
    pub fn from_processor_architecture(architecture: u16) -> Option<Self> {
        match architecture {
            0 => Some(Self::X86),
            5 => Some(Self::Arm32),
            9 => Some(Self::X64),
            12 | 0x8003 => Some(Self::Arm64),
            _ => None,
        }
    }

    #[must_use]
    pub fn image_machine(self) -> u16 {
        match self {
            Self::X86 => 0x014c,
            Self::X64 => 0x8664,
            Self::Arm64 => 0xaa64,
            Self::Arm32 => 0x01c4,
        }
    }

    /// Bytes of a pointer.
    #[must_use]
    pub fn pointer_size(self) -> u8 {
        match self {
            Self::X86 | Self::Arm32 => 4,
            Self::X64 | Self::Arm64 => 8,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
            Self::Arm32 => "arm32",
        }
    }
}
