//! One access control entry (winnt.h `ACE_HEADER` and what follows it, by type).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Code, Guid};

use crate::descriptor::guid;
use crate::rights::{self, FILE_READ_DATA, FILE_WRITE_DATA, map_generic};
use crate::sid::Sid;

const INHERIT_ONLY: u8 = 0x8;

/// What an entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AceKind {
    Allow,
    Deny,
    Audit,
    Alarm,
    Compound,
    Label,
    ResourceAttribute,
    ScopedPolicy,
    ProcessTrustLabel,
    AccessFilter,
    Other,
}

/// An entry as principals, masks and flags. Rights are named on entries that give or take access;
/// the mask of a label is policy, and naming it as rights would say the opposite of the truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AceRecord {
    pub index: u16,
    pub kind: AceKind,
    pub ace_type: u8,
    pub flags: u8,
    pub flag_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub mask: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_mask: Option<Code>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// To the object itself, not only to what inherits from it.
    pub applies: bool,
    /// Decided by an expression this model does not evaluate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conditional: bool,
    /// A callback form whose data is not a conditional expression.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub callback: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub principal_unreadable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_type: Option<Guid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited_object_type: Option<Guid>,
}

impl AceRecord {
    pub(crate) fn inherit_only(&self) -> bool {
        self.flags & INHERIT_ONLY != 0
    }
    /// Gives or takes access to the object.
    pub(crate) fn decides(&self) -> bool {
        self.applies && matches!(self.kind, AceKind::Allow | AceKind::Deny)
    }
}

/// The kind of a type, and whether it is a callback or an object form.
fn form(ace_type: u8) -> (AceKind, bool, bool) {
    match ace_type {
        0 => (AceKind::Allow, false, false),
        1 => (AceKind::Deny, false, false),
        2 => (AceKind::Audit, false, false),
        3 => (AceKind::Alarm, false, false),
        4 => (AceKind::Compound, false, false),
        5 => (AceKind::Allow, false, true),
        6 => (AceKind::Deny, false, true),
        7 => (AceKind::Audit, false, true),
        8 => (AceKind::Alarm, false, true),
        9 => (AceKind::Allow, true, false),
        0xa => (AceKind::Deny, true, false),
        0xb => (AceKind::Allow, true, true),
        0xc => (AceKind::Deny, true, true),
        0xd => (AceKind::Audit, true, false),
        0xe => (AceKind::Alarm, true, false),
        0xf => (AceKind::Audit, true, true),
        0x10 => (AceKind::Alarm, true, true),
        0x11 => (AceKind::Label, false, false),
        0x12 => (AceKind::ResourceAttribute, false, false),
        0x13 => (AceKind::ScopedPolicy, false, false),
        0x14 => (AceKind::ProcessTrustLabel, false, false),
        0x15 => (AceKind::AccessFilter, false, false),
        _ => (AceKind::Other, false, false),
    }
}

fn flag_names(flags: u8) -> Vec<String> {
    [
        (0x1, "OBJECT_INHERIT"),
        (0x2, "CONTAINER_INHERIT"),
        (0x4, "NO_PROPAGATE_INHERIT"),
        (INHERIT_ONLY, "INHERIT_ONLY"),
        (0x10, "INHERITED"),
        (0x20, "CRITICAL"),
        (0x40, "SUCCESSFUL_ACCESS"),
        (0x80, "FAILED_ACCESS"),
    ]
    .iter()
    .filter(|(bit, _)| flags & bit != 0)
    .map(|(_, name)| (*name).to_owned())
    .collect()
}

/// A record of type, flags, mask and principal; what the mask means follows from them.
pub(crate) fn record(index: u16, ace_type: u8, flags: u8, mask: u32, sid: Option<&Sid>) -> AceRecord {
    let (kind, ..) = form(ace_type);
    let access = matches!(kind, AceKind::Allow | AceKind::Deny | AceKind::Audit | AceKind::Alarm);
    let effective = map_generic(mask);
    let applies = flags & INHERIT_ONLY == 0;
    AceRecord {
        index,
        kind,
        ace_type,
        flags,
        flag_names: flag_names(flags),
        sid: sid.map(ToString::to_string),
        account: sid.and_then(Sid::account),
        mask: Code(mask),
        effective_mask: access.then_some(Code(effective)),
        rights: if access { rights::names(effective) } else { Vec::new() },
        reads: access && applies && effective & FILE_READ_DATA != 0,
        writes: access && applies && effective & FILE_WRITE_DATA != 0,
        applies,
        conditional: false,
        callback: false,
        principal_unreadable: false,
        object_type: None,
        inherited_object_type: None,
    }
}

/// Decodes one entry from its whole bytes (at least 8).
pub(crate) fn read_ace(index: u16, body: &[u8]) -> AceRecord {
    let ace_type = body.first().copied().unwrap_or(0xff);
    let flags = body.get(1).copied().unwrap_or(0);
    let mask = body.get(4..8).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let (kind, callback, object) = form(ace_type);
    if matches!(kind, AceKind::Compound | AceKind::Other) {
        return record(index, ace_type, flags, mask, None);
    }
    let mut at = 8;
    let (mut object_type, mut inherited) = (None, None);
    if object {
        let present = body.get(8..12).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        at = 12;
        if present & 1 != 0 {
            object_type = body.get(at..).and_then(guid);
            at += 16;
        }
        if present & 2 != 0 {
            inherited = body.get(at..).and_then(guid);
            at += 16;
        }
    }
    let parsed = Sid::parse(body.get(at..).unwrap_or_default()).ok();
    let mut out = record(index, ace_type, flags, mask, parsed.as_ref().map(|(sid, _)| sid));
    out.principal_unreadable = parsed.is_none();
    out.object_type = object_type;
    out.inherited_object_type = inherited;
    if callback {
        let data = parsed.and_then(|(_, length)| body.get(at + length..)).unwrap_or_default();
        out.conditional = data.starts_with(b"artx");
        out.callback = !out.conditional;
    }
    out
}
