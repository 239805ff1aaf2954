//! Security descriptors in memory: the vectors of spec 40 section 12.6.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use analysis_driver::{
    AceKind, DaclState, Descriptor, DescriptorError, RequiredAccess, TokenKind, Verdict, access_of,
    parse_sddl,
};
use target::{Code, RegionMemory};

const EVERYONE: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
const RESTRICTED: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 12, 0, 0, 0];
const SYSTEM: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];
const ADMINISTRATORS: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];

fn ace(kind: u8, flags: u8, mask: u32, tail: &[&[u8]]) -> Vec<u8> {
    let tail = tail.concat();
    let size = u16::try_from(8 + tail.len()).unwrap();
    let mut out = vec![kind, flags];
    out.extend(size.to_le_bytes());
    out.extend(mask.to_le_bytes());
    out.extend(tail);
    out
}

fn acl(aces: &[Vec<u8>]) -> Vec<u8> {
    let body = aces.concat();
    let mut out = vec![2, 0];
    out.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
    out.extend(u16::try_from(aces.len()).unwrap().to_le_bytes());
    out.extend([0, 0]);
    out.extend(body);
    out
}

/// A self-relative descriptor with this DACL, owned by Administrators.
fn descriptor(control: u16, dacl: Option<&[u8]>, sacl: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![1, 0];
    out.extend(control.to_le_bytes());
    let sacl_at = 20 + ADMINISTRATORS.len();
    let dacl_at = sacl_at + sacl.map_or(0, <[u8]>::len);
    let word = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
    out.extend(word(20));
    out.extend(word(0));
    out.extend(word(if sacl.is_some() { sacl_at } else { 0 }));
    out.extend(word(if dacl.is_some() { dacl_at } else { 0 }));
    out.extend(ADMINISTRATORS);
    out.extend(sacl.unwrap_or_default());
    out.extend(dacl.unwrap_or_default());
    out
}

fn read(bytes: Vec<u8>) -> Result<Descriptor, DescriptorError> {
    let mut memory = RegionMemory::new();
    memory.add(0x1000, bytes);
    Descriptor::read(&memory, 0x1000)
}

fn with_dacl(aces: &[Vec<u8>]) -> Descriptor {
    read(descriptor(0x8004, Some(&acl(aces)), None)).unwrap()
}

