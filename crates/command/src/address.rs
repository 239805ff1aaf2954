//! `!address`.

use target::{Region, RegionState, Result};

use crate::run::{Run, usage};

/// Regions listed by `!address` alone.
const REGIONS_LIMIT: usize = 65_536;

fn state_words(state: RegionState) -> &'static str {
    match state {
        RegionState::Committed => "00001000\tMEM_COMMIT",
        RegionState::Reserved => "00002000\tMEM_RESERVE",
        RegionState::Free => "00010000\tMEM_FREE",
        RegionState::Valid => "valid",
        RegionState::Unknown => "not known",
    }
}

fn short_state(state: RegionState) -> &'static str {
    match state {
        RegionState::Committed => "MEM_COMMIT",
        RegionState::Reserved => "MEM_RESERVE",
        RegionState::Free => "MEM_FREE",
        RegionState::Valid => "valid",
        RegionState::Unknown => "unknown",
    }
}

/// `PAGE_*` of winnt.h.
fn protection(bits: u32) -> String {
    const ACCESS: [(u32, &str); 8] = [
        (0x01, "PAGE_NOACCESS"),
        (0x02, "PAGE_READONLY"),
        (0x04, "PAGE_READWRITE"),
        (0x08, "PAGE_WRITECOPY"),
        (0x10, "PAGE_EXECUTE"),
        (0x20, "PAGE_EXECUTE_READ"),
        (0x40, "PAGE_EXECUTE_READWRITE"),
        (0x80, "PAGE_EXECUTE_WRITECOPY"),
    ];
    const MODIFIERS: [(u32, &str); 3] =
        [(0x100, "PAGE_GUARD"), (0x200, "PAGE_NOCACHE"), (0x400, "PAGE_WRITECOMBINE")];
    let words: Vec<&str> =
        ACCESS.iter().chain(&MODIFIERS).filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word).collect();
    words.join(" | ")
}

pub(crate) fn address(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if arguments.is_empty() {
        return list(run);
    }
    if arguments.starts_with('-') {
        return Err(usage("!address takes an address, or nothing for every region"));
    }
    let address = run.clip(run.evaluate(arguments)?);
    let region = run.target.region(address)?;
    let notation = run.notation();
    let usage = region.usage.clone().unwrap_or_else(|| match region.state {
        RegionState::Free => "Free".to_owned(),
        _ => "<unknown>".to_owned(),
    });
    run.say("");
    run.say(format!("Usage:                  {usage}"));
    run.say(format!("Base Address:           {}", notation.address(region.base)));
    run.say(format!("End Address:            {}", notation.address(region.base.saturating_add(region.size))));
    run.say(format!("Region Size:            {}", notation.address(region.size)));
    run.say(format!("State:                  {}", state_words(region.state)));
    if let Some(bits) = region.protect.filter(|&p| p != 0) {
        run.say(format!("Protect:                {bits:08x}\t{}", protection(bits)));
    }
    if let Some(base) = region.allocation_base {
        run.say(format!("Allocation Base:        {}", notation.address(base)));
    }
    if let Some(place) = crate::notation::known_place(run.target, address) {
        run.say(format!("Place:                  {place}"));
    }
    Ok(())
}

/// Every region of a user target, from the bottom up.
fn list(run: &mut Run<'_>) -> Result<()> {
    if run.target.facts().kind.is_kernel() {
        return Err(usage("on a kernel target !address needs an address"));
    }
    let notation = run.notation();
    let width = notation.address(0).len() + 2;
    run.say(format!("{:>width$} {:>width$} {:>width$} State", "BaseAddress", "EndAddress+1", "RegionSize"));
    let mut at = 0u64;
    for _ in 0..REGIONS_LIMIT {
        run.check()?;
        let Ok(region) = run.target.region(at) else { break };
        if !matches!(region.state, RegionState::Unknown) {
            let row = row(run, &region, width);
            run.say(row);
        }
        match region.base.checked_add(region.size).filter(|next| *next > at) {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(())
}

fn row(run: &Run<'_>, region: &Region, width: usize) -> String {
    let notation = run.notation();
    let protect = region.protect.filter(|&p| p != 0).map(protection).unwrap_or_default();
    let line = format!(
        "{:>width$} {:>width$} {:>width$} {:<11} {protect:<28} {}",
        notation.address(region.base),
        notation.address(region.base.saturating_add(region.size)),
        notation.address(region.size),
        short_state(region.state),
        region.usage.as_deref().unwrap_or("")
    );
    line.trim_end().to_owned()
}
