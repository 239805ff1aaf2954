//! The few kernel routines the swept drivers call, and the structures they are handed. Offsets are the
//! driver ABI's (public DDK headers), as in `fixtures/drivers/src/ddk.h`.

pub(crate) const DRIVER_OBJECT_SIZE: usize = 0x150;
pub(crate) const DRIVER_DEVICE_OBJECT: usize = 0x08;
pub(crate) const DRIVER_EXTENSION: usize = 0x30;
pub(crate) const MAJOR_FUNCTION: usize = 0x70;
pub(crate) const DEVICE_OBJECT_SIZE: usize = 0x150;
const DEVICE_DRIVER: usize = 0x08;
const DEVICE_EXTENSION: usize = 0x40;
const DEVICE_TYPE: usize = 0x48;

/// A zeroed, never freed block: it outlives the driver, as the pool does.
pub(crate) fn block(size: usize) -> *mut u8 {
    Box::leak(vec![0_u128; size.div_ceil(16).max(1)].into_boxed_slice()).as_mut_ptr().cast()
}

/// Writes `value` at `object + offset`.
///
/// # Safety
/// `object + offset` is writable for the size of `T`.
pub(crate) unsafe fn put<T>(object: *mut u8, offset: usize, value: T) {
    // SAFETY: as the caller promises.
    unsafe { object.add(offset).cast::<T>().write_unaligned(value) }
}

extern "win64" fn complete_request(_irp: *mut u8, _boost: u8) {}

extern "win64" fn create_device(
    driver: *mut u8,
    extension: u32,
    _name: *const u8,
    device_type: u32,
    _characteristics: u32,
    _exclusive: u8,
    device: *mut *mut u8,
) -> i32 {
    let object = block(DEVICE_OBJECT_SIZE);
    // SAFETY: `object` is a block of a DEVICE_OBJECT's size, `driver` the DRIVER_OBJECT the harness
    // handed out, `device` the driver's own variable.
    unsafe {
        put(object, 0, 3_u16);
        put(object, DEVICE_DRIVER, driver);
        put(object, DEVICE_EXTENSION, block(extension as usize));
        put(object, DEVICE_TYPE, device_type);
        put(driver, DRIVER_DEVICE_OBJECT, object);
        device.write(object);
    }
    0
}

extern "win64" fn succeed() -> i32 {
    0
}

/// An import no swept driver should call ends the run: nothing after it would be true.
extern "win64" fn unbound() -> ! {
    eprintln!("driver-harness: the driver called an import the harness does not have");
    std::process::abort()
}

/// The address to put into an import's slot.
pub(crate) fn routine(name: &str) -> u64 {
    match name {
        "IofCompleteRequest" => complete_request as *const () as u64,
        "IoCreateDevice" => create_device as *const () as u64,
        "IoCreateSymbolicLink" | "IoDeleteSymbolicLink" | "IoDeleteDevice" => succeed as *const () as u64,
        _ => unbound as *const () as u64,
    }
}
