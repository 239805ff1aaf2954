//! The global symbol records: publics, global data, references to procedures, typedefs. Indexed
//! once by RVA and by name; records are read where they lie.

use std::cell::OnceCell;

use target::SymbolKind;

use super::address::AddressMap;
use super::bytes::{Bytes, Record, Records, hash};
use crate::Sym;
use crate::demangle::{display_name, plain_name};
use crate::glob::Glob;
use crate::literal::literal_size;

const S_CONSTANT: u16 = 0x1107;
const S_UDT: u16 = 0x1108;
const S_LDATA32: u16 = 0x110c;
const S_GDATA32: u16 = 0x110d;
const S_PUB32: u16 = 0x110e;
const S_LTHREAD32: u16 = 0x1112;
const S_GTHREAD32: u16 = 0x1113;
const S_PROCREF: u16 = 0x1125;
const S_LPROCREF: u16 = 0x1127;

/// A record with an address, where it lies in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    rva: u32,
    record: u32,
}

/// What a global record says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Global<'a> {
    Public {
        section: u16,
        offset: u32,
        name: &'a [u8],
    },
    Data {
        ty: u32,
        section: u16,
        offset: u32,
        name: &'a [u8],
    },
    /// A procedure of module `module` (from 0) whose record is at `record` of its stream.
    Procedure {
        module: u16,
        record: u32,
        name: &'a [u8],
    },
    Typedef {
        ty: u32,
        name: &'a [u8],
    },
    Constant {
        ty: u32,
        name: &'a [u8],
    },
}

impl<'a> Global<'a> {
    pub(super) fn read(record: Record<'a>) -> Option<Self> {
        let mut data = Bytes::new(record.data);
        Some(match record.kind {
            S_PUB32 => {
                let (_flags, offset, section) = (data.u32()?, data.u32()?, data.u16()?);
                Self::Public { section, offset, name: data.name_bytes() }
            }
            S_LDATA32 | S_GDATA32 | S_LTHREAD32 | S_GTHREAD32 => {
                let (ty, offset, section) = (data.u32()?, data.u32()?, data.u16()?);
                // A thread-local's place is in the TLS template, which no address names.
                let section = if record.kind >= S_LTHREAD32 { 0 } else { section };
                Self::Data { ty, section, offset, name: data.name_bytes() }
            }
            S_PROCREF | S_LPROCREF => {
                data.u32()?;
                let (record, module) = (data.u32()?, data.u16()?.checked_sub(1)?);
                Self::Procedure { module, record, name: data.name_bytes() }
            }
            S_UDT => Self::Typedef { ty: data.u32()?, name: data.name_bytes() },
            S_CONSTANT => {
                let ty = data.u32()?;
                data.number()?;
                Self::Constant { ty, name: data.name_bytes() }
            }
            _ => return None,
        })
    }

    pub(super) fn name(&self) -> &'a [u8] {
        match *self {
            Self::Public { name, .. }
            | Self::Data { name, .. }
            | Self::Procedure { name, .. }
            | Self::Typedef { name, .. }
            | Self::Constant { name, .. } => name,
        }
    }
}

/// The stream and its indices.
pub(super) struct Globals {
    records: Vec<u8>,
    x86: bool,
    by_rva: Vec<Placed>,
    by_name: OnceCell<Vec<(u32, u32)>>,
}

impl Globals {
    pub(super) fn new(records: Vec<u8>, addresses: &AddressMap, x86: bool) -> Self {
        let mut by_rva = Vec::with_capacity(records.len() / 64);
        for record in Records::new(&records, 0) {
            let place = match Global::read(record) {
                Some(Global::Public { section, offset, .. } | Global::Data { section, offset, .. }) => {
                    addresses.rva(section, offset)
                }
                _ => None,
            };
            if let (Some(rva), Ok(record)) = (place, u32::try_from(record.offset)) {
                by_rva.push(Placed { rva, record });
            }
        }
        by_rva.sort_unstable();
        Self { records, x86, by_rva, by_name: OnceCell::new() }
    }

    fn global(&self, record: u32) -> Option<Global<'_>> {
        Global::read(Records::one(&self.records, record as usize)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Global<'_>> {
        Records::new(&self.records, 0).filter_map(Global::read)
    }

    /// Data and publics at the nearest address at or before `rva`: data first, then the shortest
    /// name (of equally short ones the last), as folded functions have many.
    pub(super) fn nearest(&self, rva: u32) -> Option<(u32, Global<'_>)> {
        let after = self.by_rva.partition_point(|p| p.rva <= rva);
        let at = self.by_rva.get(after.checked_sub(1)?)?.rva;
        Some((at, self.best_at(at, after)?))
    }

