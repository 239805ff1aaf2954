//! The rules a parsed batch must pass before the session is touched (spec 20 section 2.4).

use std::collections::BTreeSet;

use crate::budget::FLOOR_MS;
use crate::capture::{LONGEST_NAME, Piece, is_name, pieces, texts};
use crate::step::{Batch, Check, CheckKind, Op, Restore, Step};

const VERDICTS: [&str; 4] = ["hit", "stopped_elsewhere", "timeout", "target_gone"];

/// The bytes of a hex field.
///
/// # Errors
/// Why it is none.
pub(crate) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let digits: Option<Vec<u8>> = text.bytes().map(digit).collect();
    let Some(digits) = digits else {
        return Err("must be hex digits without separators, in memory order".to_owned());
    };
    if digits.is_empty() || digits.len() % 2 != 0 {
        return Err(format!("has {} hex digits; two make a byte", digits.len()));
    }
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4) | pair[1]).collect())
}

/// Everything that is wrong with `batch`.
pub(crate) fn problems(batch: &Batch) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(given) = batch.timeout_ms.filter(|given| *given < 2 * FLOOR_MS) {
        found.push(format!(
            "timeout_ms is {given}; it must be at least {}: half of it is kept for the cleanup, and a step is given \
             no less than {FLOOR_MS} ms, which would spend that",
            2 * FLOOR_MS
        ));
    }
    let mut bound: BTreeSet<&str> = BTreeSet::new();
    let blocks = [("steps", &batch.steps), ("always", &batch.always)];
    for (block, steps) in blocks {
        for (index, step) in steps.iter().enumerate() {
            let place = format!("{block}, step {} ({})", index + 1, step.op.name());
            own_rules(step, block, &place, &mut found);
            references(step, &bound, &place, &mut found);
            if let Some(name) = &step.capture {
                if !is_name(name) {
                    found.push(format!(
                        "{place}: capture {name:?} is no name: letters, digits and _, no digit first, at most \
                         {LONGEST_NAME}"
                    ));
                } else if !bound.insert(name) {
                    found.push(format!("{place}: capture {name} is bound by an earlier step already"));
                }
            }
        }
    }
    found
}

fn own_rules(step: &Step, block: &str, place: &str, found: &mut Vec<String>) {
    for (field, text) in [("command", &step.command), ("address", &step.address), ("expr", &step.expr)] {
        if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
            found.push(format!("{place}: {field} must not be blank"));
        }
    }
    if step.command.as_ref().is_some_and(|text| text.contains('\0')) {
        found.push(format!("{place}: command must not contain NUL"));
    }
    // Raw commands are exempt: chaining is what they are for.
    for (field, text) in [("address", &step.address), ("expr", &step.expr)] {
        guard(place, field, text.as_deref(), found);
    }
    if let (Op::ReadMemory, Some(address)) = (step.op, &step.address)
        && let Err(error @ expression::AddressError::Ambiguous { .. }) = expression::parse_address(address)
    {
        found.push(format!("{place}: address: {error}"));
    }
    if let Some(Err(why)) = step.bytes.as_deref().map(hex) {
        found.push(format!("{place}: bytes {why}"));
    }
    if block == "always" && step.restore.is_some_and(|restore| restore != Restore::Never) {
        found.push(format!("{place}: restore belongs to steps; what always writes is the cleanup and stays"));
    }
    for (index, check) in step.expect.iter().enumerate() {
        check_rules(check, step.op, &format!("{place}, check {} ({})", index + 1, check.check.name()), found);
    }
}

fn check_rules(check: &Check, op: Op, place: &str, found: &mut Vec<String>) {
    let equals = check.equals.as_deref();
    match check.check {
        CheckKind::Contains | CheckKind::NotContains => {
            if check.text.as_ref().is_some_and(String::is_empty) {
                found.push(format!("{place}: text must not be empty"));
            }
        }
        CheckKind::Eval => {
            guard(place, "expr", check.expr.as_deref(), found);
            guard(place, "equals", equals, found);
            for (field, text) in [("expr", check.expr.as_deref()), ("equals", equals)] {
                if text.is_some_and(|text| text.trim().is_empty()) {
                    found.push(format!("{place}: {field} must not be blank"));
                }
            }
        }
        CheckKind::Verdict if op != Op::RunTo => {
            found.push(format!("{place}: only run_to has a verdict, this step is {}", op.name()));
        }
        CheckKind::Verdict => {
            if equals.is_some_and(|word| !VERDICTS.contains(&word)) {
                found.push(format!("{place}: equals must be one of {}", VERDICTS.join(", ")));
            }
        }
        CheckKind::Bytes if op != Op::ReadMemory => {
            found.push(format!("{place}: only read_memory has bytes, this step is {}", op.name()));
        }
        CheckKind::Bytes => {
            if let Some(Err(why)) = equals.map(hex) {
                found.push(format!("{place}: equals {why}"));
            }
        }
    }
}

fn guard(place: &str, field: &str, text: Option<&str>, found: &mut Vec<String>) {
    if let Some(Err(error)) = text.map(|text| expression::guard(text, field)) {
        found.push(format!("{place}: {error}"));
    }
}

fn references(step: &Step, bound: &BTreeSet<&str>, place: &str, found: &mut Vec<String>) {
    let scope = || match bound.is_empty() {
        true => "no step before it captures anything".to_owned(),
        false => format!("captured before it: {}", bound.iter().copied().collect::<Vec<_>>().join(", ")),
    };
    for (field, text) in texts(step) {
        for piece in pieces(text) {
            match piece {
                Piece::Reference(name) if !bound.contains(name) => {
                    found.push(format!("{place}: {field} names {{{{{name}}}}}; {}", scope()));
                }
                Piece::Malformed(text) => {
                    let shown: String = text.chars().take(40).collect();
                    found.push(format!(
                        "{place}: {field} holds {shown:?}: two opening braces begin a reference to a capture, as in \
                         {{{{name}}}}; {}. Put a blank between braces that are meant as such",
                        scope()
                    ));
                }
                Piece::Text(_) | Piece::Reference(_) => {}
            }
        }
    }
}
