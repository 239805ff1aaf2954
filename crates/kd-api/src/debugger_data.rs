//! The kernel's record for debuggers (`KDDEBUGGER_DATA64`, its offsets as in the public `wdbgexts.h`).

use crate::bytes::Fields;

/// Why a block is not the debugger data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DebuggerDataError {
    #[error("debugger data of {0} bytes; its header has {HEADER}")]
    Short(usize),
    /// The tag is another: encoded, or not the block.
    #[error("the debugger data's tag is {0:#010x}, not KDBG")]
    Tag(u32),
    #[error("the debugger data tells {0:#x} bytes; 0x50 to 0x1000 are possible")]
    Size(u32),
    #[error("the debugger data's kernel base is {found:#x}, the target said {expected:#x}")]
    KernelBase { expected: u64, found: u64 },
    #[error("the debugger data is not in its list: its link is {0:#x}")]
    Links(u64),
}

/// Bytes of the links, tag and size.
const HEADER: usize = 0x18;
const TAG: u32 = u32::from_le_bytes(*b"KDBG");

/// A field's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    U8,
    U16,
    U32,
    U64,
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataField {
    pub name: &'static str,
    pub offset: usize,
    pub width: Width,
}

/// The block. A field is there when the block is long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebuggerData(Vec<u8>);

macro_rules! fields {
    ($($constant:ident = $offset:literal, $width:ident, $name:literal;)*) => {
        impl DebuggerData {
            $(#[doc = $name]
            pub const $constant: DataField =
                DataField { name: $name, offset: $offset, width: Width::$width };)*
            /// All of them, by offset.
            pub const FIELDS: &'static [DataField] = &[$(Self::$constant),*];
        }
    };
}

