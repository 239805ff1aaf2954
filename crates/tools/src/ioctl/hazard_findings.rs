//! The findings of `driver_hazards`: data flow from what a caller controls to where it matters.

use analysis_driver::{AceKind, DaclState, DeviceSecurity, Offline, is_offline};
use analysis_ioctl::map::{MapRequest, location, map_entry};
use analysis_ioctl::taint::{Class, Finding, cases, find};
use code_flow::{CodeImage, CodeLocation, SectionState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Code, Rva};

use crate::error::ToolError;
use crate::ioctl::control_entries::discovered;
use crate::location::evaluate;
use crate::tool::Job;

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Confidence {
    Observed,
    Likely,
}

/// A check on the way that does not prevent the finding.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Guard {
    /// `bound`, `probe`, `access_check`, `callee`.
    kind: String,
    at: Rva,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FindingRow {
    class: String,
    /// Absent for what is no instruction (`unguarded_device`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<CodeLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<CodeLocation>,
    codes: Vec<Code>,
    source: String,
    sink: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<Guard>,
    /// In a `__try`. Absent: not read on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seh_covered: Option<bool>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    overflowable: bool,
    confidence: Confidence,
    explanation: String,
}

/// How much was walked.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct FindingsCoverage {
    entries: usize,
    cases: usize,
    functions: usize,
    skipped: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    caps: Vec<String>,
}

/// The section: its state, why it is not whole, and what was found.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Findings {
    pub status: SectionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    rows: Vec<FindingRow>,
    coverage: FindingsCoverage,
}

impl Findings {
    /// Classes of the findings about a code.
    pub(crate) fn classes_of(&self, code: Code) -> Vec<String> {
        let of = self.rows.iter().filter(|row| row.codes.contains(&code));
        let mut classes: Vec<String> = of.map(|row| row.class.clone()).collect();
        classes.sort();
        classes.dedup();
        classes
    }

    pub(crate) fn text(&self) -> String {
        let mut text = match &self.note {
            Some(note) => format!("Findings: {} ({note})", self.rows.len()),
            None => format!("Findings: {}", self.rows.len()),
        };
        for row in &self.rows {
            let at = row.at.as_ref().map(CodeLocation::describe).unwrap_or_default();
            let codes: Vec<String> = row.codes.iter().take(8).map(ToString::to_string).collect();
            text.push_str(&format!(
                "\n  {} {at} ({}) {}: {}",
                row.class,
                row.sink,
                codes.join(" "),
                row.explanation
            ));
        }
        text
    }
}

/// Findings from the routine given, or from those DriverEntry installs.
pub(crate) fn findings(
    job: &Job<'_>,
    image: &CodeImage<'_>,
    dispatch: Option<&str>,
) -> Result<Findings, ToolError> {
    let given = dispatch.map(|text| evaluate(job.target, text, job.halt)).transpose()?;
    let found = discovered(job, image)?;
    let requests: Vec<MapRequest> = match given {
        Some(address) => {
            let known = found.requests.into_iter().find(|request| request.entry == address);
            vec![known.unwrap_or_else(|| MapRequest::at(address))]
        }
        None => found.requests,
    };
    let mut out = Findings {
        status: SectionState::Ok,
        note: None,
        rows: Vec::new(),
        coverage: FindingsCoverage::default(),
    };
    if requests.is_empty() {
        out.status = SectionState::Unavailable;
        out.note = Some("no routine for control codes is known; give dispatch".to_owned());
        return Ok(out);
    }
    for request in requests {
        let request = MapRequest { verify: false, max_codes: 4096, ..request };
        let mapped = map_entry(image, &request, job.halt);
        if !mapped.map.complete {
            out.partial("the control codes of a routine are not all known");
        }
        let cases = cases(&mapped.map);
        let walked = find(image, &mapped.question, &cases, job.halt);
        if walked.stopped {
            out.partial("time ran out");
        }
        out.coverage.entries += 1;
        out.coverage.cases += cases.len();
        out.coverage.functions += walked.functions.len();
        out.coverage.skipped += walked.skipped.len();
        for cap in walked.caps {
            out.partial("a bound was hit");
            out.coverage.caps.push(cap.to_owned());
        }
        let framework = mapped.question.convention.is_framework();
        out.rows.extend(walked.findings.iter().map(|finding| row(image, finding, framework)));
    }
    if is_offline(job.target) {
        let offline = Offline::of(job.target, job.halt)?;
        out.rows.extend(offline.gates(false).iter().filter_map(unguarded));
    }
    Ok(out)
}

/// Everyone.
const EVERYONE: &str = "S-1-1-0";

/// A device whose descriptor lets anybody write, or that was made without one.
fn unguarded(gate: &DeviceSecurity) -> Option<FindingRow> {
    let (source, confidence, explanation) = match &gate.security {
        Some(descriptor) => {
            let open = match descriptor.dacl_state {
                DaclState::Absent => "has no DACL: anybody may open it",
                DaclState::Null => "has a null DACL: anybody may open it",
                DaclState::Empty => return None,
                DaclState::Present => {
                    let entries =
                        descriptor.dacl.as_ref().map(|acl| acl.entries.as_slice()).unwrap_or_default();
                    let everyone =
                        entries.iter().find(|ace| ace.sid.as_deref() == Some(EVERYONE) && ace.applies);
                    everyone.filter(|ace| ace.kind == AceKind::Allow && ace.writes)?;
                    "lets Everyone write"
                }
            };
            ("security_descriptor", Confidence::Observed, format!("the device {open}"))
        }
        None if gate.security_absent.is_some() => (
            "device_creation",
            Confidence::Likely,
            "the device was made without a descriptor: type default applies, not evaluated".to_owned(),
        ),
        None => return None,
    };
    Some(FindingRow {
        class: "unguarded_device".to_owned(),
        at: None,
        function: None,
        codes: Vec::new(),
        source: source.to_owned(),
        sink: gate.device.clone(),
        guards: Vec::new(),
        seh_covered: None,
        overflowable: false,
        confidence,
        explanation,
    })
}

impl Findings {
    fn partial(&mut self, note: &str) {
        self.status = SectionState::Partial;
        self.note.get_or_insert_with(|| note.to_owned());
    }
}

fn row(image: &CodeImage<'_>, finding: &Finding, framework: bool) -> FindingRow {
    let unsure = finding.guards.iter().any(|(_, kind)| *kind == "callee")
        || finding.class == Class::AnyAccessSensitive
        // Another callback may have checked the lengths before.
        || framework && finding.class == Class::HeaderLengthConfusion;
    FindingRow {
        class: finding.class.name().to_owned(),
        at: Some(location(image, finding.at)),
        function: Some(location(image, finding.function)),
        codes: finding.codes.iter().map(|code| Code(*code)).collect(),
        source: finding.source.to_owned(),
        sink: finding.sink.clone(),
        guards: finding
            .guards
            .iter()
            .map(|(at, kind)| Guard { kind: (*kind).to_owned(), at: Rva(at.wrapping_sub(image.base)) })
            .collect(),
        seh_covered: finding.seh_covered,
        overflowable: finding.overflowable,
        confidence: if unsure { Confidence::Likely } else { Confidence::Observed },
        explanation: finding.class.explanation().to_owned(),
    }
}
