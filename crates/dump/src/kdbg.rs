//! `KDDEBUGGER_DATA64` (wdbgexts.h): what the kernel tells debuggers about itself. Offsets are the
//! same on x64 and ARM64. Fields behind `Size` do not exist and read as `None`.

use crate::fields::{u16_at, u32_at, u64_at};

/// A decoded block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KdDebuggerData {
    bytes: Vec<u8>,
}

const TAG: &[u8] = b"KDBG";
const SIZE_RANGE: std::ops::RangeInclusive<usize> = 0x300..=0x1000;
/// Bytes to read of a block before its size is known.
pub const HEADER_SIZE: usize = 0x18;
/// The largest block a reader needs to fetch.
pub const MAX_SIZE: usize = 0x1000;

impl KdDebuggerData {
    /// A decoded block from its first byte; `bytes` may be longer than the block. `None` unless the
    /// tag, the size and the kernel base are sane.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.get(0x10..0x14)? != TAG {
            return None;
        }
        let size = u32_at(bytes, 0x14)? as usize;
        if !SIZE_RANGE.contains(&size) {
            return None;
        }
        let block = Self { bytes: bytes[..size.min(bytes.len())].to_vec() };
        let base = block.kern_base()?;
        (base >= 0xffff_0000_0000_0000 && base.is_multiple_of(0x1000)).then_some(block)
    }

    /// Undoes the encoding of a running kernel (Windows 8 and later). `never` and `always` are the
    /// values of `nt!KiWaitNever` and `nt!KiWaitAlways`, `address` is that of
    /// `nt!KdpDataBlockEncoded`. `None` when the result is no debugger data block.
    #[must_use]
    pub fn decode(encoded: &[u8], never: u64, always: u64, address: u64) -> Option<Self> {
        let rotation = u32::try_from(never & 0x3f).unwrap_or(0);
        let plain = encoded.chunks_exact(8).take(MAX_SIZE / 8).flat_map(|quad| {
            let value = u64::from_le_bytes(quad.try_into().unwrap_or_default());
            let turned = (value ^ never).rotate_left(rotation);
            ((turned ^ address).swap_bytes() ^ always).to_le_bytes()
        });
        Self::parse(&plain.collect::<Vec<u8>>())
    }

    /// The inverse of [`Self::decode`]: what a running kernel would hold.
    #[must_use]
    pub fn encode(plain: &[u8], never: u64, always: u64, address: u64) -> Vec<u8> {
        let rotation = u32::try_from(never & 0x3f).unwrap_or(0);
        let quads = plain.chunks_exact(8).flat_map(|quad| {
            let value = u64::from_le_bytes(quad.try_into().unwrap_or_default());
            let turned = (value ^ always).swap_bytes() ^ address;
            (turned.rotate_right(rotation) ^ never).to_le_bytes()
        });
        quads.collect()
    }

    /// `Header.Size`.
    #[must_use]
    pub fn size(&self) -> usize {
        u32_at(&self.bytes, 0x14).unwrap_or(0) as usize
    }

    /// Any 64-bit field by offset; `None` behind the block's size.
    #[must_use]
    pub fn quad(&self, offset: usize) -> Option<u64> {
        u64_at(&self.bytes, offset)
    }
    fn pointer(&self, offset: usize) -> Option<u64> {
        self.quad(offset).filter(|&v| v != 0)
    }
    fn half(&self, offset: usize) -> Option<u16> {
        u16_at(&self.bytes, offset)
    }
    fn word(&self, offset: usize) -> Option<u32> {
        u32_at(&self.bytes, offset)
    }
}

