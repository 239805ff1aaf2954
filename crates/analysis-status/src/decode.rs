//! One status value read every way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Code;

/// Which space a number is read in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StatusSpace {
    /// Every reading; the HRESULT/Win32 one leads, then NTSTATUS.
    #[default]
    Auto,
    Hresult,
    /// The NTSTATUS reading leads: right for every exception code.
    Ntstatus,
    Win32,
}

/// Top two bits of an NTSTATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Severity {
    Success,
    Informational,
    Warning,
    Error,
}

/// Where a message text came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum MessageProvenance {
    Builtin,
    Host,
}

/// A code of another space inside an HRESULT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Wraps {
    /// `win32` (facility 7) or `ntstatus` (bit 28).
    pub space: StatusSpace,
    pub value: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// All names of the value, per space; a list may hold several and is absent when empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct StatusNames {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hresult: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ntstatus: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub win32: Vec<String>,
}

/// A status value with every reading of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusInfo {
    pub value: Code,
    /// One line: symbolic name and message, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<String>,
    /// The preferred name in the chosen space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbolic: Option<String>,
    pub names: StatusNames,
    /// Bit 31.
    pub hresult_failed: bool,
    /// The top two bits.
    pub ntstatus_severity: Severity,
    /// HRESULT facility, bits 16..27: with the one that DXGI (0x87a) and its like take, as winerror.h reads it.
    pub facility: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facility_name: Option<String>,
    /// NTSTATUS facility, bits 16..27.
    pub ntstatus_facility: u16,
    /// The low 16 bits.
    pub code: u16,
    /// Bit 29: an application's own code; no table is consulted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub customer_defined: bool,
    /// What raises this customer-defined code, where that is well known (`CLR exception`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind_hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wraps: Option<Wraps>,
    /// HRESULT/Win32 text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntstatus_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_provenance: Option<MessageProvenance>,
}

use crate::messages::{ntstatus_message, system_message};
use crate::tables::{Table, name_of, names_of};

/// FACILITY_WIN32: the low word is a Win32 error.
const FACILITY_WIN32: u16 = 7;
/// The N bit: the rest is an NTSTATUS.
const NTSTATUS_BIT: u32 = 0x1000_0000;
const CUSTOMER_BIT: u32 = 0x2000_0000;

/// Codes of runtimes that are customer-defined and well known all the same.
fn kind_hint(code: u32) -> Option<&'static str> {
    Some(match code {
        0xe06d_7363 => "C++ exception",
        0xe043_4352 => "CLR exception",
        0xe043_4f4d => "CLR exception (before .NET 4)",
        0x2047_4343 => "GCC (MinGW) C++ exception",
        0x2147_4343 => "GCC (MinGW) unwind",
        0x2247_4343 => "GCC (MinGW) forced unwind",

        _ => return None,
    })
}

/// A name for an exception code: NTSTATUS, or what a runtime raises it for.
#[must_use]
pub fn exception_name(code: u32) -> Option<&'static str> {
    match code {
        0x406d_1388 => Some("MS_VC_EXCEPTION (thread name)"),
        0xc06d_007e => Some("delay load: module not found"),
        0xc06d_007f => Some("delay load: procedure not found"),
        0xcfff_ffff => Some("application hang"),
        0x4008_0201 => Some("WinRT originate error"),
        0x4008_0202 => Some("WinRT transform error"),
        _ => kind_hint(code).or_else(|| name_of(Table::Ntstatus, code)),
    }
}

fn owned(names: Vec<&'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn severity(code: u32) -> Severity {
    match code >> 30 {
        0 => Severity::Success,
        1 => Severity::Informational,
        2 => Severity::Warning,
        _ => Severity::Error,
    }
}

fn wraps(code: u32, facility: u16) -> Option<Wraps> {
    if code & CUSTOMER_BIT != 0 {
        return None;
    }
    if code & NTSTATUS_BIT != 0 {
        let value = code & !NTSTATUS_BIT;
        let name = name_of(Table::Ntstatus, value).map(str::to_owned);
        return Some(Wraps { space: StatusSpace::Ntstatus, value: Code(value), name });
    }
    if facility == FACILITY_WIN32 && code & 0x8000_0000 != 0 {
        let value = code & 0xffff;
        let name = name_of(Table::Win32, value).map(str::to_owned);
        return Some(Wraps { space: StatusSpace::Win32, value: Code(value), name });
    }
    None
}