fields! {
    KERN_BASE = 0x18, U64, "KernBase";
    BREAKPOINT_WITH_STATUS = 0x20, U64, "BreakpointWithStatus";
    SAVED_CONTEXT = 0x28, U64, "SavedContext";
    FLAGS = 0x36, U16, "Flags";
    LOADED_MODULE_LIST = 0x48, U64, "PsLoadedModuleList";
    ACTIVE_PROCESS_HEAD = 0x50, U64, "PsActiveProcessHead";
    CID_TABLE = 0x58, U64, "PspCidTable";
    SYSTEM_RESOURCES_LIST = 0x60, U64, "ExpSystemResourcesList";
    PAGED_POOL_DESCRIPTOR = 0x68, U64, "ExpPagedPoolDescriptor";
    NUMBER_OF_PAGED_POOLS = 0x70, U64, "ExpNumberOfPagedPools";
    TIME_INCREMENT = 0x78, U64, "KeTimeIncrement";
    BUG_CHECK_CALLBACK_LIST = 0x80, U64, "KeBugCheckCallbackListHead";
    BUGCHECK_DATA = 0x88, U64, "KiBugcheckData";
    ROOT_DIRECTORY_OBJECT = 0x98, U64, "ObpRootDirectoryObject";
    TYPE_OBJECT_TYPE = 0xA0, U64, "ObpTypeObjectType";
    PFN_DATABASE = 0xC0, U64, "MmPfnDatabase";
    LOWEST_PHYSICAL_PAGE = 0xE8, U64, "MmLowestPhysicalPage";
    HIGHEST_PHYSICAL_PAGE = 0xF0, U64, "MmHighestPhysicalPage";
    NUMBER_OF_PHYSICAL_PAGES = 0xF8, U64, "MmNumberOfPhysicalPages";
    NON_PAGED_SYSTEM_START = 0x108, U64, "MmNonPagedSystemStart";
    NON_PAGED_POOL_START = 0x110, U64, "MmNonPagedPoolStart";
    NON_PAGED_POOL_END = 0x118, U64, "MmNonPagedPoolEnd";
    PAGED_POOL_START = 0x120, U64, "MmPagedPoolStart";
    PAGED_POOL_END = 0x128, U64, "MmPagedPoolEnd";
    POOL_TRACK_TABLE = 0x1B8, U64, "PoolTrackTable";
    NON_PAGED_POOL_DESCRIPTOR = 0x1C0, U64, "NonPagedPoolDescriptor";
    HIGHEST_USER_ADDRESS = 0x1C8, U64, "MmHighestUserAddress";
    SYSTEM_RANGE_START = 0x1D0, U64, "MmSystemRangeStart";
    USER_PROBE_ADDRESS = 0x1D8, U64, "MmUserProbeAddress";
    BUILD_LAB = 0x208, U64, "NtBuildLab";
    PROCESSOR_BLOCK = 0x218, U64, "KiProcessorBlock";
    UNLOADED_DRIVERS = 0x220, U64, "MmUnloadedDrivers";
    LAST_UNLOADED_DRIVER = 0x228, U64, "MmLastUnloadedDriver";
    KERNEL_VERIFIER = 0x240, U64, "KernelVerifier";
    VERIFIER_DATA = 0x248, U64, "MmVerifierData";
    CSD_VERSION = 0x268, U64, "CmNtCSDVersion";
    PHYSICAL_MEMORY_BLOCK = 0x270, U64, "MmPhysicalMemoryBlock";
    SESSION_BASE = 0x278, U64, "MmSessionBase";
    SESSION_SIZE = 0x280, U64, "MmSessionSize";
    VIRTUAL_TRANSLATION_BASE = 0x290, U64, "MmVirtualTranslationBase";
    OFFSET_KTHREAD_NEXT_PROCESSOR = 0x298, U16, "OffsetKThreadNextProcessor";
    OFFSET_KTHREAD_TEB = 0x29A, U16, "OffsetKThreadTeb";
    OFFSET_KTHREAD_KERNEL_STACK = 0x29C, U16, "OffsetKThreadKernelStack";
    OFFSET_KTHREAD_INITIAL_STACK = 0x29E, U16, "OffsetKThreadInitialStack";
    OFFSET_KTHREAD_APC_PROCESS = 0x2A0, U16, "OffsetKThreadApcProcess";
    OFFSET_KTHREAD_STATE = 0x2A2, U16, "OffsetKThreadState";
    SIZE_EPROCESS = 0x2A8, U16, "SizeEProcess";
    OFFSET_EPROCESS_PEB = 0x2AA, U16, "OffsetEprocessPeb";
    OFFSET_EPROCESS_PARENT_CID = 0x2AC, U16, "OffsetEprocessParentCID";
    OFFSET_EPROCESS_DIRECTORY_TABLE_BASE = 0x2AE, U16, "OffsetEprocessDirectoryTableBase";
    SIZE_PRCB = 0x2B0, U16, "SizePrcb";
    OFFSET_PRCB_CURRENT_THREAD = 0x2B4, U16, "OffsetPrcbCurrentThread";
    OFFSET_PRCB_MHZ = 0x2B6, U16, "OffsetPrcbMhz";
    OFFSET_PRCB_PROC_STATE_CONTEXT = 0x2BC, U16, "OffsetPrcbProcStateContext";
    OFFSET_PRCB_NUMBER = 0x2BE, U16, "OffsetPrcbNumber";
    SIZE_ETHREAD = 0x2C0, U16, "SizeEThread";
    L1TF_HIGH_PHYSICAL_BIT_INDEX = 0x2C2, U8, "L1tfHighPhysicalBitIndex";
    L1TF_SWIZZLE_BIT_INDEX = 0x2C3, U8, "L1tfSwizzleBitIndex";
    PRINT_CIRCULAR_BUFFER = 0x2C8, U64, "KdPrintCircularBufferPtr";
    PRINT_BUFFER_SIZE = 0x2D0, U64, "KdPrintBufferSize";
    LOADER_BLOCK = 0x2D8, U64, "KeLoaderBlock";
    SIZE_PCR = 0x2E0, U16, "SizePcr";
    OFFSET_PCR_SELF = 0x2E2, U16, "OffsetPcrSelfPcr";
    OFFSET_PCR_CURRENT_PRCB = 0x2E4, U16, "OffsetPcrCurrentPrcb";
    OFFSET_PCR_CONTAINED_PRCB = 0x2E6, U16, "OffsetPcrContainedPrcb";
    OFFSET_PRCB_SPECIAL_REGISTERS = 0x2F2, U16, "OffsetPrcbProcStateSpecialReg";
    CRASH_DATA_BLOCK = 0x318, U64, "VfCrashDataBlock";
    ETWP_DEBUGGER_DATA = 0x330, U64, "EtwpDebuggerData";
    OFFSET_PRCB_CONTEXT = 0x338, U16, "OffsetPrcbContext";
    MAX_BREAKPOINTS = 0x33A, U16, "OffsetPrcbMaxBreakpoints";
    MAX_WATCHPOINTS = 0x33C, U16, "OffsetPrcbMaxWatchpoints";
    OFFSET_KTHREAD_STACK_LIMIT = 0x340, U32, "OffsetKThreadStackLimit";
    OFFSET_KTHREAD_STACK_BASE = 0x344, U32, "OffsetKThreadStackBase";
    OFFSET_ETHREAD_IRP_LIST = 0x34C, U32, "OffsetEThreadIrpList";
    OFFSET_PRCB_IDLE_THREAD = 0x350, U16, "OffsetPrcbIdleThread";
    PTE_BASE = 0x360, U64, "PteBase";
}

