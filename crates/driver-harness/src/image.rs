//! A PE reader of its own, for images this repository built: an oracle that shared the product's reader
//! would share its mistakes.

use anyhow::{Context, Result, bail};

/// The parts of an x64 image that loading it needs.
#[derive(Debug)]
pub struct Image {
    /// The image as it lies in memory, at its preferred base.
    pub mapped: Vec<u8>,
    pub preferred_base: u64,
    pub entry: u32,
    /// `(slot RVA, routine)`.
    pub imports: Vec<(u32, String)>,
    /// RVAs of 64-bit pointers to relocate.
    pub pointers: Vec<u32>,
}

/// The directories of a PE32+ header, and where they lie in its optional header.
const DIRECTORIES: usize = 112;
const IMPORTS: usize = 1;
const RELOCATIONS: usize = 5;

impl Image {
    /// Reads `file`, the bytes of an x64 `.sys`.
    pub fn read(file: &[u8]) -> Result<Self> {
        let nt = u32_at(file, 0x3c)? as usize;
        let machine = u16_at(file, nt + 4)?;
        if file.get(..2) != Some(b"MZ") || file.get(nt..nt + 4) != Some(b"PE\0\0") || machine != 0x8664 {
            bail!("not an x64 PE image (machine {machine:#x})");
        }
        let sections = usize::from(u16_at(file, nt + 6)?);
        let optional = nt + 24;
        let headers = u32_at(file, optional + 60)? as usize;
        let size = u32_at(file, optional + 56)? as usize;
        if size > 0x1000_0000 {
            bail!("{size:#x} bytes are no test driver");
        }
        let mut mapped = vec![0; size];
        copy(&mut mapped, 0, file.get(..headers).context("headers past the file's end")?)?;
        let table = optional + usize::from(u16_at(file, nt + 20)?);
        for section in (0..sections).map(|i| table + i * 40) {
            let rva = u32_at(file, section + 12)? as usize;
            let raw = u32_at(file, section + 20)? as usize;
            let length = u32_at(file, section + 16)?.min(u32_at(file, section + 8)?) as usize;
            copy(&mut mapped, rva, file.get(raw..raw + length).context("a section past the file's end")?)?;
        }
        let directory = |index: usize| -> Result<(usize, usize)> {
            let at = optional + DIRECTORIES + index * 8;
            Ok((u32_at(file, at)? as usize, u32_at(file, at + 4)? as usize))
        };
        Ok(Self {
            preferred_base: u64_at(file, optional + 24)?,
            entry: u32_at(file, optional + 16)?,
            imports: imports(&mapped, directory(IMPORTS)?.0)?,
            pointers: pointers(&mapped, directory(RELOCATIONS)?)?,
            mapped,
        })
    }
}

fn imports(mapped: &[u8], directory: usize) -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    if directory == 0 {
        return Ok(found);
    }
    for descriptor in (directory..).step_by(20) {
        let names = u32_at(mapped, descriptor)?;
        let slots = u32_at(mapped, descriptor + 16)?;
        if slots == 0 {
            return Ok(found);
        }
        let names = if names == 0 { slots } else { names };
        for index in 0.. {
            let name = u64_at(mapped, names as usize + index as usize * 8)?;
            if name == 0 {
                break;
            }
            let text = mapped.get(usize::try_from(name)? + 2..).context("an import's name")?;
            let length = text.iter().position(|&b| b == 0).context("an import's name has no end")?;
            found.push((slots + index * 8, String::from_utf8_lossy(&text[..length]).into_owned()));
        }
    }
    Ok(found)
}

fn pointers(mapped: &[u8], (start, length): (usize, usize)) -> Result<Vec<u32>> {
    const DIR64: u16 = 10;
    let mut found = Vec::new();
    let mut block = start;
    while block < start + length {
        let page = u32_at(mapped, block)?;
        let size = u32_at(mapped, block + 4)? as usize;
        if size < 8 {
            bail!("a relocation block of {size} bytes");
        }
        for entry in (block + 8..block + size).step_by(2) {
            let entry = u16_at(mapped, entry)?;
            match entry >> 12 {
                0 => {}
                DIR64 => found.push(page + u32::from(entry & 0xfff)),
                other => bail!("relocation type {other}"),
            }
        }
        block += size;
    }
    Ok(found)
}

fn copy(to: &mut [u8], at: usize, bytes: &[u8]) -> Result<()> {
    to.get_mut(at..at + bytes.len()).context("a section past the image's end")?.copy_from_slice(bytes);
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(bytes.get(at..at + 2).context("the image ends early")?.try_into()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(bytes.get(at..at + 4).context("the image ends early")?.try_into()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(bytes.get(at..at + 8).context("the image ends early")?.try_into()?))
}
