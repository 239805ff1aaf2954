//! Offsets of the driver ABI (wdm.h) the pass reads through.

use crate::expr::Symbol;

/// Offsets for one pointer width.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of a pointer.
    pub pointer: u8,
    /// `DRIVER_OBJECT`.
    pub fast_io: i64,
    pub major_functions: i64,
    /// `FAST_IO_DISPATCH.FastIoDeviceControl`.
    pub fast_io_device_control: u64,
    pub irp_mdl: i64,
    pub irp_system_buffer: i64,
    pub irp_status: i64,
    pub irp_user_buffer: i64,
    pub irp_stack_location: i64,
    pub output_length: i64,
    pub input_length: i64,
    pub control_code: i64,
    pub type3_input: i64,
    /// `WDF_REQUEST_PARAMETERS` (wdfrequest.h): bytes, and its device-control fields.
    pub params_size: i64,
    pub params_output: i64,
    pub params_input: i64,
    pub params_code: i64,
    pub params_type3: i64,
}

const WIDE: Layout = Layout {
    pointer: 8,
    fast_io: 0x50,
    major_functions: 0x70,
    fast_io_device_control: 0x50,
    irp_mdl: 0x08,
    irp_system_buffer: 0x18,
    irp_status: 0x30,
    irp_user_buffer: 0x70,
    irp_stack_location: 0xb8,
    output_length: 0x08,
    input_length: 0x10,
    control_code: 0x18,
    type3_input: 0x20,
    params_size: 0x28,
    params_output: 0x08,
    params_input: 0x10,
    params_code: 0x18,
    params_type3: 0x20,
};

const NARROW: Layout = Layout {
    pointer: 4,
    fast_io: 0x28,
    major_functions: 0x38,
    fast_io_device_control: 0x28,
    irp_mdl: 0x04,
    irp_system_buffer: 0x0c,
    irp_status: 0x18,
    irp_user_buffer: 0x3c,
    irp_stack_location: 0x60,
    output_length: 0x04,
    input_length: 0x08,
    control_code: 0x0c,
    type3_input: 0x10,
    params_size: 0x18,
    params_output: 0x08,
    params_input: 0x0c,
    params_code: 0x10,
    params_type3: 0x14,
};

impl Layout {
    /// Of a target whose pointers have `bits` bits.
    #[must_use]
    pub fn of(bits: u16) -> &'static Self {
        if bits == 64 { &WIDE } else { &NARROW }
    }

    /// The pointer-sized field of an IRP at `offset`.
    #[must_use]
    pub fn irp_pointer(&self, offset: i64) -> Option<Symbol> {
        Some(match offset {
            o if o == self.irp_stack_location => Symbol::StackLocation,
            o if o == self.irp_system_buffer => Symbol::SystemBuffer,
            o if o == self.irp_user_buffer => Symbol::UserBuffer,
            o if o == self.irp_mdl => Symbol::Mdl,
            _ => return None,
        })
    }
}
