//! Planted faults: what the served `driver_hazards` finds of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::source::number;

/// A class of finding and the code it is about; `None` is about a device.
pub(crate) type Fault = (String, Option<u32>);

/// What `program`, a built windbg-mcp, finds in the image, each finding once for every code it names.
pub(crate) fn ask(program: &Path, image: &Path) -> Result<Vec<Fault>> {
    let output = Command::new(program)
        .args(["call", "driver_hazards", "sections=[\"findings\"]", "--structured", "--dump"])
        .arg(image)
        .output()
        .with_context(|| program.display().to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("driver_hazards: {}", said.lines().next().unwrap_or("no answer"));
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let section = &answer["findings"];
    let Some(rows) = section["rows"].as_array() else {
        bail!("driver_hazards: no findings: {}", section["note"].as_str().unwrap_or("unserved"))
    };
    let mut found = Vec::new();
    for row in rows {
        let class = row["class"].as_str().context("a finding has a class")?;
        let codes = row["codes"].as_array().map_or(&[][..], Vec::as_slice);
        for code in codes {
            found.push((class.to_owned(), Some(number(code.as_str().context("a code is text")?)?)));
        }
        if codes.is_empty() {
            found.push((class.to_owned(), None));
        }
    }
    Ok(found)
}

/// How the findings differ from what was planted. Where scope tables are not read, a class that needs
/// them may be missing.
pub(crate) fn against(planted: &[Fault], found: &[Fault], whole: bool) -> Option<String> {
    let name = |(class, code): &Fault| match code {
        Some(code) => format!("{class} {code:#010x}"),
        None => class.clone(),
    };
    let wanted: BTreeSet<&Fault> = planted.iter().collect();
    if let Some(extra) = found.iter().find(|fault| !wanted.contains(fault)) {
        return Some(format!("driver_hazards: {} was not planted", name(extra)));
    }
    let seen: BTreeSet<&Fault> = found.iter().collect();
    if seen.len() != found.len() {
        return Some("driver_hazards: a fault is found twice".to_owned());
    }
    let missing = wanted.iter().find(|fault| !seen.contains(**fault))?;
    whole.then(|| format!("driver_hazards: {} is not found", name(missing)))
}
