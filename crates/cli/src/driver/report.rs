//! One driver for a person: a sentence, then the gates, the codes, what they lead to, the file.

use serde_json::Value;

use super::answer::CodeRow;
use super::export::sizes;
use super::surface::{Device, Surfaced};
use crate::report::Report;
use crate::style::{Style, plain};

/// The report.
pub(crate) fn full(driver: &Surfaced, style: Style) -> String {
    let mut report = Report { style, lines: Vec::new() };
    report.lines.push(style.dim(&plain(&crate::output::shown_path(&driver.path).display().to_string())));
    for line in style.wrapped(&plain(&sentence(driver)), 0) {
        report.lines.push(style.bold(&line));
    }
    report.lines.push(String::new());
    gates(&mut report, driver);
    routines(&mut report, driver);
    file(&mut report, driver);
    codes(&mut report, driver);
    findings(&mut report, driver);
    sections(&mut report, driver);
    report.lines.push(String::new());
    report.lines.join("\n")
}

fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// What the driver is and who can make it do what.
pub(crate) fn sentence(driver: &Surfaced) -> String {
    let arch = driver.opened["summary"]["arch"].as_str().unwrap_or("an unknown machine");
    let accepted = driver.accepted();
    let total = driver.accepted_count();
    let start = format!("{} for {arch} accepts {}", driver.name(), counted(total, "control code"));
    if total == 0 {
        return format!("{start}.");
    }
    let known: Vec<(&&CodeRow, bool)> =
        accepted.values().filter_map(|row| Some((row, driver.is_open(&row.code)?))).collect();
    let about: Vec<&CodeRow> = match known.is_empty() {
        true => accepted.values().copied().collect(),
        false => known.iter().filter(|(_, open)| *open).map(|(row, _)| **row).collect(),
    };
    let who = match (known.is_empty(), about.len()) {
        (true, _) => "who may send them is not known".to_owned(),
        (false, 0) => return format!("{start}; an ordinary user can send none of them."),
        (false, 1) if total == 1 => "an ordinary user can send it".to_owned(),
        (false, open) if open == total => "an ordinary user can send all of them".to_owned(),
        (false, open) => format!("an ordinary user can send {open} of them"),
    };
    let findings = about.iter().filter(|row| driver.has_findings(&row.code)).count();
    let sinks = about.iter().filter(|row| !driver.dangers(&row.code).is_empty()).count();
    let mut parts = vec![who];
    if findings > 0 {
        parts.push(format!("{findings} with findings"));
    }
    if sinks > 0 {
        parts.push(format!("{sinks} leading to sensitive routines"));
    }
    format!("{start}; {}.", parts.join(", "))
}

fn gates(report: &mut Report, driver: &Surfaced) {
    for device in &driver.devices {
        let mut words = vec![device.device.clone().unwrap_or_else(|| "(no name)".to_owned())];
        words.extend(device.links.iter().map(|link| format!("linked as {}", link.path)));
        if device.exclusive {
            words.push("exclusive".to_owned());
        }
        if !device.secure_open {
            words
                .push("not FILE_DEVICE_SECURE_OPEN: the descriptor does not guard names below it".to_owned());
        }
        report.add("Device", words.join(", "));
        report.add("", opened_by(device));
    }
}

/// Who may open a device, and for what.
fn opened_by(device: &Device) -> String {
    let Some(model) = &device.access_model else {
        return match &device.security_absent {
            Some(absent) => format!("who may open it: {}", absent.reason),
            None => "who may open it is not known".to_owned(),
        };
    };
    let word = |name: &str, verdict: &str| match verdict {
        "yes" => Some(name.to_owned()),
        "maybe" => Some(format!("{name} (maybe)")),
        _ => None,
    };
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for token in &model.tokens {
        let mut can: Vec<String> =
            [word("read", &token.reads), word("write", &token.writes)].into_iter().flatten().collect();
        if can.is_empty() && !token.delivers.is_empty() {
            can.push("open".to_owned());
        }
        let can = if can.is_empty() { "nothing".to_owned() } else { can.join(" and ") };
        let name = token.token.replace('_', " ");
        match groups.iter_mut().find(|(other, _)| *other == can) {
            Some((_, names)) => names.push(name),
            None => groups.push((can, vec![name])),
        }
    }
    let groups: Vec<String> =
        groups.iter().map(|(can, names)| format!("{}: {can}", names.join(", "))).collect();
    groups.join("; ")
}

