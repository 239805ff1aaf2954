//! Where the kernel's structures keep what the forge writes.

use target::Machine;

/// Offsets of nt's structures: x64 as of build 19041; ARM64 as the debugger data of a real build
/// 17134 gives them, the rest (which that does not tell) chosen to fit.
#[derive(Clone, Debug)]
pub struct Layout {
    pub build: u32,
    pub kthread_initial_stack: u16,
    pub kthread_stack_limit: u16,
    pub kthread_stack_base: u16,
    pub kthread_kernel_stack: u16,
    pub kthread_apc_process: u16,
    pub kthread_teb: u16,
    pub kthread_state: u16,
    pub kthread_next_processor: u16,
    pub kthread_process: u16,
    pub kthread_wait_reason: u16,
    pub kthread_list_entry: u16,
    pub ethread_cid: u16,
    pub ethread_start_address: u16,
    pub ethread_list_entry: u16,
    pub ethread_size: u16,
    pub kprocess_directory_table_base: u16,
    pub kprocess_thread_list_head: u16,
    pub eprocess_unique_process_id: u16,
    pub eprocess_active_process_links: u16,
    pub eprocess_parent: u16,
    pub eprocess_peb: u16,
    pub eprocess_wow64_process: u16,
    pub eprocess_image_file_name: u16,
    pub eprocess_thread_list_head: u16,
    pub eprocess_exit_time: u16,
    pub eprocess_size: u16,
    pub pcr_size: u16,
    pub pcr_self: u16,
    pub pcr_current_prcb: u16,
    pub pcr_contained_prcb: u16,
    pub prcb_size: u16,
    pub prcb_number: u16,
    pub prcb_current_thread: u16,
    pub prcb_idle_thread: u16,
    pub prcb_special_registers: u16,
    pub prcb_context_frame: u16,
    /// Pointer to the context saved at the crash.
    pub prcb_context: u16,
}

impl Layout {
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        if machine == Machine::Arm64 { Self::arm64_17134() } else { Self::x64_19041() }
    }

    #[must_use]
    pub fn x64_19041() -> Self {
        Self {
            build: 19041,
            kthread_initial_stack: 0x28,
            kthread_stack_limit: 0x30,
            kthread_stack_base: 0x38,
            kthread_kernel_stack: 0x58,
            kthread_apc_process: 0xb8,
            kthread_teb: 0xf0,
            kthread_state: 0x184,
            kthread_next_processor: 0x218,
            kthread_process: 0x220,
            kthread_wait_reason: 0x283,
            kthread_list_entry: 0x2f8,
            ethread_cid: 0x478,
            ethread_start_address: 0x450,
            ethread_list_entry: 0x4e8,
            ethread_size: 0x898,
            kprocess_directory_table_base: 0x28,
            kprocess_thread_list_head: 0x30,
            eprocess_unique_process_id: 0x440,
            eprocess_active_process_links: 0x448,
            eprocess_parent: 0x540,
            eprocess_peb: 0x550,
            eprocess_wow64_process: 0x580,
            eprocess_image_file_name: 0x5a8,
            eprocess_thread_list_head: 0x5e0,
            eprocess_exit_time: 0x840,
            eprocess_size: 0xa40,
            pcr_size: 0xb080,
            pcr_self: 0x18,
            pcr_current_prcb: 0x20,
            pcr_contained_prcb: 0x180,
            prcb_size: 0xaf00,
            prcb_number: 0x24,
            prcb_current_thread: 8,
            prcb_idle_thread: 0x18,
            prcb_special_registers: 0x100,
            prcb_context_frame: 0x1f0,
            prcb_context: 0x85c0,
        }
    }

    #[must_use]
    pub fn arm64_17134() -> Self {
        Self {
            build: 17134,
            kthread_apc_process: 0xb0,
            kthread_teb: 0xe8,
            kthread_state: 0x17c,
            kthread_next_processor: 0x238,
            kthread_process: 0x240,
            kthread_wait_reason: 0x2a3,
            kthread_list_entry: 0x310,
            ethread_cid: 0x648,
            ethread_start_address: 0x620,
            ethread_list_entry: 0x6b0,
            ethread_size: 0x830,
            eprocess_unique_process_id: 0x2e0,
            eprocess_active_process_links: 0x2e8,
            eprocess_parent: 0x390,
            eprocess_peb: 0x3a0,
            eprocess_wow64_process: 0x3d0,
            eprocess_image_file_name: 0x3f8,
            eprocess_thread_list_head: 0x430,
            eprocess_exit_time: 0x690,
            eprocess_size: 0x7f8,
            pcr_size: 0x6d80,
            pcr_current_prcb: 0,
            pcr_contained_prcb: 0x980,
            prcb_size: 0x6400,
            prcb_special_registers: 0x40,
            prcb_context_frame: 0x360,
            prcb_context: 0x8a0,
            ..Self::x64_19041()
        }
    }
}
