//! The type streams (TPI and IPI): records by index, definitions by name.

use std::cell::OnceCell;

use target::TypeKind;

use super::bytes::{Bytes, Record, Records, hash};
use crate::{Result, SymbolError};

/// Indices below are built-in types.
pub(crate) const FIRST_RECORD: u32 = 0x1000;

/// One type stream.
#[derive(Debug, Default)]
pub(crate) struct TypeStream {
    bytes: Vec<u8>,
    /// Index of the first record.
    first: u32,
    /// Where each record starts in `bytes`.
    offsets: Vec<u32>,
    definitions: OnceCell<Definitions>,
}

/// Complete structures, classes, unions and enums by hash of their names, sorted.
#[derive(Debug, Default)]
struct Definitions {
    by_name: Vec<(u32, u32)>,
    by_unique_name: Vec<(u32, u32)>,
}

/// A structure, class, union or enum record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Udt<'a> {
    pub(crate) kind: TypeKind,
    pub(crate) forward: bool,
    /// Index of the field list, 0 for none.
    pub(crate) fields: u32,
    /// Bytes; 0 for an enum, whose underlying type has them.
    pub(crate) size: u64,
    /// Of an enum.
    pub(crate) underlying: u32,
    pub(crate) count: u16,
    pub(crate) name: &'a [u8],
    pub(crate) unique_name: &'a [u8],
}

impl TypeStream {
    /// The header (LLVM "The PDB TPI Stream") and one pass over the record lengths.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut header = Bytes::new(&bytes);
        let fields = (|| {
            header.u32()?;
            Some((header.u32()?, header.u32()?, header.u32()?))
        })();
        let Some((header_size, first, end)) = fields else {
            return Err(SymbolError::damaged("its type stream is cut off"));
        };
        let declared = end.saturating_sub(first) as usize;
        // Every record has at least four bytes.
        let mut offsets = Vec::with_capacity(declared.min(bytes.len() / 4));
        for record in Records::new(&bytes, header_size as usize).take(declared) {
            offsets.push(u32::try_from(record.offset).unwrap_or(u32::MAX));
        }
        Ok(Self { bytes, first, offsets, definitions: OnceCell::new() })
    }

    pub(crate) fn record(&self, index: u32) -> Option<Record<'_>> {
        let at = *self.offsets.get(index.checked_sub(self.first)? as usize)?;
        Records::one(&self.bytes, at as usize)
    }

    fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.offsets.len() as u32).map(|i| self.first.saturating_add(i))
    }

    pub(crate) fn udt(&self, index: u32) -> Option<Udt<'_>> {
        read_udt(self.record(index)?)
    }

    fn definitions(&self) -> &Definitions {
        self.definitions.get_or_init(|| {
            let mut found = Definitions::default();
            for index in self.indices() {
                if let Some(udt) = self.udt(index).filter(|u| !u.forward) {
                    found.by_name.push((hash(udt.name), index));
                    if !udt.unique_name.is_empty() {
                        found.by_unique_name.push((hash(udt.unique_name), index));
                    }
                }
            }
            found.by_name.sort_unstable();
            found.by_unique_name.sort_unstable();
            found
        })
    }

    /// Indices of complete definitions called exactly `name`.
    pub(crate) fn named(&self, name: &[u8]) -> Vec<u32> {
        hashed(&self.definitions().by_name, name)
            .filter(|&i| self.udt(i).is_some_and(|u| u.name == name))
            .take(64)
            .collect()
    }

    /// Every complete definition, for scans: index and name.
    pub(crate) fn all_definitions(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.definitions().by_name.iter().filter_map(|&(_, i)| Some((i, self.udt(i)?.name)))
    }

    /// The definition behind a forward reference; `index` itself when it is none or has none.
    pub(crate) fn resolve(&self, index: u32) -> u32 {
        let Some(udt) = self.udt(index).filter(|u| u.forward) else { return index };
        if !udt.unique_name.is_empty() {
            let mut found = hashed(&self.definitions().by_unique_name, udt.unique_name);
            if let Some(i) = found.find(|&i| self.udt(i).is_some_and(|u| u.unique_name == udt.unique_name)) {
                return i;
            }
        }
        self.named(udt.name).first().copied().unwrap_or(index)
    }
}

fn hashed<'a>(sorted: &'a [(u32, u32)], name: &[u8]) -> impl Iterator<Item = u32> + use<'a> {
    let wanted = hash(name);
    let start = sorted.partition_point(|&(h, _)| h < wanted);
    // The bound is for files that collide on purpose.
    sorted[start..].iter().take(256).take_while(move |&&(h, _)| h == wanted).map(|&(_, i)| i)
}

/// LF_CLASS, LF_STRUCTURE, LF_INTERFACE, LF_UNION, LF_ENUM and their `2` forms of recent compilers.
fn read_udt(record: Record<'_>) -> Option<Udt<'_>> {
    let mut data = Bytes::new(record.data);
    let kind = match record.kind {
        0x1504 | 0x1608 => TypeKind::Class,
        0x1505 | 0x1609 | 0x1519 | 0x160b => TypeKind::Struct,
        0x1506 | 0x160a => TypeKind::Union,
        0x1507 => TypeKind::Enum,
        _ => return None,
    };
    let wide = record.kind >= 0x1600;
    let (mut count, property) = if wide { (0, data.u32()?) } else { (data.u16()?, u32::from(data.u16()?)) };
    let (mut underlying, mut size) = (0, 0);
    if kind == TypeKind::Enum {
        underlying = data.u32()?;
    }
    let fields = data.u32()?;
    if matches!(kind, TypeKind::Class | TypeKind::Struct) {
        data.take(8)?;
    }
    if wide {
        count = data.u16()?;
    }
    if kind != TypeKind::Enum {
        size = data.size()?;
    }
    let name = data.name_bytes();
    let unique_name = if property & 0x200 != 0 { data.name_bytes() } else { &[] };
    Some(Udt { kind, forward: property & 0x80 != 0, fields, size, underlying, count, name, unique_name })
}
