//! `VS_VERSIONINFO`: file version and strings.

use crate::field;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

const RT_VERSION: u32 = 16;
const MAX_BLOCK: usize = 0x1_0000;
const MAX_STRINGS: usize = 256;

/// The version resource of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// `VS_FIXEDFILEINFO` file version `a.b.c.d`.
    pub file_version: Option<[u16; 4]>,
    pub product_version: Option<[u16; 4]>,
    /// `FileDescription`, `CompanyName`, ... of the first language, in stored order.
    pub strings: Vec<(String, String)>,
}

impl VersionInfo {
    /// A string by name, any case.
    #[must_use]
    pub fn string(&self, name: &str) -> Option<&str> {
        self.strings.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl Pe {
    /// The first version resource, if there is one and its pages are there.
    #[must_use]
    pub fn version(&self, source: &dyn ImageSource) -> Option<VersionInfo> {
        let (root, _) = self.directory(DirectoryIndex::Resource)?;
        let kind = child(source, root, 0, Some(RT_VERSION))?;
        let name = child(source, root, subdirectory(kind)?, None)?;
        let language = child(source, root, subdirectory(name)?, None)?;
        if language & 0x8000_0000 != 0 {
            return None;
        }
        let data: [u8; 16] = source.array(root.checked_add(language)?)?;
        let size = (field::le32(&data, 4) as usize).min(MAX_BLOCK);
        Some(parse(&source.prefix(field::le32(&data, 0), size)))
    }
}

fn subdirectory(offset: u32) -> Option<u32> {
    (offset & 0x8000_0000 != 0).then_some(offset & 0x7fff_ffff)
}

/// `OffsetToData` of the entry with this id (any when `None`) of the resource directory at
/// `offset` from the root.
fn child(source: &dyn ImageSource, root: u32, offset: u32, id: Option<u32>) -> Option<u32> {
    let at = root.checked_add(offset)?;
    let header: [u8; 16] = source.array(at)?;
    let count = usize::from(field::le16(&header, 12)) + usize::from(field::le16(&header, 14));
    let entries = source.prefix(at.checked_add(16)?, count.min(4096) * 8);
    entries
        .chunks_exact(8)
        .find(|entry| id.is_none_or(|id| field::le32(entry, 0) == id))
        .map(|entry| field::le32(entry, 4))
}

/// A node of the block tree: `{length, value length, type, key\0, pad, value, pad, children}`.
struct Node<'a> {
    key: String,
    value: &'a [u8],
    children: &'a [u8],
    /// Bytes to the next sibling.
    stride: usize,
}

fn node(bytes: &[u8]) -> Option<Node<'_>> {
    let length = usize::from(field::le16(bytes, 0));
    if length < 6 || length > bytes.len() {
        return None;
    }
    let bytes_of_node = &bytes[..length];
    let text = field::le16(bytes, 4) == 1;
    let (key, after_key) = utf16_z(bytes_of_node, 6);
    let value_at = after_key.next_multiple_of(4).min(length);
    let declared = usize::from(field::le16(bytes, 2)) * if text { 2 } else { 1 };
    let value_end = value_at.saturating_add(declared).min(length);
    let children_at = value_end.next_multiple_of(4).min(length);
    Some(Node {
        key,
        value: &bytes_of_node[value_at..value_end],
        children: &bytes_of_node[children_at..],
        stride: length.next_multiple_of(4),
    })
}

/// The UTF-16 string at `at` and the offset behind its NUL.
fn utf16_z(bytes: &[u8], at: usize) -> (String, usize) {
    let units: Vec<u16> = bytes
        .get(at..)
        .unwrap_or_default()
        .chunks_exact(2)
        .map(|u| field::le16(u, 0))
        .take_while(|&u| u != 0)
        .collect();
    (String::from_utf16_lossy(&units), at + 2 * units.len() + 2)
}

fn siblings<'a>(mut bytes: &'a [u8]) -> impl Iterator<Item = Node<'a>> {
    std::iter::from_fn(move || {
        let found = node(bytes)?;
        bytes = bytes.get(found.stride..).unwrap_or_default();
        Some(found)
    })
    .take(MAX_STRINGS)
}

fn quad(value: &[u8], at: usize) -> Option<[u16; 4]> {
    (value.len() >= at + 8).then(|| {
        [
            field::le16(value, at + 2),
            field::le16(value, at),
            field::le16(value, at + 6),
            field::le16(value, at + 4),
        ]
    })
}

fn parse(bytes: &[u8]) -> VersionInfo {
    let mut info = VersionInfo::default();
    let Some(root) = node(bytes) else { return info };
    if field::le32(root.value, 0) == 0xfeef_04bd {
        info.file_version = quad(root.value, 8);
        info.product_version = quad(root.value, 16);
    }
    let table = siblings(root.children).find(|n| n.key == "StringFileInfo");
    let language = table.and_then(|t| siblings(t.children).next());
    if let Some(language) = language {
        info.strings =
            siblings(language.children).map(|entry| (entry.key, utf16_z(entry.value, 0).0)).collect();
    }
    info
}
