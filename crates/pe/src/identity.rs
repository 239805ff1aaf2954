//! What identifies an image file: hashes, version strings, signer; and what is odd about it.

use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::Sha256;
use target::{Address, ImageFacts, ImageSection, ImageVersion, Rva};

use crate::authenticode::{Signed, parse};
use crate::field::le16;
use crate::headers::{DirectoryIndex, Pe, Section};
use crate::source::FileImage;
use crate::version::VersionInfo;

/// Files above this are not hashed.
const MAX_HASHED: usize = 256 << 20;
/// Largest signature looked at.
const MAX_SIGNATURE: usize = 4 << 20;
const IMAGE_SUBSYSTEM_NATIVE: u16 = 1;

impl<B: AsRef<[u8]>> FileImage<B> {
    /// Facts about the file, `entry` at `base`. `framework` is the caller's to name.
    #[must_use]
    pub fn facts(&self, base: u64) -> ImageFacts {
        let (pe, bytes) = (self.pe(), self.bytes());
        let hashed = bytes.len() <= MAX_HASHED;
        let entry = (pe.entry_point != 0).then(|| Address(base.wrapping_add(u64::from(pe.entry_point))));
        ImageFacts {
            subsystem: subsystem(pe.subsystem),
            is_driver: pe.subsystem == IMAGE_SUBSYSTEM_NATIVE,
            entry,
            size_of_image: u64::from(pe.size_of_image),
            file_size: bytes.len() as u64,
            sha256: hashed.then(|| hex(&Sha256::digest(bytes))),
            authenticode: if hashed { self.authenticode_hash::<Sha256>().map(|h| hex(&h)) } else { None },
            imphash: self.imphash(),
            version: pe.version(self).map(version).filter(|v| *v != ImageVersion::default()),
            signature: if hashed { self.signature() } else { None },
            framework: None,
            sections: pe.sections.iter().map(|s| section(pe, s)).collect(),
            warnings: self.warnings(),
        }
    }

    /// The hash Authenticode signs: the file without its checksum, without the directory entry of the
    /// certificates, and without the certificates; `None` where the headers do not hold those fields.
    /// ("Windows Authenticode Portable Executable Signature Format", Microsoft.)
    pub(crate) fn authenticode_hash<D: sha2::Digest>(&self) -> Option<Vec<u8>> {
        let bytes = self.bytes();
        let pe_offset = u32::from_le_bytes(bytes.get(0x3c..0x40)?.try_into().ok()?) as usize;
        let optional = pe_offset.checked_add(24)?;
        let checksum = optional.checked_add(64)?;
        let directories = optional.checked_add(if self.pe().is_64 { 112 } else { 96 })?;
        let entry = directories + 8 * DirectoryIndex::Security as usize;
        let has_entry = self.pe().directories.len() > DirectoryIndex::Security as usize;
        let (start, end) = match self.certificates() {
            Some(range) => (range.start, range.end),
            None => (bytes.len(), bytes.len()),
        };
        let mut hash = D::new();
        hash.update(bytes.get(..checksum)?);
        let after_checksum = checksum.checked_add(4)?;
        if has_entry {
            hash.update(bytes.get(after_checksum..entry)?);
            hash.update(bytes.get(entry + 8..start)?);
        } else {
            hash.update(bytes.get(after_checksum..start)?);
        }
        hash.update(bytes.get(end..)?);
        // A file is hashed as if padded to 8 bytes, as it is before certificates are appended.
        if start == bytes.len() {
            hash.update(&[0u8; 8][..(8 - bytes.len() % 8) % 8]);
        }
        Some(hash.finalize().to_vec())
    }

    /// The certificate table, as far as the file has it.
    fn certificates(&self) -> Option<std::ops::Range<usize>> {
        // This directory alone holds a file offset.
        let (offset, size) = self.pe().directory(DirectoryIndex::Security)?;
        let start = offset as usize;
        let end = start.checked_add(size as usize)?;
        (end <= self.bytes().len()).then_some(start..end)
    }

    fn signature(&self) -> Option<target::ImageSignature> {
        let table = self.bytes().get(self.certificates()?)?;
        // WIN_CERTIFICATE: length, revision, type 2 for PKCS#7, then the data.
        let length = u32::from_le_bytes(table.get(..4)?.try_into().ok()?) as usize;
        if le16(table, 6) != 2 {
            return None;
        }
        let data = table.get(8..length.min(table.len()).min(MAX_SIGNATURE))?;
        let Signed { digest, digest_algorithm, signers } = parse(data)?;
        let actual = match digest_algorithm.as_deref() {
            Some("sha1") => self.authenticode_hash::<Sha1>(),
            Some("sha256") => self.authenticode_hash::<Sha256>(),
            Some("sha384") => self.authenticode_hash::<sha2::Sha384>(),
            Some("sha512") => self.authenticode_hash::<sha2::Sha512>(),
            _ => None,
        };
        let digest_matches = actual.zip(digest).map(|(actual, signed)| actual == signed);
        Some(target::ImageSignature { digest_matches, digest_algorithm, signers })
    }