    /// `after` is one past the last entry at `at`.
    fn best_at(&self, at: u32, after: usize) -> Option<Global<'_>> {
        let here = self.by_rva[..after].iter().rev().take_while(|p| p.rva == at).take(64);
        let globals = here.filter_map(|p| self.global(p.record));
        globals.min_by_key(|g| {
            let public = matches!(g, Global::Public { .. });
            let weak = (literal_size(g.name()).is_some(), public);
            (weak, g.name().len(), std::cmp::Reverse(g.name()))
        })
    }

    /// The decorated name of the public exactly at `rva`.
    pub(super) fn public_at(&self, rva: u32) -> Option<&[u8]> {
        let after = self.by_rva.partition_point(|p| p.rva <= rva);
        let here = self.by_rva[..after].iter().rev().take_while(|p| p.rva == rva).take(64);
        let publics = here.filter_map(|p| match self.global(p.record)? {
            Global::Public { name, .. } => Some(name),
            _ => None,
        });
        publics.min_by_key(|name| (name.len(), std::cmp::Reverse(*name)))
    }

    /// Shown names of data and publics exactly at `rva`.
    pub(super) fn names_at(&self, rva: u32) -> Vec<String> {
        let start = self.by_rva.partition_point(|p| p.rva < rva);
        let here = self.by_rva[start..].iter().take_while(|p| p.rva == rva).take(4096);
        here.filter_map(|p| self.global(p.record)).map(|g| self.shown(g.name())).collect()
    }

    /// Records called exactly `name`.
    pub(super) fn named(&self, name: &[u8]) -> Vec<Global<'_>> {
        let index = self.by_name.get_or_init(|| {
            let mut all: Vec<(u32, u32)> = Records::new(&self.records, 0)
                .filter_map(|r| Some((hash(Global::read(r)?.name()), u32::try_from(r.offset).ok()?)))
                .collect();
            all.sort_unstable();
            all
        });
        let wanted = hash(name);
        let start = index.partition_point(|&(h, _)| h < wanted);
        let same = index[start..].iter().take(1024).take_while(|&&(h, _)| h == wanted);
        same.filter_map(|&(_, record)| self.global(record)).filter(|g| g.name() == name).collect()
    }

    /// The name a debugger shows for a public.
    pub(super) fn shown(&self, public: &[u8]) -> String {
        let raw = String::from_utf8_lossy(public);
        if let Some(name) = display_name(&raw) {
            return name;
        }
        if self.x86 { plain_name(&raw).to_owned() } else { raw.into_owned() }
    }

    /// A public as a symbol.
    pub(super) fn public_symbol(&self, rva: u32, name: &[u8]) -> Sym {
        let (raw, shown) = (String::from_utf8_lossy(name), self.shown(name));
        let raw_name = (raw != shown).then(|| raw.into_owned());
        let size = literal_size(name);
        let kind = if size.is_some() { SymbolKind::Data } else { SymbolKind::Public };
        Sym { name: shown, raw_name, rva: u64::from(rva), size, kind }
    }

    /// Publics whose shown name is accepted. Undecorating all is slow in a large PDB, so `literal`,
    /// which every accepted name contains, is looked for in the raw names first.
    pub(super) fn publics_shown_as<'a>(
        &'a self,
        literal: &'a str,
        accept: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = (u16, u32, &'a [u8])> + 'a {
        self.iter().filter_map(move |global| match global {
            Global::Public { section, offset, name, .. }
                if contains_ignoring_case(name, literal.as_bytes()) && accept(&self.shown(name)) =>
            {
                Some((section, offset, name))
            }
            _ => None,
        })
    }
}

/// The longest run of word characters every name that matches `pattern` must contain. Only the
/// last component counts: decorated names store scopes in another order but each word whole.
pub(super) fn literal_of(pattern: &str) -> &str {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Operators and special members have decorated names that share no word with the shown one.
    if pattern.contains(['~', '`', '<']) || pattern.contains("operator") {
        return "";
    }
    let words = pattern.split(|c| !word(c));
    let longest = words.max_by_key(|w| w.len()).unwrap_or("");
    // `Class::Class` is a constructor: its decorated name holds the word once, which is enough.
    if longest.len() < 3 { "" } else { longest }
}

pub(super) fn contains_ignoring_case(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|w| w.eq_ignore_ascii_case(part))
}

/// Whether a name as stored matches.
pub(super) fn matches(glob: &Glob, name: &[u8]) -> bool {
    match std::str::from_utf8(name) {
        Ok(name) => glob.matches(name),
        Err(_) => glob.matches(&String::from_utf8_lossy(name)),
    }
}
