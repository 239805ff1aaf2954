//! The object namespace over a kernel made up here, in two layouts: nothing is hard-coded, and
//! nothing hostile leads to a wrong answer or an endless walk.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use analysis_driver::{
    AbsenceKind, LinkSearch, Namespace, SecurityRequest, device_security, find_device, find_driver,
};
use target::scripted::ScriptedTarget;
use target::symbol::{Field, TypeKind, TypeLayout, TypeRef};
use target::{Halt, Machine, TargetKind};

const NT: u64 = 0xffff_f800_0000_0000;
const HEAP: u64 = 0xffff_a000_0000_0000;
const IMAGE: u64 = 0xffff_f800_1000_0000;
const COOKIE: u8 = 0x5c;

/// Offsets a kernel build may have.
#[derive(Clone, Copy)]
struct Build {
    buckets: u64,
    bucket_count: u64,
    entry_link: u64,
    entry_object: u64,
    body: u64,
    info_mask: u64,
    type_index: u64,
    name_info_size: u64,
    name_info_name: u64,
    link_target: u64,
    link_flags: u64,
    type_name: u64,
}

const FIRST: Build = Build {
    buckets: 0,
    bucket_count: 37,
    entry_link: 0,
    entry_object: 8,
    body: 0x30,
    info_mask: 0x1a,
    type_index: 0x18,
    name_info_size: 0x20,
    name_info_name: 8,
    link_target: 8,
    link_flags: 0x1c,
    type_name: 0x10,
};
const SECOND: Build = Build {
    buckets: 0x10,
    bucket_count: 5,
    entry_link: 0x10,
    entry_object: 0,
    body: 0x48,
    info_mask: 0x21,
    type_index: 0x20,
    name_info_size: 0x30,
    name_info_name: 0x18,
    link_target: 0x20,
    link_flags: 0x10,
    type_name: 0x28,
};

const TYPES: [(&str, u8); 4] = [("Directory", 3), ("SymbolicLink", 4), ("Device", 0x1f), ("Driver", 0x20)];

struct FakeNt {
    build: Build,
    memory: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Entries so far per directory.
    filled: BTreeMap<u64, u64>,
}