/// Accessors of one width, each naming its field.
macro_rules! fields {
    ($read:ident -> $type:ty { $($(#[$doc:meta])* $name:ident = $offset:literal),* $(,)? }) => {
        impl KdDebuggerData {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> Option<$type> { self.$read($offset) })*
        }
    };
}

// Addresses; 0 counts as absent.
fields! { pointer -> u64 {
    /// Base of the kernel image.
    kern_base = 0x18,
    breakpoint_with_status = 0x20,
    saved_context = 0x28,
    ki_call_user_mode = 0x38,
    ps_loaded_module_list = 0x48,
    ps_active_process_head = 0x50,
    /// Address of the variable that holds the table's address.
    psp_cid_table = 0x58,
    exp_system_resources_list = 0x60,
    exp_paged_pool_descriptor = 0x68,
    exp_number_of_paged_pools = 0x70,
    ke_time_increment = 0x78,
    /// Five u64: code and parameters.
    ki_bugcheck_data = 0x88,
    iop_error_log_list_head = 0x90,
    obp_root_directory_object = 0x98,
    obp_type_object_type = 0xa0,
    mm_system_cache_start = 0xa8,
    mm_system_cache_end = 0xb0,
    /// Address of the variable that holds the database's address.
    mm_pfn_database = 0xc0,
    mm_system_ptes_start = 0xc8,
    mm_system_ptes_end = 0xd0,
    mm_lowest_physical_page = 0xe8,
    mm_highest_physical_page = 0xf0,
    mm_number_of_physical_pages = 0xf8,
    mm_maximum_nonpaged_pool_in_bytes = 0x100,
    mm_nonpaged_system_start = 0x108,
    mm_nonpaged_pool_start = 0x110,
    mm_nonpaged_pool_end = 0x118,
    mm_paged_pool_start = 0x120,
    mm_paged_pool_end = 0x128,
    mm_paged_pool_information = 0x130,
    /// Bytes of a page, a value.
    mm_page_size = 0x138,
    pool_track_table = 0x1b8,
    nonpaged_pool_descriptor = 0x1c0,
    /// Address of a u64.
    mm_highest_user_address = 0x1c8,
    mm_system_range_start = 0x1d0,
    mm_user_probe_address = 0x1d8,
    kd_print_circular_buffer = 0x1e0,
    kd_print_circular_buffer_end = 0x1e8,
    kd_print_write_pointer = 0x1f0,
    kd_print_roll_over_count = 0x1f8,
    /// Address of an ASCII string.
    nt_build_lab = 0x208,
    /// Address of the array of PRCB addresses.
    ki_processor_block = 0x218,
    mm_unloaded_drivers = 0x220,
    mm_last_unloaded_driver = 0x228,
    kernel_verifier = 0x240,
    mm_physical_memory_block = 0x270,
    mm_session_base = 0x278,
    mm_session_size = 0x280,
    kd_print_circular_buffer_pointer = 0x2c8,
    kd_print_buffer_size = 0x2d0,
    iop_num_triage_dump_data_blocks = 0x308,
    iop_triage_dump_data_blocks = 0x310,
    /// Base of the page-table self-map.
    pte_base = 0x360,
}}

// Structure offsets and sizes.
fields! { half -> u16 {
    offset_kthread_next_processor = 0x298,
    offset_kthread_teb = 0x29a,
    offset_kthread_kernel_stack = 0x29c,
    offset_kthread_initial_stack = 0x29e,
    offset_kthread_apc_process = 0x2a0,
    offset_kthread_state = 0x2a2,
    offset_kthread_bstore = 0x2a4,
    offset_kthread_bstore_limit = 0x2a6,
    size_eprocess = 0x2a8,
    offset_eprocess_peb = 0x2aa,
    offset_eprocess_parent_cid = 0x2ac,
    offset_eprocess_directory_table_base = 0x2ae,
    size_prcb = 0x2b0,
    offset_prcb_dpc_routine = 0x2b2,
    offset_prcb_current_thread = 0x2b4,
    offset_prcb_mhz = 0x2b6,
    offset_prcb_cpu_type = 0x2b8,
    offset_prcb_vendor_string = 0x2ba,
    offset_prcb_proc_state_context = 0x2bc,
    offset_prcb_number = 0x2be,
    size_ethread = 0x2c0,
    size_pcr = 0x2e0,
    offset_pcr_self_pcr = 0x2e2,
    offset_pcr_current_prcb = 0x2e4,
    offset_pcr_contained_prcb = 0x2e6,
    offset_prcb_proc_state_special_reg = 0x2f2,
    gdt_r0_code = 0x2f4,
    gdt_r0_data = 0x2f6,
    gdt_r0_pcr = 0x2f8,
    gdt_r3_code = 0x2fa,
    gdt_r3_data = 0x2fc,
    gdt_r3_teb = 0x2fe,
    gdt_ldt = 0x300,
    gdt_tss = 0x302,
    gdt64_r3_cm_code = 0x304,
    gdt64_r3_cm_teb = 0x306,
    /// Offset in the PRCB of the pointer to the context saved at the crash.
    offset_prcb_context = 0x338,
    max_breakpoints = 0x33a,
    max_watchpoints = 0x33c,
    offset_prcb_idle_thread = 0x350,
    offset_prcb_normal_dpc_state = 0x352,
    offset_prcb_dpc_stack = 0x354,
    offset_prcb_isr_stack = 0x356,
    size_kdpc_stack_frame = 0x358,
    offset_kpri_queue_thread_list_head = 0x35a,
    offset_kthread_wait_reason = 0x35c,
    offset_eprocess_mm_hot_patch_context = 0x37c,
}}

fields! { word -> u32 {
    offset_kthread_stack_limit = 0x340,
    offset_kthread_stack_base = 0x344,
    offset_kthread_queue_list_entry = 0x348,
    offset_ethread_irp_list = 0x34c,
}}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Vec<u8> {
        let mut bytes = vec![0; 0x380];
        bytes[0x10..0x14].copy_from_slice(TAG);
        bytes[0x14..0x18].copy_from_slice(&0x380u32.to_le_bytes());
        bytes[0x18..0x20].copy_from_slice(&0xffff_f804_7ba0_0000u64.to_le_bytes());
        bytes[0x2c0..0x2c2].copy_from_slice(&0x898u16.to_le_bytes());
        bytes
    }

    #[test]
    fn fields_behind_the_size_are_absent() {
        let mut bytes = block();
        bytes[0x14..0x18].copy_from_slice(&0x340u32.to_le_bytes());
        let kdbg = KdDebuggerData::parse(&bytes).unwrap();
        assert_eq!(kdbg.kern_base(), Some(0xffff_f804_7ba0_0000));
        assert_eq!(kdbg.size_ethread(), Some(0x898));
        assert_eq!(kdbg.max_watchpoints(), Some(0));
        assert_eq!(kdbg.offset_kthread_stack_limit(), None);
        assert_eq!(kdbg.pte_base(), None);
    }

    #[test]
    fn encoding_is_undone_only_with_the_right_keys() {
        let (never, always, address) = (0x1f2e_3d4c_5b6a_7989, 0x0123_4567_89ab_cdef, 0xffff_f804_7c60_0000);
        let encoded = KdDebuggerData::encode(&block(), never, always, address);
        // One quad by hand: OwnerTag and Size.
        let quad = u64::from_le_bytes(encoded[0x10..0x18].try_into().unwrap());
        let by_hand = ((quad ^ never).rotate_left(9) ^ address).swap_bytes() ^ always;
        assert_eq!(by_hand, 0x0000_0380_4742_444b);
        assert!(KdDebuggerData::parse(&encoded).is_none());
        let decoded = KdDebuggerData::decode(&encoded, never, always, address).unwrap();
        assert_eq!(decoded, KdDebuggerData::parse(&block()).unwrap());
        assert!(KdDebuggerData::decode(&encoded, never ^ 1, always, address).is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(KdDebuggerData::parse(&[]).is_none());
        let mut bytes = block();
        bytes[0x18] = 1;
        assert!(KdDebuggerData::parse(&bytes).is_none());
        let mut bytes = block();
        bytes[0x15] = 0x40;
        assert!(KdDebuggerData::parse(&bytes).is_none());
    }
}
