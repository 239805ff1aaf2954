//! What a driver's source says about itself in its first lines: `// key: words`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::hazards::Fault;
use super::objects::{self, Objects};
use crate::process::root;

/// How a driver is built: machine, compiler, optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variant {
    X64GccO0,
    X64GccO2,
    X64GccOs,
    X64Clang,
    X86Gcc,
    X86Clang,
    Arm64Clang,
}

impl Variant {
    pub(crate) const ALL: [Self; 7] = [
        Self::X64GccO0,
        Self::X64GccO2,
        Self::X64GccOs,
        Self::X64Clang,
        Self::X86Gcc,
        Self::X86Clang,
        Self::Arm64Clang,
    ];

    /// Its folder below `fixtures/drivers/bin`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X64GccO0 => "x64-gcc-o0",
            Self::X64GccO2 => "x64-gcc-o2",
            Self::X64GccOs => "x64-gcc-os",
            Self::X64Clang => "x64-clang",
            Self::X86Gcc => "x86-gcc",
            Self::X86Clang => "x86-clang",
            Self::Arm64Clang => "arm64-clang",
        }
    }
}

/// What tells the truth about a driver's control codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Oracle {
    /// All 2^32 codes.
    Sweep,
    /// All codes of the device types that the source names.
    Types,
    /// The specification's row alone.
    #[default]
    None,
}

/// The specification's row about a driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// Accepted at some lengths.
    pub(crate) accepted: BTreeSet<u32>,
    /// Recognised and refused whatever the lengths, and with which status.
    pub(crate) refused: BTreeMap<u32, u32>,
    /// Compared in the driver, but not with what a caller sent.
    pub(crate) unproved: BTreeSet<u32>,
    /// Codes that arrive on another way than the device-control routine; they may be reported or not.
    pub(crate) elsewhere: BTreeSet<u32>,
    /// Codes that are not in ARM64 builds.
    pub(crate) x86_only: BTreeSet<u32>,
    pub(crate) default: u32,
    /// The map need not be complete.
    pub(crate) may_be_incomplete: bool,
    /// The map must say that something was not followed.
    pub(crate) unresolved: bool,
    /// More codes than a list holds: the count is exact and the map not complete.
    pub(crate) capped: bool,
    /// The faults that are in it, none for a repaired one; absent where nobody planted any.
    pub(crate) planted: Option<Vec<Fault>>,
    /// The code is not provably the caller's.
    pub(crate) not_proved: bool,
    /// What the fast-I/O routine handles.
    pub(crate) fast_io: BTreeSet<u32>,
    /// Devices and links, where the source names any.
    pub(crate) objects: Option<Objects>,
}

/// One driver: a source file and what it says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `d01`, the built file's stem.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    pub(crate) variants: Vec<Variant>,
    /// The PDB of its clang x64 build is committed too.
    pub(crate) keeps_pdb: bool,
    pub(crate) row: Row,
    pub(crate) oracle: Oracle,
    /// Wine loads it.
    pub(crate) wine: bool,
    /// Input and output lengths to try besides 32 and 32.
    pub(crate) lengths: Vec<(u32, u32)>,
}

