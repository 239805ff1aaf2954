//! Little-endian fields at fixed places.

use crate::DecodeError;

/// Fields read from a record whose length was checked; beyond its end they read 0.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// `bytes`, at least `needed` long.
    pub(crate) fn of(bytes: &'a [u8], needed: usize, what: &'static str) -> Result<Self, DecodeError> {
        if bytes.len() < needed {
            return Err(DecodeError::Short { what, needed, found: bytes.len() });
        }
        Ok(Self(bytes))
    }

    pub(crate) fn array<const N: usize>(self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }
    pub(crate) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }
    pub(crate) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }
    pub(crate) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
    /// The bytes from `at` on.
    pub(crate) fn rest(self, at: usize) -> &'a [u8] {
        self.0.get(at..).unwrap_or_default()
    }
    /// `count` bytes at `at`, all there.
    pub(crate) fn exactly(self, at: usize, count: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = self.rest(at);
        usize::try_from(count).ok().and_then(|count| rest.get(..count)).ok_or(DecodeError::Length {
            what,
            told: count,
            found: rest.len(),
        })
    }
}

/// A record under construction; a field outside it is not written.
pub(crate) struct Record(pub(crate) Vec<u8>);

impl Record {
    pub(crate) fn zeroed(length: usize) -> Self {
        Self(vec![0; length])
    }
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }
    pub(crate) fn u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, &[value])
    }
    pub(crate) fn u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }
    pub(crate) fn u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }
    pub(crate) fn u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, &value.to_le_bytes())
    }
    pub(crate) fn append(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A length as a field; a longer one than fits cannot be sent in one packet anyway.
pub(crate) fn length32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