fn hresult_names(code: u32) -> Vec<String> {
    let mut names = owned(names_of(Table::Hresult, code));
    for name in names_of(Table::Cor, code) {
        if !names.iter().any(|n| n == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The preferred name of `info` in `space`.
fn symbolic(info: &StatusInfo, space: StatusSpace) -> Option<String> {
    let hresult = || {
        info.names.hresult.first().cloned().or_else(|| match &info.wraps {
            Some(Wraps { space: StatusSpace::Win32, name: Some(name), .. }) => {
                Some(format!("HRESULT_FROM_WIN32({name})"))
            }
            Some(Wraps { space: StatusSpace::Ntstatus, name: Some(name), .. }) => {
                Some(format!("HRESULT_FROM_NT({name})"))
            }
            _ => None,
        })
    };
    let ntstatus = || {
        info.names.ntstatus.first().cloned().or_else(|| match &info.wraps {
            Some(Wraps { space: StatusSpace::Ntstatus, name, .. }) => name.clone(),
            Some(Wraps { name: Some(name), .. }) => Some(format!("NTSTATUS_FROM_WIN32({name})")),
            _ => None,
        })
    };
    let win32 = || {
        info.names.win32.first().cloned().or_else(|| match &info.wraps {
            Some(Wraps { space: StatusSpace::Win32, name, .. }) => name.clone(),
            _ => None,
        })
    };
    match space {
        StatusSpace::Hresult => hresult(),
        StatusSpace::Ntstatus => ntstatus(),
        StatusSpace::Win32 => win32(),
        // A small positive number is most likely a Win32 error; zero is S_OK.
        StatusSpace::Auto if (1..=0xffff).contains(&info.value.0) => {
            win32().or_else(hresult).or_else(ntstatus)
        }
        StatusSpace::Auto => hresult().or_else(ntstatus).or_else(win32),
    }
}

/// Its message tells of one cause of many: every fast fail raises it.
const STACK_BUFFER_OVERRUN: u32 = 0xc000_0409;

fn best_effort(info: &StatusInfo, space: StatusSpace) -> Option<String> {
    if info.value.0 == STACK_BUFFER_OVERRUN {
        let name = info.symbolic.as_deref().unwrap_or("STATUS_STACK_BUFFER_OVERRUN");
        return Some(format!("{name} - a fast fail; the exception's first parameter says which"));
    }
    let message = match space {
        StatusSpace::Ntstatus => info.ntstatus_message.clone(),
        StatusSpace::Hresult | StatusSpace::Win32 => info.system_message.clone(),
        // The message must be of the space the name is of.
        StatusSpace::Auto => {
            let of_ntstatus = info.symbolic.as_ref().is_some_and(|s| info.names.ntstatus.contains(s));
            let (first, second) = (&info.system_message, &info.ntstatus_message);
            if of_ntstatus {
                second.clone().or_else(|| first.clone())
            } else {
                first.clone().or_else(|| second.clone())
            }
        }
    };
    match (&info.symbolic, message) {
        (Some(name), Some(message)) => Some(format!("{name} - {message}")),
        (Some(name), None) => Some(name.clone()),
        (None, Some(message)) => Some(message),
        (None, None) => info.kind_hint.clone(),
    }
}

/// Reads `code` every way; `space` says which reading leads. With `Ntstatus` the HRESULT reading is
/// left out: for an exception code it would be a wrong, plausible sentence.
#[must_use]
pub fn decode(code: u32, space: StatusSpace) -> StatusInfo {
    let facility = ((code >> 16) & 0xfff) as u16;
    let customer_defined = code & CUSTOMER_BIT != 0;
    let known = !customer_defined;
    let facility_name =
        (known && code & 0x8000_0000 != 0).then(|| name_of(Table::Facility, u32::from(facility))).flatten();
    let mut info = StatusInfo {
        value: Code(code),
        best_effort: None,
        symbolic: None,
        names: StatusNames::default(),
        hresult_failed: code & 0x8000_0000 != 0,
        ntstatus_severity: severity(code),
        facility,
        facility_name: facility_name.map(str::to_owned),
        ntstatus_facility: ((code >> 16) & 0xfff) as u16,
        code: (code & 0xffff) as u16,
        customer_defined,
        kind_hint: kind_hint(code).map(str::to_owned),
        wraps: wraps(code, facility),
        system_message: None,
        ntstatus_message: None,
        message_provenance: None,
    };
    if known {
        info.names.ntstatus = owned(names_of(Table::Ntstatus, code));
        info.ntstatus_message = ntstatus_message(code).map(str::to_owned);
        if space != StatusSpace::Ntstatus {
            info.names.hresult = hresult_names(code);
            info.names.win32 = owned(names_of(Table::Win32, code));
            info.system_message = system_message(code).map(str::to_owned);
        } else {
            info.facility_name = None;
        }
    }
    info.symbolic = symbolic(&info, space);
    info.best_effort = best_effort(&info, space);
    if info.system_message.is_some() || info.ntstatus_message.is_some() {
        info.message_provenance = Some(MessageProvenance::Builtin);
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(code: u32) -> StatusInfo {
        decode(code, StatusSpace::Auto)
    }

    #[test]
    fn access_denied() {
        let info = auto(0x8007_0005);
        assert!(info.names.hresult.contains(&"E_ACCESSDENIED".to_owned()));
        assert_eq!(info.symbolic.as_deref(), Some("E_ACCESSDENIED"));
        let wraps = info.wraps.unwrap();
        assert_eq!((wraps.space, wraps.value), (StatusSpace::Win32, Code(5)));
        assert_eq!(wraps.name.as_deref(), Some("ERROR_ACCESS_DENIED"));
        assert!(info.hresult_failed);
        assert_eq!((info.facility, info.facility_name.as_deref()), (7, Some("FACILITY_WIN32")));
        let removed = decode(0x887a_0005, StatusSpace::Auto);
        assert_eq!((removed.facility, removed.facility_name.as_deref()), (0x87a, Some("FACILITY_DXGI")));
        assert_eq!(info.best_effort.as_deref(), Some("E_ACCESSDENIED - Access is denied."));
        assert_eq!(info.message_provenance, Some(MessageProvenance::Builtin));
    }

    #[test]
    fn a_wrapped_win32_code_without_a_name_of_its_own() {
        let info = auto(0x8007_3d54);
        assert_eq!(info.wraps.as_ref().unwrap().value, Code(15700));
        assert_eq!(info.symbolic.as_deref(), Some("HRESULT_FROM_WIN32(APPMODEL_ERROR_NO_PACKAGE)"));
    }

    #[test]
    fn severity_is_one_bit_here_and_two_there() {
        let info = auto(0x8067_0015);
        assert_eq!(info.names.hresult, ["STATEREPOSITORY_E_CACHE_NOT_INIITALIZED"]);
        assert!(info.hresult_failed);
        assert_eq!(info.ntstatus_severity, Severity::Warning);
    }

    #[test]
    fn ntstatus_readings() {
        let info = auto(0xc000_0005);
        assert_eq!(info.names.ntstatus[0], "STATUS_ACCESS_VIOLATION");
        assert_eq!(info.ntstatus_severity, Severity::Error);
        let wrapped = auto(0xd000_0022);
        let wraps = wrapped.wraps.clone().unwrap();
        assert_eq!((wraps.space, wraps.value), (StatusSpace::Ntstatus, Code(0xc000_0022)));
        assert_eq!(wraps.name.as_deref(), Some("STATUS_ACCESS_DENIED"));
        assert_eq!(wrapped.ntstatus_message, auto(0xc000_0022).ntstatus_message);
        let breakpoint = decode(0x8000_0003, StatusSpace::Ntstatus);
        assert_eq!(breakpoint.symbolic.as_deref(), Some("STATUS_BREAKPOINT"));
        assert!(breakpoint.names.hresult.is_empty());
        assert!(breakpoint.best_effort.unwrap().starts_with("STATUS_BREAKPOINT"));
    }

    #[test]
    fn an_ntstatus_may_wrap_a_win32_error_too() {
        let info = decode(0xc007_0032, StatusSpace::Ntstatus);
        assert_eq!(info.best_effort.as_deref(), Some("NTSTATUS_FROM_WIN32(ERROR_NOT_SUPPORTED)"));
    }

    #[test]
    fn customer_codes_consult_no_table() {
        let info = auto(0xe043_4352);
        assert!(info.customer_defined);
        assert_eq!(info.names, StatusNames::default());
        assert_eq!((info.system_message, info.ntstatus_message, info.wraps), (None, None, None));
        assert_eq!(info.kind_hint.as_deref(), Some("CLR exception"));
        assert_eq!(info.best_effort.as_deref(), Some("CLR exception"));
    }

    #[test]
    fn buffer_overrun_text_never_leads_for_an_hresult_reader() {
        let info = decode(0xc000_0409, StatusSpace::Ntstatus);
        assert!(info.ntstatus_message.is_some());
        assert_eq!(info.system_message, None);
        assert_eq!(auto(0xc000_0409).system_message, None);
        assert!(
            info.best_effort.is_some_and(|text| text.contains("a fast fail") && !text.contains("overrun of"))
        );
    }

    #[test]
    fn small_numbers_are_win32_first() {
        assert_eq!(auto(5).symbolic.as_deref(), Some("ERROR_ACCESS_DENIED"));
        assert_eq!(auto(0).symbolic.as_deref(), Some("S_OK"));
        assert_eq!(auto(1722).symbolic.as_deref(), Some("RPC_S_SERVER_UNAVAILABLE"));
        assert_eq!(decode(0, StatusSpace::Ntstatus).symbolic.as_deref(), Some("STATUS_SUCCESS"));
        assert_eq!(decode(0, StatusSpace::Win32).symbolic.as_deref(), Some("ERROR_SUCCESS"));
    }

    #[test]
    fn nothing_null_on_the_wire() {
        let json = serde_json::to_string(&auto(0x1234_5678)).unwrap();
        assert!(!json.contains("null"), "{json}");
        let back: StatusInfo = serde_json::from_str(&json).unwrap();
        assert_eq!(back, auto(0x1234_5678));
    }
}
