//! A driver's surface as a report reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::answer::{Map, rows};

/// A device DriverEntry makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Device {
    /// `\Device\Name`.
    pub(crate) device: Option<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) secure_open: bool,
    pub(crate) exclusive: bool,
    pub(crate) access_model: Option<Model>,
    pub(crate) security_absent: Option<Absent>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Link {
    pub(crate) path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Absent {
    pub(crate) kind: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    pub(crate) tokens: Vec<Token>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    pub(crate) token: String,
    pub(crate) reads: String,
    pub(crate) writes: String,
    pub(crate) delivers: Vec<String>,
}

/// What an accepted code leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Joined {
    pub(crate) code: String,
    pub(crate) reaches: Vec<Reach>,
    pub(crate) privileged: Vec<Privileged>,
    pub(crate) findings: Vec<String>,
    /// Absent: no descriptor was read.
    pub(crate) deliverable_to: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Privileged {
    pub(crate) kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Reach {
    pub(crate) sink: String,
    pub(crate) kind: String,
}

/// A finding of the data flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Finding {
    pub(crate) class: String,
    /// Absent: it is about `sink`, a device.
    pub(crate) at: Option<super::answer::Place>,
    pub(crate) sink: String,
    pub(crate) codes: Vec<String>,
    pub(crate) confidence: String,
    pub(crate) explanation: String,
}

/// One driver's answers.
#[derive(Debug, Default)]
pub(crate) struct Surfaced {
    pub(crate) path: PathBuf,
    /// What `open_dump` answered.
    pub(crate) opened: Value,
    /// What `driver_surface` answered.
    pub(crate) surface: Value,
    pub(crate) devices: Vec<Device>,
    pub(crate) maps: Vec<Map>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) joined: BTreeMap<String, Joined>,
}

impl Surfaced {
    pub(crate) fn of(path: PathBuf, opened: Value, surface: Value) -> Self {
        let joined: Vec<Joined> = rows(&surface["join"]["codes"]);
        Self {
            devices: rows(&surface["devices"]),
            maps: rows(&surface["ioctl"]),
            findings: rows(&surface["hazards"]["findings"]["rows"]),
            joined: joined.into_iter().map(|row| (row.code.clone(), row)).collect(),
            path,
            opened,
            surface,
        }
    }

    pub(crate) fn sha256(&self) -> Option<&str> {
        self.image()["sha256"].as_str()
    }

    /// What the opener says of the file.
    pub(crate) fn image(&self) -> &Value {
        &self.opened["summary"]["image"]
    }

    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Codes of all maps, once each, that are not refused on every path.
    pub(crate) fn accepted(&self) -> BTreeMap<u32, &super::answer::CodeRow> {
        let all = self.maps.iter().flat_map(|map| &map.codes);
        all.filter(|row| row.accepted != Some(false) && !row.is_unproved())
            .map(|row| (row.number(), row))
            .collect()
    }

    /// How many codes the driver accepts: lists are capped, counts are not.
    pub(crate) fn accepted_count(&self) -> usize {
        let listed: usize = self.maps.iter().map(|map| map.codes.len()).sum();
        let counted: usize = self.maps.iter().map(|map| map.code_count).sum();
        self.accepted().len() + counted.saturating_sub(listed)
    }

    /// Whether findings are about the code.
    pub(crate) fn has_findings(&self, code: &str) -> bool {
        self.joined.get(code).is_some_and(|row| !row.findings.is_empty())
    }

    /// Whether an ordinary user can have the code delivered; `None` where no descriptor was read.
    pub(crate) fn is_open(&self, code: &str) -> Option<bool> {
        let tokens = self.joined.get(code)?.deliverable_to.as_ref()?;
        Some(tokens.iter().any(|who| who == STANDARD_USER))
    }

    /// What the code leads to that matters: sinks, guards left out, and privileged instructions.
    pub(crate) fn dangers(&self, code: &str) -> BTreeSet<&str> {
        let Some(row) = self.joined.get(code) else { return BTreeSet::new() };
        let sinks = row.reaches.iter().filter(|reach| !GUARDS.contains(&reach.kind.as_str()));
        let privileged = row.privileged.iter().map(|privileged| privileged.kind.as_str());
        sinks.map(|reach| reach.sink.as_str()).chain(privileged).collect()
    }
}

/// Kinds of sinks that guard rather than harm.
const GUARDS: [&str; 3] = ["user_pointer_guard", "arithmetic_guard", "access_check"];

/// The token of an ordinary user in the access model.
pub(crate) const STANDARD_USER: &str = "standard_user";
