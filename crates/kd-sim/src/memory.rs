//! Physical memory, seen through page tables.

use dumpforge::KernelForge;
use kd_target::Refusal;

const PAGE: u64 = 0x1000;

/// All of a machine's memory. Page tables are in it: what is written to them holds.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) forge: KernelForge,
}

impl Space {
    /// The physical address of a present page's byte.
    pub(crate) fn translate(&self, address: u64) -> Option<u64> {
        canonical(address).then(|| self.forge.system.translate(&self.forge.memory, address)).flatten()
    }

    /// How many bytes from `address` on are readable, and the bytes.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.walk(address, buffer.len(), |space, physical, range| {
            let bytes = space.forge.memory.read(physical, range.len());
            if let Some(place) = buffer.get_mut(range) {
                place.copy_from_slice(&bytes);
            }
        })
    }

    /// How many bytes from `address` on were written.
    pub(crate) fn write(&mut self, address: u64, data: &[u8]) -> usize {
        let mut done = 0;
        while done < data.len() {
            let at = address.wrapping_add(done as u64);
            let count = step(at, data.len() - done);
            let Some(physical) = self.translate(at) else { break };
            self.forge.memory.write(physical, data.get(done..done + count).unwrap_or_default());
            done += count;
        }
        done
    }

    pub(crate) fn read_physical(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let count = step(at, buffer.len() - done);
            if !self.forge.memory.contains(at / PAGE) {
                break;
            }
            let bytes = self.forge.memory.read(at, count);
            if let Some(place) = buffer.get_mut(done..done + count) {
                place.copy_from_slice(&bytes);
            }
            done += count;
        }
        if done == 0 { Err(Refusal::default()) } else { Ok(done) }
    }

    pub(crate) fn write_physical(&mut self, address: u64, data: &[u8]) -> Result<usize, Refusal> {
        let mut done = 0;
        while done < data.len() {
            let at = address.wrapping_add(done as u64);
            let count = step(at, data.len() - done);
            if !self.forge.memory.contains(at / PAGE) {
                break;
            }
            self.forge.memory.write(at, data.get(done..done + count).unwrap_or_default());
            done += count;
        }
        if done == 0 { Err(Refusal::default()) } else { Ok(done) }
    }

    fn walk(
        &self,
        address: u64,
        length: usize,
        mut visit: impl FnMut(&Self, u64, std::ops::Range<usize>),
    ) -> usize {
        let mut done = 0;
        while done < length {
            let at = address.wrapping_add(done as u64);
            let count = step(at, length - done);
            let Some(physical) = self.translate(at) else { break };
            visit(self, physical, done..done + count);
            done += count;
        }
        done
    }
}

/// Bytes up to the end of the page.
fn step(at: u64, left: usize) -> usize {
    usize::try_from(PAGE - at % PAGE).unwrap_or(left).min(left)
}

fn canonical(address: u64) -> bool {
    matches!(address >> 47, 0 | 0x1_ffff)
}
