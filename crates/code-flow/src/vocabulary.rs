//! What every result of the `ioctl` group is made of (spec 40 section 1.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Rva};

/// A place in code (or data), attributed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeLocation {
    pub address: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rva: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displacement: Option<Rva>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attribution_failed: bool,
}

impl CodeLocation {
    /// The bare address, unattributed.
    #[must_use]
    pub fn at(address: u64) -> Self {
        Self {
            address: Address(address),
            module: None,
            rva: None,
            symbol: None,
            displacement: None,
            section: None,
            attribution_failed: false,
        }
    }

    /// `module!symbol+0x10`, `module+0x10`, or the address.
    #[must_use]
    pub fn describe(&self) -> String {
        match (&self.module, &self.symbol, self.rva) {
            (Some(module), Some(symbol), _) => match self.displacement {
                Some(displacement) if displacement.0 != 0 => format!("{module}!{symbol}+{displacement}"),
                _ => format!("{module}!{symbol}"),
            },
            (Some(module), None, Some(rva)) => format!("{module}+{rva}"),
            _ => self.address.to_string(),
        }
    }
}

/// Where the bytes of an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BytesFrom {
    Target,
    ImageFile,
    Mixed,
}

/// Identity of an image named in a result, once per result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageRecord {
    pub module: String,
    pub image_name: String,
    pub base: Address,
    pub size: u64,
    pub timestamp: u32,
    pub checksum: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbRecord>,
    /// Absent when no byte of it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_from: Option<BytesFrom>,
}

/// The PDB an image names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PdbRecord {
    pub name: String,
    pub guid: target::Guid,
    pub age: u32,
}

impl ImageRecord {
    /// Of a module as the target lists it; `bytes_from` is left open.
    #[must_use]
    pub fn of(module: &target::Module) -> Self {
        Self {
            module: module.name.clone(),
            image_name: module.image_name.clone(),
            base: Address(module.base),
            size: module.size,
            timestamp: module.timestamp,
            checksum: module.checksum,
            pdb: module.pdb.as_ref().map(|pdb| PdbRecord {
                name: pdb.file_name().to_owned(),
                guid: pdb.guid,
                age: pdb.age,
            }),
            bytes_from: None,
        }
    }
}

/// A run of bytes that was read, or was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    pub section: String,
    pub start: Address,
    pub bytes: u64,
}

/// What ended an analysis early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Stopped {
    Deadline,
    Interrupted,
}

impl From<target::halt::Stop> for Stopped {
    fn from(stop: target::halt::Stop) -> Self {
        match stop {
            target::halt::Stop::Deadline => Self::Deadline,
            target::halt::Stop::Interrupted => Self::Interrupted,
        }
    }
}

/// How much of what was to be looked at was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    pub scanned: Vec<Range>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Range>,
    pub scanned_bytes: u64,
    pub unreadable_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cap_hit: bool,
    /// The caps that ended something early, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<String>,
    /// Instructions that would not read or decode.
    pub blind: u64,
}

impl Coverage {
    /// Nothing unreadable, stopped, capped or blind.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unreadable_bytes == 0
            && self.unreadable.is_empty()
            && self.stopped.is_none()
            && !self.cap_hit
            && self.blind == 0
    }

    /// Records that a cap ended something early.
    pub fn cap(&mut self, name: &str) {
        self.cap_hit = true;
        if !self.caps.iter().any(|have| have == name) {
            self.caps.push(name.to_owned());
        }
    }

    /// Takes over what another pass left unseen.
    pub fn absorb(&mut self, other: &Self) {
        self.stopped = self.stopped.or(other.stopped);
        for cap in &other.caps {
            self.cap(cap);
        }
        self.cap_hit |= other.cap_hit;
        self.blind += other.blind;
    }
}

/// State of one section of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SectionState {
    Ok,
    Partial,
    Unavailable,
    Error,
}

/// How well an address in an executable section is known to be code. A qualification, never a
/// filter: hand-written assembly has no unwind records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Standing {
    /// Reached by descent from a known start, or covered by an unwind record.
    InFunction,
    /// Gap bytes of an image with unwind records: may be data.
    NoUnwindEntry,
    /// Gap bytes of an image without them (x86).
    Unverified,
}
