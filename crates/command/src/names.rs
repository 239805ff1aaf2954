//! `x` and `ln`.

use target::{Result, SymbolHit, TargetError};

use crate::run::{Run, usage};

/// Symbols listed by one `x`.
const LIMIT: usize = 100_000;

/// `x [/n|/a] MODULE!PATTERN`; without a module, the locals that fit.
pub(crate) fn x(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (mut by_name, mut by_address, mut pattern) = (false, false, "");
    for word in arguments.split_whitespace() {
        match word {
            "/n" => by_name = true,
            "/a" => by_address = true,
            _ if word.starts_with('/') => {}
            _ if pattern.is_empty() => pattern = word,
            _ => return Err(usage(format!("extra text '{word}': x takes one pattern"))),
        }
    }
    if !pattern.contains('!') {
        return crate::locals::matching(run, pattern);
    }
    let pattern = if pattern.ends_with('!') { format!("{pattern}*") } else { pattern.to_owned() };
    let mut hits = run.target.find_symbols(&pattern, LIMIT, run.halt)?;
    if hits.is_empty() {
        let why = if pattern.contains(['*', '?']) {
            String::new()
        } else {
            format!("\n({})", expression::why_unresolved(run.target, &pattern))
        };
        return Err(TargetError::failed_because("no_symbol", format!("^ Couldn't resolve '{pattern}'{why}")));
    }
    if by_name {
        hits.sort_by(|a, b| a.name.cmp(&b.name));
    } else if by_address {
        hits.sort_by_key(|h| h.address);
    }
    let notation = run.notation();
    let full = hits.len() == LIMIT;
    for hit in hits {
        run.check()?;
        run.say(format!("{}          {}", notation.address(hit.address), hit.qualified()));
    }
    if full {
        run.say(format!("(the first {LIMIT}; narrow the pattern for the rest)"));
    }
    Ok(())
}

/// The symbol at or before an address, and the one behind it where its size is known.
pub(crate) fn ln(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let address = if arguments.is_empty() { run.context()?.ip() } else { run.evaluate(arguments)? };
    let notation = run.notation();
    if let Some(line) = run.target.source_line(address).ok().flatten() {
        let inside =
            if line.displacement == 0 { String::new() } else { format!("+{:#x}", line.displacement) };
        run.say(format!("{}({}){inside}", line.file, line.line));
    }
    let Some(hit) = run.target.symbol_at(address)? else {
        let place = crate::notation::known_place(run.target, address);
        return match place {
            Some(place) => {
                run.say(format!("({})   {place}", notation.address(address)));
                Ok(())
            }
            None => Err(TargetError::failed_because(
                "no_symbol",
                format!("no symbol or module at {}", notation.address(address)),
            )),
        };
    };
    let named = |hit: &SymbolHit, displacement: u64| {
        let tail = if displacement == 0 { String::new() } else { format!("+{displacement:#x}") };
        format!("({})   {}{tail}", notation.address(hit.address), hit.qualified())
    };
    let next = hit.size.and_then(|size| hit.address.checked_add(size.max(1))).and_then(|end| {
        let next = run.target.symbol_at(end).ok().flatten()?;
        (next.address > hit.address).then_some(next)
    });
    let next = next.map(|n| format!("   |  {}", named(&n, 0))).unwrap_or_default();
    run.say(format!("{}{next}", named(&hit, hit.displacement)));
    if hit.displacement == 0 {
        run.say("Exact matches:");
        run.say(format!("    {}", hit.qualified()));
    }
    Ok(())
}
