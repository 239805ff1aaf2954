//! The answer to GET_VERSION (`DBGKD_GET_VERSION64`).

use crate::bytes::{Fields, Record};

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Low byte 0x0F a free build, 0x0C a checked one; high byte the [class](Self::class).
    pub major: u16,
    /// The build number.
    pub minor: u16,
    /// 6 for 64-bit machines.
    pub protocol: u8,
    /// x64: 0 and 1 an obsolete CONTEXT, 2 today's.
    pub secondary: u8,
    /// [`version_flags`].
    pub flags: u16,
    /// `IMAGE_FILE_MACHINE_*`.
    pub machine: u16,
    /// Advisory.
    pub max_packet_type: u8,
    /// Advisory.
    pub max_state_change: u8,
    /// Advisory.
    pub max_manipulate: u8,
    pub simulation: u8,
    pub kernel_base: u64,
    /// The list's head.
    pub loaded_module_list: u64,
    /// A list's head, whose first entry is the [`DebuggerData`](crate::DebuggerData).
    pub debugger_data_list: u64,
}

/// `DBGKD_VERS_FLAG_*`.
pub mod version_flags {
    /// A multiprocessor kernel.
    pub const MP: u16 = 1;
    /// There is debugger data.
    pub const DATA: u16 = 2;
    /// 64-bit pointers; not every 64-bit target sets it.
    pub const PTR64: u16 = 4;
    /// No memory manager's model.
    pub const NOMM: u16 = 8;
    /// Hardware step support.
    pub const HSS: u16 = 0x10;
    /// Partitions.
    pub const PARTITIONS: u16 = 0x20;
}

/// Which kernel answers: the high byte of [`Version::major`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelClass {
    Nt,
    Xbox,
    Big,
    Exdi,
    BootDebugger,
    Efi,
    Tnt,
    Singularity,
    Hypervisor,
    Other(u8),
}

impl Version {
    #[must_use]
    pub fn class(&self) -> KernelClass {
        match self.major.to_be_bytes()[0] {
            0 => KernelClass::Nt,
            1 => KernelClass::Xbox,
            2 => KernelClass::Big,
            3 => KernelClass::Exdi,
            4 => KernelClass::BootDebugger,
            5 => KernelClass::Efi,
            6 => KernelClass::Tnt,
            7 => KernelClass::Singularity,
            8 => KernelClass::Hypervisor,
            other => KernelClass::Other(other),
        }
    }

    pub(crate) fn read(f: Fields<'_>) -> Self {
        Self {
            major: f.u16(0x10),
            minor: f.u16(0x12),
            protocol: f.u8(0x14),
            secondary: f.u8(0x15),
            flags: f.u16(0x16),
            machine: f.u16(0x18),
            max_packet_type: f.u8(0x1A),
            max_state_change: f.u8(0x1B),
            max_manipulate: f.u8(0x1C),
            simulation: f.u8(0x1D),
            kernel_base: f.u64(0x20),
            loaded_module_list: f.u64(0x28),
            debugger_data_list: f.u64(0x30),
        }
    }

    pub(crate) fn put(&self, r: &mut Record) {
        r.u16(0x10, self.major).u16(0x12, self.minor).u8(0x14, self.protocol).u8(0x15, self.secondary);
        r.u16(0x16, self.flags).u16(0x18, self.machine).u8(0x1A, self.max_packet_type);
        r.u8(0x1B, self.max_state_change)
            .u8(0x1C, self.max_manipulate)
            .u8(0x1D, self.simulation)
            .u16(0x1E, 0);
        r.u64(0x20, self.kernel_base).u64(0x28, self.loaded_module_list).u64(0x30, self.debugger_data_list);
    }
}
