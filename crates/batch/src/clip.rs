//! Output kept of a step (spec 20 section 2.6): cut when the step ends, so that 64 steps that each
//! read a megabyte do not end the worker.

use crate::report::{Report, Row, StepResult};

/// Characters kept of a step that succeeded, and of one that did not.
const OF_OK: usize = 1500;
const OF_OTHERS: usize = 8000;
/// Characters of output in a whole report.
const OF_ALL: usize = 24_000;
/// Characters of an action or a label.
const OF_ACTION: usize = 400;

/// The first `limit` characters of `text`; how many were left out.
pub(crate) fn head(text: &str, limit: usize) -> (String, usize) {
    match text.char_indices().nth(limit) {
        None => (text.to_owned(), 0),
        Some((at, _)) => (text[..at].to_owned(), text[at..].chars().count()),
    }
}

/// An action or label as reports carry it.
pub(crate) fn action(text: &str) -> String {
    match head(text, OF_ACTION) {
        (text, 0) => text,
        (text, dropped) => format!("{text} [{dropped} more characters]"),
    }
}

/// Puts `output` in the row as far as its result allows; `beyond` characters were never made.
pub(crate) fn keep(row: &mut Row, output: &str, beyond: usize) {
    let output = output.trim_end();
    if output.is_empty() {
        return;
    }
    let limit = if row.result == StepResult::Ok { OF_OK } else { OF_OTHERS };
    let (kept, dropped) = head(output, limit);
    row.output = Some(kept);
    row.output_dropped = Some(dropped + beyond).filter(|dropped| *dropped > 0);
}

/// Cuts the report's output to what one answer carries: the step that did not succeed first, then
/// the newest.
pub(crate) fn whole(report: &mut Report) {
    let mut rows: Vec<&mut Row> = report.steps.iter_mut().chain(&mut report.always).collect();
    rows.reverse();
    rows.sort_by_key(|row| row.result == StepResult::Ok);
    let mut left = OF_ALL;
    for row in rows {
        let Some(output) = row.output.take() else { continue };
        let (kept, dropped) = head(&output, left);
        left -= kept.chars().count();
        row.output = Some(kept).filter(|kept| !kept.is_empty());
        if dropped > 0 {
            row.output_dropped = Some(row.output_dropped.unwrap_or(0) + dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(result: StepResult, output: &str) -> Row {
        let mut row = Row::of(1, "x".into(), "x".into());
        row.result = result;
        keep(&mut row, output, 0);
        row
    }

    #[test]
    fn what_is_left_out_is_counted_in_characters_of_the_original() {
        let long = "é".repeat(10_000);
        let ok = row(StepResult::Ok, &long);
        assert_eq!(ok.output.as_ref().unwrap().chars().count(), 1500);
        assert_eq!(ok.output_dropped, Some(8500));
        let failed = row(StepResult::Failed, &long);
        assert_eq!((failed.output.unwrap().chars().count(), failed.output_dropped), (8000, Some(2000)));
        let short = row(StepResult::Ok, "one\n");
        assert_eq!((short.output.as_deref(), short.output_dropped), (Some("one"), None));
        assert_eq!(row(StepResult::Ok, "\n").output, None);
    }

    #[test]
    fn a_report_spends_its_output_on_the_failure_then_on_the_newest() {
        let long = "x".repeat(20_000);
        let mut report = crate::report::empty();
        report.steps = (0..20).map(|_| row(StepResult::Ok, &long)).collect();
        report.steps[3] = row(StepResult::Failed, &long);
        whole(&mut report);
        let kept: usize = report.steps.iter().filter_map(|r| r.output.as_ref()).map(String::len).sum();
        assert_eq!(kept, 24_000);
        assert_eq!(report.steps[3].output.as_ref().unwrap().len(), 8000);
        assert_eq!(report.steps[19].output.as_ref().unwrap().len(), 1500);
        assert_eq!((report.steps[0].output.as_deref(), report.steps[0].output_dropped), (None, Some(20_000)));
    }
}