impl Source {
    /// A source that says nothing of itself.
    pub(crate) fn named(id: &str, path: &Path) -> Self {
        Self {
            id: id.to_owned(),
            path: path.to_owned(),
            variants: Vec::new(),
            keeps_pdb: false,
            row: Row::default(),
            oracle: Oracle::None,
            wine: false,
            lengths: Vec::new(),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().and_then(|s| s.to_str()).context("a source has a name")?;
        let mut source = Self::named(stem.split('_').next().unwrap_or(stem), path);
        let assembly = path.extension().is_some_and(|e| e == "s");
        source.variants = if assembly { vec![Variant::X64Clang] } else { Variant::ALL.to_vec() };
        for (key, words) in text.lines().map_while(directive).flatten() {
            source.take(key, &words).with_context(|| path.display().to_string())?;
        }
        Ok(source)
    }

    /// The file's name.
    pub(crate) fn file(&self) -> Result<&str> {
        self.path.file_name().and_then(|name| name.to_str()).context("a source has a name")
    }

    fn take(&mut self, key: &str, words: &[&str]) -> Result<()> {
        match key {
            "builds" => self.variants = words.iter().map(|word| variant(word)).collect::<Result<_>>()?,
            "pdb" => self.keeps_pdb = words == ["committed"],
            "oracle" => {
                self.wine = words.contains(&"wine");
                self.oracle = match words.first() {
                    Some(&"sweep") => Oracle::Sweep,
                    Some(&"types") => Oracle::Types,
                    _ => Oracle::None,
                };
            }
            "lengths" => self.lengths = words.iter().map(|word| pair(word, ',')).collect::<Result<_>>()?,
            _ => self.row.take(key, words)?,
        }
        Ok(())
    }
}

impl Row {
    fn take(&mut self, key: &str, words: &[&str]) -> Result<()> {
        let codes = || words.iter().map(|word| number(word)).collect::<Result<Vec<_>>>();
        match key {
            "codes" => self.accepted.extend(codes()?),
            "pattern" | "dense" => self.accepted.extend(expanded(key, &codes()?)?),
            "unproved" => self.unproved.extend(codes()?),
            "worker" => self.elsewhere.extend(codes()?),
            "x86_only" => self.x86_only.extend(codes()?),
            "refused" => {
                for word in words {
                    self.refused.extend([pair(word, '=')?]);
                }
            }
            "default" => self.default = *codes()?.first().context("default: a status")?,
            "planted" => {
                let planted = self.planted.get_or_insert_default();
                match words {
                    ["none"] => {}
                    ["device", class] => planted.push(((*class).to_owned(), None)),
                    [code, class] => planted.push(((*class).to_owned(), Some(number(code)?))),
                    _ => bail!("planted: {words:?}"),
                }
            }
            "fast_io" => self.fast_io.extend(codes()?),
            "device" => self.objects.get_or_insert_default().devices.push(objects::device(words)?),
            "link" => match words {
                [path, target] => {
                    let link = ((*path).to_owned(), (*target).to_owned());
                    self.objects.get_or_insert_default().links.push(link);
                }
                _ => bail!("link: {words:?}"),
            },
            "capped" => self.capped = true,
            "loop" => self.may_be_incomplete = true,
            "unresolved" => (self.unresolved, self.may_be_incomplete) = (true, true),
            "proved" => self.not_proved = words == ["no"],
            _ => {}
        }
        Ok(())
    }
}

/// The codes of a `mask value` pattern, or of a dense run: first, step, count.
fn expanded(key: &str, numbers: &[u32]) -> Result<Vec<u32>> {
    match (key, numbers) {
        ("pattern", &[mask, value]) => Ok(masked(mask, value)),
        ("dense", &[first, step, count]) => Ok((0..count).map(|i| first + i * step).collect()),
        _ => bail!("{key}: {numbers:x?}"),
    }
}

/// Every code with the value in the masked bits.
pub(crate) fn masked(mask: u32, value: u32) -> Vec<u32> {
    let mut found = vec![value & mask];
    let mut free = !mask;
    // The subsets of the free bits, counted down.
    while free != 0 {
        found.push(value & mask | free);
        free = free.wrapping_sub(1) & !mask;
    }
    found
}

pub(crate) fn number(word: &str) -> Result<u32> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.with_context(|| format!("not a number: {word}"))
}

fn pair(word: &str, between: char) -> Result<(u32, u32)> {
    let (first, second) = word.split_once(between).with_context(|| format!("not two numbers: {word}"))?;
    Ok((number(first)?, number(second)?))
}

fn variant(word: &str) -> Result<Variant> {
    match Variant::ALL.into_iter().find(|variant| variant.name() == word) {
        Some(variant) => Ok(variant),
        None => bail!("no build {word}; there are {}", Variant::ALL.map(Variant::name).join(" ")),
    }
}

/// A leading comment line: `Some(None)` when it is prose, `None` behind the comment.
#[expect(clippy::option_option, reason = "the end of the comment differs from a line of prose")]
fn directive(line: &str) -> Option<Option<(&str, Vec<&str>)>> {
    let text = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?.trim();
    Some(text.split_once(':').and_then(|(key, words)| {
        key.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            .then(|| (key, words.split_whitespace().collect()))
    }))
}

/// Every driver of `fixtures/drivers/src`, or those of these ids, sorted.
pub(crate) fn all(ids: &[String]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder().join("src"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c" || extension == "s") {
            sources.push(Source::read(&path)?);
        }
    }
    sources.sort_by(|a, b| a.id.cmp(&b.id));
    if let Some(unknown) = ids.iter().find(|id| !sources.iter().any(|source| source.id == **id)) {
        bail!("no driver {unknown} in fixtures/drivers/src");
    }
    sources.retain(|source| ids.is_empty() || ids.contains(&source.id));
    Ok(sources)
}

pub(crate) fn folder() -> PathBuf {
    root().join("fixtures/drivers")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_every_code_it_fits() {
        let codes = masked(0xffff_3ffc, 0x22_2000);
        assert_eq!(codes.len(), 16);
        assert!(codes.iter().all(|code| code & 0xffff_3ffc == 0x22_2000));
        assert_eq!(masked(u32::MAX, 5), [5]);
    }

    #[test]
    fn every_source_says_what_its_oracle_needs() {
        let sources = all(&[]).unwrap();
        assert!(sources.len() > 30, "{}", sources.len());
        for source in &sources {
            let row = &source.row;
            let knows = !row.accepted.is_empty() && row.default != 0;
            assert!(source.oracle == Oracle::None || knows, "{}", source.path.display());
        }
        let sizes = sources.iter().find(|source| source.id == "d07").unwrap();
        assert_eq!(sizes.row.refused, BTreeMap::from([(0x22_2008, 0xc000_0022)]));
        assert!(sizes.wine && sizes.lengths.len() == 4);
        assert!(all(&["d99".to_owned()]).is_err());
    }

    #[test]
    fn comments_speak_until_the_code_begins() {
        assert_eq!(directive("// codes: 0x1 0x2"), Some(Some(("codes", vec!["0x1", "0x2"]))));
        assert_eq!(directive("# x86_only: 0x1"), Some(Some(("x86_only", vec!["0x1"]))));
        assert_eq!(directive("// D01: prose"), Some(None));
        assert_eq!(directive("int x;"), None);
    }
}
