//! Many drivers, the one with most to reach first.

use std::collections::BTreeSet;

use super::report;
use super::surface::Surfaced;
use crate::style::{Style, plain};

/// What a driver is ranked by, the first difference deciding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Sensitive routines and instructions that a code of an ordinary user leads to.
    open_sinks: usize,
    /// Those that any accepted code leads to.
    sinks: usize,
    findings: usize,
    open_codes: usize,
    codes: usize,
}

fn rank(driver: &Surfaced) -> Rank {
    let accepted = driver.accepted();
    let (mut all, mut open) = (BTreeSet::new(), BTreeSet::new());
    let mut open_codes = 0;
    for row in accepted.values() {
        let dangers = driver.dangers(&row.code);
        if driver.is_open(&row.code) == Some(true) {
            open_codes += 1;
            open.extend(dangers.iter().copied());
        }
        all.extend(dangers);
    }
    Rank {
        open_sinks: open.len(),
        sinks: all.len(),
        findings: driver.findings.len(),
        open_codes,
        codes: driver.accepted_count(),
    }
}

/// The table, and a sentence about each driver.
pub(crate) fn text(drivers: &[&Surfaced], style: Style) -> String {
    let mut ranked: Vec<(Rank, &Surfaced)> = drivers.iter().map(|driver| (rank(driver), *driver)).collect();
    ranked.sort_by(|(a, first), (b, second)| b.cmp(a).then_with(|| first.path.cmp(&second.path)));
    let mut out =
        style.dim("sinks any user reaches / sinks / findings / codes any user sends / codes") + "\n";
    for (rank, driver) in ranked {
        let figures = format!(
            "{:>4} {:>4} {:>4} {:>4} {:>4}",
            rank.open_sinks, rank.sinks, rank.findings, rank.open_codes, rank.codes
        );
        let path = crate::output::shown_path(&driver.path).display().to_string();
        out += &format!("{figures}  {}\n", style.bold(&plain(&path)));
        out += &format!("{:24}  {}\n", "", plain(&report::sentence(driver)));
    }
    out
}
