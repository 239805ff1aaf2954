//! A comparison for a person.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{ACCEPTED, Comparison, Difference};

/// Longest value shown.
const WIDEST: usize = 160;

/// Rows shown of an accepted difference unless all are wanted.
const SHOWN: usize = 2;

/// What is equal in numbers, what differs in full: unaccepted differences first, then the accepted
/// ones under the reason they are accepted for, a few of each or `all`.
#[must_use]
pub fn render(comparison: &Comparison, all: bool) -> String {
    let mut text = format!(
        "{}: {} questions, {} values compared, {} equal\n",
        comparison.dump,
        comparison.questions,
        comparison.looked_at,
        comparison.looked_at - comparison.differences.len().min(comparison.looked_at)
    );
    let open: Vec<&Difference> = comparison.open().collect();
    if !open.is_empty() {
        let _ = writeln!(text, "\n{} differences that nobody accepted:", open.len());
        rows(&mut text, &open);
    }
    for (index, row) in ACCEPTED.iter().enumerate() {
        let of_row = comparison.differences.iter().filter(|judged| judged.accepted == Some(index));
        let of_row: Vec<&Difference> = of_row.map(|judged| &judged.difference).collect();
        if !of_row.is_empty() {
            let _ = writeln!(text, "\n{} accepted because {}:", of_row.len(), row.because);
            let shown = if all { of_row.len() } else { SHOWN.min(of_row.len()) };
            rows(&mut text, &of_row[..shown]);
            if shown < of_row.len() {
                let _ = writeln!(text, "  ... and {} more like these", of_row.len() - shown);
            }
        }
    }
    if comparison.differences.is_empty() {
        text.push_str("No difference.\n");
    }
    text
}

fn rows(text: &mut String, differences: &[&Difference]) {
    for difference in differences {
        let _ = writeln!(text, "  {}  {}", difference.question, difference.field);
        let _ = writeln!(text, "      native  {}", short(difference.native.as_ref()));
        let _ = writeln!(text, "      dbgeng  {}", short(difference.other.as_ref()));
    }
}

fn short(value: Option<&Value>) -> String {
    let text = match value {
        None => "(absent)".to_owned(),
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(Value::Array(rows)) if rows.iter().all(Value::is_string) => {
            rows.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
        }
        Some(other) => other.to_string(),
    };
    match text.char_indices().nth(WIDEST) {
        Some((cut, _)) => format!("{} ...", &text[..cut]),
        None => text,
    }
}
