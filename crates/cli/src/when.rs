//! Times as people write them.

use tools::Summary;

use crate::triage::ModuleRow;

/// `2018-07-06T22:16:05.318Z` as `2018-07-06 22:16:05 UTC`.
pub(crate) fn time(rfc3339: &str) -> String {
    match (rfc3339.split_once('T'), rfc3339.ends_with('Z')) {
        (Some((day, clock)), true) if clock.is_char_boundary(8.min(clock.len())) => {
            format!("{day} {} UTC", &clock[..8.min(clock.len() - 1)])
        }
        _ => rfc3339.to_owned(),
    }
}

/// Milliseconds in the two largest units that matter.
pub(crate) fn uptime(ms: u64) -> String {
    let (seconds, minutes) = (ms / 1000, ms / 60_000);
    let (hours, days) = (minutes / 60, minutes / 1440);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

/// The day an image was built, where its header says. A reproducible build has a hash there, which is
/// seldom a day between the format's beginnings and the dump; the system's own images are all built so
/// since Windows 10.
pub(crate) fn built(module: &ModuleRow, summary: &Summary) -> Option<String> {
    const YEAR_1995: u32 = 788_918_400;
    let dumped = summary.dump.as_ref().and_then(|dump| dump.time.as_deref())?;
    if module.is_system() && summary.os.as_ref().is_none_or(|os| os.major >= 10) {
        return None;
    }
    let day: String = target::value::rfc3339(i64::from(module.timestamp), 0)?.chars().take(10).collect();
    (module.timestamp >= YEAR_1995 && day.as_str() <= dumped).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_and_spans() {
        assert_eq!(time("2018-07-06T22:16:05.318Z"), "2018-07-06 22:16:05 UTC");
        assert_eq!(time("2018-07-06T22:16:05Z"), "2018-07-06 22:16:05 UTC");
        for odd in ["", "yesterday", "T", "TZ", "T\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}Z", "2018-07-06T22:16"] {
            let _ = time(odd);
        }
        let spans = [3_747, 600_000, 3_660_000, 86_400_000 * 5 + 3_600_000 * 15].map(uptime);
        assert_eq!(spans, ["3 s", "10 min", "1 h 1 min", "5 d 15 h"]);
    }

    /// Only what can be a date is shown as one.
    #[test]
    fn a_hash_is_no_date() {
        let day = |timestamp: u32, path: &str, major: u32| {
            let row = json!({ "name": "m", "image_name": "m.sys", "loaded_image_name": path,
                "timestamp": timestamp, "symbols": "none" });
            let summary = json!({ "os": { "major": major, "minor": 0, "build": 1 },
                "dump": { "format": "kernel_bitmap", "time": "2021-02-21T01:38:22.987Z" } });
            built(&serde_json::from_value(row).unwrap(), &serde_json::from_value(summary).unwrap())
        };
        assert_eq!(day(1_285_797_443, r"D:\app\m.exe", 6).as_deref(), Some("2010-09-29"));
        assert_eq!(day(0x73df_7efa, r"D:\app\m.exe", 10), None, "later than the dump");
        assert_eq!(day(1_000, r"D:\app\m.exe", 6), None);
        assert_eq!(day(1_285_797_443, r"C:\Windows\System32\m.dll", 10), None);
        assert_eq!(day(1_285_797_443, r"C:\Windows\System32\m.dll", 6).as_deref(), Some("2010-09-29"));
    }
}