impl DebuggerData {
    /// Bytes of the part that tells how long the block is.
    pub const HEADER: usize = HEADER;

    /// The size that a block's first [`HEADER`](Self::HEADER) bytes tell.
    ///
    /// # Errors
    /// The wrong tag, or a size that no build has.
    pub fn size(header: &[u8]) -> Result<u32, DebuggerDataError> {
        let f = Fields::of(header, HEADER, "").map_err(|_| DebuggerDataError::Short(header.len()))?;
        match (f.u32(0x10), f.u32(0x14)) {
            (TAG, size @ 0x50..=0x1000) => Ok(size),
            (TAG, size) => Err(DebuggerDataError::Size(size)),
            (tag, _) => Err(DebuggerDataError::Tag(tag)),
        }
    }

    /// A block of the list whose head is at `list`, of the kernel at `kernel_base`. Bytes beyond its
    /// own size are dropped; a block read short has fewer fields.
    ///
    /// # Errors
    /// [`DebuggerDataError`]: then nothing of it may be believed.
    pub fn decode(bytes: &[u8], list: u64, kernel_base: u64) -> Result<Self, DebuggerDataError> {
        let size = Self::size(bytes)? as usize;
        let f = Fields(bytes);
        let found = f.u64(Self::KERN_BASE.offset);
        if found != kernel_base {
            return Err(DebuggerDataError::KernelBase { expected: kernel_base, found });
        }
        if f.u64(8) != list {
            return Err(DebuggerDataError::Links(f.u64(8)));
        }
        Ok(Self(bytes.get(..size).unwrap_or(bytes).to_vec()))
    }

    /// A field's value; `None` when this build's block is too short for it.
    #[must_use]
    pub fn get(&self, field: DataField) -> Option<u64> {
        let f = Fields(&self.0);
        let width = match field.width {
            Width::U8 => 1,
            Width::U16 => 2,
            Width::U32 => 4,
            Width::U64 => 8,
        };
        (field.offset + width <= self.0.len()).then(|| match field.width {
            Width::U8 => f.u8(field.offset).into(),
            Width::U16 => f.u16(field.offset).into(),
            Width::U32 => f.u32(field.offset).into(),
            Width::U64 => f.u64(field.offset),
        })
    }
}
