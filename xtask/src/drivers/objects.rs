//! Devices and links of a driver: what its source says it makes, and what the served `driver_surface`
//! says it makes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::source::number;

/// A device: its name, and what is known of it by `type`, `characteristics`, `exclusive`, `sddl`.
pub(crate) type Device = (String, BTreeMap<&'static str, String>);

const FIELDS: [&str; 4] = ["type", "characteristics", "exclusive", "sddl"];

/// What DriverEntry makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) devices: Vec<Device>,
    /// Path and target.
    pub(crate) links: Vec<(String, String)>,
}

/// `NAME key=value …`.
pub(crate) fn device(words: &[&str]) -> Result<Device> {
    let (name, fields) = words.split_first().context("device: a name")?;
    let mut known = BTreeMap::new();
    for field in fields {
        let (key, value) = field.split_once('=').with_context(|| format!("no value: {field}"))?;
        let key = FIELDS.into_iter().find(|known| *known == key).with_context(|| format!("device: {key}"))?;
        known.insert(key, value.to_owned());
    }
    Ok(((*name).to_owned(), known))
}

/// Asks `program`, a built windbg-mcp.
pub(crate) fn ask(program: &Path, image: &Path) -> Result<Objects> {
    let output = Command::new(program)
        .args(["call", "driver_surface", "sections=[\"devices\"]", "--structured", "--dump"])
        .arg(image)
        .output()
        .with_context(|| program.display().to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("driver_surface: {}", said.lines().next().unwrap_or("no answer"));
    }
    read(&serde_json::from_slice(&output.stdout)?)
}

fn read(answer: &Value) -> Result<Objects> {
    let mut out = Objects::default();
    let rows = answer["devices"].as_array().context("driver_surface: no devices")?;
    for row in rows {
        let text = |field: &str| row[field].as_str().map(ToOwned::to_owned);
        let word = |field: &str| -> Result<String> {
            Ok(format!("{:#x}", number(&text(field).with_context(|| format!("no {field} in {row}"))?)?))
        };
        let mut known = BTreeMap::from([
            ("type", word("device_type")?),
            ("characteristics", word("characteristics")?),
            ("exclusive", if row["exclusive"] == true { "yes" } else { "no" }.to_owned()),
        ]);
        known.extend(row.get("security").map(|security| ("sddl", sddl(security))));
        out.devices.push((text("device").context("a device has a name")?, known));
        for link in row["links"].as_array().map_or(&[][..], Vec::as_slice) {
            let end =
                |field: &str| link[field].as_str().map(ToOwned::to_owned).context("a link has two ends");
            out.links.push((end("path")?, end("target")?));
        }
    }
    out.links.sort();
    Ok(out)
}

/// The DACL in the words the sources use.
fn sddl(security: &Value) -> String {
    let control = security["control"].as_str().and_then(|word| number(word).ok()).unwrap_or(0);
    let mut text = if control & 0x1000 == 0 { "D:" } else { "D:P" }.to_owned();
    for entry in security["dacl"]["entries"].as_array().map_or(&[][..], Vec::as_slice) {
        let kind = if entry["kind"] == "allow" { "A" } else { "?" };
        let mask = entry["mask"].as_str().and_then(|word| number(word).ok()).unwrap_or(0);
        let names = [(0x1000_0000, "GA"), (0x8000_0000, "GR"), (0x4000_0000, "GW"), (0x2000_0000, "GX")];
        let rights: String = names.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name).collect();
        let rest = mask & 0x0fff_ffff;
        let rights = if rest == 0 { rights } else { format!("{mask:#x}") };
        let who = match entry["sid"].as_str().unwrap_or_default() {
            "S-1-5-18" => "SY",
            "S-1-5-32-544" => "BA",
            "S-1-1-0" => "WD",
            sid => sid,
        };
        text.push_str(&format!("({kind};;{rights};;;{who})"));
    }
    text
}

/// How what is said differs from the source's lines; a source without any says nothing.
pub(crate) fn against(wanted: &Objects, found: &Objects) -> Option<String> {
    let names = |all: &[Device]| -> Vec<String> { all.iter().map(|(name, _)| name.clone()).collect() };
    let (have, want) = (names(&found.devices), names(&wanted.devices));
    if have != want {
        return Some(format!("driver_surface: devices {have:?}, not {want:?}"));
    }
    for ((name, want), (_, have)) in wanted.devices.iter().zip(&found.devices) {
        for (field, value) in want {
            if have.get(field) != Some(value) {
                return Some(format!("driver_surface: {name}: {field} {:?}, not {value}", have.get(field)));
            }
        }
        // Full lines say all there is: a descriptor nobody gave is one too many.
        if want.contains_key("type") && have.contains_key("sddl") != want.contains_key("sddl") {
            return Some(format!("driver_surface: {name}: sddl {:?}", have.get("sddl")));
        }
    }
    let mut links = wanted.links.clone();
    links.sort();
    (links != found.links).then(|| format!("driver_surface: links {:?}, not {links:?}", found.links))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_device_a_field_and_a_link_that_differ_are_said() {
        let answer = json!({ "devices": [{
            "device": "\\Device\\X", "device_type": "0x00000022", "characteristics": "0x00000100",
            "exclusive": false, "links": [{ "path": "\\DosDevices\\X", "target": "\\Device\\X" }],
            "security": { "control": "0x00009004", "dacl": { "entries": [
                { "kind": "allow", "mask": "0xc0000000", "sid": "S-1-5-32-544" }] } },
        }] });
        let found = read(&answer).unwrap();
        let line =
            ["\\Device\\X", "type=0x22", "characteristics=0x100", "exclusive=no", "sddl=D:P(A;;GRGW;;;BA)"];
        let links = vec![("\\DosDevices\\X".to_owned(), "\\Device\\X".to_owned())];
        let wanted = Objects { devices: vec![device(&line).unwrap()], links };
        assert_eq!(against(&wanted, &found), None);
        for part in 1..line.len() {
            let mut other = line;
            let broken = format!("{}1", line[part]);
            other[part] = &broken;
            let wanted = Objects { devices: vec![device(&other).unwrap()], ..wanted.clone() };
            assert!(against(&wanted, &found).is_some(), "{broken}");
        }
        let bare = Objects { devices: vec![device(&line[..4]).unwrap()], ..wanted.clone() };
        assert!(against(&bare, &found).is_some(), "a descriptor nobody gave");
        assert!(against(&Objects { links: Vec::new(), ..wanted.clone() }, &found).is_some());
        assert!(against(&Objects { devices: Vec::new(), ..wanted }, &found).is_some());
        assert!(device(&["\\Device\\X", "colour=red"]).is_err());
    }
}
