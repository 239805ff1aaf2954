//! Which Windows build a kernel image is, by its PE identity (System Informer's `kphdyn` table).

use std::path::Path;

use crate::packed;
use crate::{Result, SymbolError};

/// One known build of a kernel image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build {
    pub timestamp: u32,
    pub size_of_image: u32,
    /// `amd64`, `arm64`.
    pub arch: String,
    /// `ntoskrnl.exe`, `ntkrla57.exe`.
    pub file: String,
    /// `10.0.19041.804`.
    pub version: String,
}

/// The table, sorted by PE identity.
#[derive(Debug, Default)]
pub struct BuildTable {
    builds: Vec<Build>,
}

impl BuildTable {
    /// Reads `kphdyn.xml` or `kphdyn.xml.xz`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_bytes(packed::read(path)?)
    }

    /// The same of a file in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let text = packed::unpack(bytes)?;
        let text = String::from_utf8_lossy(&text);
        if !text.contains("<dyn") {
            return Err(SymbolError::NotSymbols(
                "this is no kphdyn table: it has no <dyn> element".to_owned(),
            ));
        }
        let mut builds: Vec<Build> = text.split("<data ").skip(1).filter_map(read_build).collect();
        builds.sort_unstable();
        builds.dedup();
        Ok(Self { builds })
    }

    /// Builds with this `TimeDateStamp` and `SizeOfImage`.
    #[must_use]
    pub fn find(&self, timestamp: u32, size_of_image: u32) -> &[Build] {
        let wanted = (timestamp, size_of_image);
        let start = self.builds.partition_point(|b| (b.timestamp, b.size_of_image) < wanted);
        let end = self.builds.partition_point(|b| (b.timestamp, b.size_of_image) <= wanted);
        &self.builds[start..end]
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.builds.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.builds.is_empty()
    }
}

fn read_build(element: &str) -> Option<Build> {
    let attributes = element.split('>').next()?;
    let text = |name: &str| {
        let (_, rest) = attributes.split_once(&format!("{name}=\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    let number = |name: &str| u32::from_str_radix(text(name)?.strip_prefix("0x")?, 16).ok();
    Some(Build {
        timestamp: number("timestamp")?,
        size_of_image: number("size")?,
        arch: text("arch")?,
        file: text("file")?,
        version: text("version")?,
    })
}

#[cfg(test)]
mod tests {
    use super::BuildTable;

    #[test]
    fn an_identity_names_a_build() {
        let xml = r#"<?xml version="1.0"?><dyn><data arch="amd64" version="10.0.1.2" file="ntoskrnl.exe" hash="aa" timestamp="0x54be00cf" size="0x0080b000" added="x">1</data><data version="broken">2</data></dyn>"#;
        let table = BuildTable::from_bytes(xml.as_bytes().to_vec()).unwrap();
        assert_eq!(table.len(), 1);
        assert_eq!(table.find(0x54be_00cf, 0x80_b000)[0].version, "10.0.1.2");
        assert!(table.find(1, 2).is_empty());
        assert!(BuildTable::from_bytes(b"{}".to_vec()).is_err());
    }
}
