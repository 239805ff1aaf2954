//! Who gets what from a DACL: the access check of MS-DTYP 2.5.3.2, run for synthetic tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Code;

use crate::ace::{AceKind, AceRecord};
use crate::control_code::RequiredAccess;
use crate::descriptor::{DaclState, Descriptor};
use crate::rights::{
    FILE_ALL_ACCESS, FILE_GENERIC_EXECUTE, FILE_GENERIC_READ, FILE_GENERIC_WRITE, FILE_READ_DATA,
    FILE_WRITE_DATA, READ_CONTROL, WRITE_DAC,
};

/// A yes, a no, or an answer that hangs on a condition nobody evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Verdict {
    Yes,
    No,
    Maybe,
}

impl Verdict {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Maybe => "maybe",
        }
    }
}

/// A kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TokenKind {
    Anonymous,
    LowUser,
    StandardUser,
    Service,
    Admin,
    System,
}

impl TokenKind {
    pub const ALL: [Self; 6] =
        [Self::Anonymous, Self::LowUser, Self::StandardUser, Self::Service, Self::Admin, Self::System];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::LowUser => "low_user",
            Self::StandardUser => "standard_user",
            Self::Service => "service",
            Self::Admin => "admin",
            Self::System => "system",
        }
    }

    /// The SIDs its token holds; the user's own is unknown and matched by nothing.
    fn sids(self) -> &'static [&'static str] {
        const USER: [&str; 6] = ["S-1-1-0", "S-1-5-32-545", "S-1-5-11", "S-1-5-4", "S-1-2-0", "S-1-5-15"];
        const ADMIN: [&str; 7] =
            ["S-1-1-0", "S-1-5-32-545", "S-1-5-11", "S-1-5-4", "S-1-2-0", "S-1-5-15", "S-1-5-32-544"];
        match self {
            Self::Anonymous => &["S-1-5-7", "S-1-5-2"],
            Self::LowUser | Self::StandardUser => &USER,
            Self::Service => &["S-1-5-19", "S-1-5-20", "S-1-5-6", "S-1-1-0", "S-1-5-11"],
            Self::Admin => &ADMIN,
            Self::System => &["S-1-5-18", "S-1-5-32-544", "S-1-1-0", "S-1-5-11"],
        }
    }

    /// `SECURITY_MANDATORY_*_RID`.
    fn integrity(self) -> u32 {
        match self {
            Self::Anonymous => 0,
            Self::LowUser => 4096,
            Self::StandardUser => 8192,
            Self::Admin => 12288,
            Self::Service | Self::System => 16384,
        }
    }
}

/// What one kind of caller gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAccess {
    pub token: TokenKind,
    /// Rights that are granted whatever the conditions say.
    pub granted: Code,
    pub reads: Verdict,
    pub writes: Verdict,
    /// Kinds of control code a handle opened with all of it may carry.
    pub delivers: Vec<RequiredAccess>,
}

/// The model's answer, and what it does not look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessModel {
    pub tokens: Vec<TokenAccess>,
    pub assumptions: Vec<String>,
}

/// How conditional entries are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conditions {
    /// As they favour the caller.
    For,
    /// As they hinder the caller.
    Against,
}

fn counts(ace: &AceRecord, conditions: Conditions) -> bool {
    let open = ace.conditional || ace.callback || ace.object_type.is_some();
    if !open {
        return true;
    }
    (ace.kind == AceKind::Allow) == (conditions == Conditions::For)
}

/// The first decision per bit wins, in the order of the list.
fn walk(aces: &[AceRecord], sids: &[&str], conditions: Conditions) -> u32 {
    let (mut granted, mut denied) = (0u32, 0u32);
    for ace in aces.iter().filter(|ace| ace.decides() && counts(ace, conditions)) {
        let Some(sid) = ace.sid.as_deref() else { continue };
        if !sids.contains(&sid) {
            continue;
        }
        let mask = ace.effective_mask.map_or(0, |mask| mask.0);
        match ace.kind {
            AceKind::Allow => granted |= mask & !denied,
            _ => denied |= mask & !granted,
        }
    }
    granted
}

fn grant(descriptor: &Descriptor, token: TokenKind, conditions: Conditions) -> u32 {
    let sids = token.sids();
    let aces = descriptor.dacl.as_ref().map(|acl| acl.entries.as_slice()).unwrap_or_default();
    let mut granted = match descriptor.dacl_state {
        DaclState::Absent | DaclState::Null => FILE_ALL_ACCESS,
        DaclState::Empty => 0,
        DaclState::Present => walk(aces, sids, conditions),
    };
    // The owner implicitly holds these two, unless an entry for OWNER RIGHTS speaks.
    let owner_rights = aces.iter().any(|ace| ace.decides() && ace.sid.as_deref() == Some("S-1-3-4"));
    if !owner_rights && descriptor.owner.as_deref().is_some_and(|owner| sids.contains(&owner)) {
        granted |= READ_CONTROL | WRITE_DAC;
    }
    granted & integrity_mask(descriptor, token)
}