fn malformed(bytes: Vec<u8>) -> String {
    match read(bytes) {
        Err(DescriptorError::Malformed(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_four_dacl_states() {
    assert_eq!(read(descriptor(0x8000, None, None)).unwrap().dacl_state, DaclState::Absent);
    assert_eq!(read(descriptor(0x8004, None, None)).unwrap().dacl_state, DaclState::Null);
    assert_eq!(with_dacl(&[]).dacl_state, DaclState::Empty);
    assert_eq!(with_dacl(&[ace(0, 0, 1, &[EVERYONE])]).dacl_state, DaclState::Present);
}

#[test]
fn the_reference_dacl_from_memory_and_from_text() {
    let read = with_dacl(&[
        ace(0, 0, 0x12_00a0, &[EVERYONE]),
        ace(0, 0, 0x12_00a0, &[RESTRICTED]),
        ace(0, 0, 0x1f_01ff, &[SYSTEM]),
        ace(0, 0, 0x1f_01ff, &[ADMINISTRATORS]),
    ]);
    let user = access_of(&read, TokenKind::StandardUser);
    assert_eq!((user.reads, user.writes), (Verdict::No, Verdict::No));
    assert_eq!(user.delivers, [RequiredAccess::Any]);
    let text = parse_sddl("O:BAD:(A;;0x1200a0;;;WD)(A;;0x1200a0;;;RC)(A;;FA;;;SY)(A;;FA;;;BA)").unwrap();
    assert_eq!(read.dacl, text.dacl);
    assert_eq!((read.owner, read.control), (text.owner, text.control));
}

#[test]
fn an_ace_of_size_0_6_or_past_the_end_refuses_the_list() {
    for size in [0u16, 6, 200] {
        let mut bad = ace(0, 0, 1, &[EVERYONE]);
        bad[2..4].copy_from_slice(&size.to_le_bytes());
        let what = malformed(descriptor(0x8004, Some(&acl(&[bad])), None));
        assert!(what.contains(&size.to_string()), "{what}");
    }
}

#[test]
fn a_count_that_does_not_fit_refuses_the_list() {
    let mut list = acl(&[ace(0, 0, 1, &[EVERYONE])]);
    list[4..6].copy_from_slice(&1000u16.to_le_bytes());
    assert!(malformed(descriptor(0x8004, Some(&list), None)).contains("1000 entries"));
    list[4..6].copy_from_slice(&2000u16.to_le_bytes());
    assert!(malformed(descriptor(0x8004, Some(&list), None)).contains("2000"));
    list[2..4].copy_from_slice(&4u16.to_le_bytes());
    assert!(malformed(descriptor(0x8004, Some(&list), None)).contains("4 bytes"));
}

#[test]
fn object_entries_with_no_one_and_two_guids() {
    let (a, b) = ([0x11u8; 16], [0x22u8; 16]);
    for (present, guids) in [(0u32, vec![]), (1, vec![a]), (2, vec![b]), (3, vec![a, b])] {
        let flat: Vec<u8> = guids.concat();
        let read = with_dacl(&[ace(5, 0, 1, &[&present.to_le_bytes(), &flat, EVERYONE])]);
        let entry = &read.dacl.unwrap().entries[0];
        assert_eq!(entry.account.as_deref(), Some("Everyone"), "{present}");
        assert_eq!(entry.object_type.is_some(), present & 1 != 0);
        assert_eq!(entry.inherited_object_type.is_some(), present & 2 != 0);
    }
}

#[test]
fn an_inherit_only_deny_does_not_apply() {
    let read = with_dacl(&[ace(1, 8, 0x1000_0000, &[EVERYONE]), ace(0, 0, 0x1000_0000, &[EVERYONE])]);
    let entry = &read.dacl.as_ref().unwrap().entries[0];
    assert!(!entry.applies && !entry.reads && !entry.writes && !entry.rights.is_empty());
    assert_eq!(access_of(&read, TokenKind::StandardUser).writes, Verdict::Yes);
}

#[test]
fn a_conditional_entry_and_a_plain_callback() {
    let read = with_dacl(&[ace(9, 0, 1, &[EVERYONE, b"artx...."]), ace(9, 0, 1, &[EVERYONE, b"....."])]);
    let entries = read.dacl.unwrap().entries;
    assert!(entries[0].conditional && !entries[0].callback);
    assert!(!entries[1].conditional && entries[1].callback);
    assert_eq!(entries[1].kind, AceKind::Allow);
}

#[test]
fn a_label_has_policy_and_no_rights() {
    let low = [1, 1, 0, 0, 0, 0, 0, 16, 0, 0x10, 0, 0];
    let sacl = acl(&[ace(0x11, 0, 1, &[&low])]);
    let read = read(descriptor(0x8014, Some(&acl(&[])), Some(&sacl))).unwrap();
    let label = read.integrity.unwrap();
    assert_eq!((label.name.as_deref(), label.policy), (Some("low"), vec!["no_write_up".to_owned()]));
    let entry = &read.sacl.unwrap().entries[0];
    assert!(entry.rights.is_empty() && entry.effective_mask.is_none() && !entry.reads);
}

#[test]
fn a_principal_that_does_not_parse_is_said() {
    let read = with_dacl(&[ace(0, 0, 1, &[&[9, 1, 0, 0, 0, 0, 0, 5]])]);
    let entry = &read.dacl.unwrap().entries[0];
    assert!(entry.principal_unreadable && entry.sid.is_none());
}

#[test]
fn an_unknown_type_keeps_its_mask_and_names_nobody() {
    let read = with_dacl(&[ace(0x77, 0, 0x1234, &[EVERYONE])]);
    let entry = &read.dacl.unwrap().entries[0];
    assert_eq!((entry.kind, entry.mask, entry.sid.as_deref()), (AceKind::Other, Code(0x1234), None));
    assert!(!entry.principal_unreadable);
}

#[test]
fn absolute_wrong_revision_and_unreadable_give_no_descriptor() {
    assert!(malformed(descriptor(0x0004, None, None)).contains("absolute"));
    let mut wrong = descriptor(0x8004, None, None);
    wrong[0] = 2;
    assert!(malformed(wrong).contains("revision"));
    let mut torn = descriptor(0x8004, Some(&acl(&[ace(0, 0, 1, &[EVERYONE])])), None);
    torn.truncate(torn.len() - 3);
    assert!(matches!(read(torn), Err(DescriptorError::Unreadable(_))));
}

proptest::proptest! {
    #[test]
    fn no_descriptor_panics(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..160), control: u16) {
        if let Some(head) = bytes.get_mut(..4) {
            head[0] = 1;
            head[2..4].copy_from_slice(&(control | 0x8000).to_le_bytes());
        }
        if let Ok(descriptor) = read(bytes) {
            for token in TokenKind::ALL {
                let _ = access_of(&descriptor, token);
            }
        }
    }
}
