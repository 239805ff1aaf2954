//! What the mapped drivers answer to every code: `driver-harness`, two at a time, its answers kept by
//! the image's and the harness's own hash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::source::{Oracle, Source, Variant, number};
use crate::process::{cargo, output, root};

/// The statuses a build answered, of codes that did not get the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// All 2^32 codes were tried, not only those of the named device types.
    pub(crate) whole: bool,
    pub(crate) default: u32,
    /// Each code's statuses, one for every pair of lengths that was tried and got another than the default.
    pub(crate) statuses: BTreeMap<u32, Vec<u32>>,
}

impl Swept {
    pub(crate) fn accepted(&self) -> impl Iterator<Item = u32> {
        self.with(|status| status >> 30 != 3)
    }

    fn with(&self, wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        self.statuses
            .iter()
            .filter(move |(_, statuses)| statuses.iter().any(|&status| wanted(status)))
            .map(|(&code, _)| code)
    }

    fn read(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let (first, second) = line.split_once(' ').with_context(|| format!("not a pair: {line}"))?;
            let status = number(second)?;
            match first {
                "default" if self.default == 0 => self.default = status,
                "default" if self.default == status => {}
                "default" => bail!("the default status depends on the lengths"),
                code => self.statuses.entry(number(code)?).or_default().push(status),
            }
        }
        Ok(())
    }
}

/// Builds the harness; the program.
pub(crate) fn build() -> Result<PathBuf> {
    crate::process::run(cargo().args(["build", "--quiet", "--locked", "-p", "driver-harness"]))?;
    Ok(root().join("target/debug/driver-harness"))
}

/// Whether this machine can run the drivers' code.
pub(crate) fn possible(variant: Variant) -> bool {
    let x64 =
        matches!(variant, Variant::X64GccO0 | Variant::X64GccO2 | Variant::X64GccOs | Variant::X64Clang);
    x64 && cfg!(all(unix, target_arch = "x86_64"))
}

/// The answers of one build of one driver, for a driver with an oracle to run.
pub(crate) fn run(harness: &Path, source: &Source, image: &Path, fresh: bool) -> Result<Swept> {
    const MOST_TYPES: usize = 64;
    let types = device_types(source);
    let whole = source.oracle == Oracle::Sweep || types.len() > MOST_TYPES;
    let mut swept = Swept { whole, ..Swept::default() };
    let kept = kept(harness, source, image)?;
    if let Some(text) = std::fs::read_to_string(&kept).ok().filter(|_| !fresh) {
        swept.read(&text)?;
        return Ok(swept);
    }
    let of_types: Vec<(u32, u32)> = types.iter().map(|&kind| (kind << 16, kind << 16 | 0xffff)).collect();
    let mut text = String::new();
    for &(first, last) in if whole { &[(0, u32::MAX)][..] } else { &of_types } {
        text += &one(harness, image, first, last, (32, 32))?;
    }
    for &lengths in &source.lengths {
        for &(first, last) in &of_types {
            text += &one(harness, image, first, last, lengths)?;
        }
    }
    swept.read(&text)?;
    if let Some(folder) = kept.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(kept, text)?;
    Ok(swept)
}

/// The device types the row names, and the drivers' own.
pub(crate) fn device_types(source: &Source) -> Vec<u32> {
    let row = &source.row;
    let codes = row.accepted.iter().chain(row.refused.keys()).chain(&row.unproved);
    let mut types: Vec<u32> = codes.map(|code| code >> 16).chain([0x22]).collect();
    types.sort_unstable();
    types.dedup();
    types
}

fn one(harness: &Path, image: &Path, first: u32, last: u32, lengths: (u32, u32)) -> Result<String> {
    output(
        Command::new(harness)
            .arg(image)
            .args(["--first", &first.to_string(), "--last", &last.to_string()])
            .args(["--input", &lengths.0.to_string(), "--output", &lengths.1.to_string()]),
    )
}

/// Where the answers about this image are kept: same image, same harness, same question, same answer.
fn kept(harness: &Path, source: &Source, image: &Path) -> Result<PathBuf> {
    let mut key = fnv(&std::fs::read(image).with_context(|| image.display().to_string())?, FNV);
    key = fnv(&std::fs::read(harness)?, key);
    key = fnv(format!("{:?} {:?} {:?}", source.oracle, source.lengths, device_types(source)).as_bytes(), key);
    Ok(root().join("target/drivers/swept").join(format!("{}-{key:032x}", source.id)))
}

const FNV: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

/// FNV-1a, 128 bits: nobody attacks this file name.
fn fnv(bytes: &[u8], start: u128) -> u128 {
    bytes.iter().fold(start, |hash, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
