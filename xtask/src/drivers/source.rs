//! What a driver's source says about itself in its first lines: `// key: words`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

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

/// One driver: a source file and what it says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `d01`, the built file's stem.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    pub(crate) variants: Vec<Variant>,
    /// The PDB of its clang x64 build is committed too.
    pub(crate) keeps_pdb: bool,
}

impl Source {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().and_then(|s| s.to_str()).context("a source has a name")?;
        let id = stem.split('_').next().unwrap_or(stem).to_owned();
        let assembly = path.extension().is_some_and(|e| e == "s");
        let mut source = Self {
            id,
            path: path.to_owned(),
            variants: if assembly { vec![Variant::X64Clang] } else { Variant::ALL.to_vec() },
            keeps_pdb: false,
        };
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
            _ => {}
        }
        Ok(())
    }
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
        key.bytes().all(|b| b.is_ascii_lowercase()).then(|| (key, words.split_whitespace().collect()))
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
