//! Reading little-endian records whose every length is hostile: nothing here panics or allocates.

use std::borrow::Cow;

/// A cursor over bytes; every step is `None` past the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
    /// From `offset` of `all`.
    pub(crate) fn at(all: &'a [u8], offset: usize) -> Option<Self> {
        all.get(offset..).map(Self::new)
    }
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }
    /// A zero-terminated name; one that runs into the record's end counts as terminated.
    pub(crate) fn name_bytes(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| b == 0).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        name
    }
    pub(crate) fn name(&mut self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name_bytes())
    }
    /// A numeric leaf (cvinfo.h `LF_NUMERIC`): a u16 below 0x8000, or a tag and the value.
    pub(crate) fn number(&mut self) -> Option<i128> {
        let leaf = self.u16()?;
        Some(match leaf {
            0..0x8000 => i128::from(leaf),
            0x8000 => i128::from(self.u8()? as i8),
            0x8001 => i128::from(self.u16()? as i16),
            0x8002 => i128::from(self.u16()?),
            0x8003 => i128::from(self.i32()?),
            0x8004 => i128::from(self.u32()?),
            0x8009 => i128::from(i64::from_le_bytes(self.array()?)),
            0x800a => i128::from(u64::from_le_bytes(self.array()?)),
            0x8017 => i128::from_le_bytes(self.array()?),
            0x8018 => i128::from_le_bytes(self.array()?),
            _ => return None,
        })
    }
    /// [`Self::number`] as a size or offset.
    pub(crate) fn size(&mut self) -> Option<u64> {
        self.number().and_then(|n| u64::try_from(n).ok())
    }
    /// A compressed integer of binary annotations (cvinfo.h `CVUncompressData`).
    pub(crate) fn compressed(&mut self) -> Option<u32> {
        let first = u32::from(self.u8()?);
        if first & 0x80 == 0 {
            return Some(first);
        }
        let second = u32::from(self.u8()?);
        if first & 0xc0 == 0x80 {
            return Some((first & 0x3f) << 8 | second);
        }
        if first & 0xe0 != 0xc0 {
            return None;
        }
        let (third, fourth) = (u32::from(self.u8()?), u32::from(self.u8()?));
        Some((first & 0x1f) << 24 | second << 16 | third << 8 | fourth)
    }
}

/// The records of a symbol or type stream: `u16 length (of what follows), u16 kind, payload`.
/// Ends at the first record that does not fit.
pub(crate) struct Records<'a> {
    all: &'a [u8],
    at: usize,
}

/// One record: where it starts, its kind and its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) offset: usize,
    pub(crate) kind: u16,
    pub(crate) data: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(all: &'a [u8], start: usize) -> Self {
        Self { all, at: start }
    }
    /// The one record at `offset`.
    pub(crate) fn one(all: &'a [u8], offset: usize) -> Option<Record<'a>> {
        Self::new(all, offset).next()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut bytes = Bytes::at(self.all, self.at)?;
        let length = usize::from(bytes.u16()?);
        let kind = bytes.u16()?;
        let data = bytes.take(length.checked_sub(2)?)?;
        let offset = self.at;
        self.at += 2 + length;
        Some(Record { offset, kind, data })
    }
}

/// FNV-1a of a name, for the indices by name.
pub(crate) fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Records};

    #[test]
    fn numbers_of_every_width() {
        let mut b =
            Bytes::new(&[5, 0, 0, 0x80, 0xff, 3, 0x80, 0xfe, 0xff, 0xff, 0xff, 4, 0x80, 1, 0, 0, 0x80]);
        assert_eq!(b.number(), Some(5));
        assert_eq!(b.number(), Some(-1));
        assert_eq!(b.number(), Some(-2));
        assert_eq!(b.number(), Some(0x8000_0001));
        assert_eq!(b.number(), None);
    }

    #[test]
    fn annotations_are_one_two_or_four_bytes() {
        let mut b = Bytes::new(&[0x7f, 0x81, 0x02, 0xc1, 0x02, 0x03, 0x04, 0xff]);
        assert_eq!(b.compressed(), Some(0x7f));
        assert_eq!(b.compressed(), Some(0x102));
        assert_eq!(b.compressed(), Some(0x0102_0304));
        assert_eq!(b.compressed(), None);
    }

    #[test]
    fn a_record_past_the_end_ends_the_list() {
        let bytes = [4, 0, 1, 0, 0xaa, 0xbb, 200, 0, 2, 0];
        let kinds: Vec<_> = Records::new(&bytes, 0).map(|r| (r.offset, r.kind, r.data.len())).collect();
        assert_eq!(kinds, [(0, 1, 2)]);
        assert!(Records::new(&[0, 0, 0, 0], 0).next().is_none());
        assert!(Records::new(&bytes, 99).next().is_none());
    }
}
