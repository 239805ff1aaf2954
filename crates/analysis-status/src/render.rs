//! A status for a person.

use std::fmt::Write as _;

use crate::decode::{Severity, StatusInfo, StatusSpace};

/// Every reading of a status as lines of text, the best one first.
#[must_use]
pub fn render_status(info: &StatusInfo) -> String {
    let mut text = String::new();
    let lead = info.best_effort.as_deref().unwrap_or("no known name");
    let _ = writeln!(text, "{}: {lead}", info.value);
    for (space, names) in
        [("HRESULT", &info.names.hresult), ("NTSTATUS", &info.names.ntstatus), ("Win32", &info.names.win32)]
    {
        if !names.is_empty() {
            let _ = writeln!(text, "  as {space:<8} {}", names.join(", "));
        }
    }
    let failed = if info.hresult_failed { "a failure" } else { "a success" };
    let severity = match info.ntstatus_severity {
        Severity::Success => "success",
        Severity::Informational => "informational",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let facility = info.facility_name.as_deref().map(|n| format!(" ({n})")).unwrap_or_default();
    let _ = writeln!(
        text,
        "  fields      HRESULT {failed}, facility {}{facility}, code {}; NTSTATUS severity {severity}",
        info.facility, info.code
    );
    if info.customer_defined {
        let _ = writeln!(text, "  customer-defined: an application's own code, in no table");
    }
    if let Some(wraps) = &info.wraps {
        let space = if wraps.space == StatusSpace::Win32 { "Win32" } else { "NTSTATUS" };
        let name = wraps.name.as_deref().unwrap_or("no known name");
        let value = match wraps.space {
            StatusSpace::Win32 => wraps.value.0.to_string(),
            _ => wraps.value.to_string(),
        };
        let _ = writeln!(text, "  wraps       {space} {value} {name}");
    }
    // What the first line says is not said again.
    let new = |message: &&String| !lead.ends_with(message.as_str());
    if let Some(message) = info.system_message.as_ref().filter(new) {
        let _ = writeln!(text, "  message     {message}");
    }
    if let Some(message) = info.ntstatus_message.as_ref().filter(new) {
        let _ = writeln!(text, "  NTSTATUS    {message}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;

    #[test]
    fn for_people() {
        let all: String = [0x8007_0005, 0xc000_0005, 0xe043_4352, 5, 0x8067_0015]
            .into_iter()
            .map(|code| render_status(&decode(code, StatusSpace::Auto)))
            .collect();
        insta::assert_snapshot!(all);
    }
}
