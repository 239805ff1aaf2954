//! `section:offset` to RVA and back, through OMAP where the linker's order was changed after
//! linking (basic-block reordering).

use super::bytes::Bytes;

/// A section as the PDB's addresses are relative to.
#[derive(Clone, Copy, Debug)]
struct Section {
    rva: u32,
    size: u32,
}

/// One `OMAP` record: from `source` on, addresses are `target + distance`; 0 is "eliminated".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Omap {
    source: u32,
    target: u32,
}

/// Address translation of one PDB.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    sections: Vec<Section>,
    to_source: Vec<Omap>,
    from_source: Vec<Omap>,
}

impl AddressMap {
    /// `sections` are those the symbols are relative to: the original ones when there is OMAP.
    pub(crate) fn new(sections: &[u8], to_source: &[u8], from_source: &[u8]) -> Self {
        Self {
            sections: read_sections(sections),
            to_source: read_omap(to_source),
            from_source: read_omap(from_source),
        }
    }

    pub(crate) fn has_omap(&self) -> bool {
        !self.from_source.is_empty()
    }

    /// RVA in the image; `None` outside the sections and for code that was eliminated.
    pub(crate) fn rva(&self, section: u16, offset: u32) -> Option<u32> {
        let found = self.sections.get(usize::from(section).checked_sub(1)?)?;
        // A symbol at the very end (`__guard_..._end`) is one past the section.
        if offset > found.size {
            return None;
        }
        let rva = found.rva.checked_add(offset)?;
        self.moved(rva)
    }

    /// RVA in the image of an RVA from before the reordering.
    pub(crate) fn moved(&self, rva: u32) -> Option<u32> {
        if self.has_omap() { translate(&self.from_source, rva) } else { Some(rva) }
    }

    /// `(section, offset)` as symbols name it.
    pub(crate) fn place(&self, rva: u32) -> Option<(u16, u32)> {
        let rva = if self.has_omap() { translate(&self.to_source, rva)? } else { rva };
        let index = self.sections.iter().position(|s| rva >= s.rva && rva - s.rva < s.size)?;
        Some((u16::try_from(index + 1).ok()?, rva - self.sections.get(index)?.rva))
    }
}

fn translate(map: &[Omap], rva: u32) -> Option<u32> {
    let found = map.get(map.partition_point(|o| o.source <= rva).checked_sub(1)?)?;
    if found.target == 0 {
        return None;
    }
    found.target.checked_add(rva - found.source)
}

/// `IMAGE_SECTION_HEADER`s (40 bytes: name, virtual size, virtual address, ...).
fn read_sections(bytes: &[u8]) -> Vec<Section> {
    let read = |header: &[u8]| {
        let mut fields = Bytes::at(header, 8)?;
        let (size, rva, raw) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Some(Section { rva, size: size.max(raw) })
    };
    bytes.chunks_exact(40).take(0xffff).filter_map(read).collect()
}

fn read_omap(bytes: &[u8]) -> Vec<Omap> {
    let read = |record: &[u8]| {
        let mut fields = Bytes::new(record);
        Some(Omap { source: fields.u32()?, target: fields.u32()? })
    };
    let mut map: Vec<Omap> = bytes.chunks_exact(8).filter_map(read).collect();
    if !map.is_sorted() {
        map.sort_unstable();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::AddressMap;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn section(rva: u32, size: u32) -> Vec<u8> {
        words(&[0, 0, size, rva, size, 0, 0, 0, 0, 0])
    }

    #[test]
    fn sections_alone() {
        let map = AddressMap::new(&section(0x1000, 0x200), &[], &[]);
        assert_eq!(map.rva(1, 0x10), Some(0x1010));
        assert_eq!(map.rva(1, 0x201), None);
        assert_eq!(map.rva(0, 0), None);
        assert_eq!(map.place(0x11ff), Some((1, 0x1ff)));
        assert_eq!(map.place(0x1200), None);
    }

    #[test]
    fn omap_moves_and_eliminates() {
        let from = words(&[0x1000, 0x5000, 0x1010, 0, 0x1020, 0x4000]);
        let to = words(&[0x4000, 0x1020, 0x5000, 0x1000]);
        let map = AddressMap::new(&section(0x1000, 0x200), &to, &from);
        assert_eq!(map.rva(1, 0x8), Some(0x5008));
        assert_eq!(map.rva(1, 0x18), None);
        assert_eq!(map.rva(1, 0x24), Some(0x4004));
        assert_eq!(map.place(0x4004), Some((1, 0x24)));
        assert_eq!(map.place(0x3fff), None);
    }
}
