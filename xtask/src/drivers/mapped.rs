//! What the served `ioctl_map` says of an image, through the program an agent would run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::source::{masked, number};

/// A pattern with more codes than this is compared as a pattern only.
const LISTABLE: u64 = 1 << 17;

/// The tool's answer as far as the table compares it, of all maps of the image together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    /// Proved and not refused whatever the lengths.
    pub(crate) accepted: BTreeSet<u32>,
    pub(crate) refused: BTreeMap<u32, Option<u32>>,
    /// What the map of the fast-I/O routine lists; its codes are in no other field.
    pub(crate) fast_io: BTreeSet<u32>,
    pub(crate) unproved: BTreeSet<u32>,
    pub(crate) complete: bool,
    pub(crate) code_proved: bool,
    pub(crate) unresolved: bool,
    pub(crate) code_count: u64,
    pub(crate) took: Duration,
}

/// Asks `program`, a built windbg-mcp.
pub(crate) fn ask(program: &Path, image: &Path) -> Result<Mapped> {
    let started = Instant::now();
    let output = Command::new(program)
        .args(["call", "ioctl_map", "--structured", "--dump"])
        .arg(image)
        .output()
        .with_context(|| program.display().to_string())?;
    let took = started.elapsed();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ioctl_map: {}", said.lines().next().unwrap_or("no answer"));
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let mut mapped = Mapped { complete: true, code_proved: true, took, ..Mapped::default() };
    // The first routine's map is the answer itself; the others' stand beside it.
    mapped.add(&answer)?;
    for map in answer["maps"].as_array().map_or(&[][..], Vec::as_slice) {
        mapped.add(map)?;
    }
    Ok(mapped)
}

impl Mapped {
    fn add(&mut self, map: &Value) -> Result<()> {
        self.complete &= map["complete"] == true;
        self.code_proved &= map["code_proved"] == true;
        let list = |name: &str| map[name].as_array().map_or(&[][..], Vec::as_slice);
        self.unresolved |= !list("unresolved").is_empty() || !list("untracked").is_empty();
        self.code_count += map["code_count"].as_u64().unwrap_or(0);
        for row in list("codes") {
            let code = code(row, "code")?;
            if map["convention"] == "fast_io" {
                self.fast_io.insert(code);
                continue;
            }
            let sites = row["sites"].as_array().map_or(&[][..], Vec::as_slice);
            if !sites.is_empty() && sites.iter().all(|site| site["proved"] == false) {
                self.unproved.insert(code);
            } else if row["accepted"] == false {
                let status = &row["status"]["value"];
                self.refused.insert(code, status.as_str().and_then(|text| number(text).ok()));
            } else {
                self.accepted.insert(code);
            }
        }
        for pattern in list("patterns") {
            let mask = self::code(pattern, "mask")?;
            if 1_u64 << (!mask).count_ones() <= LISTABLE {
                self.accepted.extend(masked(mask, self::code(pattern, "value")?));
            }
        }
        Ok(())
    }
}

fn code(row: &Value, name: &str) -> Result<u32> {
    number(row[name].as_str().with_context(|| format!("no {name} in {row}"))?)
}
