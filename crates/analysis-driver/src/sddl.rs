//! The security descriptor definition language, as far as drivers use it (MS-DTYP 2.5.1). A token
//! that is not understood refuses the whole text, with its position: there is no partial DACL.

use target::Code;

use crate::ace::{self, AceRecord};
use crate::descriptor::{Acl, DaclState, Descriptor, DescriptorSource, Integrity};
use crate::sid::Sid;

/// Why a text is not SDDL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {position} of the SDDL text")]
pub struct SddlError {
    pub what: String,
    /// Bytes from the start of the text.
    pub position: usize,
}

const MAX_TEXT: usize = 64 << 10;
const MAX_ACES: usize = 1024;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, what: impl Into<String>) -> Result<T, SddlError> {
        Err(SddlError { what: what.into(), position: self.at })
    }
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
    fn skip_space(&mut self) {
        let trimmed = self.rest().trim_start();
        self.at = self.text.len() - trimmed.len();
    }
    fn eat(&mut self, what: char) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len_utf8();
        }
        found
    }
    /// The section letter before a colon, if one starts here.
    fn section(&self) -> Option<char> {
        let mut letters = self.rest().chars();
        let letter = letters.next()?.to_ascii_uppercase();
        (matches!(letter, 'O' | 'G' | 'D' | 'S') && letters.next() == Some(':')).then_some(letter)
    }
}

/// Two-letter principals (sddl.h `SDDL_*`). Those relative to a domain or machine have a name here
/// and no SID: which one it is depends on the machine.
fn principal(token: &str) -> Option<Principal> {
    let nt = |subs: &[u32]| Some((Some(Sid::new(5, subs)), None));
    let label = |level: u32| Some((Some(Sid::new(16, &[level])), None));
    match token {
        "SY" => nt(&[18]),
        "LS" => nt(&[19]),
        "NS" => nt(&[20]),
        "AN" => nt(&[7]),
        "AU" => nt(&[11]),
        "IU" => nt(&[4]),
        "NU" => nt(&[2]),
        "SU" => nt(&[6]),
        "RC" => nt(&[12]),
        "WR" => nt(&[33]),
        "PS" => nt(&[10]),
        "ED" => nt(&[9]),
        "BA" => nt(&[32, 544]),
        "BU" => nt(&[32, 545]),
        "BG" => nt(&[32, 546]),
        "PU" => nt(&[32, 547]),
        "AO" => nt(&[32, 548]),
        "SO" => nt(&[32, 549]),
        "PO" => nt(&[32, 550]),
        "BO" => nt(&[32, 551]),
        "RE" => nt(&[32, 552]),
        "RU" => nt(&[32, 554]),
        "RD" => nt(&[32, 555]),
        "NO" => nt(&[32, 556]),
        "MU" => nt(&[32, 558]),
        "LU" => nt(&[32, 559]),
        "IS" => nt(&[32, 568]),
        "CY" => nt(&[32, 569]),
        "ER" => nt(&[32, 573]),
        "RM" => nt(&[32, 580]),
        "WD" => Some((Some(Sid::new(1, &[0])), None)),
        "CO" => Some((Some(Sid::new(3, &[0])), None)),
        "CG" => Some((Some(Sid::new(3, &[1])), None)),
        "OW" => Some((Some(Sid::new(3, &[4])), None)),
        "AC" => Some((Some(Sid::new(15, &[2, 1])), None)),
        "LW" => label(4096),
        "ME" => label(8192),
        "MP" => label(8448),
        "HI" => label(12288),
        "SI" => label(16384),
        "DA" => Some((None, Some("Domain Admins"))),
        "DU" => Some((None, Some("Domain Users"))),
        "DG" => Some((None, Some("Domain Guests"))),
        "DC" => Some((None, Some("Domain Computers"))),
        "DD" => Some((None, Some("Domain Controllers"))),
        "EA" => Some((None, Some("Enterprise Admins"))),
        "SA" => Some((None, Some("Schema Admins"))),
        "CA" => Some((None, Some("Certificate Publishers"))),
        "PA" => Some((None, Some("Group Policy Creator Owners"))),
        "LA" => Some((None, Some("Administrator of the machine"))),
        "LG" => Some((None, Some("Guest of the machine"))),
        _ => None,
    }
}

