//! Memory of a scripted target that can be written: a file, which outlives the process that plays
//! the script, so that a second reader can say what is in it.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use super::script::{ScriptFile, Step};
use super::{ScriptedTarget, absent};
use crate::capability::Write;
use crate::error::{Result, TargetError};
use crate::memory::{ReadOutcome, Space, Unreadable};

#[derive(Debug)]
pub(super) struct FileMemory {
    address: u64,
    size: u64,
    file: RefCell<File>,
}

impl FileMemory {
    /// `None` when the file cannot be opened: the target then has no such memory.
    pub(super) fn open(from: ScriptFile) -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open(from.path).ok()?;
        let size = file.metadata().ok()?.len();
        Some(Self { address: from.address.0, size, file: RefCell::new(file) })
    }

    pub(super) fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.size)
    }

    fn at(&self, address: u64) -> std::io::Result<std::cell::RefMut<'_, File>> {
        let mut file = self.file.borrow_mut();
        file.seek(SeekFrom::Start(address.saturating_sub(self.address)))?;
        Ok(file)
    }

    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.saturating_add(done as u64);
            match self.at(at).and_then(|mut file| file.read(&mut buffer[done..])) {
                Ok(0) | Err(_) => return ReadOutcome::stopped(done, Unreadable::Refused),
                Ok(count) => done += count,
            }
        }
        ReadOutcome::complete(done)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<usize> {
        let end = address.checked_add(bytes.len() as u64);
        if !self.holds(address) || end.is_none_or(|end| end > self.address.saturating_add(self.size)) {
            return Err(absent(&format!("writable memory at {address:#x}")));
        }
        let written = self.at(address).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| TargetError::failed(format!("the write failed: {error}")))?;
        Ok(bytes.len())
    }
}

impl ScriptedTarget {
    /// What a step of a command changes of the target itself.
    pub(super) fn affect(&self, step: &Step) -> Result<()> {
        match step {
            Step::Replace => self.identity.borrow_mut().generation += 1,
            Step::Aim(aim) => aim.clone_into(&mut self.identity.borrow_mut().aim),
            Step::Poke(bytes) => {
                Write::write(self, Space::Virtual, bytes.address.0, &bytes.bytes.0)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Write for ScriptedTarget {
    fn write(&self, _: Space, address: u64, bytes: &[u8]) -> Result<usize> {
        self.fails("write")?;
        let file = self.writable.as_ref().ok_or_else(|| absent("writable memory"))?;
        file.write(address, bytes)
    }
    fn set_register(&self, name: &str, _: u64) -> Result<()> {
        Err(absent(&format!("writable register {name}")))
    }
}
