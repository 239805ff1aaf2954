//! Exports.

use std::collections::HashMap;

use crate::field;
use crate::headers::{DirectoryIndex, Pe};
use crate::source::{ImageSource, ImageSourceExt};

/// Most exports read; ntoskrnl has about 3,000, the largest system DLLs 10,000.
const MAX_EXPORTS: usize = 65_536;
const MAX_NAME: usize = 4096;

/// Where an export leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTarget {
    /// RVA in this image.
    Rva(u32),
    /// `DLL.Name` or `DLL.#ordinal`.
    Forwarder(String),
}

/// One exported address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// As stored; `None` for an export by ordinal only.
    pub name: Option<String>,
    pub ordinal: u32,
    pub target: ExportTarget,
}

impl Export {
    /// RVA in this image, `None` for a forwarder.
    #[must_use]
    pub fn rva(&self) -> Option<u32> {
        match self.target {
            ExportTarget::Rva(rva) => Some(rva),
            ExportTarget::Forwarder(_) => None,
        }
    }
}

impl Pe {
    /// Exports sorted by RVA (forwarders last, by name). Names whose bytes are missing are left
    /// out; an ordinal with several names comes once for each.
    #[must_use]
    pub fn exports(&self, source: &dyn ImageSource) -> Vec<Export> {
        read(self, source).unwrap_or_default()
    }

    /// The DLL's own name as its export directory has it.
    #[must_use]
    pub fn export_name(&self, source: &dyn ImageSource) -> Option<String> {
        let (rva, _) = self.directory(DirectoryIndex::Export)?;
        let name = source.u32(rva.checked_add(12)?)?;
        source.string(name, MAX_NAME).filter(|n| !n.is_empty())
    }
}

fn words(source: &dyn ImageSource, rva: u32, count: usize) -> Vec<u32> {
    source.prefix(rva, count * 4).chunks_exact(4).map(|w| field::le32(w, 0)).collect()
}

fn read(pe: &Pe, source: &dyn ImageSource) -> Option<Vec<Export>> {
    let (rva, size) = pe.directory(DirectoryIndex::Export)?;
    let header: [u8; 40] = source.array(rva)?;
    let base = field::le32(&header, 16);
    let count = (field::le32(&header, 20) as usize).min(MAX_EXPORTS);
    let named = (field::le32(&header, 24) as usize).min(MAX_EXPORTS);
    let addresses = words(source, field::le32(&header, 28), count);
    let name_rvas = words(source, field::le32(&header, 32), named);
    let indexes = source.prefix(field::le32(&header, 36), named * 2);
    let mut names: HashMap<usize, Vec<String>> = HashMap::new();
    for (name, index) in name_rvas.iter().zip(indexes.chunks_exact(2)) {
        if let Some(text) = source.string(*name, MAX_NAME) {
            names.entry(usize::from(field::le16(index, 0))).or_default().push(text);
        }
    }
    let mut out = Vec::with_capacity(addresses.len());
    for (index, &address) in addresses.iter().enumerate() {
        if address == 0 {
            continue;
        }
        let target = if address >= rva && address - rva < size {
            match source.string(address, MAX_NAME) {
                Some(text) => ExportTarget::Forwarder(text),
                None => continue,
            }
        } else {
            ExportTarget::Rva(address)
        };
        let ordinal = base.wrapping_add(u32::try_from(index).unwrap_or(u32::MAX));
        match names.remove(&index) {
            Some(names) => out.extend(names.into_iter().map(|name| Export {
                name: Some(name),
                ordinal,
                target: target.clone(),
            })),
            None => out.push(Export { name: None, ordinal, target }),
        }
    }
    out.sort_by(|a, b| {
        let key = |e: &Export| e.rva().map_or(u64::MAX, u64::from);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    Some(out)
}
