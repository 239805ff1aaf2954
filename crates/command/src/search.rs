//! `s`: bytes, numbers and text in memory.

use target::{MemoryExt as _, RegionState, Result, TargetError};

use crate::dump::{Unit, line};
use crate::run::{Run, usage};

/// Bytes searched without `L?`, as in WinDbg.
const LENGTH_LIMIT: u64 = 256 << 20;
const BLOCK: usize = 64 << 10;
const PAGE: u64 = 0x1000;
/// The longest pattern.
const PATTERN_LIMIT: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bytes,
    Words,
    Dwords,
    Qwords,
    Ascii,
    Unicode,
}

impl Kind {
    fn size(self) -> u64 {
        match self {
            Self::Bytes | Self::Ascii => 1,
            Self::Words | Self::Unicode => 2,
            Self::Dwords => 4,
            Self::Qwords => 8,
        }
    }
    /// Bytes between places looked at.
    fn step(self) -> usize {
        match self {
            Self::Words => 2,
            Self::Dwords => 4,
            Self::Qwords => 8,
            Self::Bytes | Self::Ascii | Self::Unicode => 1,
        }
    }
    /// How a hit is shown.
    fn row(self) -> (Unit, u64) {
        match self {
            Self::Bytes | Self::Ascii => (Unit::Bytes, 16),
            Self::Words | Self::Unicode => (Unit::Words, 8),
            Self::Dwords => (Unit::DwordsWithText, 4),
            Self::Qwords => (Unit::Qwords, 2),
        }
    }
}

/// `s [-[1]b|w|d|q|a|u] RANGE PATTERN`.
pub(crate) fn s(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (kind, addresses_only, rest) = form(arguments)?;
    let (range, pattern_text) = run.long_range(rest, kind.size())?;
    let length = range.count.saturating_mul(kind.size());
    if length > LENGTH_LIMIT && !arguments.contains("L?") && !arguments.contains("l?") {
        return Err(usage("the range is over 256 MB: write L? before its length to mean it"));
    }
    let pattern = pattern(run, kind, pattern_text)?;
    search(run, kind, addresses_only, run.clip(range.start), length, &pattern)
}

fn form(arguments: &str) -> Result<(Kind, bool, &str)> {
    let Some(flags) = arguments.strip_prefix('-') else { return Ok((Kind::Bytes, false, arguments)) };
    let (flags, rest) = crate::operand::word(flags);
    let (options, letter) = match flags.strip_prefix('[').and_then(|f| f.split_once(']')) {
        Some((options, letter)) => (options, letter),
        None => ("", flags),
    };
    let kind = match letter {
        "b" => Kind::Bytes,
        "w" => Kind::Words,
        "d" => Kind::Dwords,
        "q" => Kind::Qwords,
        "a" => Kind::Ascii,
        "u" => Kind::Unicode,
        _ => return Err(usage(format!("s -{letter} is not served (b w d q a u are)"))),
    };
    Ok((kind, options.contains('1'), rest))
}

fn pattern(run: &Run<'_>, kind: Kind, text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if bytes.len() > PATTERN_LIMIT {
            return Err(usage(format!("a pattern has at most {PATTERN_LIMIT} bytes")));
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            let units = &quoted[..end];
            match kind {
                Kind::Unicode => units.encode_utf16().for_each(|u| bytes.extend(u.to_le_bytes())),
                _ => bytes.extend(units.as_bytes()),
            }
            rest = quoted.get(end + 1..).unwrap_or("").trim_start();
            continue;
        }
        let (value, after) = run.evaluate_prefix(rest)?;
        let size = usize::try_from(kind.size()).unwrap_or(1);
        bytes.extend(&value.to_le_bytes()[..size]);
        rest = after;
    }
    if bytes.is_empty() { Err(usage("s needs a pattern: numbers or \"text\"")) } else { Ok(bytes) }
}

fn search(
    run: &mut Run<'_>,
    kind: Kind,
    addresses_only: bool,
    start: u64,
    length: u64,
    pattern: &[u8],
) -> Result<()> {
    let end = start.saturating_add(length);
    let mut at = start;
    let mut any_read = false;
    while at < end {
        run.check()?;
        // The overlap lets a hit cross the border of two blocks.
        let want = (end - at).min((BLOCK + pattern.len()) as u64);
        let (bytes, stopped) = run.target.read_prefix(at, usize::try_from(want).unwrap_or(BLOCK));
        any_read |= !bytes.is_empty();
        let fresh = if stopped.is_none() && want > BLOCK as u64 { BLOCK } else { bytes.len() };
        let mut offset = 0;
        while offset < fresh && offset + pattern.len() <= bytes.len() {
            if bytes[offset..].starts_with(pattern) {
                run.check()?;
                show(run, kind, addresses_only, at + offset as u64);
            }
            offset += kind.step();
        }
        at = match stopped {
            None => at.saturating_add(fresh.max(1) as u64),
            Some(_) => skip(run, at.saturating_add(bytes.len() as u64)),
        };
    }
    if any_read {
        return Ok(());
    }
    Err(TargetError::failed_because(
        "unreadable",
        format!(
            "nothing in {} to {} can be read",
            run.notation().address(start),
            run.notation().address(end)
        ),
    ))
}

fn show(run: &mut Run<'_>, kind: Kind, addresses_only: bool, at: u64) {
    let (unit, count) = kind.row();
    let text = if addresses_only { run.notation().short(at) } else { line(run, unit, at, count) };
    run.say(text);
}

/// Past an unreadable address: its region where that can hold nothing, else its page. A committed
/// region may be held in part.
fn skip(run: &Run<'_>, at: u64) -> u64 {
    let page = (at & !(PAGE - 1)).saturating_add(PAGE);
    let region = run.target.region(at).ok().filter(|r| r.base <= at);
    match region {
        Some(r) if matches!(r.state, RegionState::Free | RegionState::Reserved | RegionState::Unknown) => {
            r.base.saturating_add(r.size).max(at.saturating_add(1))
        }
        _ => page,
    }
}
