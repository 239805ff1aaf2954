//! Several dumps by bucket: what happened how often.

use std::collections::BTreeMap;

use crate::report;
use crate::style::{Style, plain};
use crate::triage::{Outcome, Triaged};

/// What dumps of one cause have in common.
fn bucket(triaged: &Triaged) -> String {
    report::bucket(triaged).unwrap_or_else(|| "(no crash recorded)".to_owned())
}

fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The table: most frequent first.
pub(crate) fn text(outcomes: &[Outcome], style: Style) -> String {
    let mut buckets: BTreeMap<String, Vec<&Triaged>> = BTreeMap::new();
    for triaged in outcomes.iter().flatten() {
        buckets.entry(bucket(triaged)).or_default().push(triaged);
    }
    let mut rows: Vec<(String, Vec<&Triaged>)> = buckets.into_iter().collect();
    rows.sort_by(|(name, a), (other, b)| b.len().cmp(&a.len()).then_with(|| name.cmp(other)));
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let mut out = format!(
        "\n{}\n",
        style.bold(&format!(
            "{}: {} triaged in {}, {failed} failed",
            counted(outcomes.len(), "dump"),
            outcomes.len() - failed,
            counted(rows.len(), "bucket")
        ))
    );
    for (name, dumps) in rows {
        out.push_str(&format!("{:>5}  {}\n", dumps.len(), style.bold(&plain(&name))));
        if let Some(sentence) = dumps.first().and_then(|triaged| report::sentence(triaged)) {
            out.push_str(&format!("       {}\n", plain(&sentence)));
        }
    }
    for failure in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        out.push_str(&format!("{}  {}\n", style.red("failed"), plain(&failure.path.display().to_string())));
    }
    out
}