impl FakeNt {
    fn new(build: Build) -> Self {
        let mut out = Self { build, memory: BTreeMap::new(), next: HEAP, filled: BTreeMap::new() };
        let table = out.space(0x100 * 8);
        assert_eq!(table, HEAP);
        for (name, index) in TYPES {
            let object_type = out.space(0x100);
            out.string(object_type + build.type_name, name);
            out.pointer(table + u64::from(index) * 8, object_type);
        }
        out
    }
    fn space(&mut self, size: u64) -> u64 {
        let at = self.next;
        self.next += (size + 0xff) & !0xff;
        self.memory.insert(at, vec![0; usize::try_from(size).unwrap()]);
        at
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let (start, region) = self.memory.range_mut(..=address).next_back().unwrap();
        let offset = usize::try_from(address - start).unwrap();
        region[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn pointer(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }
    fn units(&mut self, address: u64, units: &[u16]) {
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let buffer = self.space(bytes.len().max(1) as u64);
        self.write(buffer, &bytes);
        let length = u16::try_from(bytes.len()).unwrap().to_le_bytes();
        self.write(address, &length);
        self.write(address + 2, &length);
        self.pointer(address + 8, buffer);
    }
    fn string(&mut self, address: u64, text: &str) {
        self.units(address, &text.encode_utf16().collect::<Vec<_>>());
    }
    /// An object of a type, with the name it has, its body `size` bytes.
    fn object(&mut self, kind: &str, name: &[u16], size: u64) -> u64 {
        let build = self.build;
        let info = self.space(build.name_info_size + build.body + size);
        let header = info + build.name_info_size;
        let index = TYPES.iter().find(|(known, _)| *known == kind).map_or(0xee, |(_, index)| *index);
        let stored = index ^ COOKIE ^ header.to_le_bytes()[1];
        self.write(header + build.type_index, &[stored]);
        if !name.is_empty() {
            self.write(header + build.info_mask, &[2]);
            self.units(info + build.name_info_name, name);
        }
        header + build.body
    }
    fn named(&mut self, kind: &str, name: &str, size: u64) -> u64 {
        self.object(kind, &name.encode_utf16().collect::<Vec<_>>(), size)
    }
    fn directory(&mut self, name: &str) -> u64 {
        let size = self.build.buckets + self.build.bucket_count * 8 + 0x30;
        self.named("Directory", name, size)
    }
    fn entry(&mut self, object: u64) -> u64 {
        let entry = self.space(0x20);
        self.pointer(entry + self.build.entry_object, object);
        entry
    }
    /// Adds an object to a directory: buckets in turn, then chains.
    fn add(&mut self, directory: u64, object: u64) -> u64 {
        let entry = self.entry(object);
        let count = self.filled.entry(directory).or_default();
        let bucket = *count % self.build.bucket_count;
        *count += 1;
        let slot = directory + self.build.buckets + bucket * 8;
        let old = self.read_pointer(slot);
        self.pointer(entry + self.build.entry_link, old);
        self.pointer(slot, entry);
        entry
    }
    fn read_pointer(&self, address: u64) -> u64 {
        let (start, region) = self.memory.range(..=address).next_back().unwrap();
        let offset = usize::try_from(address - start).unwrap();
        u64::from_le_bytes(region[offset..offset + 8].try_into().unwrap())
    }
    fn link(&mut self, directory: u64, name: &str, target: &str) -> u64 {
        let link = self.named("SymbolicLink", name, 0x40);
        self.string(link + self.build.link_target, target);
        self.add(directory, link);
        link
    }
    fn device(&mut self, name: &str, descriptor: u64) -> u64 {
        let device = self.named("Device", name, 0x150);
        self.write(device, &3u16.to_le_bytes());
        self.pointer(device + 0x110, descriptor);
        self.write(device + 0x48, &0x22u32.to_le_bytes());
        device
    }
    fn types(&self) -> Vec<TypeLayout> {
        let b = self.build;
        let field = |name: &str, offset, size| Field {
            name: name.to_owned(),
            offset,
            size,
            ty: TypeRef::Unknown,
            bits: None,
            value: None,
            base_class: false,
        };
        let layout = |name: &str, size, fields: Vec<Field>| TypeLayout {
            module: "nt".into(),
            name: name.into(),
            kind: TypeKind::Struct,
            size,
            fields,
            ambiguous: 0,
        };
        vec![
            layout(
                "_OBJECT_HEADER",
                b.body + 8,
                vec![
                    field("Body", b.body, 8),
                    field("InfoMask", b.info_mask, 1),
                    field("TypeIndex", b.type_index, 1),
                ],
            ),
            layout("_OBJECT_HEADER_NAME_INFO", b.name_info_size, vec![field("Name", b.name_info_name, 16)]),
            layout(
                "_OBJECT_DIRECTORY",
                b.buckets + b.bucket_count * 8 + 0x30,
                vec![
                    field("HashBuckets", b.buckets, b.bucket_count * 8),
                    field("Lock", b.buckets + b.bucket_count * 8, 8),
                ],
            ),
            layout(
                "_OBJECT_DIRECTORY_ENTRY",
                0x20,
                vec![field("ChainLink", b.entry_link, 8), field("Object", b.entry_object, 8)],
            ),
            layout(
                "_OBJECT_SYMBOLIC_LINK",
                0x40,
                vec![field("LinkTarget", b.link_target, 16), field("Flags", b.link_flags, 4)],
            ),
            layout("_OBJECT_TYPE", 0x100, vec![field("Name", b.type_name, 16)]),
        ]
    }
    fn target(self, root: u64) -> ScriptedTarget {
        let mut globals = vec![0u8; 0x100];
        globals[..8].copy_from_slice(&root.to_le_bytes());
        globals[8] = COOKIE;
        globals[0x10..0x14].copy_from_slice(&[0, 0, u8::try_from(self.build.name_info_size).unwrap(), 0]);
        let mut target = ScriptedTarget::new(Machine::X64)
            .with_facts(|facts| facts.kind = TargetKind::KernelDump)
            .with_module("nt", NT, 0x10000)
            .with_module("x", IMAGE, 0x8000)
            .with_memory(NT + 0x1000, globals)
            .with_symbol("nt", "ObpRootDirectoryObject", NT + 0x1000)
            .with_symbol("nt", "ObHeaderCookie", NT + 0x1008)
            .with_symbol("nt", "ObpInfoMaskToOffset", NT + 0x1010)
            .with_symbol("nt", "ObTypeIndexTable", HEAP);
        for layout in self.types() {
            target = target.with_type(layout);
        }
        for (address, bytes) in self.memory {
            target = target.with_memory(address, bytes);
        }
        target
    }
}

/// `\Device\Gate` guarded by SYSTEM and Administrators, `\Driver\Gate`, links to it and a link to a link.
fn world(build: Build, also: impl FnOnce(&mut FakeNt, u64, u64)) -> ScriptedTarget {
    let mut nt = FakeNt::new(build);
    let root = nt.directory("");
    let (devices, drivers, links) =
        (nt.directory("Device"), nt.directory("Driver"), nt.directory("GLOBAL??"));
    for directory in [devices, drivers, links] {
        nt.add(root, directory);
    }
    let descriptor = nt.space(0x80);
    let acl: &[u8] = &[
        1, 0, 4, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, // header, DACL at 20
        2, 0, 52, 0, 2, 0, 0, 0, // two entries
        0, 0, 20, 0, 0, 0, 0, 0x10, 1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0, // SYSTEM: GENERIC_ALL
        0, 0, 24, 0, 0, 0, 0, 0x10, 1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0,
        0, // Administrators
    ];
    nt.write(descriptor, acl);
    let device = nt.device("Gate", descriptor);
    let driver = nt.named("Driver", "Gate", 0x150);
    nt.write(driver, &[4, 0, 0x50, 1]);
    nt.pointer(driver + 0x18, IMAGE);
    nt.write(driver + 0x20, &0x8000u32.to_le_bytes());
    nt.pointer(driver + 8, device);
    nt.pointer(device + 8, driver);
    for i in 0..40 {
        let other = nt.device(&format!("Other{i}"), 0);
        nt.add(devices, other);
    }
    nt.add(devices, device);
    nt.add(drivers, driver);
    nt.link(links, "Gate", "\\Device\\Gate");
    nt.link(links, "Alias", "\\??\\Gate");
    nt.link(links, "Near", "\\Device\\Gate\\dir");
    also(&mut nt, root, links);
    nt.target(root)
}

fn security<'a>(device: &'a str) -> SecurityRequest<'a> {
    SecurityRequest { device, links: true, link_directory: "\\GLOBAL??", all_sessions: false, model: true }
}

