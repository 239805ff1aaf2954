//! A driver mapped, initialised and callable.

use std::mem::transmute;

use anyhow::{Context, Result, bail};

use crate::image::Image;
use crate::kernel::{self, block, put};

type Entry = extern "win64" fn(*mut u8, *mut u8) -> i32;
type Dispatch = extern "win64" fn(*mut u8, *mut u8) -> i32;

const IRP_MJ_DEVICE_CONTROL: usize = 0x0e;
const IRP_SIZE: usize = 0xd0;
const IRP_SYSTEM_BUFFER: usize = 0x18;
const IRP_STATUS: usize = 0x30;
const IRP_USER_BUFFER: usize = 0x70;
const IRP_LOCATION: usize = 0xb8;
const LOCATION_OUT: usize = 0x08;
const LOCATION_IN: usize = 0x10;
const LOCATION_CODE: usize = 0x18;
const LOCATION_TYPE3: usize = 0x20;
const LOCATION_DEVICE: usize = 0x28;
/// What the buffers hold: more than any length a sweep gives.
const BUFFER: usize = 0x1_0000;
/// No driver returns this, so an IRP that still has it was not completed.
const UNTOUCHED: u32 = 0xdead_dead;

/// Lengths of one request's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub input: u32,
    pub output: u32,
}

/// A driver of ours, loaded into this process.
#[derive(Debug)]
pub struct Driver {
    device: *mut u8,
    irp: *mut u8,
    location: *mut u8,
    dispatch: Dispatch,
}

impl Driver {
    /// Maps `file`, binds its imports, runs its DriverEntry.
    ///
    /// # Safety
    /// The code of `file` runs in this process: it must be a driver built from this repository.
    pub unsafe fn load(file: &[u8]) -> Result<Self> {
        let image = Image::read(file)?;
        let base = map(&image)?;
        let driver = block(kernel::DRIVER_OBJECT_SIZE);
        let path = block(16);
        // SAFETY: `driver` is a block of a DRIVER_OBJECT's size; `entry` lies in the mapped image and is
        // its entry point, which has this signature.
        let status = unsafe {
            put(driver, 0, 4_u16);
            put(driver, 2, kernel::DRIVER_OBJECT_SIZE as u16);
            put(driver, kernel::DRIVER_EXTENSION, block(0x50));
            let entry: Entry = transmute(base.add(image.entry as usize));
            entry(driver, path)
        };
        if status < 0 {
            bail!("DriverEntry answered {status:#010x}");
        }
        // SAFETY: both fields lie inside the DRIVER_OBJECT; the routine in the table is the driver's.
        let (device, dispatch) = unsafe {
            let table = driver.add(kernel::MAJOR_FUNCTION).cast::<usize>();
            let routine = table.add(IRP_MJ_DEVICE_CONTROL).read();
            if routine == 0 {
                bail!("the driver set no IRP_MJ_DEVICE_CONTROL routine");
            }
            let device = driver.add(kernel::DRIVER_DEVICE_OBJECT).cast::<*mut u8>().read();
            (device, transmute::<usize, Dispatch>(routine))
        };
        let (irp, location) = request(device);
        Ok(Self { device, irp, location, dispatch })
    }

    pub fn set_lengths(&mut self, lengths: Lengths) -> Result<()> {
        if lengths.input as usize > BUFFER || lengths.output as usize > BUFFER {
            bail!("buffers hold {BUFFER:#x} bytes");
        }
        // SAFETY: `location` is a block of an IO_STACK_LOCATION's size.
        unsafe {
            put(self.location, LOCATION_OUT, lengths.output);
            put(self.location, LOCATION_IN, lengths.input);
        }
        Ok(())
    }

    /// Sends `code`; the IRP's status, or the routine's when it completed nothing.
    #[inline]
    pub fn send(&mut self, code: u32) -> u32 {
        // SAFETY: `irp` and `location` are blocks of their structures' sizes; `dispatch` is the driver's.
        unsafe {
            put(self.location, LOCATION_CODE, code);
            put(self.irp, IRP_STATUS, UNTOUCHED);
            let returned = (self.dispatch)(self.device, self.irp) as u32;
            let status = self.irp.add(IRP_STATUS).cast::<u32>().read();
            if status == UNTOUCHED { returned } else { status }
        }
    }

    /// Every code of `codes` whose status is not `default`, in order.
    pub fn sweep(
        &mut self,
        codes: std::ops::RangeInclusive<u32>,
        default: u32,
        most: usize,
    ) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for code in codes {
            let status = self.send(code);
            if status != default {
                found.push((code, status));
                if found.len() >= most {
                    break;
                }
            }
        }
        found
    }

    /// The status of codes nobody defined: what most of a fixed scatter of codes get.
    pub fn default_status(&mut self) -> Result<u32> {
        let scatter = (1..=64_u32).map(|i| i.wrapping_mul(0x9e37_79b1) ^ 0x5a5a_0001);
        let statuses: Vec<u32> = scatter.map(|code| self.send(code)).collect();
        let count = |status: u32| statuses.iter().filter(|&&other| other == status).count();
        let most =
            statuses.iter().copied().max_by_key(|&status| count(status)).context("no code was sent")?;
        if count(most) < 60 {
            bail!("no status is the default: {most:#010x} came {} times of 64", count(most));
        }
        Ok(most)
    }
}

/// An IRP for `device` and its one stack location.
fn request(device: *mut u8) -> (*mut u8, *mut u8) {
    let (irp, location) = (block(IRP_SIZE), block(0x48));
    // SAFETY: blocks of their structures' sizes.
    unsafe {
        put(irp, 0, 6_u16);
        put(irp, 2, IRP_SIZE as u16 + 0x48);
        put(irp, IRP_SYSTEM_BUFFER, block(BUFFER));
        put(irp, IRP_USER_BUFFER, block(BUFFER));
        put(irp, 0x42, 1_u8);
        put(irp, 0x43, 1_u8);
        put(irp, IRP_LOCATION, location);
        put(location, 0, IRP_MJ_DEVICE_CONTROL as u8);
        put(location, LOCATION_TYPE3, block(BUFFER));
        put(location, LOCATION_DEVICE, device);
    }
    (irp, location)
}

/// The image relocated and bound, writable and executable: the drivers' data and code share pages.
fn map(image: &Image) -> Result<*mut u8> {
    let size = image.mapped.len();
    // SAFETY: a fresh anonymous mapping of `size` bytes.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        bail!("mmap of {size:#x} bytes: {}", std::io::Error::last_os_error());
    }
    let mut bytes = image.mapped.clone();
    let moved = (base as u64).wrapping_sub(image.preferred_base);
    for &rva in &image.pointers {
        let slot = bytes.get_mut(rva as usize..rva as usize + 8).context("a relocation past the end")?;
        let value = u64::from_le_bytes(slot.try_into()?).wrapping_add(moved);
        slot.copy_from_slice(&value.to_le_bytes());
    }
    for (rva, name) in &image.imports {
        let slot = bytes.get_mut(*rva as usize..*rva as usize + 8).context("a slot past the end")?;
        slot.copy_from_slice(&kernel::routine(name).to_le_bytes());
    }
    // SAFETY: the mapping is `size` bytes, as is `bytes`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.cast(), size) };
    Ok(base.cast())
}
