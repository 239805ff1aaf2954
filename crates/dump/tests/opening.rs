//! Paths that lead nowhere, and containers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use dump::{Container, DumpError, DumpFile};

/// The smallest minidump there is: a header and a SystemInfo stream.
fn minidump() -> Vec<u8> {
    let mut out = b"MDMP\x93\xa7\0\0".to_vec();
    for word in [1u32, 32, 0, 0x6553_f100, 2, 0, 7, 56, 44] {
        out.extend(word.to_le_bytes());
    }
    out.extend([9, 0, 6, 0, 1, 2, 4, 1]);
    for word in [10u32, 0, 22631, 2, 0, 0] {
        out.extend(word.to_le_bytes());
    }
    out.resize(44 + 56, 0);
    out
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn cab(members: &[(&str, &[u8])], compression: cab::CompressionType) -> Vec<u8> {
    let mut builder = cab::CabinetBuilder::new();
    let folder = builder.add_folder(compression);
    for (name, _) in members {
        folder.add_file(*name);
    }
    let mut writer = builder.build(std::io::Cursor::new(Vec::new())).unwrap();
    let mut members = members.iter();
    while let Some(mut file) = writer.next_file().unwrap() {
        file.write_all(members.next().unwrap().1).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut writer =
        flate2::GzBuilder::new().filename("crash.dmp").write(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = liblzma::write::XzEncoder::new(Vec::new(), 1);
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

#[test]
fn paths_that_lead_nowhere_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.dmp");
    let error = dump::open(&missing).unwrap_err();
    assert!(matches!(error, DumpError::NotFound { .. }), "{error}");
    assert!(error.to_string().contains("missing.dmp"), "{error}");
    assert!(matches!(dump::open(folder.path()).unwrap_err(), DumpError::Directory { .. }));
    let empty = write(folder.path(), "empty.dmp", b"");
    assert!(matches!(dump::open(&empty).unwrap_err(), DumpError::Empty { .. }));
    let below_a_file = empty.join("x.dmp");
    assert!(matches!(dump::open(&below_a_file).unwrap_err(), DumpError::NotFound { .. }));
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = dump::open(&pipe).unwrap_err();
    assert!(matches!(error, DumpError::NotAFile { what: "pipe", .. }), "{error}");
    let error = dump::open(Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(error, DumpError::NotAFile { what: "device", .. }), "{error}");
}

#[test]
fn the_first_bytes_decide() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "really-a-dump.txt", &minidump());
    assert!(matches!(dump::open(&path).unwrap().file, DumpFile::Minidump(_)));
    let elf = write(folder.path(), "core.dmp", b"\x7fELF\x02\x01\x01\0rest");
    let error = dump::open(&elf).unwrap_err();
    assert_eq!(error.category(), ("unsupported", Some("foreign_platform")));
    assert!(error.to_string().contains("7f 45 4c 46 02 01 01 00"), "{error}");
    let text = write(folder.path(), "notes.dmp", b"hello");
    let error = dump::open(&text).unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("malformed_file")));
    assert!(error.to_string().contains("68 65 6c 6c 6f"), "{error}");
    let old = write(folder.path(), "old.dmp", b"USERDUMP................");
    assert_eq!(dump::open(&old).unwrap_err().category(), ("unsupported", Some("legacy_32bit_dump")));
}

#[test]
fn one_dump_in_any_container_opens() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let cases = [
        (Container::Cab, cab(&[("crash.dmp", &dump)], cab::CompressionType::MsZip), Some("crash.dmp")),
        (
            Container::Cab,
            cab(&[("a.txt", b"x"), ("c.dmp", &dump)], cab::CompressionType::None),
            Some("c.dmp"),
        ),
        (Container::Zip, zip(&[("crash.bin", &dump)]), Some("crash.bin")),
        (Container::Zip, zip(&[("readme", b"hi"), ("folder/c.dmp", &dump)]), Some("folder/c.dmp")),
        (Container::Gz, gz(&dump), Some("crash.dmp")),
        (Container::Xz, xz(&dump), None),
    ];
    for (container, bytes, member) in cases {
        let path = write(folder.path(), "packed", &bytes);
        let opened = dump::open(&path).unwrap_or_else(|error| panic!("{container:?}: {error}"));
        assert_eq!(opened.container, Some(container));
        assert_eq!(opened.member.as_deref(), member, "{container:?}");
        let DumpFile::Minidump(dump) = opened.file else { panic!("{container:?}") };
        assert_eq!(dump.system_info().build, 22631);
        drop(dump);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing is written beside the file");
    }
}