const RIGHTS: [(&str, u32); 31] = [
    ("GA", 0x1000_0000),
    ("GX", 0x2000_0000),
    ("GW", 0x4000_0000),
    ("GR", 0x8000_0000),
    ("SD", 0x1_0000),
    ("RC", 0x2_0000),
    ("WD", 0x4_0000),
    ("WO", 0x8_0000),
    ("FA", 0x1f_01ff),
    ("FR", 0x12_0089),
    ("FW", 0x12_0116),
    ("FX", 0x12_00a0),
    ("KA", 0xf_003f),
    ("KR", 0x2_0019),
    ("KW", 0x2_0006),
    ("KX", 0x2_0019),
    ("CC", 0x1),
    ("DC", 0x2),
    ("LC", 0x4),
    ("SW", 0x8),
    ("RP", 0x10),
    ("WP", 0x20),
    ("DT", 0x40),
    ("LO", 0x80),
    ("CR", 0x100),
    ("NW", 0x1),
    ("NR", 0x2),
    ("NX", 0x4),
    ("AS", 0x100_0000),
    ("MA", 0x200_0000),
    ("SY", 0x10_0000),
];

const ACE_FLAGS: [(&str, u8); 8] = [
    ("OI", 0x1),
    ("CI", 0x2),
    ("NP", 0x4),
    ("IO", 0x8),
    ("ID", 0x10),
    ("CR", 0x20),
    ("SA", 0x40),
    ("FA", 0x80),
];

fn ace_type(token: &str) -> Option<u8> {
    Some(match token {
        "A" => 0,
        "D" => 1,
        "AU" => 2,
        "AL" => 3,
        "OA" => 5,
        "OD" => 6,
        "OU" => 7,
        "OL" => 8,
        "XA" => 9,
        "XD" => 0xa,
        "ZA" => 0xb,
        "XU" => 0xd,
        "ML" => 0x11,
        "RA" => 0x12,
        "SP" => 0x13,
        "TL" => 0x14,
        "FL" => 0x15,
        _ => return None,
    })
}

fn pairs<T: Copy>(text: &str, table: &[(&str, T)]) -> Result<Vec<T>, usize> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let token = text.get(at..at + 2).map(str::to_ascii_uppercase);
        let found = token.and_then(|token| table.iter().find(|(name, _)| *name == token));
        out.push(found.ok_or(at)?.1);
        at += 2;
    }
    Ok(out)
}

fn mask(text: &str) -> Result<u32, usize> {
    let text = text.trim_end();
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => Some(u32::from_str_radix(hex, 16).map_err(|_| 0usize)?),
        None if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            Some(text.parse().map_err(|_| 0usize)?)
        }
        None => None,
    };
    match number {
        Some(mask) => Ok(mask),
        None => pairs(text, &RIGHTS).map(|bits| bits.iter().fold(0, |sum, bit| sum | bit)),
    }
}

/// The text up to a delimiter that stands outside of parentheses and quotes.
fn field<'a>(reader: &mut Reader<'a>) -> &'a str {
    let start = reader.at;
    let (mut depth, mut quoted) = (0usize, false);
    for (offset, letter) in reader.rest().char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth > 0 => depth -= 1,
            ';' | ')' if !quoted && depth == 0 => {
                reader.at = start + offset;
                return reader.text.get(start..start + offset).unwrap_or_default();
            }
            _ => {}
        }
    }
    reader.at = reader.text.len();
    reader.text.get(start..).unwrap_or_default()
}

