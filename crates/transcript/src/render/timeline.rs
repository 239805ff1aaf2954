//! Records in the order and at the times they are shown.

use crate::event::Event;
use crate::reading::{Reading, Record};

/// Between runs whose clocks cannot say.
const UNKNOWN_GAP: f64 = 1.0;
/// A longer pause between runs is no part of a story.
const LONGEST_GAP: f64 = 7.0 * 86_400.0;

/// One run of a server, in order.
pub(super) struct Run<'a> {
    pub(super) records: Vec<&'a Record>,
    /// Seconds at which its first record is shown.
    pub(super) from: f64,
}

impl Run<'_> {
    /// Seconds at which a record is shown.
    pub(super) fn at(&self, record: &Record) -> f64 {
        let first = self.records.first().map_or(0, |first| first.mono_ms);
        self.from + record.mono_ms.saturating_sub(first) as f64 / 1000.0
    }

    pub(super) fn end(&self) -> f64 {
        let last = self.records.iter().map(|record| self.at(record)).fold(self.from, f64::max);
        last.max(self.from)
    }
}

/// The runs, in the order they are first met, laid end to end. Two servers may have written one
/// file; a run may be spread over several.
pub(super) fn runs(reading: &Reading) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut open: std::collections::HashMap<&str, (usize, bool)> = std::collections::HashMap::new();
    for record in &reading.records {
        let starts = matches!(record.event, Event::Start { .. });
        match open.get_mut(record.run.as_str()) {
            // A second start under one name is a run of its own.
            Some((at, started)) if !(starts && *started) => {
                *started |= starts;
                runs[*at].records.push(record);
            }
            _ => {
                open.insert(&record.run, (runs.len(), starts));
                runs.push(Run { records: vec![record], from: 0.0 });
            }
        }
    }
    let mut from = 0.0;
    let mut last: Option<f64> = None;
    for run in &mut runs {
        run.records.sort_by_key(|record| record.seq);
        if let Some(last) = last {
            from += run.records.first().and_then(|first| clock(&first.at)).map_or(UNKNOWN_GAP, |first| {
                let gap = first - last;
                if gap > 0.0 { gap.min(LONGEST_GAP) } else { UNKNOWN_GAP }
            });
        }
        run.from = from;
        from = run.end();
        last = run.records.last().and_then(|last| clock(&last.at)).or(Some(f64::INFINITY));
    }
    runs
}

/// Seconds since 1970 of `2026-01-31T12:34:56.789Z`.
pub(super) fn clock(at: &str) -> Option<f64> {
    let bytes = at.as_bytes();
    let shape = b"0000-00-00T00:00:00.000Z";
    let fits = bytes.len() == shape.len()
        && bytes.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s });
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| at[from..to].parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days-from-civil (Howard Hinnant's public-domain algorithm).
    let y = year - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468;
    let seconds = days * 86_400 + number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    Some(seconds as f64 + number(20, 23)? as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        assert_eq!(clock("1970-01-02T00:00:01.500Z"), Some(86_401.5));
        assert_eq!(clock("2021-02-21T01:38:22.987Z"), Some(1_613_871_502.987));
        for bad in ["", "2021-02-21", "2021-13-21T01:38:22.987Z", "2021-02-21T01:38:22.987+", "éééééééééééé"]
        {
            assert_eq!(clock(bad), None, "{bad}");
        }
    }
}