#[test]
fn containers_that_do_not_hold_one_dump_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let two = write(folder.path(), "two.zip", &zip(&[("a.dmp", &dump), ("b.dmp", &dump)]));
    let error = dump::open(&two).unwrap_err();
    assert!(matches!(&error, DumpError::SeveralDumps { count: 2, .. }), "{error}");
    assert!(error.to_string().contains("a.dmp, b.dmp"), "{error}");
    let none = write(folder.path(), "none.zip", &zip(&[("a", b"1"), ("b", b"2")]));
    assert!(matches!(dump::open(&none).unwrap_err(), DumpError::NoDump { .. }));
    let mut broken = xz(&dump);
    broken.truncate(broken.len() / 2);
    let broken = write(folder.path(), "broken.xz", &broken);
    assert_eq!(dump::open(&broken).unwrap_err().category(), ("debugger", Some("malformed_file")));
}

/// What `open` says of these bytes.
fn refusal(folder: &Path, bytes: &[u8]) -> (String, (&'static str, Option<&'static str>)) {
    let error = dump::open(&write(folder, "refused", bytes)).unwrap_err();
    (error.to_string(), error.category())
}

#[test]
fn an_archive_in_an_archive_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let (said, category) = refusal(folder.path(), &gz(&gz(&dump)));
    assert!(said.contains("another archive (gz)") && said.contains("unpack it"), "{said}");
    assert_eq!(category, ("debugger", Some("malformed_file")));
    let (said, category) =
        refusal(folder.path(), &zip(&[("readme", b"hi"), ("in.zip", &zip(&[("c", &dump)]))]));
    assert!(said.contains("in.zip, an archive in the archive"), "{said}");
    assert_eq!(category, ("unsupported", Some("nested_archive")));
}

#[test]
fn a_member_that_cannot_be_read_is_not_taken_for_no_dump() {
    let folder = tempfile::tempdir().unwrap();
    let mut locked = zip(&[("crash.dmp", &minidump()), ("readme", b"hi")]);
    // The encryption bit of the first member, in its local and its central header.
    locked[6] |= 1;
    let central = locked.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    locked[central + 8] |= 1;
    let (said, category) = refusal(folder.path(), &locked);
    assert!(said.contains("crash.dmp") && said.contains("Password"), "{said}");
    assert_eq!(category, ("debugger", Some("malformed_file")));
    let (said, _) = refusal(folder.path(), &zip(&[]));
    assert!(said.contains("the zip holds no crash dump"), "{said}");
}

#[test]
fn containers_cut_short_say_that_they_end_early() {
    let folder = tempfile::tempdir().unwrap();
    let whole = cab(&[("crash.dmp", &minidump())], cab::CompressionType::MsZip);
    for length in [4, 36, 60, whole.len() - 1] {
        let (said, _) = refusal(folder.path(), &whole[..length]);
        assert!(said.contains("the cab ends early; copy it again"), "{length}: {said}");
    }
    let packed = zip(&[("crash.dmp", &minidump())]);
    let (said, _) = refusal(folder.path(), &packed[..packed.len() - 22]);
    assert!(said.contains("the zip ends early"), "{said}");
    let packed = gz(&minidump());
    let (said, _) = refusal(folder.path(), &packed[..packed.len() / 2]);
    assert!(said.contains("the gz ends early"), "{said}");
}

#[test]
fn several_members_of_a_gzip_file_and_what_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let (head, tail) = dump.split_at(dump.len() / 2);
    for padding in [&b""[..], &[0; 512], b"trailing garbage"] {
        let path = write(folder.path(), "a.gz", &[&gz(head), &gz(tail), padding].concat());
        let DumpFile::Minidump(read) = dump::open(&path).unwrap().file else { panic!() };
        assert_eq!(read.system_info().build, 22631);
    }
}

