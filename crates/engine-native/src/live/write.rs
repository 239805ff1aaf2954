//! Writing memory and registers of a live kernel.

use target::{Context, MemoryExt, Result, Space, TargetError, Write};

use crate::kernel::live_pages;
use crate::native_target::NativeTarget;
use crate::raw::is_kernel_half;

/// Bytes of one request; a page at most.
const CHUNK: usize = 0x800;

impl NativeTarget {
    fn may_write(&self, space: Space, address: u64) -> Result<()> {
        match space {
            Space::Physical => Ok(()),
            Space::Virtual if is_kernel_half(address) || self.core.user_root() == 0 => Ok(()),
            _ => Err(TargetError::unsupported(
                "wrong_address_space",
                "user memory is written in the process the target stopped in only: its pages may be shared with \
                 others, and only the kernel can make them this process's own",
            )),
        }
    }

    fn write_chunk(&self, space: Space, address: u64, bytes: &[u8]) -> Result<usize> {
        let kernel = &self.live()?.kernel;
        match space {
            Space::Physical => kernel.write_physical(address, bytes),
            _ => kernel.write_virtual(address, bytes),
        }
    }

    fn forget_memory(&self) {
        if let Some(pages) = live_pages(&self.core) {
            pages.forget();
        }
    }
}

impl Write for NativeTarget {
    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<usize> {
        self.live()?.stopped()?;
        self.may_write(space, address)?;
        let mut done = 0;
        let mut outcome = Ok(());
        while done < bytes.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let in_page = usize::try_from(0x1000 - at % 0x1000).unwrap_or(CHUNK).min(CHUNK);
            let piece = &bytes[done..bytes.len().min(done + in_page)];
            match self.write_chunk(space, at, piece) {
                Ok(count) => {
                    done += count.min(piece.len());
                    if count < piece.len() {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.forget_memory();
        if done == 0 {
            outcome?;
        }
        let mut now = vec![0; done];
        let read = self.core.read_exact_in(space, address, &mut now);
        if let Err(error) = read {
            return Err(TargetError::failed(format!(
                "{done} bytes were written, but cannot be read back: {error}"
            )));
        }
        Ok(now.iter().zip(bytes).take_while(|(now, wanted)| now == wanted).count())
    }

    fn set_register(&self, name: &str, value: u64) -> Result<()> {
        let live = self.live()?;
        let stop = live.stopped()?;
        let processor = self.selection.get().processor.unwrap_or(stop.processor);
        let missing =
            || TargetError::InvalidArgument(format!("there is no register {}", name.trim_start_matches('@')));
        let (number, shift, bits) = Context::locate(self.core.machine, name).ok_or_else(missing)?;
        let context = live.kernel.context(processor)?;
        let whole = if bits >= 64 {
            value
        } else {
            let mask = ((1u64 << bits) - 1) << shift;
            if value >> bits != 0 {
                return Err(TargetError::InvalidArgument(format!(
                    "{value:#x} does not fit the {bits} bits of {name}"
                )));
            }
            let old = context.get(number).ok_or_else(|| {
                TargetError::failed(format!(
                    "the target does not send {name}, so a part of it cannot be changed"
                ))
            })?;
            (old & !mask) | value << shift
        };
        live.kernel.set_registers(processor, &[(number, whole)])?;
        let mut probe = Context::new(self.core.machine, target::ContextSource::Live);
        probe.set_ip(0);
        if processor == stop.processor && probe.get(number).is_some() {
            live.moved.set(true);
        }
        Ok(())
    }
}
