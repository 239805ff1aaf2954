//! The stack of a report. What repeats is written once: a recursion must not fill the page.

use analysis_crash::Recursion;
use target::{Found, FrameInfo};

use crate::report::{Report, place};
use crate::style::{Style, plain};

/// Rows a report shows; the rest is a tool call away.
const ROWS: usize = 16;
/// A cycle that is looked for has at most so many frames.
const LONGEST_CYCLE: usize = 8;
/// Fewer turns are written out.
const FEWEST_TURNS: usize = 3;

/// A cycle of frames: how many frames, and how often.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    period: usize,
    turns: usize,
}

/// The cycle that `frames` start with: of several the one with the shortest period.
fn cycle(frames: &[FrameInfo]) -> Option<Cycle> {
    (1..=LONGEST_CYCLE.min(frames.len())).find_map(|period| {
        let later = frames.get(period..)?;
        let same = frames.iter().zip(later).take_while(|(a, b)| a.address == b.address && !a.inline).count();
        let turns = same / period + 1;
        (turns >= FEWEST_TURNS).then_some(Cycle { period, turns })
    })
}

fn row(frame: &FrameInfo, style: Style) -> String {
    let text = plain(&place(frame));
    match frame.found {
        _ if frame.inline => format!("     {text} {}", style.dim("(inline)")),
        Found::Scan => format!("   {} {}", style.bold("?"), style.dim(&text)),
        _ => format!("  {:02} {text}", frame.index),
    }
}

/// Writes the frames. `recursion` knows more turns than `frames` may hold.
pub(crate) fn rows(
    report: &mut Report,
    frames: &[FrameInfo],
    truncated: bool,
    recursion: Option<&Recursion>,
) {
    if frames.is_empty() {
        return;
    }
    report.heading("Stack");
    let style = report.style;
    let mut rest = frames;
    let mut written = 0;
    let mut ends = true;
    while let Some(first) = rest.first().filter(|_| written < ROWS) {
        let Some(found) = cycle(rest) else {
            report.lines.push(row(first, style));
            written += 1;
            rest = &rest[1..];
            continue;
        };
        let (turn, after) = rest.split_at(found.period);
        report.lines.extend(turn.iter().map(|frame| row(frame, style)));
        rest = after.get(found.period * (found.turns - 1)..).unwrap_or_default();
        let known = recursion.filter(|r| r.period == found.period && r.repeats > found.turns);
        let what = match turn {
            [one] => plain(&one.place()),
            _ => format!("these {} frames", found.period),
        };
        let turns = known.map_or(found.turns, |r| r.repeats);
        let repeated = if turn.len() == 1 { "repeated" } else { "repeat" };
        report.lines.push(format!("     {}", style.dim(&format!("... {what} {repeated} {turns} times"))));
        written += found.period + 1;
        // What comes behind a recursion that fills all frames is what called it.
        if let Some(known) = known.filter(|_| rest.len() < found.period) {
            let from = known.called_from.as_ref();
            report.lines.extend(from.map(|from| format!("     {}", plain(from))));
            ends = from.is_some();
            rest = &[];
            break;
        }
    }
    if frames.iter().take(ROWS).any(|frame| frame.found == Found::Scan) {
        let text = "? marks guesses: words on the stack that look like return addresses";
        report.lines.push(format!("  {}", style.dim(text)));
    }
    if !rest.is_empty() || (truncated && ends && recursion.is_none()) {
        report.lines.push(format!("  {}", style.dim("... and more")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::Address;

    fn frames(addresses: &[u64]) -> Vec<FrameInfo> {
        let one = |(index, &address): (usize, &u64)| FrameInfo {
            index: index as u32,
            address: Address(address),
            sp: None,
            module: None,
            rva: None,
            symbol: None,
            displacement: None,
            source: None,
            inline: false,
            found: Found::Unwind,
            attribution_failed: false,
            unloaded_module: None,
        };
        addresses.iter().enumerate().map(one).collect()
    }

    fn written(addresses: &[u64], recursion: Option<&Recursion>) -> String {
        let mut report = Report { style: Style::PLAIN, lines: Vec::new() };
        rows(&mut report, &frames(addresses), true, recursion);
        report.lines.join("\n").replace("0x00000000000000", "")
    }

    #[test]
    fn what_repeats_is_written_once() {
        let known = Recursion { period: 1, repeats: 239, frames: vec![], called_from: Some("main".into()) };
        insta::assert_snapshot!(written(&[1, 2, 2, 2, 2], Some(&known)), @r"
        Stack
          00 01
          01 02
             ... 02 repeated 239 times
             main
        ");
        insta::assert_snapshot!(written(&[9, 1, 2, 1, 2, 1, 2, 1, 7, 7, 8], None), @r"
        Stack
          00 09
          01 01
          02 02
             ... these 2 frames repeat 3 times
          07 01
          08 07
          09 07
          10 08
          ... and more
        ");
    }

    #[test]
    fn long_stacks_are_cut() {
        let all: Vec<u64> = (1..=40).collect();
        let text = written(&all, None);
        assert_eq!(text.lines().count(), 1 + 1 + ROWS + 1, "{text}");
        assert!(text.ends_with("... and more"));
        assert_eq!(cycle(&frames(&[1, 1])), None);
    }
}
