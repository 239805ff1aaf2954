//! Base relocations.

use std::collections::BTreeMap;

use crate::field;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

/// Most bytes of the directory that are looked at.
const MAX_DIRECTORY: u32 = 64 << 20;
/// Most blocks (pages with relocations) kept: a 4 GiB image has a million pages.
const MAX_BLOCKS: usize = 1 << 20;

/// Width of the value to add the load delta to (winnt.h `IMAGE_REL_BASED_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationKind {
    /// `HIGHLOW`: 32 bits.
    Word32,
    /// `DIR64`.
    Word64,
    /// `HIGH`: the upper 16 bits of the delta.
    High16,
    /// `LOW`: the lower 16 bits of the delta.
    Low16,
}

impl RelocationKind {
    fn from_type(kind: u16) -> Option<Self> {
        match kind {
            1 => Some(Self::High16),
            2 => Some(Self::Low16),
            3 => Some(Self::Word32),
            10 => Some(Self::Word64),
            _ => None,
        }
    }
    fn size(self) -> usize {
        match self {
            Self::Word32 => 4,
            Self::Word64 => 8,
            Self::High16 | Self::Low16 => 2,
        }
    }
}

/// One place the loader patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    pub rva: u32,
    pub kind: RelocationKind,
}

/// Where each page's block lies: page RVA to (RVA of the first entry, number of entries).
pub(crate) struct RelocationIndex(BTreeMap<u32, Vec<(u32, u32)>>);

impl RelocationIndex {
    pub(crate) fn new(pe: &Pe, source: &dyn ImageSource) -> Self {
        let mut blocks: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        let mut count = 0;
        if let Some((rva, size)) = pe.directory(DirectoryIndex::BaseRelocation) {
            let mut offset = 0u32;
            let end = size.min(MAX_DIRECTORY);
            while offset.saturating_add(8) <= end && count < MAX_BLOCKS {
                let Some(header) = rva.checked_add(offset).and_then(|at| source.array::<8>(at)) else {
                    break;
                };
                let (page, length) = (field::le32(&header, 0), field::le32(&header, 4));
                if length < 8 || length > end - offset {
                    break;
                }
                blocks.entry(page).or_default().push((rva.saturating_add(offset + 8), (length - 8) / 2));
                offset += length;
                count += 1;
            }
        }
        Self(blocks)
    }

    /// Relocations whose first byte lies in `[first, last]`.
    pub(crate) fn within(&self, source: &dyn ImageSource, first: u32, last: u32) -> Vec<Relocation> {
        let mut out = Vec::new();
        // An entry's 12-bit offset reaches one page beyond the block's start.
        for (&page, blocks) in self.0.range(first.saturating_sub(0xfff)..=last) {
            for &(at, count) in blocks {
                let entries = source.prefix(at, (count as usize).min(0x1_0000) * 2);
                out.extend(entries.chunks_exact(2).filter_map(|entry| {
                    let entry = field::le16(entry, 0);
                    let rva = page.checked_add(u32::from(entry & 0xfff))?;
                    let kind = RelocationKind::from_type(entry >> 12)?;
                    (first..=last).contains(&rva).then_some(Relocation { rva, kind })
                }));
            }
        }
        out
    }
}

/// Adds `delta` to every relocated value that overlaps `buffer`, which holds the image from `rva`.
/// A value that only partly lies in `buffer` is completed from `source`, patched, and cut again.
pub(crate) fn apply(
    index: &RelocationIndex,
    source: &dyn ImageSource,
    rva: u32,
    delta: u64,
    buffer: &mut [u8],
) {
    let Some(last) = u32::try_from(buffer.len()).ok().and_then(|n| n.checked_sub(1)) else { return };
    let last = rva.saturating_add(last);
    for relocation in index.within(source, rva.saturating_sub(7), last) {
        let size = relocation.kind.size();
        let mut raw = [0u8; 8];
        if source.read_rva(relocation.rva, &mut raw[..size]) != size {
            continue;
        }
        let value = u64::from_le_bytes(raw);
        let patched = match relocation.kind {
            RelocationKind::High16 => (value.wrapping_shl(16).wrapping_add(delta)) >> 16,
            _ => value.wrapping_add(delta),
        };
        for (position, byte) in patched.to_le_bytes()[..size].iter().enumerate() {
            let at = u64::from(relocation.rva) + position as u64;
            let slot = at.checked_sub(u64::from(rva)).and_then(|i| usize::try_from(i).ok());
            if let Some(target) = slot.and_then(|i| buffer.get_mut(i)) {
                *target = *byte;
            }
        }
    }
}

impl Pe {
    /// Base relocations whose first byte lies in `[first, last]`, by page order.
    #[must_use]
    pub fn relocations(&self, source: &dyn ImageSource, first: u32, last: u32) -> Vec<Relocation> {
        if first > last {
            return Vec::new();
        }
        RelocationIndex::new(self, source).within(source, first, last)
    }
}