#[test]
fn names_links_and_gates_in_two_layouts() {
    for build in [FIRST, SECOND] {
        let target = world(build, |_, _, _| ());
        let halt = Halt::unbounded();
        let driver = find_driver(&target, "gate", Some(8), &halt).unwrap();
        assert_eq!(driver.path.as_deref(), Some("\\Driver\\Gate"));
        assert_eq!(driver.devices.unwrap().device_count, 1);
        let device = find_device(&target, "\\??\\Alias", false, &halt).unwrap();
        assert_eq!(device.path.as_deref(), Some("\\Device\\Gate"));
        assert_eq!(device.followed_links, ["\\GLOBAL??\\Alias", "\\GLOBAL??\\Gate"]);
        let gate = device_security(&target, &security("Gate"), &halt).unwrap();
        assert_eq!(gate.link_search, LinkSearch::Complete);
        let links: Vec<(&str, u8)> = gate.links.iter().map(|link| (link.path.as_str(), link.hops)).collect();
        assert_eq!(links.len(), 2, "{links:?}");
        assert!(links.contains(&("\\GLOBAL??\\Gate", 1)) && links.contains(&("\\GLOBAL??\\Alias", 2)));
        let user = &gate.access_model.as_ref().unwrap().tokens[2];
        assert_eq!((user.token.name(), user.granted.0), ("standard_user", 0));
        insta::assert_snapshot!(
            if build.body == FIRST.body { "first" } else { "second" },
            analysis_driver::render_security(&gate)
        );
    }
}

#[test]
fn a_device_without_a_descriptor_is_not_one_that_failed() {
    let target = world(FIRST, |_, _, _| ());
    let none = device_security(&target, &security("Other3"), &Halt::unbounded()).unwrap();
    assert_eq!(none.security_absent.unwrap().kind, AbsenceKind::None);
    let target = world(FIRST, |nt, root, _| {
        let bad = nt.device("Bad", 0x4242);
        nt.add(root, bad);
    });
    let failed = device_security(&target, &security("\\Bad"), &Halt::unbounded()).unwrap();
    let absent = failed.security_absent.unwrap();
    assert_eq!((absent.kind, absent.address.unwrap().0), (AbsenceKind::Failed, 0x4242));
}

#[test]
fn not_found_names_what_is_near() {
    let target = world(FIRST, |_, _, _| ());
    let error = find_device(&target, "\\Device\\Gat", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("not_found"));
    assert!(error.to_string().contains("Gate"), "{error}");
    let error = find_driver(&target, "nonesuch", None, &Halt::unbounded()).unwrap_err();
    assert!(error.to_string().contains("\\Driver, \\FileSystem"), "{error}");
}