fn routines(report: &mut Report, driver: &Surfaced) {
    for map in &driver.maps {
        let more = match (map.complete, map.unresolved_count + map.untracked_count) {
            (true, _) => "complete".to_owned(),
            (false, 0) => "not complete".to_owned(),
            (false, n) => format!("not complete: {} not followed", counted(n, "decision")),
        };
        let codes = counted(map.code_count, "code");
        report.add("Routine", format!("{} ({}): {codes}, {more}", map.dispatch.name(), map.convention));
        for pattern in map.patterns.iter().filter(|pattern| !pattern.listed) {
            let text = format!(
                "every code with {} in {}: {}",
                pattern.value,
                pattern.mask,
                counted(pattern.count as usize, "code")
            );
            report.add("", text);
        }
    }
}

/// What the opener says of the file itself.
fn file(report: &mut Report, driver: &Surfaced) {
    let image = driver.image();
    let text = |key: &str| image[key].as_str().map(ToOwned::to_owned);
    for (label, key, what) in
        [("SHA-256", "sha256", ""), ("Digest", "authenticode", " (Authenticode)"), ("Imphash", "imphash", "")]
    {
        if let Some(value) = text(key) {
            report.add_whole(label, &format!("{value}{what}"));
        }
    }
    report.maybe("Version", version(&image["version"]));
    report.maybe("Signer", signer(&image["signature"]));
}

fn version(version: &Value) -> Option<String> {
    let words: Vec<&str> = ["product_name", "file_description", "company_name", "file_version"]
        .iter()
        .filter_map(|key| version[key].as_str())
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn signer(signature: &Value) -> Option<String> {
    let name = signature["signers"][0]["subject"].as_str().or_else(|| signature["signer"].as_str())?;
    let digest = match signature["digest_matches"].as_bool() {
        Some(true) => "the digest is this file's, ",
        Some(false) => "the digest is not this file's, ",
        None => "",
    };
    Some(format!("{name} ({digest}the certificate is not verified)"))
}

fn codes(report: &mut Report, driver: &Surfaced) {
    let accepted = driver.accepted();
    if accepted.is_empty() {
        return;
    }
    const LISTED: usize = 200;
    report.heading("Control codes");
    let rows: Vec<[String; 6]> = accepted.values().take(LISTED).map(|row| cells(driver, row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in &rows {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            line += &format!(" {cell:<width$} ");
        }
        report.lines.push(plain(line.trim_end()));
    }
    let total = driver.accepted_count();
    if total > rows.len() {
        report.lines.push(format!("  and {} more", total - rows.len()));
    }
}

/// Code, method, access, lengths, handler, and what makes it interesting.
fn cells(driver: &Surfaced, row: &CodeRow) -> [String; 6] {
    let handler = row.handler.as_ref().map(|place| place.name()).unwrap_or_default();
    let mut notes = Vec::new();
    if driver.is_open(&row.code) == Some(true) {
        notes.push("any user".to_owned());
    }
    if let Some(joined) = driver.joined.get(&row.code) {
        notes.extend(joined.findings.iter().cloned());
    }
    let dangers: Vec<&str> = driver.dangers(&row.code).into_iter().collect();
    if !dangers.is_empty() {
        notes.push(format!("reaches {}", dangers.join(", ")));
    }
    [row.code.clone(), row.method.clone(), row.required_access.clone(), sizes(row), handler, notes.join("; ")]
}

fn findings(report: &mut Report, driver: &Surfaced) {
    if driver.findings.is_empty() {
        return;
    }
    report.heading("Findings");
    for finding in &driver.findings {
        let codes: String = finding.codes.iter().map(|code| format!(" {code}")).collect();
        let place = match &finding.at {
            Some(at) => format!(" at {}", at.name()),
            None => format!(" of {}", finding.sink),
        };
        let text = format!("  {}{codes}{place} ({})", finding.class, finding.confidence);
        report.lines.push(plain(&text));
        for line in report.style.wrapped(&plain(&finding.explanation), 4) {
            report.lines.push(format!("    {line}"));
        }
    }
}

/// What a section did not get to say.
fn sections(report: &mut Report, driver: &Surfaced) {
    let mut notes = Vec::new();
    for name in ["dispatch", "devices", "ioctl", "hazards", "join"] {
        let section = &driver.surface["sections"][name];
        if let (Some(status), note) = (section["status"].as_str(), section["note"].as_str())
            && status != "ok"
        {
            notes.push(format!(
                "{name}: {status}{}",
                note.map(|note| format!(", {note}")).unwrap_or_default()
            ));
        }
    }
    if !notes.is_empty() {
        report.heading("Not seen");
        for note in notes {
            for line in report.style.wrapped(&plain(&note), 2) {
                report.lines.push(format!("  {line}"));
            }
        }
    }
}