    /// MD5 of `library.function` pairs, lower case, without `.dll`, `.sys` or `.ocx`, in order, commas
    /// between; imports by ordinal as `ord1` (pefile's names for well-known libraries are left out).
    fn imphash(&self) -> Option<String> {
        let mut parts = Vec::new();
        for dll in self.pe().imports(self) {
            let name = dll.name.to_ascii_lowercase();
            let stem = match name.rsplit_once('.') {
                Some((stem, "dll" | "sys" | "ocx")) => stem,
                _ => name.as_str(),
            };
            for import in &dll.imports {
                let function = match (&import.name, import.ordinal) {
                    (Some(name), _) => name.to_ascii_lowercase(),
                    (None, ordinal) => format!("ord{}", ordinal.unwrap_or(0)),
                };
                parts.push(format!("{stem}.{function}"));
            }
        }
        (!parts.is_empty()).then(|| hex(&Md5::digest(parts.join(","))))
    }

    /// What a linker would not have written.
    fn warnings(&self) -> Vec<String> {
        let (pe, length) = (self.pe(), self.bytes().len() as u64);
        let mut out = Vec::new();
        let mut warn = |text: String| out.push(text);
        let mut end = 0u64;
        for section in &pe.sections {
            let mapped = u64::from(section.mapped_size(pe.section_alignment));
            if u64::from(section.rva) < end {
                warn(format!("section {} overlaps another", shown(&section.name)));
            }
            end = end.max(u64::from(section.rva) + mapped);
            if section.raw_size > 0 && section.raw_start() + u64::from(section.raw_size) > length {
                warn(format!("section {} is cut off by the end of the file", shown(&section.name)));
            }
            if section.is_executable() && section.is_writable() {
                warn(format!("section {} is writable and executable", shown(&section.name)));
            }
        }
        if end > u64::from(pe.size_of_image) {
            warn("sections reach past the size of the image".to_owned());
        }
        let entry = pe.section_at(pe.entry_point);
        if pe.entry_point != 0 && entry.is_none_or(|s| !s.is_executable()) {
            warn("the entry point is not in code".to_owned());
        }
        if pe.subsystem == IMAGE_SUBSYSTEM_NATIVE && pe.characteristics & 1 != 0 {
            warn("relocations are stripped: the image runs at one address only".to_owned());
        }
        for (index, name) in [
            (DirectoryIndex::Import, "import"),
            (DirectoryIndex::BaseRelocation, "relocation"),
            (DirectoryIndex::LoadConfig, "load configuration"),
        ] {
            if let Some((rva, size)) = pe.directory(index)
                && u64::from(rva) + u64::from(size) > u64::from(pe.size_of_image)
            {
                warn(format!("the {name} directory reaches past the image"));
            }
        }
        if pe.sections.is_empty() {
            warn("the image has no sections".to_owned());
        }
        out.truncate(32);
        out
    }
}

fn shown(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

fn section(pe: &Pe, section: &Section) -> ImageSection {
    let access = [(section.is_readable(), 'r'), (section.is_writable(), 'w'), (section.is_executable(), 'x')];
    ImageSection {
        name: shown(&section.name),
        rva: Rva(u64::from(section.rva)),
        size: u64::from(section.mapped_size(pe.section_alignment)),
        file_bytes: u64::from(section.raw_size),
        access: access.iter().filter(|(has, _)| *has).map(|(_, letter)| letter).collect(),
    }
}

fn subsystem(value: u16) -> String {
    match value {
        1 => "native".to_owned(),
        2 => "windows_gui".to_owned(),
        3 => "windows_console".to_owned(),
        9 => "windows_ce".to_owned(),
        10 => "efi_application".to_owned(),
        11 => "efi_boot_service_driver".to_owned(),
        12 => "efi_runtime_driver".to_owned(),
        16 => "windows_boot_application".to_owned(),
        other => other.to_string(),
    }
}

fn version(info: VersionInfo) -> ImageVersion {
    let string = |key: &str| {
        let found = info.strings.iter().find(|(k, _)| k == key).map(|(_, v)| v.trim().to_owned());
        found
            .filter(|v| !v.is_empty())
            .map(|v| v.replace(char::is_control, "\u{fffd}").chars().take(512).collect())
    };
    let numbers = info.file_version.map(|v| v.map(|n| n.to_string()).join("."));
    ImageVersion {
        file_version: string("FileVersion").or(numbers),
        product_name: string("ProductName"),
        file_description: string("FileDescription"),
        company_name: string("CompanyName"),
        original_filename: string("OriginalFilename"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