#[test]
fn a_minidump_says_no_namespace() {
    let target = ScriptedTarget::new(Machine::X64).with_facts(|facts| facts.kind = TargetKind::KernelDump);
    let error = find_driver(&target, "x", None, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("no_type_information"));
    let mut target = FakeNt::new(FIRST).target(0);
    target = target.with_memory(NT + 0x1000, vec![]);
    let error = find_driver(&target, "x", None, &Halt::unbounded()).unwrap_err();
    assert!(matches!(error.category().1, Some("no_namespace")), "{error}");
}

#[test]
fn a_bucket_that_leads_round_ends() {
    let target = world(FIRST, |nt, root, _| {
        let object = nt.device("Round", 0);
        let entry = nt.add(root, object);
        nt.pointer(entry + FIRST.entry_link, entry);
    });
    let error = find_device(&target, "\\Nowhere", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("too_many"));
}

#[test]
fn an_entry_without_an_object_that_leads_round_ends() {
    let target = world(SECOND, |nt, root, _| {
        let entry = nt.add(root, 0);
        nt.pointer(entry + SECOND.entry_link, entry);
    });
    let error = find_device(&target, "\\Nowhere", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("too_many"));
}

#[test]
fn a_torn_name_and_a_lone_surrogate_resolve_nothing() {
    let target = world(FIRST, |nt, root, _| {
        let torn = nt.device("Torn", 0);
        nt.write(torn - FIRST.body - FIRST.name_info_size + FIRST.name_info_name, &[9, 0, 4, 0]);
        nt.add(root, torn);
        for last in [0xd800u16, 0xdc00] {
            let twin = nt.object("Device", &[0x54, last], 0x150);
            nt.add(root, twin);
        }
    });
    for path in ["\\Torn", "\\T\u{fffd}"] {
        assert!(find_device(&target, path, false, &Halt::unbounded()).is_err(), "{path}");
    }
}

#[test]
fn a_component_of_unknown_type_is_not_walked_through() {
    let target = world(FIRST, |nt, root, _| {
        let odd = nt.object("Mystery", &"Odd".encode_utf16().collect::<Vec<_>>(), 0x200);
        nt.add(root, odd);
    });
    let error = find_device(&target, "\\Odd\\x", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("untyped_component"));
    let error = find_device(&target, "\\Device\\Gate\\x", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("untyped_component"));
}

#[test]
fn a_link_that_is_computed_has_no_target() {
    let target = world(FIRST, |nt, _, links| {
        let link = nt.link(links, "Computed", "\\Device\\Gate");
        nt.write(link + FIRST.link_flags, &0x10u32.to_le_bytes());
    });
    let error = find_device(&target, "\\??\\Computed", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("callback_link"));
    let gate = device_security(&target, &security("Gate"), &Halt::unbounded()).unwrap();
    assert!(!gate.links.iter().any(|link| link.path.ends_with("Computed")));
}

#[test]
fn links_that_lead_round_end() {
    let target = world(FIRST, |nt, _, links| {
        nt.link(links, "A", "\\??\\B");
        nt.link(links, "B", "\\??\\A");
    });
    let error = find_device(&target, "\\??\\A", false, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("malformed"));
}

#[test]
fn an_unnamed_or_untyped_link_makes_the_search_partial() {
    let target = world(FIRST, |nt, _, links| {
        let nameless = nt.object("SymbolicLink", &[], 0x40);
        nt.string(nameless + FIRST.link_target, "\\Device\\Gate");
        nt.add(links, nameless);
    });
    let gate = device_security(&target, &security("Gate"), &Halt::unbounded()).unwrap();
    assert_eq!((gate.link_search, gate.links_unnamed), (LinkSearch::Partial, 1));
    let target = world(FIRST, |nt, _, links| {
        let odd = nt.object("Mystery", &[0x41], 0x40);
        nt.add(links, odd);
    });
    let gate = device_security(&target, &security("Gate"), &Halt::unbounded()).unwrap();
    assert_eq!((gate.link_search, gate.links_unread), (LinkSearch::Partial, 1));
    assert!(!analysis_driver::render_security(&gate).contains("No link leads here"));
}

#[test]
fn seventy_thousand_entries_are_too_many() {
    let mut nt = FakeNt::new(FIRST);
    let root = nt.directory("");
    let object = nt.device("X", 0);
    let block = nt.space(70_000 * 16);
    for i in 0..70_000u64 {
        let entry = block + i * 16;
        nt.pointer(entry, if i == 69_999 { 0 } else { entry + 16 });
        nt.pointer(entry + 8, object);
    }
    nt.pointer(root, block);
    let target = nt.target(root);
    let namespace = Namespace::new(&target).unwrap();
    let error = namespace.list(root, &Halt::unbounded()).unwrap_err();
    assert_eq!(error.category().1, Some("too_many"));
}