#[test]
fn names_of_members_are_shown_short_and_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let names: Vec<String> = (0..20).map(|i| format!("\u{1b}[31m{i}{}", "x".repeat(1000))).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &dump[..])).collect();
    let (said, category) = refusal(folder.path(), &zip(&members));
    assert!(said.contains("holds 20 dumps") && said.contains("..."), "{said}");
    assert!(said.len() < 4096 && !said.contains('\u{1b}'), "{} bytes: {said}", said.len());
    assert_eq!(category, ("unsupported", Some("several_dumps")));
    let path = write(folder.path(), "one.zip", &zip(&members[..1]));
    let member = dump::open(&path).unwrap().member.unwrap();
    assert!(member.contains("[31m") && !member.contains('\u{1b}'), "{member}");
}

#[test]
fn unpacking_ends_with_the_calls_patience() {
    let folder = tempfile::tempdir().unwrap();
    let dump = minidump();
    let packed = [
        cab(&[("crash.dmp", &dump), ("x", b"y")], cab::CompressionType::MsZip),
        zip(&[("crash.dmp", &dump)]),
        zip(&[("crash.dmp", &dump), ("x", b"y")]),
        gz(&dump),
        xz(&dump),
    ];
    for bytes in packed {
        let path = write(folder.path(), "packed", &bytes);
        let halt = target::Halt::unbounded();
        halt.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        let error = dump::open_within(&path, &halt).unwrap_err();
        assert_eq!(error.category(), ("interrupted", None), "{error}");
        let error = dump::open_within(&path, &target::Halt::within(Duration::ZERO)).unwrap_err();
        assert_eq!(error.category(), ("timeout", None), "{error}");
        assert!(error.to_string().contains("unpack it yourself"), "{error}");
    }
}

#[test]
fn files_taken_for_dumps_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = b"crash.dmp".to_vec();
    tar.resize(257, 0);
    tar.extend(b"ustar\x0000");
    let cases: [(&[u8], &str); 6] = [
        (b"7z\xbc\xaf\x27\x1c\0\x04", "7-Zip"),
        (&tar, "tar archive"),
        (b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0", "symbol path"),
        (b"ElfFile\0\0\0", "event log"),
        (b"<!DOCTYPE html><html>", "download"),
        (&[0; 4096], "copy it again"),
    ];
    for (bytes, says) in cases {
        let (said, category) = refusal(folder.path(), bytes);
        assert!(said.contains(says), "{said}");
        assert_eq!(category, ("debugger", Some("malformed_file")), "{said}");
    }
}

#[test]
fn a_file_truncated_while_mapped_does_not_kill_us() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = minidump();
    // A Memory64List of 64 KiB at 0x10000.
    let list = u32::try_from(bytes.len()).unwrap();
    bytes[8] = 2;
    bytes.splice(44..44, [9u32, 32, list + 12].into_iter().flat_map(u32::to_le_bytes));
    bytes[40..44].copy_from_slice(&56u32.to_le_bytes());
    for quad in [1u64, u64::from(list) + 44, 0x1_0000, 0x1_0000] {
        bytes.extend(quad.to_le_bytes());
    }
    bytes.resize(bytes.len() + 0x1_0000, 0xab);
    let path = write(folder.path(), "shrinking.dmp", &bytes);
    let DumpFile::Minidump(dump) = dump::open(&path).unwrap().file else { panic!() };
    let mut buffer = [0; 16];
    assert_eq!(dump.read_memory(0x1_ff00, &mut buffer).stopped, None);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0x1000).unwrap();
    assert_eq!(dump.read_memory(0x1_ff00, &mut buffer).stopped, Some(target::Unreadable::TruncatedFile));
}

/// The reader of cabinets indexes past a folder's blocks where a member begins behind the last.
#[test]
fn a_cab_whose_member_begins_behind_its_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = cab(&[("crash.dmp", &minidump())], cab::CompressionType::None);
    let member = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
    bytes[member + 4..member + 8].copy_from_slice(&0x10_0000u32.to_le_bytes());
    let error = dump::open(&write(folder.path(), "packed.cab", &bytes)).unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("malformed_file")), "{error}");
}
