//! Files that people give for a dump, told by their first bytes, and what to do with each.

use crate::container::Container;
use crate::error::DumpError;
use crate::fields::first_bytes;

struct Known {
    at: usize,
    signature: &'static [u8],
    what: &'static str,
    next: &'static str,
}

const UNPACK: &str = "unpack it and open the dump inside";
const DOWNLOAD: &str = "download the file itself";
const SOURCE: &str = "open the dump this came with";

const fn known(signature: &'static [u8], what: &'static str, next: &'static str) -> Known {
    Known { at: 0, signature, what, next }
}

const KNOWN: [Known; 14] = [
    known(b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    known(b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    known(b"\x28\xb5\x2f\xfd", "a Zstandard file", UNPACK),
    known(b"BZh", "a bzip2 file", UNPACK),
    Known { at: 257, signature: b"ustar", what: "a tar archive", next: UNPACK },
    known(
        b"Microsoft C/C++ MSF 7.00",
        "a PDB (symbols)",
        "open the dump or the image, with this file's folder on the symbol path",
    ),
    known(b"Microsoft C/C++ program", "an old PDB (symbols)", SOURCE),
    known(b"ElfFile\0", "a Windows event log", SOURCE),
    known(b"regf", "a registry hive", SOURCE),
    known(b"\xff\xfeV\0e\0r\0s\0i\0o\0n\0=\0", "a Windows Error Reporting report", SOURCE),
    known(b"version https://git-lfs", "a Git LFS pointer", DOWNLOAD),
    known(b"<!DOCTYPE", "a web page", DOWNLOAD),
    known(b"<html", "a web page", DOWNLOAD),
    known(&[0; 16], "a file that begins with zeros", "the dump was not written or not copied; copy it again"),
];

/// The refusal of bytes that are no dump, no image and no container at this place.
pub(crate) fn refusal(bytes: &[u8]) -> DumpError {
    if let Some(inner) = Container::sniff(bytes) {
        let what = match inner {
            Container::Cab => "another archive (cab)",
            Container::Zip => "another archive (zip)",
            Container::Xz => "another archive (xz)",
            Container::Gz => "another archive (gz)",
        };
        return DumpError::Mistaken { what, next: UNPACK };
    }
    let starts = |known: &&Known| bytes.get(known.at..).is_some_and(|rest| rest.starts_with(known.signature));
    match KNOWN.iter().find(starts) {
        Some(known) => DumpError::Mistaken { what: known.what, next: known.next },
        None => DumpError::Unrecognised { first: first_bytes(bytes) },
    }
}
