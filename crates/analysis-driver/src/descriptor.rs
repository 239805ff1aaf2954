//! A self-relative security descriptor, read from memory (winnt.h `SECURITY_DESCRIPTOR_RELATIVE`).
//! Half a DACL would answer "who may open" wrongly, so what does not parse whole is refused whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, Guid, Memory, MemoryExt as _, ReadError};

use crate::ace::{AceRecord, read_ace};
use crate::sid::{Sid, integrity_name};

const SE_DACL_PRESENT: u16 = 0x4;
const SE_SACL_PRESENT: u16 = 0x10;
const SE_SELF_RELATIVE: u16 = 0x8000;
const MAX_ACES: u16 = 1024;
const LABEL_ACE: u8 = 0x11;

/// Why a descriptor gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    #[error("the security descriptor does not read: {0}")]
    Unreadable(#[from] ReadError),
    #[error("the security descriptor contradicts itself: {0}")]
    Malformed(String),
}

fn malformed(what: impl Into<String>) -> DescriptorError {
    DescriptorError::Malformed(what.into())
}

/// The four states a DACL can be in; the first two let everyone do everything, the third nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DaclState {
    Absent,
    Null,
    Empty,
    Present,
}

/// Where a descriptor came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DescriptorSource {
    Target,
    Sddl,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acl {
    pub revision: u8,
    pub ace_count: u16,
    pub entries: Vec<AceRecord>,
}

/// A descriptor as principals, masks and flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptor {
    pub source: DescriptorSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    pub revision: u8,
    pub control: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_account: Option<String>,
    pub dacl_state: DaclState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dacl: Option<Acl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sacl: Option<Acl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<Integrity>,
}

/// The mandatory label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Integrity {
    pub level: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub policy: Vec<String>,
}

impl Integrity {
    /// The label in a SACL: the first that applies to the object itself.
    pub(crate) fn of(sacl: &Acl) -> Option<Self> {
        let label = sacl.entries.iter().find(|ace| ace.ace_type == LABEL_ACE && !ace.inherit_only())?;
        let sid = Sid::from_text(label.sid.as_deref()?)?;
        let level = *sid.sub_authorities.first()?;
        let policy = [(1, "no_write_up"), (2, "no_read_up"), (4, "no_execute_up")]
            .iter()
            .filter(|(bit, _)| label.mask.0 & bit != 0)
            .map(|(_, name)| (*name).to_owned());
        Some(Self { level, name: integrity_name(level), policy: policy.collect() })
    }
}

impl Descriptor {
    /// Reads the descriptor at `address`.
    ///
    /// # Errors
    /// It does not read, or contradicts itself; no part of it is answered then.
    pub fn read(memory: &dyn Memory, address: u64) -> Result<Self, DescriptorError> {
        let header: [u8; 20] = memory.read_array(address)?;
        let control = u16::from_le_bytes([header[2], header[3]]);
        if header[0] != 1 {
            return Err(malformed(format!("revision {}, not 1", header[0])));
        }
        if control & SE_SELF_RELATIVE == 0 {
            return Err(malformed("it is absolute: pointers stand where offsets are read"));
        }
        let offset = |at: usize| {
            u64::from(u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
        };
        let sid = |offset: u64| -> Result<Option<Sid>, DescriptorError> {
            if offset == 0 {
                return Ok(None);
            }
            read_sid(memory, address.wrapping_add(offset)).map(Some)
        };
        let (owner, group) = (sid(offset(4))?, sid(offset(8))?);
        let (dacl_state, dacl) = match (control & SE_DACL_PRESENT != 0, offset(16)) {
            (false, _) => (DaclState::Absent, None),
            (true, 0) => (DaclState::Null, None),
            (true, at) => {
                let acl = read_acl(memory, address.wrapping_add(at))?;
                (if acl.ace_count == 0 { DaclState::Empty } else { DaclState::Present }, Some(acl))
            }
        };
        let sacl = match (control & SE_SACL_PRESENT != 0, offset(12)) {
            (true, at) if at != 0 => Some(read_acl(memory, address.wrapping_add(at))?),
            _ => None,
        };
        Ok(Self {
            source: DescriptorSource::Target,
            address: Some(Address(address)),
            revision: header[0],
            control: Code(u32::from(control)),
            owner_account: owner.as_ref().and_then(Sid::account),
            owner: owner.map(|sid| sid.to_string()),
            group_account: group.as_ref().and_then(Sid::account),
            group: group.map(|sid| sid.to_string()),
            dacl_state,
            dacl,
            integrity: sacl.as_ref().and_then(Integrity::of),
            sacl,
        })
    }
}

fn read_sid(memory: &dyn Memory, address: u64) -> Result<Sid, DescriptorError> {
    let head: [u8; 8] = memory.read_array(address)?;
    let length = 8 + usize::from(head[1].min(15)) * 4;
    let mut bytes = vec![0; length];
    memory.read_exact(address, &mut bytes)?;
    Sid::parse(&bytes).map(|(sid, _)| sid).map_err(malformed)
}

/// Reads an ACL in one piece: what the header says is there must be there.
fn read_acl(memory: &dyn Memory, address: u64) -> Result<Acl, DescriptorError> {
    let header: [u8; 8] = memory.read_array(address)?;
    let size = u16::from_le_bytes([header[2], header[3]]);
    if size < 8 {
        return Err(malformed(format!("an ACL of {size} bytes")));
    }
    let mut bytes = vec![0; usize::from(size)];
    memory.read_exact(address, &mut bytes)?;
    parse_acl(&bytes)
}

/// An ACL from its own bytes.
///
/// # Errors
/// An ACE outside the list, too short, or a count that does not fit.
pub fn parse_acl(bytes: &[u8]) -> Result<Acl, DescriptorError> {
    let header = bytes.get(..8).ok_or_else(|| malformed("an ACL shorter than its header"))?;
    let count = u16::from_le_bytes([header[4], header[5]]);
    if count > MAX_ACES {
        return Err(malformed(format!("{count} entries in one ACL; at most {MAX_ACES} are read")));
    }
    let mut entries = Vec::new();
    let mut at = 8;
    for index in 0..count {
        let head = bytes
            .get(at..at + 4)
            .ok_or_else(|| malformed(format!("the ACL says {count} entries, entry {index} is outside it")))?;
        let size = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let body = bytes.get(at..at + size).filter(|_| size >= 8).ok_or_else(|| {
            malformed(format!("entry {index} has a size of {size}, which is outside the ACL"))
        })?;
        entries.push(read_ace(index, body));
        at += size;
    }
    Ok(Acl { revision: header[0], ace_count: count, entries })
}

/// A GUID of an object ACE.
pub(crate) fn guid(bytes: &[u8]) -> Option<Guid> {
    bytes.get(..16).and_then(|b| b.try_into().ok()).map(Guid)
}