/// What the mandatory label leaves; none means medium, no write up.
fn integrity_mask(descriptor: &Descriptor, token: TokenKind) -> u32 {
    let (level, policy): (u32, &[String]) = match &descriptor.integrity {
        Some(label) => (label.level, &label.policy),
        None => (8192, &[]),
    };
    if token.integrity() >= level {
        return u32::MAX;
    }
    let default = descriptor.integrity.is_none();
    let barred = |name: &str| policy.iter().any(|word| word == name) || (default && name == "no_write_up");
    let mut mask = 0;
    for (name, rights) in [
        ("no_read_up", FILE_GENERIC_READ),
        ("no_write_up", FILE_GENERIC_WRITE),
        ("no_execute_up", FILE_GENERIC_EXECUTE),
    ] {
        if !barred(name) {
            mask |= rights;
        }
    }
    mask
}

/// What a caller of this kind gets from this descriptor.
#[must_use]
pub fn access_of(descriptor: &Descriptor, token: TokenKind) -> TokenAccess {
    let sure = grant(descriptor, token, Conditions::Against);
    let at_best = grant(descriptor, token, Conditions::For);
    let verdict = |bit: u32| match (sure & bit != 0, at_best & bit != 0) {
        (true, _) => Verdict::Yes,
        (false, true) => Verdict::Maybe,
        (false, false) => Verdict::No,
    };
    // A handle must exist at all: some right has to be granted for an open to succeed.
    let opens = at_best != 0;
    let delivers =
        [RequiredAccess::Any, RequiredAccess::Read, RequiredAccess::Write, RequiredAccess::ReadWrite]
            .into_iter()
            .filter(|required| opens && sure & required.file_rights() == required.file_rights());
    TokenAccess {
        token,
        granted: Code(sure),
        reads: verdict(FILE_READ_DATA),
        writes: verdict(FILE_WRITE_DATA),
        delivers: delivers.collect(),
    }
}

/// The model over every kind of caller.
#[must_use]
pub fn access_model(descriptor: &Descriptor) -> AccessModel {
    AccessModel {
        tokens: TokenKind::ALL.iter().map(|token| access_of(descriptor, *token)).collect(),
        assumptions: [
            "no privilege of the caller is used",
            "no AppContainer capability is considered",
            "traversal of parent directories is not evaluated",
            "what the driver's own create routine refuses is not evaluated",
        ]
        .map(ToOwned::to_owned)
        .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sddl::parse_sddl;

    fn of(text: &str, token: TokenKind) -> TokenAccess {
        access_of(&parse_sddl(text).unwrap(), token)
    }

    #[test]
    fn the_reference_dacl() {
        let text = "D:P(A;;0x1200a0;;;WD)(A;;0x1200a0;;;RC)(A;;FA;;;SY)(A;;FA;;;BA)";
        let user = of(text, TokenKind::StandardUser);
        assert_eq!(
            (user.reads, user.writes, user.delivers.as_slice()),
            (Verdict::No, Verdict::No, &[RequiredAccess::Any][..])
        );
        assert_eq!(of(text, TokenKind::Admin).granted, Code(FILE_ALL_ACCESS));
        assert_eq!(of("D:P(A;;GA;;;SY)(A;;GA;;;BA)", TokenKind::StandardUser).granted, Code(0));
        assert!(of("D:P(A;;GA;;;SY)(A;;GA;;;BA)", TokenKind::StandardUser).delivers.is_empty());
    }

    #[test]
    fn the_four_dacl_states() {
        for (text, granted) in [
            ("O:SY", FILE_ALL_ACCESS),
            ("D:NO_ACCESS_CONTROL", FILE_ALL_ACCESS),
            ("D:P", 0),
            ("D:(A;;GR;;;WD)", FILE_GENERIC_READ),
        ] {
            assert_eq!(of(text, TokenKind::StandardUser).granted, Code(granted), "{text}");
        }
    }

    #[test]
    fn the_first_decision_per_bit_wins() {
        assert_eq!(of("D:(D;;GW;;;BU)(A;;GA;;;WD)", TokenKind::StandardUser).writes, Verdict::No);
        assert_eq!(of("D:(A;;GA;;;WD)(D;;GW;;;BU)", TokenKind::StandardUser).writes, Verdict::Yes);
        assert_eq!(of("D:(D;IO;GA;;;WD)(A;;GA;;;WD)", TokenKind::StandardUser).writes, Verdict::Yes);
    }

    #[test]
    fn a_condition_is_a_maybe() {
        let user = of(r#"D:(XA;;GA;;;WD;(@User.a == "b"))"#, TokenKind::StandardUser);
        assert_eq!((user.reads, user.granted), (Verdict::Maybe, Code(0)));
        let denied = of(r#"D:(XD;;GA;;;WD;(@User.a == "b"))(A;;GA;;;WD)"#, TokenKind::StandardUser);
        assert_eq!(denied.writes, Verdict::Maybe);
    }

    #[test]
    fn low_integrity_does_not_write_up() {
        let low = of("D:(A;;GA;;;WD)", TokenKind::LowUser);
        assert_eq!((low.reads, low.writes), (Verdict::Yes, Verdict::No));
        let labelled = of("D:(A;;GA;;;WD)S:(ML;;NW;;;LW)", TokenKind::LowUser);
        assert_eq!(labelled.writes, Verdict::Yes);
        assert_eq!(of("D:(A;;GA;;;WD)S:(ML;;NR;;;HI)", TokenKind::StandardUser).reads, Verdict::No);
    }

    #[test]
    fn the_owner_reads_and_writes_the_dacl() {
        assert_eq!(of("O:BAD:P", TokenKind::Admin).granted, Code(READ_CONTROL | WRITE_DAC));
        assert_eq!(of("O:BAD:(A;;GR;;;OW)", TokenKind::Admin).granted, Code(0));
    }
}
