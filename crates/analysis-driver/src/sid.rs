//! Security identifiers (winnt.h `SID`): revision, up to 15 sub-authorities, a 48-bit authority that
//! is the one big-endian number in the format.

use std::fmt;

/// A SID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    pub authority: u64,
    pub sub_authorities: Vec<u32>,
}

/// `SID_MAX_SUB_AUTHORITIES`.
pub(crate) const MAX_SUB_AUTHORITIES: usize = 15;

impl Sid {
    #[must_use]
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Self {
        Self { authority, sub_authorities: sub_authorities.to_vec() }
    }

    /// The SID at the start of `bytes` and its length in bytes.
    ///
    /// # Errors
    /// What contradicts the format.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), &'static str> {
        let [revision, count, authority @ ..] = bytes.get(..8).ok_or("a SID needs 8 bytes")? else {
            return Err("a SID needs 8 bytes");
        };
        if *revision != 1 {
            return Err("the revision of a SID is not 1");
        }
        let count = usize::from(*count);
        if count > MAX_SUB_AUTHORITIES {
            return Err("a SID has more than 15 sub-authorities");
        }
        let length = 8 + count * 4;
        let tail = bytes.get(8..length).ok_or("the sub-authorities of a SID pass its end")?;
        let authority = authority.iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        let words = tail.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        Ok((Self { authority, sub_authorities: words.collect() }, length))
    }

    /// Reads `S-1-5-32-544`; the authority may be hexadecimal.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("S-1-").or_else(|| text.strip_prefix("s-1-"))?;
        let mut parts = rest.split('-');
        let number = |part: &str| match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok(),
            None => None,
        };
        let authority = number(parts.next()?).filter(|value| *value < 1 << 48)?;
        let subs: Option<Vec<u32>> = parts.map(|p| number(p).and_then(|v| u32::try_from(v).ok())).collect();
        subs.filter(|subs| subs.len() <= MAX_SUB_AUTHORITIES)
            .map(|sub_authorities| Self { authority, sub_authorities })
    }

    /// The name Windows gives this SID on every machine; never a guess for one of a domain.
    #[must_use]
    pub fn account(&self) -> Option<String> {
        let fixed = match (self.authority, self.sub_authorities.as_slice()) {
            (0, [0]) => "Null",
            (1, [0]) => "Everyone",
            (2, [0]) => "LOCAL",
            (2, [1]) => "CONSOLE LOGON",
            (3, [0]) => "CREATOR OWNER",
            (3, [1]) => "CREATOR GROUP",
            (3, [4]) => "OWNER RIGHTS",
            (5, [single]) => nt_authority(*single)?,
            (5, [32, group]) => builtin(*group)?,
            (15, [2, 1]) => "ALL APPLICATION PACKAGES",
            (15, [2, 2]) => "ALL RESTRICTED APPLICATION PACKAGES",
            (15, [3, ..]) => "application capability",
            (16, [level]) => return integrity_name(*level),
            (5, [80, 0]) => "ALL SERVICES",
            (5, [80, ..]) => "service",
            (5, [90, ..]) => "window manager",
            (5, [96, ..]) => "font driver host",
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}

fn nt_authority(relative: u32) -> Option<&'static str> {
    Some(match relative {
        1 => "DIALUP",
        2 => "NETWORK",
        3 => "BATCH",
        4 => "INTERACTIVE",
        6 => "SERVICE",
        7 => "ANONYMOUS LOGON",
        9 => "ENTERPRISE DOMAIN CONTROLLERS",
        10 => "SELF",
        11 => "Authenticated Users",
        12 => "RESTRICTED",
        13 => "TERMINAL SERVER USER",
        14 => "REMOTE INTERACTIVE LOGON",
        15 => "This Organization",
        17 => "IUSR",
        18 => "SYSTEM",
        19 => "LOCAL SERVICE",
        20 => "NETWORK SERVICE",
        33 => "WRITE RESTRICTED",
        113 => "Local account",
        114 => "Local account and member of Administrators group",
        _ => return None,
    })
}

fn builtin(relative: u32) -> Option<&'static str> {
    Some(match relative {
        544 => "Administrators",
        545 => "Users",
        546 => "Guests",
        547 => "Power Users",
        551 => "Backup Operators",
        555 => "Remote Desktop Users",
        556 => "Network Configuration Operators",
        558 => "Performance Monitor Users",
        559 => "Performance Log Users",
        562 => "Distributed COM Users",
        568 => "IIS_IUSRS",
        573 => "Event Log Readers",
        580 => "Remote Management Users",
        _ => return None,
    })
}

/// `SECURITY_MANDATORY_*_RID` as a word.
#[must_use]
pub fn integrity_name(level: u32) -> Option<String> {
    let name = match level {
        0 => "untrusted",
        4096 => "low",
        8192 => "medium",
        8448 => "medium_plus",
        12288 => "high",
        16384 => "system",
        _ => return None,
    };
    Some(name.to_owned())
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ConvertSidToStringSid writes authorities past 32 bits in hexadecimal.
        if self.authority >> 32 == 0 {
            write!(f, "S-1-{}", self.authority)?;
        } else {
            write!(f, "S-1-{:#014x}", self.authority)?;
        }
        self.sub_authorities.iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_big_endian() {
        let bytes = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];
        let (sid, length) = Sid::parse(&bytes).unwrap();
        assert_eq!((sid.to_string().as_str(), length), ("S-1-5-32-544", 16));
        assert_eq!(sid.account().as_deref(), Some("Administrators"));
        assert_eq!(Sid::from_text("S-1-5-32-544"), Some(sid));
    }

    #[test]
    fn refused() {
        assert!(Sid::parse(&[1, 16, 0, 0, 0, 0, 0, 5]).is_err());
        assert!(Sid::parse(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err());
        assert!(Sid::parse(&[1, 1, 0, 0, 0, 0, 0, 5, 1]).is_err());
        for text in ["S-1-", "S-2-5", "S-1-5-x", "S-1-5-4294967296", "S-1-281474976710656", "S-1-+5"] {
            assert_eq!(Sid::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_domain_account_gets_no_name() {
        assert_eq!(Sid::from_text("S-1-5-21-1-2-3-500").unwrap().account(), None);
        assert_eq!(Sid::from_text("S-1-5-32-1234").unwrap().account(), None);
    }

    proptest::proptest! {
        #[test]
        fn text_comes_back(authority in 0u64..1 << 48, subs in proptest::collection::vec(proptest::num::u32::ANY, 0..=15)) {
            let sid = Sid::new(authority, &subs);
            proptest::prop_assert_eq!(Sid::from_text(&sid.to_string()), Some(sid));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Sid::parse(&bytes);
        }
    }
}
