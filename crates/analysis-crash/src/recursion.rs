//! A repeating cycle of return addresses.

use target::Frame;

use crate::result::Recursion;

/// Frames in one turn at most.
const MAX_PERIOD: usize = 32;
/// Innermost frames that may come before the cycle.
const MAX_START: usize = 16;
/// Whole turns that make a cycle.
const MIN_REPEATS: usize = 3;

/// The shortest cycle near the top of the stack, with at least three whole turns.
pub(crate) fn find(frames: &[Frame], name: impl Fn(&Frame) -> String) -> Option<Recursion> {
    let physical: Vec<&Frame> = frames.iter().filter(|f| !f.inline).collect();
    let mut best: Option<(usize, usize, usize)> = None;
    for period in 1..=MAX_PERIOD {
        for start in 0..MAX_START.min(physical.len()) {
            let repeats = turns(&physical[start..], period);
            // A longer period must explain more of the stack to be the better answer.
            let better = best.is_none_or(|(p, r, _)| repeats * period > p * r + period);
            if repeats >= MIN_REPEATS && better {
                best = Some((period, repeats, start));
            }
        }
    }
    let (period, repeats, start) = best?;
    let frames = physical[start..start + period].iter().map(|f| name(f)).collect();
    let past = start + period + matching(&physical[start..], period);
    let called_from = physical.get(past).map(|frame| name(frame));
    Some(Recursion { period, repeats, frames, called_from })
}

/// Frames at the start that are the same as those one turn further.
fn matching(frames: &[&Frame], period: usize) -> usize {
    let later = frames.get(period..).unwrap_or_default();
    frames.iter().zip(later).take_while(|(a, b)| a.ip == b.ip).count()
}

/// Whole turns of `period` at the start of `frames`.
fn turns(frames: &[&Frame], period: usize) -> usize {
    let same = matching(frames, period);
    if same == 0 { 0 } else { same / period + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::{Attribution, Found};

    fn stack(ips: &[u64]) -> Vec<Frame> {
        ips.iter()
            .map(|&ip| Frame {
                ip,
                sp: 1,
                found: Found::Unwind,
                inline: false,
                attribution: Attribution::NoModule { unloaded: None },
                symbol: None,
                source: None,
                context: None,
                return_address: 0,
            })
            .collect()
    }
    fn cycle(ips: &[u64]) -> Option<(usize, usize, Vec<String>)> {
        find(&stack(ips), |f| f.ip.to_string()).map(|r| (r.period, r.repeats, r.frames))
    }

    #[test]
    fn cycles() {
        assert_eq!(cycle(&[9, 1, 1, 1, 1, 2]), Some((1, 4, vec!["1".into()])));
        assert_eq!(cycle(&[9, 1, 2, 1, 2, 1, 2, 3]), Some((2, 3, vec!["1".into(), "2".into()])));
        assert_eq!(cycle(&[1, 2, 3, 4, 5]), None);
        let from = |ips: &[u64]| find(&stack(ips), |f| f.ip.to_string()).and_then(|r| r.called_from);
        assert_eq!(from(&[9, 1, 1, 1, 1, 2]).as_deref(), Some("2"));
        assert_eq!(from(&[9, 1, 2, 1, 2, 1, 2, 1, 3]).as_deref(), Some("3"));
        assert_eq!(from(&[1, 1, 1, 1]), None);
        assert_eq!(cycle(&[1, 2, 1, 2]), None, "two turns may be chance");
        assert_eq!(cycle(&[]), None);
    }
}