/// A principal: its SID, or the name of one that depends on the machine.
type Principal = (Option<Sid>, Option<&'static str>);

fn read_principal(text: &str, position: usize) -> Result<Principal, SddlError> {
    let text = text.trim();
    principal(&text.to_ascii_uppercase())
        .or_else(|| Sid::from_text(text).map(|sid| (Some(sid), None)))
        .ok_or_else(|| SddlError { what: format!("the principal {text:?} is not known"), position })
}

fn read_ace(reader: &mut Reader<'_>, index: u16) -> Result<AceRecord, SddlError> {
    let mut fields: Vec<(&str, usize)> = Vec::new();
    loop {
        reader.skip_space();
        let at = reader.at;
        fields.push((field(reader).trim_end(), at));
        if reader.eat(')') {
            break;
        }
        if !reader.eat(';') {
            return reader.fail("an entry without its closing parenthesis");
        }
        if fields.len() > 7 {
            return reader.fail("an entry of more than seven fields");
        }
    }
    if fields.len() < 6 {
        return reader.fail("an entry of fewer than six fields");
    }
    let fail = |what: &str, at: usize| SddlError { what: what.to_owned(), position: at };
    let (kind_text, kind_at) = fields[0];
    let kind =
        ace_type(&kind_text.to_ascii_uppercase()).ok_or_else(|| fail("an unknown entry type", kind_at))?;
    let flags = pairs(fields[1].0, &ACE_FLAGS).map_err(|o| fail("an unknown entry flag", fields[1].1 + o))?;
    let flags = flags.iter().fold(0, |sum, bit| sum | bit);
    let mask = mask(fields[2].0).map_err(|o| fail("an unknown right", fields[2].1 + o))?;
    let (sid, name) = read_principal(fields[5].0, fields[5].1)?;
    let mut out = ace::record(index, kind, flags, mask, sid.as_ref());
    if let Some(name) = name {
        out.account = Some(name.to_owned());
    }
    for (slot, (text, at)) in
        [&mut out.object_type, &mut out.inherited_object_type].into_iter().zip(&fields[3..5])
    {
        if !text.is_empty() {
            *slot = Some(target::Guid::parse(text).ok_or_else(|| fail("not a GUID", *at))?);
        }
    }
    out.conditional = matches!(kind, 9..=0xd) && fields.get(6).is_some_and(|(text, _)| !text.is_empty());
    Ok(out)
}

/// Flags and entries of `D:` or `S:`; `None` for `NO_ACCESS_CONTROL`.
fn read_list(
    reader: &mut Reader<'_>,
    protect: u16,
    auto: u16,
    requested: u16,
) -> Result<(u16, Option<Acl>), SddlError> {
    let mut control = 0;
    loop {
        reader.skip_space();
        let rest = reader.rest();
        let upper = |count: usize| rest.get(..count).map(str::to_ascii_uppercase);
        if upper(17).as_deref() == Some("NO_ACCESS_CONTROL") {
            reader.at += 17;
            return Ok((control, None));
        } else if upper(2).as_deref() == Some("AR") {
            control |= requested;
            reader.at += 2;
        } else if upper(2).as_deref() == Some("AI") {
            control |= auto;
            reader.at += 2;
        } else if upper(1).as_deref() == Some("P") {
            control |= protect;
            reader.at += 1;
        } else {
            break;
        }
    }
    let mut entries = Vec::new();
    loop {
        reader.skip_space();
        if !reader.eat('(') {
            break;
        }
        if entries.len() >= MAX_ACES {
            return reader.fail("more than 1024 entries");
        }
        let index = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        entries.push(read_ace(reader, index)?);
    }
    let ace_count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    let revision = if entries.iter().any(|ace| matches!(ace.ace_type, 5..=8)) { 4 } else { 2 };
    Ok((control, Some(Acl { revision, ace_count, entries })))
}

fn principal_text(reader: &mut Reader<'_>) -> Result<Principal, SddlError> {
    reader.skip_space();
    let at = reader.at;
    let rest = reader.rest();
    let end = if rest.get(..2).is_some_and(|two| two.eq_ignore_ascii_case("S-")) {
        rest.find(|c: char| !c.is_ascii_hexdigit() && !matches!(c, '-' | 'S' | 's' | 'x' | 'X'))
            .unwrap_or(rest.len())
    } else {
        rest.char_indices().nth(2).map_or(rest.len(), |(offset, _)| offset)
    };
    // A SID ends before the next section letter, which a hexadecimal digit (D:) may look like.
    let mut text = rest.get(..end).unwrap_or_default();
    if rest.get(end..).is_some_and(|tail| tail.starts_with(':')) {
        text = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    }
    let found = read_principal(text, at)?;
    reader.at = at + text.len();
    Ok(found)
}

/// Parses SDDL text into the record a descriptor in memory gives.
///
/// # Errors
/// The first token that is not understood, with its position.
pub fn parse_sddl(text: &str) -> Result<Descriptor, SddlError> {
    let mut reader = Reader { text, at: 0 };
    if text.len() > MAX_TEXT {
        return reader.fail("more than 64 KiB of text");
    }
    let mut out = Descriptor {
        source: DescriptorSource::Sddl,
        address: None,
        revision: 1,
        control: Code(0),
        owner: None,
        owner_account: None,
        group: None,
        group_account: None,
        dacl_state: DaclState::Absent,
        dacl: None,
        sacl: None,
        integrity: None,
    };
    let mut control = 0x8000u16;
    let mut seen = String::new();
    loop {
        reader.skip_space();
        if reader.rest().is_empty() {
            break;
        }
        let Some(letter) = reader.section() else { return reader.fail("neither O:, G:, D: nor S:") };
        if seen.contains(letter) {
            return reader.fail(format!("a second {letter}:"));
        }
        seen.push(letter);
        reader.at += 2;
        match letter {
            'O' | 'G' => {
                let (sid, name) = principal_text(&mut reader)?;
                let account = name.map(ToOwned::to_owned).or_else(|| sid.as_ref().and_then(Sid::account));
                let sid = sid.map(|sid| sid.to_string());
                if letter == 'O' {
                    (out.owner, out.owner_account) = (sid, account);
                } else {
                    (out.group, out.group_account) = (sid, account);
                }
            }
            'D' => {
                let (flags, acl) = read_list(&mut reader, 0x1000, 0x400, 0x100)?;
                control |= flags | 0x4;
                out.dacl_state = match &acl {
                    None => DaclState::Null,
                    Some(acl) if acl.entries.is_empty() => DaclState::Empty,
                    Some(_) => DaclState::Present,
                };
                out.dacl = acl;
            }
            _ => {
                let (flags, acl) = read_list(&mut reader, 0x2000, 0x800, 0x200)?;
                control |= flags | 0x10;
                out.integrity = acl.as_ref().and_then(Integrity::of);
                out.sacl = acl;
            }
        }
    }
    out.control = Code(u32::from(control));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ace::AceKind;

    fn entries(text: &str) -> Vec<AceRecord> {
        parse_sddl(text).unwrap().dacl.unwrap().entries
    }

    #[test]
    fn what_drivers_pass() {
        let aces = entries("D:P(A;;GA;;;SY)(A;;GRGWGX;;;BA)(A;;GR;;;WD)(A;;GR;;;RC)");
        assert_eq!(aces.len(), 4);
        assert_eq!(aces[0].account.as_deref(), Some("SYSTEM"));
        assert_eq!(aces[0].effective_mask, Some(Code(0x1f_01ff)));
        assert_eq!(aces[1].mask, Code(0xe000_0000));
        assert!(aces[2].reads && !aces[2].writes);
        assert_eq!(aces[3].sid.as_deref(), Some("S-1-5-12"));
        let whole =
            parse_sddl("O:BAG:SYD:PAI(A;OICI;0x1200a9;;;S-1-5-21-1-2-3-1000)S:(ML;;NW;;;LW)").unwrap();
        assert_eq!(whole.owner.as_deref(), Some("S-1-5-32-544"));
        assert_eq!(whole.control, Code(0x8000 | 0x1000 | 0x400 | 0x14));
        assert_eq!(whole.integrity.unwrap().name.as_deref(), Some("low"));
        let owned = parse_sddl("O:S-1-5-32-544D:(A;;FA;;;WD)").unwrap();
        assert_eq!(owned.owner.as_deref(), Some("S-1-5-32-544"));
    }

    #[test]
    fn the_four_states() {
        assert_eq!(parse_sddl("O:BA").unwrap().dacl_state, DaclState::Absent);
        assert_eq!(parse_sddl("D:NO_ACCESS_CONTROL").unwrap().dacl_state, DaclState::Null);
        assert_eq!(parse_sddl("D:P").unwrap().dacl_state, DaclState::Empty);
        assert_eq!(parse_sddl("D:(D;;GA;;;WD)").unwrap().dacl_state, DaclState::Present);
        assert_eq!(entries("D:(D;;GA;;;WD)")[0].kind, AceKind::Deny);
    }

    #[test]
    fn a_token_that_is_not_understood_refuses_all() {
        for (text, position) in [
            ("D:P(A;;GA;;;SY)(A;;QQ;;;BA)", 19),
            ("D:P(A;;GA;;;ZZ)", 12),
            ("D:P(Q;;GA;;;SY)", 4),
            ("D:P(A;ZZ;GA;;;SY)", 6),
            ("D:P(A;;GA;;;SY", 14),
            ("D:P(A;;GA)", 10),
            ("X:", 0),
            ("D:D:", 2),
            ("O:ZZ", 2),
        ] {
            assert_eq!(parse_sddl(text).unwrap_err().position, position, "{text}");
        }
    }

    #[test]
    fn a_conditional_entry_is_marked() {
        let aces = entries(r#"D:(XA;;GA;;;WD;(Member_of {SID(BA)} && @User.Title == "a;)"))"#);
        assert!(aces[0].conditional);
        assert_eq!(aces[0].kind, AceKind::Allow);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[OGDS:();PAIRGXWDBSYU 0x9fé\"-]{0,80}") {
            let _ = parse_sddl(&text);
        }
    }
}
