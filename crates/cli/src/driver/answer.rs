//! The tools' answers about a driver, as far as a report needs them.

use serde::Deserialize;
use serde_json::Value;

/// A place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Place {
    pub(crate) address: String,
    pub(crate) rva: Option<String>,
    pub(crate) symbol: Option<String>,
    pub(crate) displacement: Option<String>,
}

impl Place {
    /// `symbol+0x12`, else the RVA, else the address.
    pub(crate) fn name(&self) -> String {
        match (&self.symbol, &self.displacement, &self.rva) {
            (Some(symbol), Some(more), _) if more != "0x0" => format!("{symbol}+{more}"),
            (Some(symbol), ..) => symbol.clone(),
            (None, _, Some(rva)) => format!("+{rva}"),
            (None, _, None) => self.address.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) value: String,
    pub(crate) name: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SizeRange {
    pub(crate) min: Option<u32>,
    pub(crate) max: Option<u32>,
}

/// A control code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CodeRow {
    pub(crate) code: String,
    pub(crate) device_type: u32,
    pub(crate) function: u32,
    pub(crate) method: String,
    pub(crate) required_access: String,
    pub(crate) case_rva: Option<String>,
    pub(crate) handler: Option<Place>,
    pub(crate) accepted: Option<bool>,
    pub(crate) status: Option<Status>,
    pub(crate) in_size: Option<u32>,
    pub(crate) out_size: Option<u32>,
    pub(crate) in_range: Option<SizeRange>,
    pub(crate) out_range: Option<SizeRange>,
    pub(crate) sites: Vec<Site>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Site {
    pub(crate) proved: bool,
}

impl CodeRow {
    /// Whether something in the driver is compared with this value, but not provably the caller's code.
    pub(crate) fn is_unproved(&self) -> bool {
        !self.sites.is_empty() && self.sites.iter().all(|site| !site.proved)
    }
    pub(crate) fn number(&self) -> u32 {
        hex(&self.code).unwrap_or(0)
    }
}

/// One routine's codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Map {
    pub(crate) dispatch: Place,
    pub(crate) convention: String,
    pub(crate) codes: Vec<CodeRow>,
    pub(crate) code_count: usize,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) unresolved_count: usize,
    pub(crate) untracked_count: usize,
    pub(crate) complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Pattern {
    pub(crate) mask: String,
    pub(crate) value: String,
    pub(crate) count: u64,
    pub(crate) listed: bool,
}

/// The number of a `0x` string.
pub(crate) fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The rows of a list, those that do not parse left out: a report is not worth failing for one.
pub(crate) fn rows<T: for<'a> Deserialize<'a>>(value: &Value) -> Vec<T> {
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(|row| T::deserialize(row).ok()).collect()
}
